"""From stored predictions to the numbers that are reported. Imports no torch.

A pure function of what `stored.py` keeps, so that every reported number can be recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesdg.evaluate.arrays import Floats, Integers, answers
from bayesdg.evaluate.bootstrap import Interval, interval
from bayesdg.evaluate.calibration import brier_decomposition
from bayesdg.evaluate.detection import DETECTION
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.rejection import coverage_at_risk, risk_at_coverage
from bayesdg.evaluate.stored import PredictedPart

Scores = NDArray[np.floating[Any]]
Task = Literal["errors", "domain", "unknown"]


def _stored(name: str) -> Callable[[PredictedPart], Scores]:
    return lambda part: part.scores[name]


# What may tell that an answer is not to be trusted; the larger, the less.
SCORES: dict[str, Callable[[PredictedPart], Scores]] = {
    "max_probability": lambda part: 1 - np.exp(part.log_probabilities.max(-1).astype(np.float64)),
    "entropy": _stored("entropy"),
    "mutual_information": _stored("epistemic"),
    "energy": _stored("energy"),
    "density": _stored("density"),
}


@dataclass(frozen=True)
class Detection:
    """How well one score does one task.

    Attributes:
        domain: Where the positive images are from.
        task: See DetectionRecord.
        score: A name in SCORES.
        num_positive: Of images.
        num_negative: Of images.
        metrics: By name.
    """

    domain: str
    task: Task
    score: str
    num_positive: int
    num_negative: int
    metrics: dict[str, float]


def _coverage_at_5(log_p: Floats, labels: Integers) -> float:
    confidence, correct = answers(log_p, labels)
    return coverage_at_risk(1 - confidence, correct, 0.05)


def _risk_at_90(log_p: Floats, labels: Integers) -> float:
    confidence, correct = answers(log_p, labels)
    return risk_at_coverage(1 - confidence, correct, 0.9)


REJECTION = {"coverage_at_5": _coverage_at_5, "risk_at_90": _risk_at_90}


def part_metrics(part: PredictedPart) -> dict[str, float]:
    """Every metric of a part with labels; what the Brier score is made of; two thresholds.

    'coverage_at_5' is the largest share of images that can be accepted with at most 5% errors,
    'risk_at_90' the error rate if at least 90% are accepted, both by the largest probability.
    """
    log_p, labels = part.log_probabilities, part.labels
    found = {name: f(log_p, labels) for name, f in METRICS.items()}
    for name, value in asdict(brier_decomposition(log_p, labels)).items():
        found[f"brier_{name}"] = value
    return found | {name: f(log_p, labels) for name, f in REJECTION.items()}


def part_intervals(part: PredictedPart) -> dict[str, Interval]:
    """95% bootstrap intervals of every metric of a part with labels, and of both thresholds."""
    return {
        name: interval(metric, part.log_probabilities, part.labels)
        for name, metric in (METRICS | REJECTION).items()
    }


def detections(parts: Sequence[PredictedPart]) -> list[Detection]:
    """Every task that the parts allow, with every score they have.

    Errors: wrong against right answers on a target. Domain: all known-class images of a target
    against those of the sources. Unknown: images of unknown classes against the others of the
    same domain or, where they are from elsewhere, against the sources'.
    """
    sources = [part for part in parts if part.key.role == "source"]
    found: list[Detection] = []
    for part in parts:
        if part.key.part == "unknown":
            own = [p for p in parts if p.key.domain == part.key.domain and p.key.part != "unknown"]
            found += _told_apart("unknown", part.key.domain, [part], own or sources)
        elif part.key.role == "target":
            wrong = part.log_probabilities.argmax(-1) != part.labels
            found += _told_apart(
                "errors", part.key.domain, [_rows(part, wrong)], [_rows(part, ~wrong)]
            )
            found += _told_apart("domain", part.key.domain, [part], sources)
    return found


def _told_apart(
    task: Task, domain: str, positive: Sequence[PredictedPart], negative: Sequence[PredictedPart]
) -> Iterator[Detection]:
    num_positive, num_negative = (sum(map(len, side)) for side in (positive, negative))
    if not num_positive or not num_negative:
        return  # no wrong answer, say: there is nothing to tell apart
    labels = np.arange(num_positive + num_negative) < num_positive
    for name, score in SCORES.items():
        if name == "density" and not all("density" in p.scores for p in (*positive, *negative)):
            continue
        values = np.concatenate([score(part).astype(np.float64) for part in (*positive, *negative)])
        metrics = {metric: f(values, labels) for metric, f in DETECTION.items()}
        yield Detection(domain, task, name, num_positive, num_negative, metrics)


def _rows(part: PredictedPart, rows: NDArray[np.bool_]) -> PredictedPart:
    scores = {name: values[rows] for name, values in part.scores.items()}
    return PredictedPart(part.key, part.labels[rows], part.log_probabilities[rows], scores)
