"""`bayesdg table`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.terminal import console, messages
from bayesdg.errors import UsageError
from bayesdg.records import TRAINED

if TYPE_CHECKING:
    from bayesdg.stored_runs import StoredRun


def table(
    folder: Annotated[Path, typer.Argument(help="Holds run folders, such as that of a bench.")],
    plan: Annotated[
        str | None, typer.Option(help="Of the plans in the folder; all of them without.")
    ] = None,
    selection: Annotated[
        str,
        typer.Option(help="source-val, leave-one-source-out, last, oracle or released-code."),
    ] = "source-val",
    statistics: Annotated[
        str,
        typer.Option(
            help="Of batch norm: trained, or what bayesdg evaluate --statistics was asked for."
        ),
    ] = TRAINED,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="accuracy, nll, ece, aurc, domain_auroc, ...; several make columns."),
    ] = None,
    each_target: Annotated[
        bool, typer.Option("--each-target", help="Several metrics: a table each, with all domains.")
    ] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only runs with this setting; repeatable."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="text, md, latex, csv or json.")
    ] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to a file instead.")] = None,
) -> None:
    """Tables in the paper's layout from run folders, with the paper's figures beside ours."""
    from bayesdg.names import choose
    from bayesdg.records import write_text
    from bayesdg.tables import formats
    from bayesdg.tables.build import tables_of

    written = choose("format", format_, formats.FORMATS)
    keep = _wanted(where or [])
    tables, notes = tables_of(folder, plan, selection, metric or (), keep, statistics, each_target)
    for note in notes:
        messages.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        try:
            write_text(out, written(tables))
        except OSError as error:
            raise UsageError(f"--out {out} cannot be written to ({error.strerror})") from None
        typer.echo(f"written to {out}", err=True)
    elif format_ == "text":
        ascii_only = "utf" not in (console.encoding or "").lower()
        terminal = console.is_terminal and not console.no_color
        for shown in tables:
            typer.echo(formats.text(shown, terminal, ascii_only))
    else:
        typer.echo(written(tables), nl=False)


def _wanted(texts: list[str]) -> Callable[[StoredRun], bool]:
    from bayesdg.config import assignments

    values = assignments(texts, "--where")

    def keep(run: StoredRun) -> bool:
        return run.settings == run.settings.replace(values)

    return keep
