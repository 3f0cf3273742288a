"""The tables of a folder of runs as sections of a page, with bars and curves. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from matplotlib.figure import Figure

from bayesdg.errors import BayesdgError, StoredRunError
from bayesdg.report.comparison import Bar, Bars, Curve, Curves, bars, setting_curves
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
    "ablation": "Means with 95% intervals over seeds (Student's t); one seed has no interval.",
    "sensitivity": "Means with 95% intervals over seeds; one setting is changed at a time.",
    "draws": "Over the number of weight draws at test time; 0 is the mean weights. Bands are 95% "
    "intervals over seeds.",
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
    title = title[:1].upper() + title[1:]
    missing = table.missing
    if several:  # what is missing is so for every metric: once is enough
        for column in table.columns:
            missing = tuple(line.replace(f", {column.label}: ", ": ", 1) for line in missing)
    shown = shown_in(kind, table)
    for number, panel in enumerate(shown):
        # One figure each: beside each other where there is room, below on a phone.
        heading = HEADINGS[kind]
        if len(shown) > 1:
            heading = f"{heading}: {panel.label}"
        text = f"{table.title}. {heading}. {CAPTIONS[kind]}"
        svg = inline(figure_of([panel]), text, f"{identifier}-{number}")
        panels.append(Panel(heading, svg, "" if number else CAPTIONS[kind]))
    return Section(
        identifier,
        title,
        problems=[*notes, *dict.fromkeys(missing)],
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


def shown_in(kind: str, table: Numbers) -> Sequence[Bars | Curves]:
    """The panels of a table of a kind; none where it has nothing to draw."""
    if kind == "ablation":
        return _bars(table)
    if kind == "cost":
        return _costs(table)
    return _over_labels(table, kind) if kind else []


def figure_of(shown: Sequence[Bars | Curves]) -> Figure:
    """All panels in one figure; they are of one kind."""
    of_methods = [panel for panel in shown if isinstance(panel, Bars)]
    if of_methods:
        return bars(of_methods)
    return setting_curves([panel for panel in shown if isinstance(panel, Curves)])


def _bars(table: Numbers) -> list[Bars]:
    """One panel for each column that is over all domains; the last column where none is."""
    overall = [column for column in table.columns if column.target in (MEAN, "in-distribution")]
    panels = []
    for column in overall or table.columns[-1:]:
        rows = []
        for line in table.lines:
            cell, printed = table.cells.get((line, column)), table.printed.get((line, column))
            if cell is not None:
                # The paper prints accuracies in percent.
                paper = None if printed is None else printed.mean / 100
                rows.append(Bar(label_of(line, table), cell, paper))
        shown = measure(column.metric)
        where = column.label
        if not where.startswith(column.dataset):
            where = f"{column.dataset} {where}"
        if rows:
            panels.append(Bars(f"{shown.label}, {where}", rows, shown.scale))
    return panels


def _over_labels(table: Numbers, kind: str) -> list[Curves]:
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
    shown = measure(table.columns[0].metric)
    setting = "weight draws" if kind == "draws" else SYMBOLS.get(label, label)
    dataset = table.columns[0].dataset
    return [Curves(setting, shown.label, curves, shown.scale, dataset)] if curves else []


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


def _costs(table: Numbers) -> list[Curves]:
    """A panel per cost, a curve per method and way to combine draws, over their number."""
    panels = []
    for column in table.columns:
        if column.metric not in COSTS:
            continue
        grouped: dict[str, list[tuple[float, Cell]]] = {}
        for line in table.lines:
            combine, _, draws = line.what.partition(" ")
            cell = table.cells.get((line, column))
            if cell is not None and draws.isdecimal():
                grouped.setdefault(f"{line.method} {combine}", []).append((float(draws), cell))
        curves = [
            Curve(name, [x for x, _ in found], [cell for _, cell in found])
            for name, found in grouped.items()
        ]
        if curves:
            panels.append(Curves("weight draws", column.label, curves, 1, from_zero=True))
    return panels


def bench_figure(places: Sequence[Path], kind: str, plan: str | None, metric: str | None) -> Figure:
    """A figure of all tables of a kind that a folder gives; a StoredRunError if it has none."""
    metrics = () if metric is None else (metric,)
    shown, notes = [], []
    for place in places:
        tables, about = tables_of(place, plan, metrics=metrics)
        shown += [panel for t in tables if kind_of(t) == kind for panel in shown_in(kind, t)]
        notes += about
    if not shown:
        why = f" ({notes[0]})" if notes else ""
        where = ", ".join(map(str, places))
        raise StoredRunError(f"{where} has no runs for the figure {kind}{why}")
    return figure_of(shown)
