"""`bayesdg quickstart`."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from bayesdg.cli.report import write_report
from bayesdg.cli.terminal import TrainingProgress, check_folder, console, messages
from bayesdg.errors import UsageError
from bayesdg.names import unknown

if TYPE_CHECKING:
    from bayesdg.tables import Row

# The baseline and the paper's method.
COMPARED = ("erm", "bil")


def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    method: Annotated[
        list[str] | None, typer.Option(help="A method; repeatable. Default: erm and bil.")
    ] = None,
    preset: Annotated[str, typer.Option(help="default, paper or released.")] = "default",
) -> None:
    """Train the baseline and the Bayesian method on real digits, about a minute.

    scikit-learn's handwritten digits, turned by 15 to 75 degrees, are five source domains; 0 and
    90 degrees are never seen in training. Nothing is downloaded.
    """
    from bayesdg.methods import get_method
    from bayesdg.presets import PRESETS
    from bayesdg.tables import by_method

    methods = tuple(dict.fromkeys(method or COMPARED))
    for name in methods:
        get_method(name)
    if preset not in PRESETS:
        raise UsageError(unknown("preset", preset, PRESETS))
    check_folder(out)

    with messages.status("loading torch"):
        from bayesdg.quickstart import run_quickstart
    progress = TrainingProgress()
    with progress:
        results, folders = run_quickstart(
            out, methods, range(seed, seed + seeds), preset, progress.watch
        )
    reused = len(folders) - progress.begun
    if reused:
        messages.print(f"{reused} of {len(folders)} runs were done before and are shown again")
    which = f"seeds {seed}-{seed + seeds - 1}" if seeds > 1 else f"seed {seed}"
    title = f"rotated-digits, preset {preset} for small images, {which}"
    console.print(_method_table(title, by_method(results)))
    console.print(
        "in: test images at 15, 30, 45, 60 and 75 degrees\n"
        "out: test images at 0 and 90 degrees, which training never saw\n"
        "weights chosen by accuracy on validation images of the source domains",
        style="dim",
    )
    page = out / "report.html"
    write_report([out] if seeds > 1 else folders, page)  # over seeds there are tables
    python, program = _how_to_call_again()
    look = f"import bayesdg as bd; print(bd.load_run({json.dumps(str(folders[-1]))}).results[-1])"
    typer.echo(f"""
written to {out}: settings, records and weights of each run
pictures of it: {page}

next
  {program} quickstart --seeds 5    is the difference there for every seed?
  {program} methods                 every row of the paper's ablations
  {program} data list               data sets with names; any folder works, too
  {python} -c {shlex.quote(look)}""")


def _how_to_call_again() -> tuple[str, str]:
    """The interpreter and this program, as the person at the keyboard can type them."""
    python = Path(sys.executable)
    with suppress(ValueError):
        python = python.relative_to(Path.cwd())
    if Path(sys.argv[0]).stem == "bayesdg":
        return "python", "bayesdg"
    return shlex.quote(str(python)), f"{shlex.quote(str(python))} -m bayesdg"


def _method_table(title: str, rows: dict[str, Row]) -> Table:
    """Accuracy, NLL and ECE in and out of distribution, the best of each column in bold."""
    columns = [
        (metric, role) for metric in ("accuracy", "nll", "ece") for role in ("source", "target")
    ]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for metric, role in columns:
        label = {"accuracy": "acc %", "nll": "NLL", "ece": "ECE %"}[metric]
        place = "in" if role == "source" else "out"
        table.add_column(f"{label}\n{place}", justify="right", no_wrap=True)
    plus_minus = "±" if "utf" in (console.encoding or "") else "+-"
    best = {
        column: (max if column[0] == "accuracy" else min)(row[column].mean for row in rows.values())
        for column in columns
    }
    for method, row in rows.items():
        cells = []
        for column in columns:
            scale, digits = (1, 3) if column[0] == "nll" else (100, 1)
            cell = row[column]
            text = f"{cell.mean * scale:.{digits}f}"
            if cell.std is not None:
                text += f"{plus_minus}{cell.std * scale:.{digits}f}"
            is_best = len(rows) > 1 and cell.mean == best[column]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(method, *cells)
    return table
