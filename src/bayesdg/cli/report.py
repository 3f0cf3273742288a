"""`bayesdg report`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.data import Root
from bayesdg.cli.terminal import messages
from bayesdg.errors import UsageError

if TYPE_CHECKING:
    from bayesdg.report.runs import ReportedRun

# Feature maps of so many runs are made unasked.
FEW = 4


def report(
    places: Annotated[
        list[Path], typer.Argument(metavar="DIR|RUN...", help="Runs, folders of runs, or a bench.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; report.html in the first folder without.")
    ] = None,
    maps: Annotated[
        bool | None,
        typer.Option(
            "--maps/--no-maps",
            help="Compute features where none are kept, which needs the data; for up to "
            f"{FEW} maps without being asked.",
        ),
    ] = None,
    class_: Annotated[
        str | None, typer.Option("--class", help="That has a feature map of its own.")
    ] = None,
    root: Root = None,
) -> None:
    """Make one HTML page of runs: tables, curves, calibration, failures, feature maps.

    The page is one file that needs no network. Runs may be half-finished or failed: it says what
    is missing.
    """
    start = time.monotonic()
    target = (places[0] / "report.html") if out is None else out
    if target.is_dir():
        raise UsageError(f"--out {target} is a folder; give a file, such as {target}/report.html")
    size, num = write_report(places, target, maps, class_, root)
    seconds = time.monotonic() - start
    runs = "1 run" if num == 1 else f"{num} runs"
    messages.print(f"{runs}, {size / 1e6:.1f} MB, {seconds:.0f} s", highlight=False)
    typer.echo(f"{target}")


def write_report(
    places: list[Path],
    target: Path,
    maps: bool | None = None,
    class_: str | None = None,
    root: Path | None = None,
) -> tuple[int, int]:
    """Write the page; its size in bytes and the number of runs on it."""
    with messages.status("reading"):
        from bayesdg.report.bench import bench_sections
        from bayesdg.report.build import build_page, mapped_runs
        from bayesdg.report.page import write_page
        from bayesdg.report.runs import read_run, run_folders

        runs = [read_run(path) for path in run_folders(places)]
    compute = maps if maps is not None else len(mapped_runs(runs)) <= FEW
    runs = with_features(runs, class_, compute, root)
    with messages.status("drawing"):
        # Of several places the folder that all of them are in, such as runs/.
        name = Path(os.path.commonpath([place.resolve() for place in places])).name
        title = "" if len(runs) == 1 else f"{name}: {len(runs)} runs"
        page = build_page(runs, title, class_, bench_sections(places))
        return write_page(page, target), len(runs)


def with_features(
    runs: list[ReportedRun], class_: str | None, compute: bool, root: Path | None
) -> list[ReportedRun]:
    """The runs, those on a map with their features as far as there are any or can be made."""
    from bayesdg.cli.data import bar
    from bayesdg.report.build import mapped_runs
    from bayesdg.report.prepare import prepared

    shown = {run.path for run in mapped_runs(runs)}
    found = []
    with bar("decoding") as decoding:
        for run in runs:
            if run.path not in shown:
                found.append(run)
                continue
            if compute and run.features is None and run.parts:
                messages.print(f"features of {run.path.name}", markup=False, highlight=False)
            found.append(prepared(run, class_, compute, root, decoding))
    return found
