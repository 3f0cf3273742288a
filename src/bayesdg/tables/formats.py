"""A table as text, Markdown, LaTeX, CSV or JSON. Names are the user's: each format escapes them."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len

from bayesdg.evaluate.statistics import STATISTICS
from bayesdg.tables.grid import LAYERS, GridRow, Word, footnotes, grid_rows
from bayesdg.tables.measures import measure
from bayesdg.tables.table import Table

# A cell that begins so is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@")
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$",
}  # fmt: skip


def text(table: Table, terminal: bool = False, ascii_only: bool = False) -> str:
    """Aligned columns; the best is bold in a terminal and has a star elsewhere."""
    plus_minus = "+-" if ascii_only else "±"
    rows = list(grid_rows(table, plus_minus))
    head = ["", *(LAYERS[name] for name in table.ticks), *(c.label for c in table.columns)]
    body: list[tuple[GridRow, list[str]]] = []
    for row in rows:
        ticks = ["".join(_letters(tick)) for tick in row.ticks] or [""] * len(table.ticks)
        label = f"  {row.label}" if row.kind == "printed" else row.label
        words = [word.text if terminal else word.text + " *"[word.bold] for word in row.words]
        body.append((row, [printable(cell) for cell in (label, *ticks, *words)]))
    head = [printable(cell) for cell in head]
    widths = [max(map(cell_len, cells)) for cells in zip(head, *(c for _, c in body), strict=True)]
    num_left = 1 + len(table.ticks)
    lines = [printable(table.title), "", _aligned(head, widths, num_left)]
    lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    for row, cells in body:
        bold = [False] * num_left + [word.bold and terminal for word in row.words]
        lines.append(_aligned(cells, widths, num_left, bold))
    notes = [printable(note) for note in footnotes(table, f" {plus_minus} ")]
    return "\n".join([*lines, "", *notes]) + "\n"


def markdown(table: Table) -> str:
    """A table of GitHub's kind, and its notes as a list."""
    ticks = [LAYERS[name] for name in table.ticks]
    head = ["", *ticks, *(column.label for column in table.columns)]
    lines = [f"**{_markdown(table.title)}**", "", _piped(map(_markdown, head))]
    lines.append(_piped(["---"] * (1 + len(ticks)) + ["---:"] * len(table.columns)))
    for row in grid_rows(table, " ± "):
        kinds = ["".join(_letters(tick)) for tick in row.ticks] or [""] * len(ticks)
        label = _markdown(row.label) if row.kind == "ours" else f"*{_markdown(row.label)}*"
        words = [f"**{_markdown(w.text)}**" if w.bold else _markdown(w.text) for w in row.words]
        lines.append(_piped([label, *kinds, *words]))
    notes = [f"- {_markdown(note)}" for note in footnotes(table)]
    return "\n".join([*lines, "", *notes]) + "\n"


def latex(table: Table) -> str:
    r"""A floating table, over both columns where there are two; \checkmark needs amssymb."""
    num = 2 * len(table.ticks)
    kinds = [r"\scriptsize Bayesian", r"\scriptsize Invariant"]
    head = ["", *kinds * len(table.ticks)]
    head += [_latex(column.label) for column in table.columns]
    lines = [r"\begin{table*}", r"\centering\small", r"\setlength\tabcolsep{3pt}"]
    lines.append(rf"\caption{{{_latex(table.title)}}}")
    lines += [rf"\begin{{tabular}}{{l{'c' * num}{'r' * len(table.columns)}}}", r"\hline"]
    if table.ticks:
        symbols = (rf"\multicolumn{{2}}{{c}}{{$\{_symbol(name)}$}}" for name in table.ticks)
        lines.append(f" & {' & '.join(symbols)}{' &' * len(table.columns)} \\\\")
    lines += [f"{' & '.join(head)} \\\\", r"\hline"]
    for row in grid_rows(table, " ± "):
        marks = [
            r"$\checkmark$" if is_so else r"$\times$" for tick in row.ticks for is_so in tick
        ] or [""] * num
        label = _latex(row.label)
        label = label if row.kind == "ours" else rf"\textit{{{label}}}"
        lines.append(f"{' & '.join([label, *marks, *map(_latex_word, row.words)])} \\\\")
    lines += [r"\hline", r"\end{tabular}", "", r"\smallskip", r"\begin{minipage}{\linewidth}"]
    lines += [r"\footnotesize", *(rf"{_latex(note)}.\par" for note in footnotes(table))]
    return "\n".join([*lines, r"\end{minipage}", r"\end{table*}"]) + "\n"


def objects(table: Table) -> list[dict[str, Any]]:
    """One object per cell of ours; what is missing has no mean and n = 0."""
    found = []
    for line in table.lines:
        for column in table.columns:
            cell = table.cells.get((line, column))
            figure = table.printed.get((line, column))
            # Print is in percent, we are in 0..1.
            scale = measure(column.metric).scale
            found.append(
                {
                    "dataset": column.dataset,
                    "method": line.method,
                    "preset": line.preset,
                    "selection": table.selection,
                    "target": column.target,
                    "metric": column.metric,
                    "mean": None if cell is None else cell.mean,
                    "std": None if cell is None else cell.std,
                    "n": 0 if cell is None else cell.num_seeds,
                    "row": line.what,
                    "column": column.label,
                    "best": (line, column) in table.best,
                    "paper_mean": None if figure is None else figure.mean / scale,
                    "paper_std": None
                    if figure is None or figure.std is None
                    else figure.std / scale,
                    "peeked": "; ".join(table.marks),
                    "statistics": table.statistics,
                    "transductive": STATISTICS[table.statistics].is_transductive,
                }
            )
    return found


def as_json(tables: Sequence[Table]) -> str:
    """A list of objects, over all tables."""
    cells = [cell for table in tables for cell in objects(table)]
    return json.dumps(cells, indent=1, allow_nan=False) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """The same as JSON, a line each; no name can be a formula."""
    rows = [cell for table in tables for cell in objects(table)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    for row in rows:
        writer.writerow(["" if value is None else _harmless(value) for value in row.values()])
    return buffer.getvalue()


def _joined(one: Callable[[Table], str]) -> Callable[[Sequence[Table]], str]:
    return lambda tables: "\n".join(map(one, tables))


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "text": _joined(text),
    "md": _joined(markdown),
    "latex": _joined(latex),
    "csv": as_csv,
    "json": as_json,
}


def printable(words: str) -> str:
    """Without what could move a cursor or colour a terminal.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def _aligned(
    cells: Sequence[str], widths: Sequence[int], num_left: int, bold: Sequence[bool] = ()
) -> str:
    """Labels to the left, figures to the right; bold as terminals take it."""
    padded = []
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        cell = f"\x1b[1m{cell}\x1b[0m" if bold and bold[place] else cell
        padded.append(cell + space if place < num_left else space + cell)
    return "  ".join(padded).rstrip()


def _letters(tick: tuple[bool, bool]) -> tuple[str, str]:
    return "B" if tick[0] else "-", "I" if tick[1] else "-"


def _piped(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#&~!])", r"\\\1", printable(words))


def _latex(words: str) -> str:
    return "".join(map(_latex_letter, printable(words)))


def _latex_letter(letter: str) -> str:
    """Beyond Latin letters with accents, plain LaTeX stops: those are named by their number."""
    if letter in LATEX or letter.isascii():
        return LATEX.get(letter, letter)
    is_accented = letter <= "ÿ" and unicodedata.normalize("NFD", letter)[0].isascii()
    return letter if is_accented or letter in "ßæøÆØ" else f"[U+{ord(letter):04X}]"


def _latex_word(word: Word) -> str:
    """The deviation is small, as in the paper; a number of seeds of its own is below the line."""
    figure, _, num = word.text.partition(" (n=")
    mean, _, std = figure.partition(" ± ")
    shown = rf"\textbf{{{_latex(mean)}}}" if word.bold else _latex(mean)
    shown += rf" {{\scriptsize $\pm${_latex(std)}}}" if std else ""
    return shown + (f"$_{{n={num.rstrip(')')}}}$" if num else "")


def _symbol(layer: str) -> str:
    return layer.replace("_prime", "'")


def _harmless(value: object) -> object:
    if not isinstance(value, str):
        return value
    words = printable(value)
    return f"'{words}" if words.startswith(FORMULA) else words
