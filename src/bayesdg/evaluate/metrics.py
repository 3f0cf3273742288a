"""Arrays in, number out. Imports no torch.

Axes: n images, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import DataError, NumericError

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]


def accuracy(log_probabilities: Floats, labels: Integers) -> float:
    """Share of images whose most probable class is the label.

    >>> accuracy(np.log([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]))
    0.5
    """
    _check(log_probabilities, labels)
    return float((log_probabilities.argmax(-1) == labels).mean())


def nll(log_probabilities: Floats, labels: Integers) -> float:
    """Mean of -log p(label), in nats."""
    _check(log_probabilities, labels)
    return float(-log_probabilities[np.arange(len(labels)), labels].astype(np.float64).mean())


def confidence(log_probabilities: Floats, labels: Integers) -> float:
    """Mean of the largest probability; beside the accuracy it says which way a method errs."""
    _check(log_probabilities, labels)
    return float(np.exp(log_probabilities.max(-1).astype(np.float64)).mean())


def ece(log_probabilities: Floats, labels: Integers, num_bins: int = 15) -> float:
    """Expected calibration error: |confidence - accuracy| over bins of equal width.

    sum_b n_b / n |acc_b - conf_b|, confidence being the largest probability. With few images
    the value is biased upwards: compare it between methods on the same images.

    Args:
        log_probabilities: (n, K).
        labels: (n,).
        num_bins: Bins of confidence, (low, high], over [0, 1].
    """
    _check(log_probabilities, labels)
    confidence = np.exp(log_probabilities.max(-1).astype(np.float64))
    correct = log_probabilities.argmax(-1) == labels
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    gap = np.bincount(bins, weights=confidence - correct, minlength=num_bins)
    return float(np.abs(gap).sum() / len(labels))


METRICS = {"accuracy": accuracy, "nll": nll, "ece": ece, "confidence": confidence}


def _check(log_probabilities: Floats, labels: Integers) -> None:
    """A metric of nothing, or of NaN, is an error and never a number."""
    if len(labels) == 0:
        raise DataError("no samples to evaluate")
    if log_probabilities.ndim != 2 or len(log_probabilities) != len(labels):
        raise DataError(
            f"{log_probabilities.shape} log probabilities do not fit {len(labels)} labels; "
            "(n, K) and (n,) are needed"
        )
    # -inf is a probability of zero; NaN and +inf are none.
    if np.isnan(log_probabilities).any() or (log_probabilities > 1e-4).any():
        raise NumericError("log probabilities hold values that are not of probabilities")
