"""The tables of a folder of runs as sections of a page, with bars and curves. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from matplotlib.figure import Figure

from bayesdg.errors import BayesdgError, StoredRunError
from bayesdg.report.comparison import Bar, Curve, bars, setting_curves
from bayesdg.report.page import Block, Panel, Row, Section, Table
from bayesdg.report.runs import is_run
from bayesdg.report.svg import inline
from bayesdg.tables import Cell
from bayesdg.tables.build import tables_of
from bayesdg.tables.grid import footnotes, grid_rows, label_of
from bayesdg.tables.layouts import MEAN, Column
from bayesdg.tables.measures import measure
from bayesdg.tables.table import Table as Numbers

# What is shown beside accuracy, averaged over unseen domains.
BESIDE = ("accuracy", "nll", "brier", "ece", "aurc", "domain_auroc")
COSTS = ("extra_multiply_adds", "saved_gib", "memory_gib", "step_seconds")
SYMBOLS = {"lambda_phi": "λ of φ", "lambda_psi": "λ of ψ", "pi": "π"}
MEAN_WEIGHTS = "mean weights"
HEADINGS = {
    "ablation": "Means and intervals",
    "sensitivity": "Sensitivity",
    "draws": "Number of draws",
    "cost": "Cost",
}
CAPTIONS = {
    "ablation": "Means over seeds with 95% intervals (Student's t); the paper's as diamonds.",
    "sensitivity": "Means over seeds with 95% intervals; one setting is changed at a time.",
    "draws": "Over the number of weight draws at test time; 0 is the mean weights.",
    "cost": "Of one training step, over the number of draws; layers and ways to combine draws.",
}


def bench_sections(places: Sequence[Path]) -> list[Section]:
    """A section per table that the folders give; a folder that is a run gives none."""
    sections: list[Section] = []
    for place in places:
        if is_run(place):
            continue
        try:
            tables, notes = tables_of(place)
        except BayesdgError as error:
            tables, notes = [], [str(error)]
        if any(kind_of(table) == "ablation" for table in tables):
            with suppress(BayesdgError):  # such as plans of which one has but one metric
                tables += tables_of(place, metrics=BESIDE)[0]
        if not tables:
            sections.append(Section("tables", "Tables", problems=notes))
        for number, table in enumerate(tables):
            identifier = f"table-{len(sections)}"
            sections.append(_section(table, identifier, notes if number == 0 else []))
    return sections


def _section(table: Numbers, identifier: str, notes: Sequence[str]) -> Section:
    kind, panels = kind_of(table), []
    several = len({column.metric for column in table.columns}) > 1 and kind == ""
    title = f"{table.title}, metrics over unseen domains" if several else table.title
    figure = drawn(kind, [table])
    if figure is not None:
        svg = inline(figure, f"{table.title}. {CAPTIONS[kind]}", identifier)
        panels.append(Panel(HEADINGS[kind], svg, CAPTIONS[kind]))
    return Section(
        identifier,
        title,
        problems=[*notes, *table.missing],
        blocks=[Block(tables=[_as_rows(table)], panels=panels)],
    )


def _as_rows(table: Numbers) -> Table:
    ticks = [name.replace("_prime", "'") for name in table.ticks]
    rows = []
    for row in grid_rows(table, " ± "):
        marks = [" ".join("BI"[i] for i, tick in enumerate(pair) if tick) for pair in row.ticks]
        marks = marks or [""] * len(ticks)
        words = [word.text for word in row.words]
        best = {1 + len(ticks) + i for i, word in enumerate(row.words) if word.bold}
        rows.append(Row([row.label, *marks, *words], frozenset(best), kind=row.kind))
    heads = ["method", *ticks, *(column.label for column in table.columns)]
    kept = [note for note in footnotes(table) if not note.startswith("missing: ")]
    return Table(table.title, heads, rows, 1 + len(ticks), kept, quiet=True)


def kind_of(table: Numbers) -> str:
    """Which figure a table makes: a name in CAPTIONS, or nothing."""
    metrics = {column.metric for column in table.columns}
    if metrics & set(COSTS):
        return "cost"
    labels = [column.label for column in table.columns]
    if labels and all(label == MEAN_WEIGHTS or label.endswith(" draws") for label in labels):
        return "draws"
    if labels and all(_value(label) is not None for label in labels):
        return "sensitivity"
    if len(metrics) == 1 and len(table.lines) > 1 and not any(line.what for line in table.lines):
        return "ablation"
    return ""


def drawn(kind: str, tables: Sequence[Numbers]) -> Figure | None:
    """The figure of some tables of a kind; None where they have nothing to draw."""
    if kind in ("", "ablation"):
        return _bars(tables[0]) if kind else None
    panels: dict[str, Sequence[Curve]] = {}
    for table in tables:
        panels |= _costs(table) if kind == "cost" else _over_labels(table, kind)
    if not any(panels.values()):
        return None
    column = tables[0].columns[0]
    shown = measure(column.metric)
    return setting_curves(
        panels, "" if kind == "cost" else shown.label, 1 if kind == "cost" else shown.scale
    )


def _bars(table: Numbers) -> Figure | None:
    column = next((c for c in reversed(table.columns) if c.target == MEAN), table.columns[-1])
    rows = []
    for line in table.lines:
        cell, printed = table.cells.get((line, column)), table.printed.get((line, column))
        if cell is not None:
            # The paper prints accuracies in percent.
            paper = None if printed is None else printed.mean / 100
            rows.append(Bar(label_of(line, table), cell, paper))
    shown = measure(column.metric)
    return bars(rows, f"{shown.label}, {column.label}", shown.scale) if rows else None


def _over_labels(table: Numbers, kind: str) -> Mapping[str, Sequence[Curve]]:
    """One panel: a curve per line over the values that the columns are called by."""
    curves = []
    for line in table.lines:
        found = [
            (_number(column), table.cells[line, column])
            for column in table.columns
            if (line, column) in table.cells
        ]
        if found:
            name = line.what if kind == "sensitivity" else label_of(line, table)
            curves.append(Curve(name, [x for x, _ in found], [cell for _, cell in found]))
    label = table.columns[0].label.rpartition(" ")[0]
    if kind == "draws":
        return {f"draws: {measure(table.columns[0].metric).label}": curves}
    return {SYMBOLS.get(label, label): curves}


def _number(column: Column) -> float:
    if column.label == MEAN_WEIGHTS:
        return 0.0
    value = _value(column.label)
    return float(column.label.partition(" ")[0]) if value is None else value


def _value(label: str) -> float | None:
    """Of a column that is called by a setting and its value, such as 'pi 0.5'."""
    name, _, value = label.rpartition(" ")
    try:
        return float(value) if name else None
    except ValueError:
        return None


def _costs(table: Numbers) -> Mapping[str, Sequence[Curve]]:
    """A panel per cost, a curve per method and way to combine draws, over their number."""
    panels = {}
    for column in table.columns:
        if column.metric not in COSTS:
            continue
        grouped: dict[str, list[tuple[float, float]]] = {}
        for line in table.lines:
            combine, _, draws = line.what.partition(" ")
            cell = table.cells.get((line, column))
            if cell is not None and draws.isdecimal():
                name = f"{line.method} {combine}"
                grouped.setdefault(name, []).append((float(draws), cell.mean))
        if grouped:
            panels[column.label] = [
                Curve(name, [x for x, _ in found], [Cell(y, None, 1) for _, y in found])
                for name, found in grouped.items()
            ]
    return panels


def bench_figure(places: Sequence[Path], kind: str, plan: str | None, metric: str) -> Figure:
    """A figure of the tables of a folder; a StoredRunError if it has none of that kind."""
    tables, notes = tables_of(places[0], plan)
    tables = [table for table in tables if kind_of(table) == kind]
    if kind == "ablation" and metric != "accuracy":
        tables = [t for t in tables_of(places[0], plan, metrics=(metric,))[0] if kind_of(t) == kind]
    figure = drawn(kind, tables) if tables else None
    if figure is None:
        why = f" ({notes[0]})" if notes else ""
        raise StoredRunError(f"{places[0]} has no runs for the figure {kind}{why}")
    return figure
