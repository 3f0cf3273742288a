"""`bayesdg failures`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.data import AsJson, Root
from bayesdg.cli.stored import Data, RunFolder, dataset_of
from bayesdg.cli.terminal import check_folder, console, messages
from bayesdg.data.known import expanded
from bayesdg.errors import BayesdgError, StoredRunError, UsageError
from bayesdg.names import choose

if TYPE_CHECKING:
    from bayesdg.data import ImageSet
    from bayesdg.evaluate.failures import Failure
    from bayesdg.evaluate.stored import PartKey, PredictedPart


def failures(
    run: RunFolder,
    num: Annotated[int, typer.Option(min=1, max=100, help="Images of each kind per domain.")] = 8,
    domain: Annotated[list[str] | None, typer.Option(help="Only this domain; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="A PNG to write, with the pictures.")] = None,
    draws: Annotated[
        int | None, typer.Option(min=0, help="Of which predictions; the most draws without.")
    ] = None,
    data: Data = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show the most confident mistakes and the least sure answers of an evaluated run's domains."""
    from bayesdg.evaluate.failures import failures as find
    from bayesdg.stored_runs import read_run

    run = expanded(run)
    if out is not None:
        if out.suffix.lower() != ".png" or out.is_dir():
            raise UsageError(f"--out {out}: pictures are written as a PNG; end its name in .png")
        check_folder(out.parent)
    stored = read_run(run)
    parts = stored_parts(run, draws, domain)
    found = find(parts, num)
    try:
        with messages.status("loading torch"):
            from bayesdg.evaluate.gallery import gallery, images_of
        dataset = dataset_of(stored, data, root)
        images = images_of(dataset, stored.task.known_classes, parts)
    except BayesdgError as error:
        if out is not None or data is not None:
            raise
        messages.print(f"no file names: {error}", markup=False, soft_wrap=True)
        images = {}
    if out is not None:
        gallery(found, images, stored.task.classes).save(out, format="PNG")
    rows = [_row(failure, images, stored.task.classes) for failure in found]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    else:
        _print(rows)
        if out is not None:
            typer.echo(f"written to {out}")


def stored_parts(
    run: Path, draws: int | None, domains: Sequence[str] | None
) -> list[PredictedPart]:
    """Predictions that `bayesdg evaluate` has left, of some domains or all."""
    from bayesdg.evaluate.stored import predictions_path, read_predictions, stored_draws

    there = stored_draws(run)
    if not there:
        raise StoredRunError(f"no predictions in {run}; bayesdg evaluate {run} makes them")
    if draws is not None and draws not in there:
        raise UsageError(
            f"no predictions of {draws} draws in {run}; there are those of "
            f"{', '.join(map(str, there))}"
        )
    parts = read_predictions(predictions_path(run, there[-1] if draws is None else draws))
    names = {part.key.domain: part.key.domain for part in parts}
    wanted = [choose("domain", name, names, str(run)) for name in domains or names]
    return [part for part in parts if part.key.domain in wanted]


def _row(
    failure: Failure, images: Mapping[PartKey, ImageSet], classes: Sequence[str]
) -> dict[str, Any]:
    """For a program: names instead of numbers."""
    file = None
    if failure.key in images:
        from bayesdg.data.folders import file_of

        file = file_of(images[failure.key].images, failure.row)
    top = zip(failure.classes, failure.probabilities, strict=True)
    return {
        **dataclasses.asdict(failure.key),
        "kind": failure.kind,
        "row": failure.row,
        "file": file,
        "class": None if failure.label < 0 else classes[failure.label],
        "right": failure.is_right,
        "top": [{"class": classes[label], "probability": p} for label, p in top],
        "entropy": failure.entropy,
        "epistemic": failure.epistemic,
    }


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("domain", "kind", "image", "is", "first guess", "second guess"):
        table.add_column(column, overflow="fold")  # nothing is cut where lines are short
    for column in ("H", "MI"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        guesses = [f"{guess['probability']:.3f} {guess['class']}" for guess in row["top"]]
        image = row["file"] or f"{row['part']} {row['row']}"
        is_ = "(unknown class)" if row["class"] is None else row["class"]
        table.add_row(
            *map(escape, (row["domain"], row["kind"], image, is_, *guesses)),
            f"{row['entropy']:.2f}", f"{row['epistemic']:.2f}",
        )  # fmt: skip
    console.print(table)
    typer.echo("H: entropy, MI: what of it comes from the weights; both in nats")
