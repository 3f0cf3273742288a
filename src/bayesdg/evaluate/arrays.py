"""The arrays that metrics take: do they fit, are they numbers, and what is read off them.

Axes: n images, K classes. Imports no torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import DataError, NumericError

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Booleans = NDArray[np.bool_]

# Probabilities of an image may miss 1 by so much: half precision is still let through.
SUM_TOLERANCE = 0.01


def check_predictions(log_probabilities: Floats, labels: Integers) -> None:
    """A metric of nothing, or of what are no probabilities, is an error and never a number."""
    if len(labels) == 0:
        raise DataError("no samples to evaluate")
    if log_probabilities.ndim != 2 or labels.shape != log_probabilities.shape[:1]:
        raise DataError(
            f"{log_probabilities.shape} log probabilities do not fit {labels.shape} labels; "
            "(n, K) and (n,) are needed"
        )
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"labels are {labels.dtype}; whole numbers are needed, the classes' indices"
        )
    num_classes = log_probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= num_classes:
        raise DataError(
            f"labels are {labels.min()} to {labels.max()}; with {num_classes} classes "
            f"0 to {num_classes - 1} are allowed"
        )
    # -inf is a probability of zero; NaN and +inf are none.
    with np.errstate(over="ignore"):
        sums = np.exp(log_probabilities).sum(-1)
    if not (np.abs(sums - 1) <= SUM_TOLERANCE).all():
        raise NumericError("log probabilities hold values that are not of probabilities")


def answers(log_probabilities: Floats, labels: Integers) -> tuple[Floats, Booleans]:
    """What a classifier answers, after a check: how sure it is, and whether it is right.

    Returns:
        (n,) the largest probability, and (n,) whether its class is the label.
    """
    check_predictions(log_probabilities, labels)
    predicted = log_probabilities.argmax(-1)
    log_confidence = log_probabilities[np.arange(len(labels)), predicted]
    return np.exp(log_confidence.astype(np.float64)), predicted == labels


def check_scores(scores: Floats, flags: Booleans) -> None:
    """(n,) finite numbers and (n,) booleans, at least one of each."""
    if len(scores) == 0:
        raise DataError("no samples to evaluate")
    if scores.ndim != 1 or scores.shape != flags.shape or flags.dtype != np.bool_:
        raise DataError(
            f"{scores.shape} scores do not fit {flags.shape} flags of {flags.dtype}; "
            "(n,) numbers and (n,) booleans are needed"
        )
    if not np.isfinite(scores).all():
        raise NumericError("scores hold values that are not numbers")


def running_counts(scores: Floats, flags: Booleans) -> tuple[Floats, Integers, Integers]:
    """How many images, and how many flagged ones, have at most each score, after a check.

    Equal scores are one step: no threshold can tell them apart.

    Returns:
        (m,) the distinct scores, rising; (m,) images up to each; (m,) flagged images up to each.
    """
    check_scores(scores, flags)
    distinct, step = np.unique(scores, return_inverse=True)
    count = np.bincount(step).cumsum()
    flagged = np.bincount(step[flags], minlength=len(distinct)).cumsum()
    return distinct, count, flagged
