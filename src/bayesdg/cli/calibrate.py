"""`bayesdg calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesdg.cli.data import AsJson, Root
from bayesdg.cli.stored import Data, Device, Draws, RunFolder, dataset_of, held, stored_run
from bayesdg.cli.terminal import messages

if TYPE_CHECKING:
    from bayesdg.evaluate.recalibration import Recalibration

BY = "entropy, aleatoric, epistemic, variation_ratio, energy or error_probability."


def calibrate(
    run: RunFolder,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Scale how sure the answers are.")
    ] = False,
    conformal: Annotated[
        float | None, typer.Option(help="Sets that hold the right class so often, as 0.9.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Accept at least this share of pictures, as 0.9.")
    ] = None,
    risk: Annotated[
        float | None, typer.Option(help="Accept as long as so few are wrong, as 0.05.")
    ] = None,
    reject_by: Annotated[str, typer.Option(help=BY)] = "entropy",
    draws: Draws = None,
    data: Data = None,
    root: Root = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Fit temperature, sets of classes or rejection on validation images of the sources.

    What is fitted is stored with the run in place of what was before; predict and evaluate use it.
    Without any of the options: --temperature --conformal 0.9 --coverage 0.9.
    """
    if not temperature and conformal is None and coverage is None and risk is None:
        temperature, conformal, coverage = True, 0.9, 0.9
    found = stored_run(run, device, raw=True)

    from bayesdg.evaluate.recalibration import FILE, wanted_from

    wanted: dict[str, Any] = {
        "temperature": temperature, "conformal": conformal, "coverage": coverage, "risk": risk,
        "reject_by": reject_by,
    }  # fmt: skip
    wanted_from(wanted)  # before the data set is opened
    dataset = dataset_of(found, data, root)
    with held(found), messages.status("calibrating"):
        fit = found.calibrate(dataset, draws, **wanted)
    if as_json:
        typer.echo(fit.model_dump_json(indent=1))
        return
    for line in in_words(fit):
        typer.echo(line)
    assert found.path is not None
    typer.echo(f"\nwritten to {found.path / FILE}; predict and evaluate use it")


def in_words(fit: Recalibration) -> list[str]:
    """What was fitted, a line each."""
    draws = f"{fit.draws} draws" if fit.draws else "mean weights"
    lines = [f"fitted to {fit.num_images:,} validation images of {', '.join(fit.domains)}; {draws}"]
    if fit.temperature is not None:
        sure = "too cautious" if fit.temperature < 1 else "too sure"
        lines.append(f"temperature  {fit.temperature:.3f}: it was {sure}")
    if fit.sets is not None:
        lines.append(f"sets         hold the right class in {100 * fit.sets.level:g}% of cases")
    if fit.rejection is not None:
        kept = fit.rejection
        lines.append(
            f"rejection    {kept.score} above {kept.threshold:.4g}: accepts "
            f"{100 * kept.coverage:.1f}%, of which {100 * kept.risk:.1f}% are wrong"
        )
    return lines
