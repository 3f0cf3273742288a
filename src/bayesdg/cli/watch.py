"""`bayesdg watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesdg.cli.terminal import messages


def watch(
    places: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs, folders of runs, or a bench.")
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="To listen on; 0 takes a free one.")
    ] = 0,
) -> None:
    """Show the report of a run while it trains, in a browser on this machine.

    Listens on 127.0.0.1 alone, until Ctrl-C (exit code 130). The page renews itself.
    """
    with messages.status("reading"):
        from bayesdg.report.runs import run_folders
        from bayesdg.report.watch import HOST, server

        run_folders(places)
        listening = server(places, port)
    with listening:
        typer.echo(f"http://{HOST}:{listening.server_address[1]}/")
        messages.print("open it in a browser on this machine; Ctrl-C ends it", highlight=False)
        listening.serve_forever(poll_interval=0.2)
