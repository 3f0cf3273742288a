"""Arrays in, number out: what is computed for every domain. Imports no torch.

Axes: n images, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bayesdg.errors import DataError, NumericError
from bayesdg.evaluate import rejection
from bayesdg.evaluate.arrays import Floats, Integers, answers, check_predictions
from bayesdg.evaluate.calibration import classwise_ece, ece, ece_mass, mce


def accuracy(log_probabilities: Floats, labels: Integers) -> float:
    """Share of images whose most probable class is the label.

    >>> accuracy(np.log([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]))
    0.5
    """
    _, correct = answers(log_probabilities, labels)
    return float(correct.mean())


def macro_accuracy(log_probabilities: Floats, labels: Integers) -> float:
    """Mean over classes of the accuracy on their images, in 0..1: rare classes count as much.

    1 / K' sum_k (correct images of class k) / (images of class k), over the K' classes that occur
    among the labels.

    >>> macro_accuracy(np.log([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]]), np.array([0, 0, 1]))
    0.5
    """
    _, correct = answers(log_probabilities, labels)
    count = np.bincount(labels)
    hits = np.bincount(labels[correct], minlength=len(count))
    return float((hits[count > 0] / count[count > 0]).mean())


def nll(log_probabilities: Floats, labels: Integers) -> float:
    """Mean of -log p(label), in nats; infinite where a label was held impossible."""
    check_predictions(log_probabilities, labels)
    return float(-log_probabilities[np.arange(len(labels)), labels].astype(np.float64).mean())


def brier(log_probabilities: Floats, labels: Integers) -> float:
    """Mean squared distance of the probabilities from the truth, in 0..2.

    1 / n sum_i sum_k (p_ik - [k = label_i])^2.

    >>> round(brier(np.log([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1])), 10)
    0.37
    """
    check_predictions(log_probabilities, labels)
    distance = np.exp(log_probabilities.astype(np.float64))
    distance[np.arange(len(labels)), labels] -= 1
    return float((distance**2).sum(-1).mean())


def aurc(log_probabilities: Floats, labels: Integers) -> float:
    """`rejection.aurc` with 1 - largest probability as the uncertainty, in 0..1."""
    confidence, correct = answers(log_probabilities, labels)
    return rejection.aurc(1 - confidence, correct)


def confidence(log_probabilities: Floats, labels: Integers) -> float:
    """Mean of the largest probability; beside the accuracy it says which way a method errs."""
    probability, _ = answers(log_probabilities, labels)
    return float(probability.mean())


def worst(accuracies: Mapping[str, float]) -> tuple[str, float]:
    """The domain with the lowest accuracy, and that accuracy; the first among equals.

    >>> worst({"photo": 0.9, "sketch": 0.6, "cartoon": 0.7})
    ('sketch', 0.6)
    """
    if not accuracies:
        raise DataError("no domains to compare")
    if not np.isfinite(list(accuracies.values())).all():
        raise NumericError(f"accuracies that are not numbers have no worst: {dict(accuracies)}")
    return min(accuracies.items(), key=lambda entry: entry[1])


METRICS: dict[str, Callable[[Floats, Integers], float]] = {
    "accuracy": accuracy,
    "macro_accuracy": macro_accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "ece_mass": ece_mass,
    "mce": mce,
    "classwise_ece": classwise_ece,
    "aurc": aurc,
    "confidence": confidence,
}
