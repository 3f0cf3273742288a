"""Points of single runs to a table: means over seeds, the best, what is missing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayesdg.config import difference
from bayesdg.errors import UsageError
from bayesdg.records import TRAINED
from bayesdg.tables.cells import Cell
from bayesdg.tables.compare import Comparison, compared
from bayesdg.tables.layouts import MEAN, Column, Line, Point
from bayesdg.tables.measures import measure
from bayesdg.tables.paper import Printed

Place = tuple[Line, Column]
MOST_MISSING = 20  # lines that tell of them


@dataclass(frozen=True)
class Table:
    """A table before it has a form.

    Attributes:
        title: What it shows.
        selection: The rule that chose.
        lines: Rows from above.
        columns: From the left.
        cells: What there is; a place without a cell is missing.
        best: Places that no other row beats, as printed.
        num_seeds: How many most cells have.
        missing: What is missing, a line each.
        comparisons: With the baseline.
        printed: The paper's figures for our rows.
        others: The paper's figures for methods of other papers, by name and column.
        ticks: Layers whose kinds are shown: Bayesian, invariant.
        notes: For people.
        marks: What the rule peeked at; they stand wherever the table does.
        statistics: Of batch norm, behind every figure; others than the trained are told likewise.
    """

    title: str
    selection: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    cells: Mapping[Place, Cell]
    best: frozenset[Place]
    num_seeds: int
    missing: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    printed: Mapping[Place, Printed] = field(default_factory=dict)
    others: Mapping[str, Mapping[Column, Printed]] = field(default_factory=dict)
    ticks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    statistics: str = TRAINED


def table_of(
    title: str,
    selection: str,
    points: Sequence[Point],
    compare: Sequence[Column],
    settings_vary: bool = False,
) -> Table:
    """The table of some points; a UsageError if a cell would mix runs with other settings.

    Args:
        title: What it shows.
        selection: The rule that chose.
        points: One per row, column and seed.
        compare: The columns in which rows are compared with the baseline.
        settings_vary: Whether a mean over domains may have other settings on each.
    """
    lines = tuple(dict.fromkeys(point.line for point in points))
    columns = tuple(dict.fromkeys(point.column for point in points))
    by_place: dict[Place, list[Point]] = defaultdict(list)
    for point in points:
        by_place[point.line, point.column].append(point)
    by_seed: dict[Place, dict[int, float]] = {}
    for place, found in by_place.items():
        if place[1].target != MEAN or not settings_vary:
            refuse_mixture(place, found)
        # A seed that is there twice has been refused, unless only one of the two has a number.
        numbers = {p.seed: p.value for p in found if isinstance(p.value, float)}
        if numbers:
            by_seed[place] = numbers
    cells = {place: Cell.of(list(numbers.values())) for place, numbers in by_seed.items()}
    counts = Counter(cell.num_seeds for cell in cells.values())
    return Table(
        title,
        selection,
        lines,
        columns,
        cells,
        frozenset(_best(lines, columns, cells)),
        max(counts, key=lambda num: (counts[num], num), default=0),
        _missing(lines, columns, by_place),
        tuple(compared(lines, compare, by_seed)),
    )


def refuse_mixture(place: Place, points: Iterable[Point]) -> None:
    """A UsageError if the runs of a cell differ in anything but the seed, or repeat one."""
    runs = {
        entry.run.path: (entry, point.draws)
        for point in points
        for entry in point.entries
        if entry.run is not None and isinstance(point.value, float)
    }
    if not runs:
        return
    line, column = place
    where = f"{line.method} on {column.dataset}, {column.label}"
    (first, draws), *others = runs.values()
    assert first.run is not None
    seeds = {(first.targets, first.seed): first.run}
    for entry, other_draws in others:
        assert entry.run is not None
        changes = difference(_settings(first.run.identity), _settings(entry.run.identity))
        if draws != other_draws:
            changes.append(f"draws at test time: {draws} -> {other_draws}")
        names = f"{first.run.path} and {entry.run.path}"
        if changes:
            raise UsageError(
                f"the cell {where} would mix settings: {'; '.join(changes)} ({names}); choose with "
                "--where NAME=VALUE, or give a folder with one kind of them"
            )
        again = seeds.setdefault((entry.targets, entry.seed), entry.run)
        if again is not entry.run:
            raise UsageError(
                f"seed {entry.seed} of {where} is there twice, as {again.path} and "
                f"{entry.run.path}; keep one, or give a folder with one of them"
            )


def averaged(points: Sequence[Point], label: str | None = None) -> list[Point]:
    """The mean over unseen domains of what differs in nothing else, seed by seed.

    It exists where every domain that is among the points has a number. Points of a single domain
    come back as they are.

    Args:
        points: With a domain each.
        label: Of the new column; that of the old ones by default.
    """
    targets = tuple(dict.fromkeys(p.column.target for p in points))
    if len(targets) < 2:
        return list(points)
    groups: dict[tuple[Any, ...], dict[str, Point]] = defaultdict(dict)
    for p in points:
        key = (p.line, p.column.metric, label or p.column.label, p.seed)
        groups[key][p.column.target] = p
    found = []
    for (line, metric, name, seed), by_target in groups.items():
        column = Column(points[0].column.dataset, MEAN, metric, name)
        values = {t: by_target[t].value if t in by_target else "no run" for t in targets}
        numbers = [value for value in values.values() if isinstance(value, float)]
        lacking = [f"{t}: {value}" for t, value in values.items() if isinstance(value, str)]
        value = "; ".join(lacking) if lacking else math.fsum(numbers) / len(numbers)
        entries = tuple(entry for p in by_target.values() for entry in p.entries)
        draws = max(p.draws for p in by_target.values())
        found.append(Point(line, column, seed, entries, draws, value))
    return found


def _settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != "seed"}


def _best(
    lines: Sequence[Line], columns: Sequence[Column], cells: Mapping[Place, Cell]
) -> Iterable[Place]:
    """Of rows that are about the same; equal as printed is equal."""
    for column in columns:
        shown = measure(column.metric)
        for what in dict.fromkeys(line.what for line in lines):
            same = [line for line in lines if line.what == what and (line, column) in cells]
            figures = {line: round(cells[line, column].mean * shown.scale, shown.digits)
                       for line in same}  # fmt: skip
            if len(figures) > 1 and shown.better is not None:
                best = (max if shown.better == "high" else min)(figures.values())
                yield from ((line, column) for line, value in figures.items() if value == best)


def _missing(
    lines: Sequence[Line], columns: Sequence[Column], by_place: Mapping[Place, Sequence[Point]]
) -> tuple[str, ...]:
    """Row, column and seeds of what is not there, with the reason."""
    seeds = sorted({point.seed for points in by_place.values() for point in points})
    reasons: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        for column in columns:
            if column.target == MEAN and any(_is_part(other, column) for other in columns):
                continue  # its parts are told of
            there = {point.seed: point.value for point in by_place.get((line, column), ())}
            for seed in seeds:
                value = there.get(seed, "no run")
                if isinstance(value, str):
                    label = " ".join(filter(None, [line.method, line.what]))
                    reasons[f"{label}, {column.label}", value].append(seed)
    told = [
        f"{where}: seed{'s' * (len(which) > 1)} {', '.join(map(str, which))}: {why}"
        for (where, why), which in reasons.items()
    ]
    more = len(told) - MOST_MISSING
    return (*told[:MOST_MISSING], *([f"and {more} more"] if more > 0 else []))


def _is_part(column: Column, mean: Column) -> bool:
    """Whether a column stands beside its mean."""
    averages = (MEAN, "in-distribution")
    return column.dataset == mean.dataset and column.target not in averages
