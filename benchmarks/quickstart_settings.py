"""How the quickstart's settings were chosen: on source domains alone.

Training sees 30, 45 and 60 degrees; what is compared is the accuracy on the validation images at
15 and 75 degrees, which stand for the unseen angles. 0 and 90 degrees are not touched.

    python benchmarks/quickstart_settings.py --out results/quickstart-settings.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.presets import small_images
from bayesdg.records import mean_accuracy
from bayesdg.training.judge import validate
from bayesdg.training.train import train

SOURCES, HELD_OUT = ("30", "45", "60"), ("15", "75")
CANDIDATES: list[tuple[str, dict[str, object]]] = [
    ("erm", {}),
    ("erm", {"training.learning_rate": 1e-3}),
    ("erm", {"training.learning_rate": 1e-2}),
    ("erm", {"training.schedule": "constant"}),
    ("erm", {"episode.batch_size": 208}),
    ("erm", {"model.equal_depth": False}),
    ("erm", {"episode.without_invariance": "single-domain"}),
    ("bil", {}),
    ("bil", {"training.learning_rate": 1e-3}),
    ("bil", {"training.learning_rate": 1e-2}),
    ("bil", {"training.schedule": "constant"}),
    ("bil", {"model.batch_norm": "grouped"}),
    ("bil", {"episode.per_class": 8}),
    ("bil", {"objective.lambda_psi": 3.0, "objective.lambda_phi": 3.0}),
    ("bil", {"objective.lambda_psi": 0.3, "objective.lambda_phi": 0.3}),
    ("bil", {"objective.kl_phi": 1.0}),
]


def held_out_accuracy(
    dataset: DomainDataset, method: str, changes: dict[str, object], seed: int
) -> tuple[float, float]:
    """Mean accuracy of the selected weights on validation images: sources, held-out sources."""
    settings = small_images("default", method, seed).replace(changes)
    seen = {name: dataset.domains[name] for name in (*SOURCES, *HELD_OUT)}
    run = train(replace(dataset, domains=seen, targets=HELD_OUT), settings)

    def accuracy(names: tuple[str, ...]) -> float:
        val = {name: seen[name].val for name in names}
        return mean_accuracy(validate(run.learner, val, settings.prediction.draws)) or 0.0

    return accuracy(SOURCES), accuracy(HELD_OUT)


def main() -> None:
    """Print one line per candidate; write all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as the quickstart does
    dataset = load_dataset("rotated-digits")
    rows = []
    print(f"{'method':8}{'change':58}{'source val':>12}{'held out':>18}")
    for method, changes in CANDIDATES:
        pairs = [held_out_accuracy(dataset, method, changes, s) for s in range(arguments.seeds)]
        source, held_out = zip(*pairs, strict=True)
        what = ", ".join(f"{key} {value}" for key, value in changes.items()) or "(as shipped)"
        mean, std = statistics.mean(held_out), statistics.stdev(held_out)
        print(f"{method:8}{what:58}{100 * statistics.mean(source):12.2f}"
              f"{100 * mean:12.2f} ± {100 * std:.2f}", flush=True)  # fmt: skip
        rows.append({"method": method, "changes": changes, "source_val": source,
                     "held_out": held_out})  # fmt: skip
    if arguments.out:
        about = {
            "command": "python benchmarks/quickstart_settings.py --out " + str(arguments.out),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"CPU, {torch.get_num_threads()} threads, {platform.machine()}",
            "torch": torch.__version__,
            "trained_on": SOURCES,
            "compared_on": HELD_OUT,
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
