"""Tables of one run in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.terminal import console

if TYPE_CHECKING:
    from bayesdg.records import ResultRecord
    from bayesdg.training.run import Run


def print_validation(run: Run) -> None:
    """The source validation that chose the weights."""
    from bayesdg.records import StepRecord

    chosen = [r for r in run.records if isinstance(r, StepRecord) and r.best]
    if not chosen or chosen[-1].source_val is None:
        return
    step = chosen[-1]
    table = _table("domain")
    for name, metrics in (step.source_val or {}).items():
        table.add_row(escape(name), *_cells(metrics))
    _print(f"{run.settings.method}, weights of step {step.step}, source validation", table)


def print_results(results: Iterable[ResultRecord]) -> None:
    """Accuracy, NLL and ECE per domain, targets last."""
    results = list(results)
    draws = results[0].draws
    how = f"{draws} draws" if draws else "mean weights"
    table = _table("domain", "", "images")
    for result in results:
        what = f"{result.role}, {'test' if result.part == 'test' else 'validation'}"
        cells = (escape(result.domain), what, f"{result.num_images:,}")
        table.add_row(*cells, *_cells(result.metrics), style="bold" * (result.role == "target"))
    _print(f"{results[0].method}, weights of step {results[0].step}, {how}", table)
    for result in results:
        if result.num_excluded:
            console.print(
                f"{escape(result.domain)}: {result.num_excluded:,} more images are of classes that "
                "training never saw, and in no number above",
                soft_wrap=True,
                highlight=False,
            )


def _print(title: str, table: Table) -> None:
    # A title of the table's own would be broken to its width.
    console.print(f"\n{escape(title)}", soft_wrap=True, highlight=False)
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column == "images" else "left")
    for column in ("acc %", "NLL", "ECE %"):
        table.add_column(column, justify="right")
    return table


def _cells(metrics: Mapping[str, float | None]) -> list[str]:
    cells = []
    for name, scale, digits in (("accuracy", 100, 1), ("nll", 1, 3), ("ece", 100, 1)):
        value = metrics.get(name)
        cells.append("none" if value is None else f"{value * scale:.{digits}f}")
    return cells
