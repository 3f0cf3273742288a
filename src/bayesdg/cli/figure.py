"""`bayesdg figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesdg.cli.data import Root
from bayesdg.cli.report import with_features
from bayesdg.cli.terminal import messages
from bayesdg.names import choose


def figure(
    name: Annotated[
        str,
        typer.Argument(
            help="terms, validation, confusion, reliability, risk-coverage, uncertainty, failures, "
            "features, ablation, sensitivity, draws or cost."
        ),
    ],
    places: Annotated[
        list[Path], typer.Argument(metavar="DIR|RUN...", help="Runs, folders of runs, or a bench.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="An .svg, .pdf or .png file; NAME.svg here without.")
    ] = None,
    view: Annotated[
        str, typer.Option(help="Of a feature map: all, target, class or in-out.")
    ] = "all",
    class_: Annotated[str | None, typer.Option("--class", help="Of the view 'class'.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Of a bench, such as nll; what its plan shows without.")
    ] = None,
    plan: Annotated[str | None, typer.Option(help="Of a bench with several.")] = None,
    root: Root = None,
) -> None:
    """Draw one figure for a paper: sized for a column, type embedded, colours for all eyes."""
    with messages.status("reading"):
        from bayesdg.report.maps import VIEWS
        from bayesdg.report.named import NAMED, Asked
        from bayesdg.report.runs import read_run, run_folders
        from bayesdg.report.style import file_format, save

        kind = choose("figure", name, NAMED)
        choose("view", view, VIEWS)
        target = Path(f"{name}.svg") if out is None else out
        file_format(target)
        runs = [read_run(path) for path in run_folders(places)]
    if kind.features:
        runs = with_features(runs, class_, True, root)
    with messages.status("drawing"):
        save(kind.draw(Asked(places, runs, view, class_, metric, plan)), target)
    typer.echo(f"{target}")
