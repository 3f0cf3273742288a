"""Sets of classes that hold the right one as often as was asked for. Imports no torch.

Adaptive prediction sets (Romano et al., NeurIPS 2020) in their deterministic form: the most
probable classes, until the mass of those before reaches a threshold. The most probable class is
always among them, and the same picture always gets the same set; for that the sets hold the right
class a little more often than was asked for. There is nothing to be tuned, so all images serve
the threshold: RAPS's penalty pays where hundreds of classes have long noisy tails.

On images drawn as those of the fit, a share of at least `level` of sets holds the right class,
whatever the probabilities are like. Another domain is not drawn so: there it can only be measured.

Axes: n images, K classes.
"""

from __future__ import annotations

import math

import numpy as np

from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.arrays import Booleans, Floats, Integers, check_predictions


def mass_before(log_probabilities: Floats) -> Floats:
    """(n, K): the probability of all classes that come before each class; 0 for the first.

    >>> mass_before(np.log([[0.25, 0.5, 0.25]])).round(10).tolist()
    [[0.5, 0.0, 0.75]]
    """
    order = np.argsort(-log_probabilities, axis=-1, kind="stable")
    falling = np.exp(np.take_along_axis(log_probabilities, order, -1).astype(np.float64))
    before = np.cumsum(falling, -1) - falling
    result = np.empty_like(before)
    np.put_along_axis(result, order, before, -1)
    return result


def conformal_threshold(log_probabilities: Floats, labels: Integers, level: float) -> float:
    """The mass at which sets stop, so that at least `level` of new sets hold the right class.

    The ceil((n + 1) level)-th smallest `mass_before` of the right classes.

    Args:
        log_probabilities: (n, K).
        labels: (n,).
        level: In 0..1.
    """
    if not 0 < level < 1:
        raise UsageError(f"a level of {level} for sets; a share between 0 and 1 is needed, as 0.9")
    check_predictions(log_probabilities, labels)
    rank = math.ceil((len(labels) + 1) * level - 1e-9)
    if rank > len(labels):
        needed = math.ceil(level / (1 - level) - 1e-9)
        raise DataError(
            f"{len(labels)} images are too few for sets at {level:g}: at least {needed} are needed"
        )
    right = mass_before(log_probabilities)[np.arange(len(labels)), labels]
    return float(np.partition(right, rank - 1)[rank - 1])


def prediction_sets(log_probabilities: Floats, threshold: float) -> Booleans:
    """(n, K): whether each class is in the set of each image; at least one is."""
    return mass_before(log_probabilities) <= threshold


def set_metrics(sets: Booleans, labels: Integers) -> dict[str, float]:
    """Share of (n, K) sets that hold the (n,) label, and their mean number of classes."""
    if len(labels) == 0:
        raise DataError("no samples to evaluate")
    held = sets[np.arange(len(labels)), labels]
    return {"set_coverage": float(held.mean()), "set_size": float(sets.sum(-1).mean())}
