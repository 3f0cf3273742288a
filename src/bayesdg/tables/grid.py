"""A table as rows of words, before a format escapes and aligns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bayesdg.evaluate.statistics import explanation
from bayesdg.methods.rows import get_method
from bayesdg.tables.cells import Cell
from bayesdg.tables.compare import FEW_SEEDS, Comparison
from bayesdg.tables.layouts import Column, Line
from bayesdg.tables.measures import measure
from bayesdg.tables.paper import Printed
from bayesdg.tables.table import Table

MISSING = "missing"
LAYERS = {"psi": "psi", "phi": "phi", "phi_prime": "phi'"}


@dataclass(frozen=True)
class Word:
    """What stands in a cell."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class GridRow:
    """A row.

    Attributes:
        label: What it is called.
        ticks: For each layer that is shown, whether it is Bayesian and whether invariant; empty
            where that is not said.
        words: A cell each.
        kind: Our figures, the paper's for the row above, or the paper's for another paper.
    """

    label: str
    ticks: tuple[tuple[bool, bool], ...]
    words: tuple[Word, ...]
    kind: Literal["ours", "printed", "other"]


def grid_rows(table: Table, plus_minus: str) -> Iterator[GridRow]:
    """The rows from above; the paper's figures right below ours."""
    for line in table.lines:
        words = []
        for column in table.columns:
            cell = table.cells.get((line, column))
            text = MISSING if cell is None else cell_text(cell, column, table, plus_minus)
            words.append(Word(text, (line, column) in table.best))
        yield GridRow(label_of(line, table), _ticks(line, table), tuple(words), "ours")
        figures = [table.printed.get((line, column)) for column in table.columns]
        if any(figures):
            texts = (_printed(figure, plus_minus) for figure in figures)
            yield GridRow("in print", (), tuple(map(Word, texts)), "printed")
    for name, row in table.others.items():
        texts = (_printed(row.get(column), plus_minus) for column in table.columns)
        yield GridRow(name, (), tuple(map(Word, texts)), "other")


def label_of(line: Line, table: Table) -> str:
    """The method; with the preset where there are several."""
    presets = {other.preset for other in table.lines}
    preset = f"({line.preset})" if len(presets) > 1 else ""
    return " ".join(filter(None, [line.method, preset, line.what]))


def cell_text(cell: Cell, column: Column, table: Table, plus_minus: str) -> str:
    """Mean and deviation as printed; and how many seeds, where others have another number."""
    shown = measure(column.metric)
    text = f"{cell.mean * shown.scale:.{shown.digits}f}"
    if cell.std is not None:
        text += f"{plus_minus}{cell.std * shown.scale:.{shown.digits}f}"
    return text if cell.num_seeds == table.num_seeds else f"{text} (n={cell.num_seeds})"


def footnotes(table: Table, plus_minus: str = " ± ") -> list[str]:
    """What belongs to the figures, a line each; what was looked at comes first."""
    notes = [*table.marks, *filter(None, [explanation(table.statistics)])]
    num = table.num_seeds
    if any(cell.std is not None for cell in table.cells.values()):
        notes.append(f"mean{plus_minus}standard deviation (ddof 1) over n = {num} seeds")
    elif table.cells and table.selection:
        notes.append("n = 1 seed, which has no deviation")
    if table.ticks:
        notes.append("B: Bayesian, I: invariant across domains")
    if table.best:
        notes.append("the best of ours in a column is marked")
    notes += table.notes
    notes += [comparison_text(found, table) for found in table.comparisons if found.interval]
    if any(found.interval for found in table.comparisons):
        notes.append(FEW_SEEDS)
    elif table.comparisons:
        notes.append("differences need two seeds that both methods have")
    notes += [f"missing: {text}" for text in table.missing]
    return notes


def comparison_text(found: Comparison, table: Table) -> str:
    """A difference and where it could be, in the column's unit."""
    assert found.interval is not None
    shown = measure(found.column.metric)
    value, low, high = (
        f"{number * shown.scale:+.{shown.digits}f}"
        for number in (found.interval.value, found.interval.low, found.interval.high)
    )
    names = f"{label_of(found.line, table)} less {label_of(found.baseline, table)}"
    return (
        f"{names}, {found.column.label}: {value}, 95% bootstrap interval [{low}, {high}] over "
        f"{found.num_seeds} seeds in pairs"
    )


def _ticks(line: Line, table: Table) -> tuple[tuple[bool, bool], ...]:
    if not table.ticks:
        return ()
    layers = get_method(line.method).layers
    found = (layers.get(name) for name in table.ticks)
    return tuple((layer.bayes, layer.invariant) if layer else (False, False) for layer in found)


def _printed(figure: Printed | None, plus_minus: str) -> str:
    if figure is None:
        return ""
    # Three digits are printed of rates, one of memory: no more than there is.
    text = f"{'> ' * figure.is_exceeded}{figure.mean:g}"
    digits = len(text.partition(".")[2])
    text = f"{figure.mean:.2f}" if digits < 2 and figure.std is not None else text
    return text if figure.std is None else f"{text}{plus_minus}{figure.std:.2f}"
