"""`bayesdg evaluate`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from bayesdg.cli.data import AsJson, Root, bar
from bayesdg.cli.results import print_results
from bayesdg.cli.terminal import messages
from bayesdg.data.known import expanded
from bayesdg.errors import StoredRunError, UsageError


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run that is done.")],
    data: Annotated[
        str | None, typer.Option(help="Where the data set lies now, if it was moved.")
    ] = None,
    root: Root = None,
    draws: Annotated[
        int | None, typer.Option(min=0, help="Weight draws; 0 for the mean weights.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Test a run on every domain, the unseen ones included, and keep the results with it."""
    run = expanded(run)
    if not run.is_dir():
        raise StoredRunError(f"no run at {run}; give the folder that bayesdg train has written")
    with messages.status("loading torch"):
        from bayesdg.data import load_dataset
        from bayesdg.training.lock import FolderLock
        from bayesdg.training.run import load_run
    found = load_run(run, device)
    with bar("decoding") as decoding:
        name = data or found.task.place or found.task.dataset
        dataset = load_dataset(name, root, found.settings.data, decoding)
    try:
        lock = FolderLock.acquire(run, lambda note: None)
    except OSError as error:
        raise UsageError(
            f"{run} cannot be written to ({error.strerror}), and results are kept there; copy it "
            "to where you may write"
        ) from None
    with lock, messages.status("evaluating"):
        results = found.evaluate(dataset, draws)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(result) for result in results], indent=1))
        return
    print_results(results)
    typer.echo(f"kept in {run}")
