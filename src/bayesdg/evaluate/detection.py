"""How well does a score tell positives (errors, unseen domains, unknown classes) from the rest?

A higher score means more positive. Equal scores are decided together, as scikit-learn does. Imports
no torch.

Axes: n images, m distinct scores.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesdg.errors import DataError
from bayesdg.evaluate.arrays import Booleans, Floats, Integers, running_counts


def auroc(scores: Floats, positive: Booleans) -> float:
    """P(score of a positive > score of a negative) + P(equal) / 2, in 0..1; 0.5 is guessing.

    The area under the true-positive rate over the false-positive rate, by the trapezoidal rule.

    Args:
        scores: (n,), finite.
        positive: (n,), with both kinds.

    >>> auroc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True]))
    0.875
    """
    true, false = _detected(scores, positive)
    return float(np.trapezoid(true / true[-1], false / false[-1]))


def aupr(scores: Floats, positive: Booleans) -> float:
    """Average precision, in 0..1; guessing gives the share of positives.

    sum_t (recall_t - recall_{t-1}) precision_t over falling thresholds t: the area under precision
    over recall, without interpolation. Arguments as in `auroc`.
    """
    true, false = _detected(scores, positive)
    precision = true[1:] / (true[1:] + false[1:])
    return float(np.diff(true / true[-1]) @ precision)


def fpr95(scores: Floats, positive: Booleans) -> float:
    """Share of negatives taken for positives where at least 95% of positives are found, in 0..1.

    At the highest threshold that finds so many; low is good. Arguments as in `auroc`.
    """
    true, false = _detected(scores, positive)
    return float((false / false[-1])[np.argmax(true / true[-1] >= 0.95)])


DETECTION: dict[str, Callable[[Floats, Booleans], float]] = {
    "auroc": auroc,
    "aupr": aupr,
    "fpr95": fpr95,
}


def _detected(scores: Floats, positive: Booleans) -> tuple[Integers, Integers]:
    """(m + 1,) positives and negatives at or above each falling threshold, from none to all."""
    # Floats first: -1 of unsigned whole numbers is 255, and -0 stays the lowest of them.
    _, count, true = running_counts(-np.asarray(scores, np.float64), positive)
    if not 0 < true[-1] < len(scores):
        raise DataError(
            f"{true[-1]} of {len(scores)} samples are positive; detection needs both kinds"
        )
    return np.append(0, true), np.append(0, count - true)
