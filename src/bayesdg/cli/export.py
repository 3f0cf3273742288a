"""`bayesdg export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.data import Root, bar
from bayesdg.cli.terminal import messages
from bayesdg.errors import BayesdgError, StoredRunError

if TYPE_CHECKING:
    from torch import Tensor

    from bayesdg.training.run import Run

# Validation images of each source domain that the file is asked about.
NUM_REAL = 4


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run that is done.")],
    format: Annotated[str, typer.Option(help="onnx or torch (torch.export, .pt2).")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file; within the run's folder without.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=0, help="In the file; 0 for the mean weights.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Where the data set lies now, if it was moved.")
    ] = None,
    root: Root = None,
) -> None:
    """Write one file that answers as the run does, and compare its answers with the run's."""
    if not run.is_dir():
        raise StoredRunError(f"no run at {run}; give the folder that bayesdg train has written")
    with messages.status("loading torch"):
        from bayesdg.export.export import export_run
        from bayesdg.export.formats import FORMATS
        from bayesdg.extras import need
        from bayesdg.names import choose
        from bayesdg.training.run import load_run
    kind = choose("format", format, FORMATS)
    need("export", *kind.needs)  # before the data are looked at
    found = load_run(run)
    asked = found.settings.prediction.draws if draws is None else draws
    name = f"draws-{found.learner.num_draws(asked)}{kind.suffix}"
    try:
        real = _source_images(found, data, root)
    except BayesdgError as error:
        if data is not None:
            raise
        messages.print(f"compared on random images alone: {error}", markup=False, soft_wrap=True)
        real = None
    with messages.status("exporting"):
        done = export_run(found, out or run / "exported" / name, format, draws, real)
    typer.echo(
        f"written to {done.path}\n{done.draws or 'no'} draws; on {done.num_random} random and "
        f"{done.num_real} real images the answers differ by {done.largest_difference:.1g} at most"
    )


def _source_images(run: Run, data: str | None, root: Path | None) -> Tensor:
    """A few validation images of every source domain."""
    import torch

    from bayesdg.data import load_dataset
    from bayesdg.names import choose

    with bar("decoding") as decoding:
        name = data or run.task.place or run.task.dataset
        dataset = load_dataset(name, root, run.settings.data, decoding)
    sets = [
        choose("domain", source, dataset.domains, dataset.name).val for source in run.task.sources
    ]
    return torch.cat([s.images[torch.arange(min(NUM_REAL, len(s)))] for s in sets])
