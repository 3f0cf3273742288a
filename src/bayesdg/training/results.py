"""What a run says about every domain, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bayesdg.data import Domain, DomainDataset, Images
from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.evaluation import Evaluation
from bayesdg.evaluate.normalised import statistics_used
from bayesdg.evaluate.recalibration import Recalibration
from bayesdg.evaluate.scoring import detections, part_metrics
from bayesdg.evaluate.stored import PredictedPart
from bayesdg.methods.learner import Learner
from bayesdg.names import choose
from bayesdg.records import TRAINED, DetectionRecord, Record, ResultRecord
from bayesdg.training.about import Task

Result = ResultRecord | DetectionRecord


def predicted_parts(
    learner: Learner,
    task: Task,
    dataset: DomainDataset,
    draws: int,
    others: Mapping[str, Images],
    statistics: str = TRAINED,
) -> list[PredictedPart]:
    """Predictions on the sources, then on the targets, then on images from elsewhere."""
    sources, targets = chosen_domains(dataset, task)
    for name, images in others.items():
        if name in (*sources, *targets):
            raise UsageError(f"{name!r} is a domain of the run; images from elsewhere need a name")
        check_shape(tuple(images.shape[1:]), task)
    train = [domain.train.of_classes(task.known_classes).images for domain in sources.values()]
    with statistics_used(learner, statistics, train) as around:
        evaluation = Evaluation(learner, draws, task.known_classes, sources, around)
        parts = [part for d in sources.values() for part in evaluation.domain(d, "source")]
        parts += [part for d in targets.values() for part in evaluation.domain(d, "target")]
        return parts + [evaluation.unknown(name, images) for name, images in others.items()]


def chosen_domains(
    dataset: DomainDataset, task: Task
) -> tuple[dict[str, Domain], dict[str, Domain]]:
    """Sources and targets of the run, if this is the data set that it was trained on."""
    if dataset.classes != task.classes:
        raise DataError(
            f"{dataset.name} has other classes than this run was trained on: "
            f"{', '.join(task.classes)}"
        )
    check_shape(dataset.image_shape, task)
    sources, targets = (
        {name: choose("domain", name, dataset.domains, dataset.name) for name in names}
        for names in (task.sources, task.targets)
    )
    return sources, targets


def check_shape(shape: tuple[int, ...], task: Task) -> None:
    """Images have to be as those trained on."""
    if shape != task.image_shape:
        raise UsageError(
            f"images have shape {shape}, this run was trained on {task.image_shape}: "
            "channels, height, width"
        )


def judged(
    parts: Sequence[PredictedPart],
    subject: Mapping[str, Any],
    draws: int,
    recalibration: Recalibration | None = None,
    statistics: str = TRAINED,
) -> list[Result]:
    """A result for each part with labels, then every detection.

    Args:
        parts: Of one run.
        subject: What the run is; the fields that its records share.
        draws: Weight draws behind the predictions.
        recalibration: Of the run, with these draws and as it was trained.
        statistics: Of batch norm behind the predictions.
    """
    common = {**subject, "draws": draws, "statistics": statistics}
    num_unknown = {part.key.domain: len(part) for part in parts if part.key.part == "unknown"}
    results: list[Result] = [
        ResultRecord(
            **common,
            domain=part.key.domain,
            role=part.key.role,
            part=part.key.part,
            num_images=len(part),
            num_excluded=num_unknown.get(part.key.domain, 0),
            metrics=part_metrics(part),
            recalibrated=recalibration.metrics(part) if recalibration else None,
        )
        for part in parts
        if part.key.role != "other" and part.key.part != "unknown"
    ]
    for found in detections(parts):
        results.append(DetectionRecord(**common, **dataclasses.asdict(found)))
    return results


def renewed(records: Sequence[Record], found: Sequence[Result]) -> list[Record]:
    """The records without earlier versions of what was found now, and that behind them."""
    fresh = {_subject(record) for record in found}
    return [*(record for record in records if _subject(record) not in fresh), *found]


def _subject(record: Record) -> tuple[object, ...] | None:
    """What a result is about; None for other records, which nothing replaces."""
    if isinstance(record, ResultRecord):
        return record.domain, record.part, record.draws, record.statistics
    if isinstance(record, DetectionRecord):
        return record.domain, record.task, record.score, record.draws, record.statistics
    return None
