"""Rotated MNIST and Fashion-MNIST: what do methods know about what they do not know?

Trained on 15 to 75 degrees with the small CNN, as long and at the rate that are best for a method
on source domains of MNIST that were left out (benchmarks/quickstart_settings.py --dataset
rotated-mnist); tested at the same angles, at 0 and at 90 degrees, and against the other data set
at 15 to 75 degrees. Calibrated on source validation.

    python benchmarks/uncertainty.py rotated-mnist --out results/uncertainty/rotated-mnist.json
    python benchmarks/uncertainty.py --table results/uncertainty/rotated-mnist.json

The second prints the tables of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import about, write

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.data.elsewhere import images_elsewhere
from bayesdg.presets import small_images
from bayesdg.tables import Cell
from bayesdg.training.train import train

OTHER = {"rotated-mnist": "rotated-fashion-mnist", "rotated-fashion-mnist": "rotated-mnist"}
METHODS = ("erm", "bil", "laplace", "dropout")
LENGTH = {"training.steps": 1000, "training.evaluate_every": 100}
# Each method at the rate that is better for it; what is made of erm at that of erm.
RATES = {"bil": 3e-3} | dict.fromkeys(("erm", "laplace", "dropout"), 1e-2)
# Where, and how a row of a table is called.
PLACES = {"15 to 75": ("15", "30", "45", "60", "75"), "0": ("0",), "90": ("90",)}
Row = Mapping[str, Any]


def judged(dataset: DomainDataset, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """One run, trained or found, calibrated and evaluated: everything in its records."""
    settings = small_images("default", method, seed).replace(
        {**LENGTH, "training.learning_rate": RATES[method]}
    )
    run = train(dataset, settings, out=runs)
    fit = run.calibrate(dataset, conformal=0.9, coverage=0.9)
    other = OTHER[dataset.name]
    images, _ = images_elsewhere(other, run.frame, run.settings.data, domains=run.task.sources)
    results = run.evaluate(dataset, others={other: images})
    detections: dict[str, dict[str, dict[str, float]]] = {}
    for found in run.detections:
        if found.draws == results[0].draws:
            place = detections.setdefault(f"{found.task} {found.domain}", {})
            place[found.score] = _rounded(found.metrics)
    return {
        "dataset": dataset.name,
        "method": method,
        "seed": seed,
        "draws": results[0].draws,
        "step": results[0].step,
        "recalibration": fit.model_dump(mode="json"),
        "domains": {
            result.domain: {
                "images": result.num_images,
                "metrics": _rounded(result.metrics),
                "recalibrated": _rounded(result.recalibrated or {}),
            }
            for result in results
        },
        "detections": detections,
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def tables(rows: Sequence[Row]) -> str:
    """Three Markdown tables of one data set."""
    (dataset,) = {row["dataset"] for row in rows}
    return "\n".join(make(dataset, rows) for make in (_answers, _detection, _recalibrated))


def _answers(dataset: str, rows: Sequence[Row]) -> str:
    columns = (
        ("accuracy %", "accuracy", 100, 1), ("confidence %", "confidence", 100, 1),
        ("NLL", "nll", 1, 3), ("ECE %", "ece", 100, 1), ("AURC %", "aurc", 100, 2),
    )  # fmt: skip
    lines = _head(dataset, ["degrees", "method", *(heading for heading, *_ in columns)])
    for place, domains in PLACES.items():
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = [
                _cell(rows, method, _mean_of(domains, "metrics", name), scale, digits)
                for _, name, scale, digits in columns
            ]
            lines.append(_line([place, method, *cells]))
    return "\n".join(lines) + "\n"


def _detection(dataset: str, rows: Sequence[Row]) -> str:
    scores = (
        ("largest probability", "max_probability"), ("entropy", "entropy"),
        ("mutual information", "mutual_information"), ("energy", "energy"),
        ("feature density", "density"),
    )  # fmt: skip
    tasks = {
        "errors at 0": "errors 0", "errors at 90": "errors 90",
        "images at 0": "domain 0", "images at 90": "domain 90",
        OTHER[dataset]: f"unknown {OTHER[dataset]}",
    }  # fmt: skip
    lines = _head(f"{dataset}, AUROC in %", ["what", "method", *(heading for heading, _ in scores)])
    for name, task in tasks.items():
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = [_cell(rows, method, _auroc(task, score), 100, 1) for _, score in scores]
            lines.append(_line([name, method, *cells]))
    return "\n".join(lines) + "\n"


def _recalibrated(dataset: str, rows: Sequence[Row]) -> str:
    columns = (
        ("NLL", "nll", 1, 3), ("ECE %", "ece", 100, 1), ("in set %", "set_coverage", 100, 1),
        ("set size", "set_size", 1, 2), ("accepted %", "accepted", 100, 1),
        ("of these wrong %", "accepted_risk", 100, 1),
    )  # fmt: skip
    lines = _head(
        f"{dataset}, recalibrated on source validation",
        ["degrees", "method", "temperature", *(heading for heading, *_ in columns)],
    )
    for place, domains in PLACES.items():
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = [_cell(rows, method, lambda r: r["recalibration"]["temperature"], 1, 2)]
            cells += [
                _cell(rows, method, _mean_of(domains, "recalibrated", name), scale, digits)
                for _, name, scale, digits in columns
            ]
            lines.append(_line([place, method, *cells]))
    return "\n".join(lines) + "\n"


def _mean_of(domains: Sequence[str], kind: str, name: str) -> Callable[[Row], float]:
    return lambda row: math.fsum(row["domains"][d][kind][name] for d in domains) / len(domains)


def _auroc(task: str, score: str) -> Callable[[Row], float]:
    return lambda row: row["detections"][task][score]["auroc"]


def _cell(
    rows: Sequence[Row], method: str, of: Callable[[Row], float], scale: float, digits: int
) -> str:
    """Mean and standard deviation over seeds."""
    cell = Cell.of([of(row) for row in rows if row["method"] == method])
    spread = "" if cell.std is None else f" ± {scale * cell.std:.{digits}f}"
    return f"{scale * cell.mean:.{digits}f}{spread}"


def _head(title: str, columns: Sequence[str]) -> list[str]:
    return [f"**{title}**", "", _line(columns), _line(["---"] * len(columns))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Train what is not there, judge all, write JSON; or print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", choices=list(OTHER), default="rotated-mnist")
    parser.add_argument("--runs", type=Path, default=Path("runs/uncertainty"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--table", type=Path, help="a file of these figures, to be shown")
    arguments = parser.parse_args()
    if arguments.table:
        print(tables(json.loads(arguments.table.read_text(encoding="utf-8"))["rows"]), end="")
        return
    torch.set_num_threads(1)  # as the quickstart does
    command = f"python benchmarks/uncertainty.py {arguments.dataset} --out {arguments.out}"
    head = about(command, torch.device("cpu")) | {"settings": LENGTH, "rates": RATES}
    dataset = load_dataset(arguments.dataset)
    rows = []
    for method in arguments.methods:
        for seed in range(arguments.seeds):
            rows.append(judged(dataset, method, seed, arguments.runs))
            print(arguments.dataset, method, seed, "done", flush=True)
            if arguments.out:
                write(arguments.out, {**head, "rows": rows})
    print(tables(rows), end="")


if __name__ == "__main__":
    main()
