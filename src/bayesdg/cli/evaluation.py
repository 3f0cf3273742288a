"""Tables of an evaluation in the terminal, none wider than 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.terminal import console
from bayesdg.evaluate.statistics import explanation, mark
from bayesdg.records import TRAINED

if TYPE_CHECKING:
    from bayesdg.evaluate.bootstrap import Interval
    from bayesdg.records import DetectionRecord, ResultRecord

# Heading, metric, what it is multiplied by, digits.
Column = tuple[str, str, float, int]
ANSWERS: tuple[Column, ...] = (
    ("acc %", "accuracy", 100, 1), ("macro %", "macro_accuracy", 100, 1),
    ("conf %", "confidence", 100, 1), ("NLL", "nll", 1, 3), ("Brier", "brier", 1, 3),
)  # fmt: skip
TRUST: tuple[Column, ...] = (
    ("ECE", "ece", 100, 1), ("mass", "ece_mass", 100, 1), ("class", "classwise_ece", 100, 1),
    ("max", "mce", 100, 1), ("AURC", "aurc", 100, 2), ("cover", "coverage_at_5", 100, 1),
    ("risk", "risk_at_90", 100, 1),
)  # fmt: skip
AFTER: tuple[Column, ...] = (
    ("NLL", "nll", 1, 3), ("Brier", "brier", 1, 3), ("ECE", "ece", 100, 1),
    ("in set", "set_coverage", 100, 1), ("size", "set_size", 1, 2),
    ("accept", "accepted", 100, 1), ("wrong", "accepted_risk", 100, 1),
)  # fmt: skip
TASKS = ("errors", "domain", "unknown")
SCORES = {
    "max_probability": "max p", "entropy": "entropy", "mutual_information": "mut.inf",
    "energy": "energy", "density": "density",
}  # fmt: skip


def print_evaluation(
    results: Sequence[ResultRecord], detections: Sequence[DetectionRecord]
) -> None:
    """Everything but the intervals."""
    first = results[0]
    how = f"{first.draws} draws" if first.draws else "mean weights"
    about, end = explanation(first.statistics), _marked(first.statistics)
    if about:
        console.print(f"{about}\n", style="bold", highlight=False)
    title = f"{first.method}, weights of step {first.step}, {how}"
    _print_metrics(f"{title}{end}", results, ANSWERS)
    worst = worst_domain(results)
    parts = {result.role: "validation" if result.part == "val" else "test" for result in results}
    console.print(
        f"worst domain: {escape(worst[0])}, {100 * worst[1]:.1f}%; "
        + ", ".join(f"{role}s on {part} images" for role, part in parts.items())
        + "\n",
        highlight=False,
    )
    _print_metrics(f"calibration and rejection, in %{end}", results, TRUST)
    console.print(
        "calibration error in bins of equal width or mass, by class, in the worst bin;\n"
        "cover: accepted with at most 5% errors; risk: errors among the surest 90%\n",
        style="dim",
    )
    if first.recalibrated:
        _print_metrics(
            "recalibrated on source validation", results, AFTER, lambda r: r.recalibrated or {}
        )
        console.print(
            "ECE in %; % of sets that hold the right class, and their size;\n"
            "% accepted, and % of those that are wrong\n",
            style="dim",
        )
    for metric, heading in (("auroc", "AUROC"), ("aupr", "AUPR"), ("fpr95", "FPR95")):
        _print_detections(f"detection, {heading} in %{end}", detections, metric)
    console.print(
        "errors: wrong from right answers; domain: its images from those of the sources;\n"
        "unknown: images of no class that was trained on from others",
        style="dim",
    )


def print_intervals(
    intervals: Mapping[str, Mapping[str, Interval]], statistics: str = TRAINED
) -> None:
    """95% bootstrap intervals of the most important metrics, by domain."""
    shown = {name: (heading, scale, digits) for heading, name, scale, digits in (*ANSWERS, *TRUST)}
    names = ("accuracy", "nll", "ece", "aurc")
    title = f"95% bootstrap intervals{_marked(statistics)}"
    table = _table(title, ["domain"], [shown[name][0] for name in names])
    for domain, found in intervals.items():
        cells = []
        for name in names:
            _, scale, digits = shown[name]
            ends = (f"{scale * end:.{digits}f}" for end in (found[name].low, found[name].high))
            cells.append(" to ".join(ends))
        table.add_row(escape(domain), *cells)
    console.print(table)


def _marked(statistics: str) -> str:
    """At the end of every title: a table may be looked at alone."""
    title = mark(statistics)
    return f", {title}" if title else ""


def worst_domain(results: Iterable[ResultRecord]) -> tuple[str, float]:
    """Of all domains, seen or not, the one with the lowest accuracy."""
    from bayesdg.evaluate.metrics import worst

    return worst({result.domain: result.metrics["accuracy"] for result in results})


def _print_metrics(
    title: str,
    results: Sequence[ResultRecord],
    columns: Sequence[Column],
    of: Callable[[ResultRecord], Mapping[str, float]] = lambda result: result.metrics,
) -> None:
    """A row per domain, and the means in and out of distribution."""
    known = {name for result in results for name in of(result)}
    found = [column for column in columns if column[1] in known]
    table = _table(title, ["domain", "role"], [heading for heading, *_ in found])
    for role, place in (("source", "in"), ("target", "out")):
        own = [of(result) for result in results if result.role == role]
        names = [escape(result.domain) for result in results if result.role == role]
        for name, metrics in zip(names, own, strict=True):
            cells = [_cell(metrics.get(metric), *form) for _, metric, *form in found]
            table.add_row(name, role, *cells, style="bold" if role == "target" else "")
        if len(own) > 1:
            cells = [_cell(_mean(own, metric), *form) for _, metric, *form in found]
            table.add_row("mean", place, *cells, style="dim")
    console.print(table)


def _print_detections(title: str, detections: Sequence[DetectionRecord], metric: str) -> None:
    rows: dict[tuple[str, str], dict[str, DetectionRecord]] = {}
    for found in detections:
        rows.setdefault((found.task, found.domain), {})[found.score] = found
    if not rows:
        return
    table = _table(title, ["what", "where"], list(SCORES.values()))
    for task in TASKS:
        for (own, domain), by_score in rows.items():
            if own != task:
                continue
            values = [
                by_score[name].metrics[metric] if name in by_score else None for name in SCORES
            ]
            table.add_row(task, escape(domain), *(_cell(value, 100, 1) for value in values))
    console.print(table)


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in left:
        # What does not fit is cut; --json has all.
        table.add_column(heading, no_wrap=True, max_width=20)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _mean(found: Sequence[Mapping[str, float]], metric: str) -> float | None:
    numbers = [metrics[metric] for metrics in found if metric in metrics]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _cell(value: float | None, scale: float, digits: float) -> str:
    return "none" if value is None else f"{value * scale:.{digits:.0f}f}"
