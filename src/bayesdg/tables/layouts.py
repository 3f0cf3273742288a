"""Which run goes into which row and column: one function per layout of the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bayesdg.tables.entries import Entry
from bayesdg.tables.measures import measure
from bayesdg.tables.readings import Reading, Role

MEAN = "mean"


@dataclass(frozen=True)
class Column:
    """Heads a column.

    Attributes:
        dataset: The data set.
        target: The unseen domain; 'mean' for an average over domains, 'in-distribution' for the
            test images of the sources.
        metric: What is shown.
        label: For people.
    """

    dataset: str
    target: str
    metric: str
    label: str


@dataclass(frozen=True)
class Line:
    """Begins a row.

    Attributes:
        method: Its name.
        preset: Its name.
        what: What else the row is about.
    """

    method: str
    preset: str
    what: str = ""


@dataclass(frozen=True)
class Point:
    """One seed's number in one cell, or why there is none; and the runs it comes from."""

    line: Line
    column: Column
    seed: int
    entries: tuple[Entry, ...]
    draws: int
    value: float | str


def by_target(entry: Entry, reading: Reading, metrics: Sequence[str]) -> Iterator[Point]:
    """Unseen domains in columns (Tables 1 to 5); a mean is added later."""
    target = "+".join(entry.targets)
    column = Column(entry.dataset, target, metrics[0], target)
    yield _point(entry, reading, column, reading.mean(metrics[0]))


def in_and_out(entry: Entry, reading: Reading, metrics: Sequence[str]) -> Iterator[Point]:
    """Angles that were trained on, and others (Table 6)."""
    roles: tuple[tuple[Role, str, str], ...] = (
        ("source", "in-distribution", "in"),
        ("target", MEAN, "out"),
    )
    for role, target, word in roles:
        column = Column(entry.dataset, target, metrics[0], f"{entry.dataset} {word}")
        yield _point(entry, reading, column, reading.mean(metrics[0], role))


def by_metric(entry: Entry, reading: Reading, metrics: Sequence[str]) -> Iterator[Point]:
    """Several metrics, each averaged over the unseen domains of all runs."""
    for metric in metrics:
        label = measure(metric).label
        column = Column(entry.dataset, "+".join(entry.targets), metric, label)
        yield _point(entry, reading, column, reading.mean(metric))


def by_variant(entry: Entry, reading: Reading, metrics: Sequence[str]) -> Iterator[Point]:
    """A setting at several values, on unseen images and on validation images (figure C)."""
    name = "+".join(entry.targets)
    column = Column(entry.dataset, name, metrics[0], entry.variant)
    roles: tuple[tuple[Role, str], ...] = (("target", "unseen"), ("val", "source validation"))
    for role, what in roles:
        yield _point(entry, reading, column, reading.mean(metrics[0], role), what)


def by_draws(entry: Entry, reading: Reading, metrics: Sequence[str]) -> Iterator[Point]:
    """Numbers of draws at test time in columns."""
    for metric in metrics:
        for draws in entry.test_draws:
            label = f"{draws} draws" if draws else "mean weights"
            column = Column(entry.dataset, "+".join(entry.targets), metric, label)
            yield _point(entry, reading, column, reading.under(draws, metric))


def _by_dataset(point: Point) -> str:
    return point.column.dataset


def _by_metric(point: Point) -> str:
    return f"{point.column.dataset}, {measure(point.column.metric).label}"


def _by_setting(point: Point) -> str:
    """Of a variant that is called by its setting and the value, such as 'pi 0.5': the setting."""
    setting, _, value = point.entries[0].variant.rpartition(" ")
    try:
        float(value)
    except ValueError:
        return ""  # a name of words: all of those stand in one table
    return setting


@dataclass(frozen=True)
class Layout:
    """How points make tables.

    Attributes:
        points: Of a run.
        mean: Over unseen domains: beside them, instead of them, or none.
        compare: Whether rows are compared with the baseline; in the mean, if it is beside.
        heading: What a table is about; one table for each.
    """

    points: Callable[[Entry, Reading, Sequence[str]], Iterator[Point]]
    mean: Literal["beside", "instead", "none"]
    compare: bool = True
    heading: Callable[[Point], str] = _by_dataset


LAYOUTS = {
    "targets": Layout(by_target, "beside"),
    "in-and-out": Layout(in_and_out, "none", heading=lambda point: ""),
    "metrics": Layout(by_metric, "instead"),
    "variants": Layout(by_variant, "instead", compare=False, heading=_by_setting),
    "draws": Layout(by_draws, "instead", compare=False, heading=_by_metric),
}
# What is shown where nobody asked for a metric, by layout or plan.
METRICS = {
    "draws": ("accuracy", "ece", "milliseconds"),
    "uncertainty": (
        "accuracy", "nll", "ece", "aurc", "errors_auroc", "domain_auroc", "milliseconds",
    ),
}  # fmt: skip


def layout_of(entries: Iterable[Entry], metrics: Sequence[str]) -> str:
    """Which layout fits."""
    entries = list(entries)
    if any(entry.measures == "cost" for entry in entries):
        return "cost"
    if any(len(entry.test_draws) > 1 for entry in entries):
        return "draws"
    if len({entry.variant for entry in entries}) > 1:
        return "variants"
    if len(metrics) > 1:
        return "metrics"
    rotated = all(entry.dataset.startswith("rotated-") for entry in entries)
    # Where angles are unseen one by one, they are domains like others.
    together = len({entry.targets for entry in entries}) == 1
    return "in-and-out" if rotated and together else "targets"


def _point(
    entry: Entry, reading: Reading, column: Column, value: float | str, what: str = ""
) -> Point:
    line = Line(entry.method, entry.preset, what)
    return Point(line, column, entry.seed, (entry,), reading.draws, value)
