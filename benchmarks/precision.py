"""Does a run come out the same in bf16, compiled, deterministic? And how fast is each?

The paper's method on PACS, the same seed and the same episodes every time, on a GPU:

    python benchmarks/precision.py --weights FILE --json results/precision.json

Compared with a run in 32 bits that is not compiled: the loss, averaged over 100 steps at a time,
and the source validation at the end. The same run again shows how far two such runs are apart
anyway, because a GPU adds numbers in another order each time.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from measuring import about, chosen_device, write

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.presets import preset
from bayesdg.records import StepRecord
from bayesdg.settings import Settings
from bayesdg.training.train import train

CASES: dict[str, dict[str, object]] = {
    "32": {},
    "32, again": {},
    "32, compiled": {"engine.compile": True},
    "bf16": {"training.precision": "bf16"},
    "bf16, compiled": {"training.precision": "bf16", "engine.compile": True},
    "32, deterministic": {"engine.deterministic": True},
    "32, deterministic, again": {"engine.deterministic": True},
}


def measured(dataset: DomainDataset, settings: Settings, target: str) -> dict[str, object]:
    """Losses, speed and memory of one run."""
    if settings.engine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    run = train(dataset, settings, [target])
    steps = [record for record in run.records if isinstance(record, StepRecord)]
    losses = [record.loss or 0.0 for record in steps]
    late = [r.steps_per_second for r in steps[len(steps) // 2 :] if r.source_val is None]
    weights = sum(float(w.double().sum()) for w in run.learner.state_dict().values())
    return {
        "losses": losses,
        "by_100_steps": [statistics.mean(losses[i : i + 10]) for i in range(0, len(losses), 10)],
        "val_accuracy": steps[-1].val_accuracy,
        "steps_per_second": statistics.median(speed for speed in late if speed),
        "memory_gb": steps[-1].memory_gb,
        "sum_of_weights": weights,
    }


def main() -> None:
    """Print a table; write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--target", default="sketch")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = chosen_device(arguments.device)
    dataset = load_dataset("pacs")
    base = preset("default", "bil").replace(
        {
            "model.weights": arguments.weights,
            "training.steps": arguments.steps,
            "training.evaluate_every": arguments.steps,
            "engine.device": device.type,
        }
    )
    rows = {}
    for name, changes in CASES.items():
        rows[name] = row = measured(dataset, base.replace(changes), arguments.target)
        apart = [
            a / b - 1
            for a, b in zip(row["by_100_steps"], rows["32"]["by_100_steps"], strict=True)  # type: ignore[call-overload]
        ]
        print(
            f"{name:28}{row['steps_per_second']:8.2f} step/s{row['memory_gb']:8.1f} GB"
            f"  val {100 * row['val_accuracy']:.1f}%  loss by 100 steps apart by "  # type: ignore[operator]
            + ", ".join(f"{100 * value:+.2f}%" for value in apart),
            flush=True,
        )
    if arguments.json:
        command = f"python benchmarks/precision.py --weights FILE --target {arguments.target}"
        command += f" --steps {arguments.steps}"
        content = {**about(command, device), "weights": arguments.weights.name, "rows": rows}
        write(arguments.json, content)


if __name__ == "__main__":
    main()
