"""What can stand in a table: how it is called, printed, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bayesdg.errors import UsageError
from bayesdg.names import unknown


@dataclass(frozen=True)
class Measure:
    """How a number is shown.

    Attributes:
        label: Heads its column.
        better: Which way; None where neither is.
        scale: What it is multiplied by.
        digits: Behind the point.
    """

    label: str
    better: Literal["high", "low"] | None
    scale: float = 100
    digits: int = 2


MEASURES = {
    "accuracy": Measure("accuracy %", "high"),
    "macro_accuracy": Measure("macro accuracy %", "high"),
    "nll": Measure("NLL", "low", 1, 3),
    "brier": Measure("Brier", "low", 1, 3),
    "ece": Measure("ECE %", "low"),
    "ece_mass": Measure("ECE, equal mass %", "low"),
    "mce": Measure("MCE %", "low"),
    "classwise_ece": Measure("classwise ECE %", "low"),
    "aurc": Measure("AURC %", "low"),
    "confidence": Measure("confidence %", None),
    "entropy": Measure("entropy", None, 1, 3),
    # Of time: of one image under the draws of the test, where a plan asked for that.
    "milliseconds": Measure("ms an image", "low", 1, 3),
}
COSTS = {
    # Of a training step; what is extra is so beside the network without a Bayesian layer.
    "layers": Measure("Bayesian layers", None, 1, 0),
    "extra_multiply_adds": Measure("extra multiply-adds (M)", None, 1, 2),
    "extra_parameters": Measure("extra parameters (M)", None, 1, 3),
    "saved_gib": Measure("kept for backward (GiB)", None, 1, 2),
    "memory_gib": Measure("peak memory (GiB)", None, 1, 2),
    "step_seconds": Measure("seconds", None, 1, 3),
}
DETECTION = {
    "auroc": Measure("AUROC %", "high"),
    "aupr": Measure("AUPR %", "high"),
    "fpr95": Measure("FPR95 %", "low"),
}
TASKS = ("errors", "domain", "unknown")
# What every method has; the others can be asked for, such as domain_auroc:density.
SCORE = "entropy"


def measure(name: str) -> Measure:
    """How a metric is shown; a UsageError for one that is not known.

    >>> measure("errors_auroc").label
    'errors AUROC %'
    """
    if name in MEASURES or name in COSTS:
        return {**MEASURES, **COSTS}[name]
    found = detection(name)
    if found is None:
        allowed = [*MEASURES, *(f"{task}_{kind}" for task in TASKS for kind in DETECTION)]
        raise UsageError(unknown("metric", name, allowed))
    task, kind, score = found
    shown = DETECTION[kind]
    by = "" if score == SCORE else f" by {score}"
    return Measure(f"{task} {shown.label}{by}", shown.better, shown.scale, shown.digits)


def detection(name: str) -> tuple[str, str, str] | None:
    """Task, metric and score of a name such as 'domain_auroc:density'; None if it is none."""
    main, _, score = name.partition(":")
    task, _, kind = main.partition("_")
    return (task, kind, score or SCORE) if task in TASKS and kind in DETECTION else None
