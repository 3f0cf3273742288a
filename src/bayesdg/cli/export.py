"""`bayesdg export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.data import Root
from bayesdg.cli.stored import Data, Draws, Raw, RunFolder, dataset_of, stored_run
from bayesdg.cli.terminal import check_folder, messages
from bayesdg.errors import BayesdgError

if TYPE_CHECKING:
    from torch import Tensor

    from bayesdg.training.run import Run

# Validation images of each source domain that the file is asked about.
NUM_REAL = 4


def export(
    run: RunFolder,
    format: Annotated[str, typer.Option(help="onnx or torch (torch.export, .pt2).")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file; within the run's folder without.")
    ] = None,
    draws: Draws = None,
    raw: Raw = False,
    data: Data = None,
    root: Root = None,
) -> None:
    """Write one file that answers as the run does, and compare its answers with the run's.

    If the run has a temperature, so has the file; thresholds of sets and rejection are told in it.
    """
    with messages.status("loading torch"):
        from bayesdg.export.export import export_run
        from bayesdg.export.formats import FORMATS
        from bayesdg.extras import need
        from bayesdg.names import choose
    kind = choose("format", format, FORMATS)
    need("export", *kind.needs)  # before the data are looked at
    found = stored_run(run, "cpu", raw)
    used = found.used_draws(draws, found.recalibration)
    assert found.path is not None
    place = out or found.path / "exported" / f"draws-{used}{kind.suffix}"
    check_folder(place.parent)
    try:
        real = _source_images(found, data, root)
    except BayesdgError as error:
        if data is not None:
            raise
        messages.print(f"compared on random images alone: {error}", markup=False, soft_wrap=True)
        real = None
    with messages.status("exporting"):
        done = export_run(found, place, format, used, real)
    fit = found.recalibration.temperature if found.recalibration else None
    typer.echo(
        f"written to {done.path}\n{done.draws or 'no'} draws"
        + (f", temperature {fit:.3f}" if fit else "")
        + f"; on {done.num_random} random and {done.num_real} real images the answers differ by "
        f"{done.largest_difference:.1g} at most"
    )


def _source_images(run: Run, data: str | None, root: Path | None) -> Tensor:
    """A few validation images of every source domain."""
    import torch

    from bayesdg.names import choose

    dataset = dataset_of(run, data, root)
    sets = [
        choose("domain", source, dataset.domains, dataset.name).val for source in run.task.sources
    ]
    return torch.cat([s.images[torch.arange(min(NUM_REAL, len(s)))] for s in sets])
