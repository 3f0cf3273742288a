"""What commands on a stored run share: the run, and the data set that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.data import bar
from bayesdg.cli.terminal import messages
from bayesdg.data.known import expanded
from bayesdg.errors import StoredRunError, UsageError

if TYPE_CHECKING:
    from bayesdg.data import DomainDataset
    from bayesdg.stored_runs import StoredRun
    from bayesdg.training.lock import FolderLock
    from bayesdg.training.run import Run

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is done.")]
Data = Annotated[str | None, typer.Option(help="Where the data set lies now, if it was moved.")]
Draws = Annotated[
    int | None, typer.Option(min=0, max=10_000, help="Weight draws; 0 for the mean weights.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Without what was calibrated.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def stored_run(path: Path, device: str, raw: bool = False) -> Run:
    """The run in a folder; `raw` without its recalibration."""
    path = expanded(path)
    if not path.is_dir():
        raise StoredRunError(f"no run at {path}; give the folder that bayesdg train has written")
    with messages.status("loading torch"):
        from bayesdg.training.run import load_run
    return load_run(path, device, raw)


def dataset_of(run: Run | StoredRun, data: str | None, root: Path | None) -> DomainDataset:
    """The data set that a run was trained on."""
    from bayesdg.data import load_dataset
    from bayesdg.data.remembered import from_text

    name = data or from_text(run.task.place or run.task.dataset)
    with bar("decoding") as decoding:
        return load_dataset(name, root, run.settings.data, decoding)


def held(run: Run) -> FolderLock:
    """The run's folder, for this process alone while something is kept there."""
    from bayesdg.training.lock import FolderLock

    assert run.path is not None
    try:
        return FolderLock.acquire(run.path, lambda note: None)
    except OSError as error:
        raise UsageError(
            f"{run.path} cannot be written to ({error.strerror}), and results are kept there; copy "
            "it to where you may write"
        ) from None
