"""`bayesdg evaluate`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesdg.cli.data import AsJson, Root, bar
from bayesdg.cli.evaluation import print_evaluation, print_intervals, worst_domain
from bayesdg.cli.stored import Data, Device, Draws, RunFolder, dataset_of, held, stored_run
from bayesdg.cli.terminal import messages
from bayesdg.data.known import expanded
from bayesdg.data.tree import shown
from bayesdg.errors import UsageError
from bayesdg.evaluate.statistics import STATISTICS
from bayesdg.names import choose
from bayesdg.records import TRAINED, detections_of

if TYPE_CHECKING:
    from bayesdg.data import Images
    from bayesdg.evaluate.bootstrap import Interval
    from bayesdg.evaluate.recalibration import Recalibration
    from bayesdg.training.run import Run


def evaluate(
    run: RunFolder,
    data: Data = None,
    root: Root = None,
    draws: Draws = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER|NAME", help="Images of none of the classes, to be detected; repeatable."
        ),
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Bootstrap intervals, too; takes a while.")
    ] = False,
    statistics: Annotated[
        str,
        typer.Option(
            help="Of batch norm: trained; sources, of their training images anew; or own, of each "
            "domain's own judged images, which is TRANSDUCTIVE and kept apart."
        ),
    ] = TRAINED,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Test a run on every domain, the unseen ones included, and keep the results with it.

    Of a data set given with --ood the test images are taken, of the run's source domains where it
    has domains of those names.
    """
    choose("statistics", statistics, STATISTICS)  # before torch is loaded
    found = stored_run(run, device)
    used = found.used_draws(draws)

    from bayesdg.evaluate.normalised import check_statistics

    check_statistics(found.learner, statistics)  # before the data set is opened
    if found.recalibration is not None and not found.is_recalibrated(used, statistics):
        _note_left_out(found.recalibration, used)
    dataset = dataset_of(found, data, root)
    others: dict[str, Images] = {}
    for name in ood or ():
        short, images = _elsewhere(found, name, root, others)
        others[short] = images
    with held(found), messages.status("evaluating"):
        results = found.evaluate(dataset, used, others, statistics)
    # Those of earlier evaluations stay in the records.
    names = {*found.task.sources, *found.task.targets, *others}
    detections = [
        detection
        for detection in detections_of(found.records, statistics)
        if detection.draws == used and detection.domain in names
    ]
    with messages.status("resampling"):
        resampled = _intervals(found, used, statistics) if intervals else {}
    if as_json:
        domain, accuracy = worst_domain(results)
        content: dict[str, Any] = {
            "statistics": statistics,
            "transductive": STATISTICS[statistics].is_transductive,
            "results": [dataclasses.asdict(result) for result in results],
            "worst_domain": {"domain": domain, "accuracy": accuracy},
            "detections": [dataclasses.asdict(detection) for detection in detections],
        }
        if intervals:
            content["intervals"] = {
                domain: {name: dataclasses.asdict(value) for name, value in metrics.items()}
                for domain, metrics in resampled.items()
            }
        typer.echo(json.dumps(content, indent=1))
        return
    print_evaluation(results, detections)
    if intervals:
        print_intervals(resampled, statistics)
    typer.echo(f"kept in {found.path}")


def _note_left_out(fit: Recalibration, draws: int) -> None:
    what = f"{fit.draws} draws" if fit.draws != draws else "the statistics that training kept"
    messages.print(
        f"note: the recalibration is for {what} and left out", markup=False, soft_wrap=True
    )


def _elsewhere(
    run: Run, name: str, root: Path | None, taken: Collection[str]
) -> tuple[str, Images]:
    """A name for what --ood gives, which is none of those taken, and its images."""
    from bayesdg.data.elsewhere import images_elsewhere

    if name == run.task.dataset:
        raise UsageError(f"--ood {name} is what the run was trained on; give another data set")
    with bar("decoding") as decoding:
        images, skipped = images_elsewhere(
            name, run.frame, run.settings.data, root, run.task.sources, decoding
        )
    for path, reason in skipped.items():
        messages.print(f"note: left out {path}: {reason}", markup=False, soft_wrap=True)
    short = shown(expanded(name).name)
    taken = {*run.task.sources, *run.task.targets, *taken}
    return shown(name) if not short or short in taken else short, images


def _intervals(run: Run, draws: int, statistics: str) -> dict[str, dict[str, Interval]]:
    """Of every metric of every domain, from the predictions that were just stored."""
    from bayesdg.evaluate.scoring import part_intervals
    from bayesdg.evaluate.stored import predictions_path, read_predictions

    assert run.path is not None
    parts = read_predictions(predictions_path(run.path, draws, statistics))
    return {
        part.key.domain: part_intervals(part)
        for part in parts
        if part.key.part != "unknown" and part.key.role != "other"
    }
