"""The quickstart's training from two checkouts in turns: the time of each, and whether bits agree.

    python benchmarks/before_after.py ANOTHER_CHECKOUT --json results/speed/quickstart-cpu.json

Both methods of the quickstart on one thread, in a process of its own each time. The seconds are
those of the processor, so that what else the machine does counts for little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from measuring import about, write

HERE = Path(__file__).parents[1]
WORK = """
import hashlib, json, sys, time
import torch
from bayesdg.data import load_dataset
try:
    from bayesdg.presets import small_images
except ImportError:  # an older checkout
    from bayesdg.quickstart import quickstart_settings as small_images
from bayesdg.training.state import to_bytes
from bayesdg.training.train import train
torch.set_num_threads(1)
dataset, found = load_dataset("rotated-digits"), {}
for method in ("erm", "bil"):
    settings = small_images(method=method).replace({"training.steps": int(sys.argv[1])})
    start = time.process_time()
    run = train(dataset, settings)
    seconds = time.process_time() - start
    weights = hashlib.sha256(to_bytes(run.learner.state_dict())).hexdigest()
    found[method] = {"seconds": seconds, "weights": weights}
print(json.dumps(found))
"""


def trained(checkout: Path, steps: int) -> dict[str, dict[str, object]]:
    """Seconds and weights by method."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(steps)],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """In turns, so that both meet the same machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sides = {"before": arguments.before, "after": HERE}
    rounds: list[dict[str, dict[str, dict[str, object]]]] = []
    for number in range(arguments.rounds):
        order = list(sides)[:: 1 if number % 2 == 0 else -1]
        rounds.append({side: trained(sides[side], arguments.steps) for side in order})
    torch.set_num_threads(1)
    results: dict[str, object] = {}
    for method in ("erm", "bil"):
        seconds = {side: [float(r[side][method]["seconds"]) for r in rounds] for side in sides}  # type: ignore[arg-type]
        weights = {str(r[side][method]["weights"]) for r in rounds for side in sides}
        ratios = [after / before for before, after in zip(*seconds.values(), strict=True)]
        results[method] = {
            "before_seconds": seconds["before"],
            "after_seconds": seconds["after"],
            "ratio": round(statistics.median(ratios), 3),
            "same_bits": len(weights) == 1,
        }
        print(
            f"{method:6}{statistics.median(ratios):.3f} of the time before "
            f"({min(ratios):.3f} to {max(ratios):.3f}), "
            f"{'the same' if len(weights) == 1 else 'OTHER'} bits",
            flush=True,
        )
    if arguments.json:
        command = f"python benchmarks/before_after.py ANOTHER_CHECKOUT --steps {arguments.steps}"
        write(arguments.json, {**about(command, torch.device("cpu")), **results})


if __name__ == "__main__":
    main()
