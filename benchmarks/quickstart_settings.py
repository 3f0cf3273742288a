"""How the quickstart's settings were chosen: on source domains alone.

Training sees 30, 45 and 60 degrees; what is compared is accuracy, NLL and ECE on the validation
images at 15 and 75 degrees, which stand for the unseen angles. 0 and 90 degrees are not touched.

    python benchmarks/quickstart_settings.py --out results/quickstart-settings.json
    python benchmarks/quickstart_settings.py --table results/quickstart-settings.json

The second prints the table of docs/results.md. With --dataset the same is asked on another rotated
set, where the question is how long and at what rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measuring import about, write

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.presets import small_images
from bayesdg.training.judge import validate
from bayesdg.training.train import train

SOURCES, HELD_OUT = ("30", "45", "60"), ("15", "75")
# What went before: the log of the mean probability, and the KL of psi not tempered.
BEFORE = {"objective.likelihood": "marginal", "objective.kl_psi": 1.0, "objective.kl_phi": 0.01}
CANDIDATES: list[tuple[str, dict[str, object]]] = [
    ("bil", {}),
    ("erm", {}),
    ("bil", {"training.learning_rate": 3e-3}),
    ("bil", {"training.learning_rate": 3e-2}),
    ("bil", BEFORE),
    ("bil", {"objective.likelihood": "marginal"}),
    ("bil", {"objective.kl_psi": 1.0, "objective.kl_phi": 0.01}),
    ("bil", {"objective.kl_psi": 0.01, "objective.kl_phi": 1e-4}),
    ("bil", {"objective.lambda_psi": 3.0, "objective.lambda_phi": 3.0}),
    ("bil", {"objective.lambda_psi": 0.3, "objective.lambda_phi": 0.3}),
    ("bil", {"training.average_from": 0.5}),
    ("bil", {"model.style_mixing": 0.5}),
    ("bil", {"model.rho": -3.5}),
    ("bil", {"model.batch_norm": "grouped"}),
    ("bil", {"training.schedule": "constant"}),
    ("bil", {"episode.per_class": 8}),
    ("erm", {"training.learning_rate": 3e-3}),
    ("erm", {"training.learning_rate": 3e-2}),
    ("erm", {"training.average_from": 0.5}),
    ("erm", {"model.style_mixing": 0.5}),
    ("erm", {"training.schedule": "constant"}),
    ("erm", {"episode.batch_size": 208}),
    ("erm", {"model.equal_depth": False}),
    ("erm", {"episode.without_invariance": "single-domain"}),
]
LONGER = {"training.steps": 1000, "training.evaluate_every": 100}
RATES: list[tuple[str, dict[str, object]]] = [
    (method, {"training.learning_rate": rate, **length})
    for method in ("bil", "erm")
    for length in ({}, LONGER)
    for rate in (3e-3, 1e-2)
]
MEASURES = ("accuracy", "nll", "ece")
Row = Mapping[str, Any]


def judged(
    dataset: DomainDataset, method: str, changes: dict[str, object], seed: int
) -> dict[str, dict[str, float]]:
    """Means over domains of the selected weights on validation images: sources, held-out ones."""
    settings = small_images("default", method, seed).replace(changes)
    seen = {name: dataset.domains[name] for name in (*SOURCES, *HELD_OUT)}
    run = train(replace(dataset, domains=seen, targets=HELD_OUT), settings)

    def means(names: tuple[str, ...]) -> dict[str, float]:
        val = {name: seen[name].val for name in names}
        found = validate(run.learner, val, settings.prediction.draws) or {}
        return {m: statistics.mean(metrics[m] for metrics in found.values()) for m in MEASURES}

    return {"source_val": means(SOURCES), "held_out": means(HELD_OUT)}


def main() -> None:
    """Print a line of the table per candidate; write all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="a file of these figures, to be shown")
    parser.add_argument("--dataset", default="rotated-digits")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text(encoding="utf-8"))["rows"]))
        return
    torch.set_num_threads(1)  # as the quickstart does
    dataset = load_dataset(arguments.dataset)
    digits = arguments.dataset == "rotated-digits"
    options = "" if digits else f" --dataset {arguments.dataset} --seeds {arguments.seeds}"
    command = f"python benchmarks/quickstart_settings.py{options} --out {arguments.out}"
    head = about(command, torch.device("cpu")) | {"trained_on": SOURCES, "compared_on": HELD_OUT}
    rows: list[Row] = []
    print(HEADING)
    for method, changes in CANDIDATES if digits else RATES:
        seeds = [judged(dataset, method, changes, seed) for seed in range(arguments.seeds)]
        rows.append({"method": method, "changes": changes, "seeds": seeds})
        print(line(rows[-1]), flush=True)
        if arguments.out:
            write(arguments.out, {**head, "rows": rows})


HEADING = """| method | change | source validation | held out | NLL held out | ECE held out |
|---|---|---|---|---|---|"""


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    return "\n".join([HEADING, *map(line, rows)])


def line(row: Row) -> str:
    """What a candidate came to, over seeds."""

    def over_seeds(part: str, measure: str) -> list[float]:
        return [seed[part][measure] for seed in row["seeds"]]

    changes = ", ".join(f"`{name} = {value}`" for name, value in row["changes"].items())
    held_out = over_seeds("held_out", "accuracy")
    cells = [
        row["method"],
        changes or "as shipped",
        f"{100 * statistics.mean(over_seeds('source_val', 'accuracy')):.1f}",
        f"{100 * statistics.mean(held_out):.1f} ± {100 * statistics.stdev(held_out):.1f}",
        f"{statistics.mean(over_seeds('held_out', 'nll')):.3f}",
        f"{100 * statistics.mean(over_seeds('held_out', 'ece')):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
