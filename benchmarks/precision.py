"""Does a run come out the same in bf16, compiled, deterministic? And how fast is each?

The paper's method on PACS, the same seed and the same episodes every time, on a GPU:

    python benchmarks/precision.py --weights FILE --json results/precision.json

Compared with a run in 32 bits that is not compiled: the loss, averaged over 100 steps at a time,
and the source validation at the end. The same run again shows how far two such runs are apart
anyway, because a GPU adds numbers in another order each time. Losses agree if none of these
averages is further apart than TOLERANCE; deterministic runs agree to the bit, one that was stopped
half way and gone on with from its checkpoint, too.

What would begin later than --seconds is not started; run again with --only for the rest, which is
added to the file.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measuring import about, chosen_device, write

from bayesdg.config import assignments
from bayesdg.data import DomainDataset, load_dataset
from bayesdg.errors import InterruptedRunError
from bayesdg.presets import preset
from bayesdg.records import Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.signals import Signals
from bayesdg.training.train import train

# Of the loss, averaged over 100 steps, in any precision.
TOLERANCE = 0.05
SAME_BITS = "32, deterministic"
CASES: dict[str, dict[str, object]] = {
    "32": {},
    "bf16": {"training.precision": "bf16"},
    "32, compiled": {"engine.compile": True},
    "bf16, compiled": {"training.precision": "bf16", "engine.compile": True},
    SAME_BITS: {"engine.deterministic": True},
    f"{SAME_BITS}, stopped half way": {"engine.deterministic": True},
    "32, again": {},
}


def measured(
    dataset: DomainDataset, settings: Settings, target: str, in_two_parts: bool
) -> dict[str, Any]:
    """Losses, speed and memory of one run."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    run = (stopped_half_way if in_two_parts else train)(dataset, settings, [target])
    steps = [record for record in run.records if isinstance(record, StepRecord)]
    losses = [math.nan if record.loss is None else record.loss for record in steps]
    speeds = [r.steps_per_second for r in steps if r.source_val is None and r.steps_per_second]
    weights = sum(float(w.double().sum()) for w in run.learner.state_dict().values())
    return {
        "losses": losses,
        "by_100_steps": [statistics.mean(losses[i : i + 10]) for i in range(0, len(losses), 10)],
        "val_accuracy": steps[-1].val_accuracy,
        # Compiling and trying algorithms are over after half of the steps.
        "steps_per_second": statistics.median(speeds[len(speeds) // 2 :] or [math.nan]),
        "memory_gb": steps[-1].memory_gb,
        "sum_of_weights": weights,
    }


def stopped_half_way(dataset: DomainDataset, settings: Settings, targets: list[str]) -> Run:
    """A run that saved and left in the middle, and went on from its checkpoint."""
    signals = Signals()

    def look(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step >= settings.training.steps // 2:
            signals.requested = True

    with tempfile.TemporaryDirectory() as folder:
        try:
            train(dataset, settings, targets, folder, look, signals)
        except InterruptedRunError:
            return train(dataset, settings, targets, folder)
    raise AssertionError("the run came to its end without being stopped")


def compared(name: str, row: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """How far the losses are from those in 32 bits; None where those were not measured."""
    found: dict[str, Any] = {"apart": None, "agrees": None}
    if "32" in rows:
        pairs = zip(row["by_100_steps"], rows["32"]["by_100_steps"], strict=True)
        found["apart"] = [ours / theirs - 1 for ours, theirs in pairs]
        found["agrees"] = all(abs(value) <= TOLERANCE for value in found["apart"])
    if name.startswith(SAME_BITS) and SAME_BITS in rows:
        same = ("losses", "sum_of_weights")
        found["same_bits"] = all(row[key] == rows[SAME_BITS][key] for key in same)
    return found


def line(name: str, row: dict[str, Any]) -> str:
    """Of the table."""
    text = f"{name:36}{row['steps_per_second']:8.2f} step/s{row['memory_gb']:8.1f} GB"
    text += f"  val {100 * row['val_accuracy']:.1f}%"
    if row["apart"] is not None:
        text += "  loss by 100 steps apart by "
        text += ", ".join(f"{100 * value:+.2f}%" for value in row["apart"])
        text += f": {'agrees' if row['agrees'] else 'TOO FAR'}"
    if "same_bits" in row:
        text += f", {'same bits' if row['same_bits'] else 'OTHER BITS'}"
    return text


def main() -> None:
    """Print rows as they come; keep them in the file as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--target", default="sketch")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", action="append", default=[], help="a setting, NAME=VALUE")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--seconds", type=float, default=440, help="start nothing after these")
    parser.add_argument("--json", type=Path, help="where to write the results, or add to them")
    arguments = parser.parse_args()
    device, begin = chosen_device(arguments.device), time.monotonic()
    wanted = [name for name in CASES if arguments.only in name]
    if not wanted:
        sys.exit(f"no case contains {arguments.only!r}; there are {'; '.join(CASES)}")
    base = preset("default", "bil").replace(
        {
            "model.weights": arguments.weights,
            "training.steps": arguments.steps,
            "training.evaluate_every": arguments.steps,
            "engine.device": device.type,
            **assignments(arguments.set),
        }
    )
    dataset = load_dataset("pacs", data=base.data)
    command = f"python benchmarks/precision.py --weights FILE --target {arguments.target}"
    command += f" --steps {arguments.steps}"
    command += "".join(f" --set {text}" for text in arguments.set)
    origin = {**about(command, device), "weights": arguments.weights.name, "tolerance": TOLERANCE}
    rows = stored(arguments.json, origin)
    for name in wanted:
        if time.monotonic() - begin > arguments.seconds:
            print(f"{name:36}not measured: out of time; --only {name!r}", flush=True)
            continue
        in_two_parts = name.endswith("stopped half way")
        row = measured(dataset, base.replace(CASES[name]), arguments.target, in_two_parts)
        rows[name] = row
        row |= compared(name, row, rows)
        print(line(name, row), flush=True)
        if arguments.json:
            write(arguments.json, {**origin, "rows": rows})


def stored(path: Path | None, origin: dict[str, object]) -> dict[str, Any]:
    """Rows of an earlier call; of the same command, so that no two are mixed."""
    if path is None or not path.exists():
        return {}
    before = json.loads(path.read_text(encoding="utf-8"))
    if any(before.get(key) != origin[key] for key in ("command", "machine", "torch", "weights")):
        sys.exit(f"{path} has results of another command or machine; give another --json")
    return dict(before["rows"])


if __name__ == "__main__":
    main()
