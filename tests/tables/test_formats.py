"""One table in every format, written out by hand."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bayesdg.evaluate.bootstrap import Interval
from bayesdg.tables.cells import Cell
from bayesdg.tables.compare import Comparison
from bayesdg.tables.formats import as_csv, as_json, latex, markdown, text
from bayesdg.tables.layouts import Column, Line
from bayesdg.tables.paper import Printed
from bayesdg.tables.table import Table

PHOTO, MEAN = (Column("pacs", name, "accuracy", name) for name in ("photo", "mean"))
A, J = Line("a", "default"), Line("j", "default")
TABLE = Table(
    "mine, pacs, accuracy %",
    "source-val",
    (A, J),
    (PHOTO, MEAN),
    {
        (A, PHOTO): Cell(0.75, 0.0123, 3),
        (J, PHOTO): Cell(0.95, None, 1),
        (J, MEAN): Cell(0.85, 0.02, 3),
    },
    frozenset({(J, PHOTO)}),
    3,
    ("a, mean: seed 1: no run",),
    (Comparison(J, A, PHOTO, 3, Interval(0.2, 0.1, 0.25)),),
    {(J, PHOTO): Printed(95.97, 0.24), (J, MEAN): Printed(85.4, 0.1)},
    {"Dou et al. 2019": {PHOTO: Printed(94.99, None)}},
    ("psi", "phi"),
    ("a note",),
)
# What a folder of the user's may be called.
HOSTILE = "=cmd|x_1 & 50% #{$^~\\<b>[red]`*"


def test_text_is_aligned_and_stars_the_best() -> None:
    lines = text(TABLE).splitlines()
    assert lines[:9] == [
        "mine, pacs, accuracy %",
        "",
        "                 psi  phi         photo         mean",
        "----------------------------------------------------",
        "a                --   --    75.00±1.23      missing",
        "j                BI   BI   95.00 (n=1)*  85.00±2.00",
        "  in print                  95.97±0.24   85.40±0.10",
        "Dou et al. 2019                  94.99",
        "",
    ]
    assert lines[9:] == [
        "mean ± standard deviation (ddof 1) over n = 3 seeds",
        "B: Bayesian, I: invariant across domains",
        "the best of ours in a column is marked",
        "a note",
        "j less a, photo: +20.00, 95% bootstrap interval [+10.00, +25.00] over 3 seeds in pairs",
        "few seeds give too short an interval: of 3, 5 and 10, a nominal 95% holds the truth in "
        "74%, 83% and 89% of cases",
        "missing: a, mean: seed 1: no run",
    ]


def test_text_in_a_terminal_is_bold_and_can_do_without_unicode() -> None:
    shown = text(TABLE, terminal=True, ascii_only=True)
    assert "\x1b[1m95.00 (n=1)\x1b[0m" in shown
    assert "*" not in shown
    assert shown.isascii()
    assert "75.00+-1.23" in shown


def test_markdown_has_bold_and_escapes() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[2:8] == [
        "|  | psi | phi | photo | mean |",
        "| --- | --- | --- | ---: | ---: |",
        "| a | -- | -- | 75.00 ± 1.23 | missing |",
        "| j | BI | BI | **95.00 (n=1)** | 85.00 ± 2.00 |",
        "| *in print* |  |  | 95.97 ± 0.24 | 85.40 ± 0.10 |",
        "| *Dou et al. 2019* |  |  | 94.99 |  |",
    ]


def test_latex_has_the_papers_ticks() -> None:
    lines = latex(TABLE).splitlines()
    crosses, ticks = ([mark] * 4 for mark in (r"$\times$", r"$\checkmark$"))
    std = r"{\scriptsize $\pm$%s}"
    assert f"{' & '.join(['a', *crosses, f'75.00 {std}' % '1.23', 'missing'])} \\\\" in lines
    bold = r"\textbf{95.00}$_{n=1}$"
    assert f"{' & '.join(['j', *ticks, bold, f'85.00 {std}' % '2.00'])} \\\\" in lines
    printed = r"95.97 {\scriptsize $\pm$0.24} & 85.40 {\scriptsize $\pm$0.10} \\"
    assert rf"\textit{{in print}} &  &  &  &  & {printed}" in lines


def test_json_is_a_list_of_cells() -> None:
    cells = json.loads(as_json([TABLE]))
    assert len(cells) == 4
    assert cells[2] == {
        "dataset": "pacs", "method": "j", "preset": "default", "selection": "source-val",
        "target": "photo", "metric": "accuracy", "mean": 0.95, "std": None, "n": 1, "row": "",
        "column": "photo", "best": True, "paper_mean": pytest.approx(0.9597),
        "paper_std": pytest.approx(0.0024), "peeked": "",
        "statistics": "trained", "transductive": False,
    }  # fmt: skip
    assert (cells[1]["mean"], cells[1]["n"], cells[1]["target"]) == (None, 0, "mean")


def test_csv_says_what_json_does() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv([TABLE]))))
    for row, cell in zip(rows, json.loads(as_json([TABLE])), strict=True):
        assert row == {name: "" if v is None else str(v) for name, v in cell.items()}


@pytest.mark.parametrize("mark", ["PEEKED (oracle): something"])
def test_what_was_peeked_at_is_said_in_every_format(mark: str) -> None:
    table = replace(TABLE, marks=(mark,))
    assert mark in text(table)
    assert mark in markdown(table)
    assert mark in latex(table)
    assert all(cell["peeked"] == mark for cell in json.loads(as_json([table])))
    assert as_csv([table]).count(mark) == 4


def test_what_is_transductive_is_said_in_every_format() -> None:
    table = replace(TABLE, statistics="own", marks=("PEEKED",))
    said = "TRANSDUCTIVE (own): batch norm takes the statistics of each domain's own judged images"
    for written in (text(table), latex(table), markdown(table).replace("\\", "")):
        assert said in written
    for cell in (*json.loads(as_json([table])), *csv.DictReader(io.StringIO(as_csv([table])))):
        assert (cell["statistics"], str(cell["transductive"])) == ("own", "True")
        assert cell["peeked"] == "PEEKED"
    sources = replace(TABLE, statistics="sources")
    assert "statistics (sources): batch norm takes" in text(sources)
    assert "TRANSDUCTIVE" not in text(sources)
    assert {cell["transductive"] for cell in json.loads(as_json([sources]))} == {False}


def hostile(name: str) -> Table:
    column = Column(name, name, "accuracy", name)
    cells = {(A, column): Cell(0.5, None, 1)}
    return Table(name, "source-val", (A,), (column,), cells, frozenset(), 1, (name,))


@pytest.mark.parametrize(
    ("start", "harmless"),
    [("=", "'="), ("+", "'+"), ("-", "'-"), ("@", "'@"), ("\t", "\\t"), ("\r", "\\r")],
)
def test_no_cell_of_a_csv_is_a_formula(start: str, harmless: str) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv([hostile(f"{start}cmd()")])))
    assert row["target"] == f"{harmless}cmd()"
    assert all(not (cell or "").startswith(tuple("=+-@\t\r")) for cell in row.values())


def test_names_cannot_write_on_a_terminal_or_break_a_line() -> None:
    shown = text(hostile("a\x1b[2J\nb"))
    assert "\x1b" not in shown
    assert r"a\x1b[2J\nb" in shown
    assert "[red]" in text(hostile("[red]"))


def test_markdown_escapes_what_has_a_meaning() -> None:
    shown = markdown(hostile(HOSTILE))
    for letter in "|_#{<>[]`*\\":
        assert not re.search(rf"(?<!\\)(?:\\\\)*{re.escape(letter)}cmd", shown)
    row = shown.splitlines()[2]
    assert row.count("|") - row.count("\\|") == 3
    assert r"\<b\>\[red\]\`\*" in row


def test_latex_escapes_what_has_a_meaning() -> None:
    shown = latex(hostile(HOSTILE))
    assert r"=cmd\textbar{}x\_1 \& 50\% \#\{\$\textasciicircum{}\textasciitilde{}" in shown
    assert r"\textbackslash{}\textless{}b\textgreater{}" in shown


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("table", [TABLE, hostile(HOSTILE), hostile("日本語 café")])
def test_latex_compiles(tmp_path: Path, table: Table) -> None:
    page = rf"""\documentclass{{article}}
\usepackage{{amssymb}}
\begin{{document}}
{latex(table)}
\end{{document}}
"""
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "page.tex"],
        cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
