"""How far could a figure be off, had other images (or seeds) been drawn? Imports no torch.

Percentile intervals: the metric of many resamples with replacement, and the quantiles of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import DataError, NumericError, UsageError
from bayesdg.evaluate.arrays import Floats


@dataclass(frozen=True)
class Interval:
    """A figure and where it could be.

    Attributes:
        value: Of the images at hand.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def interval(
    metric: Callable[..., float],
    *arrays: NDArray[Any],
    level: float = 0.95,
    num: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a metric over resampled rows.

    Calibration errors are biased upwards, and a resample more so than the images: their interval
    is shifted up and may lie above the value.

    Args:
        metric: `metric(*arrays)` is a number.
        arrays: (n, ...) each; a resample takes the same rows of all of them.
        level: Share of resamples within the interval.
        num: Resamples. One on which the metric has no meaning, such as AUROC where all images
            are of a kind, is left out.
        seed: Of the resamples; with the same seed two metrics are judged on the same ones.
    """
    if not 0 < level < 1 or num < 1:
        raise UsageError(f"level {level} with {num} resamples; 0 < level < 1 <= num is needed")
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1:
        raise DataError(f"arrays of lengths {sorted(lengths)}; the same number of rows is needed")
    length = lengths.pop()
    if length == 0:
        raise DataError("no samples to resample")
    value = metric(*arrays)
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(num):
        rows = generator.integers(length, size=length)
        try:
            values.append(metric(*(array[rows] for array in arrays)))
        except DataError:
            continue
    if not values:
        raise DataError(f"on none of {num} resamples has the metric a meaning; take more")
    # Between values that occurred nothing is interpolated: one may be infinite, as an NLL can be.
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(values, ends, method="inverted_cdf")
    return Interval(float(value), float(low), float(high))


def difference_interval(
    differences: Floats, level: float = 0.95, num: int = 10_000, seed: int = 0
) -> Interval:
    """Percentile interval of the mean of (s,) paired differences, such as ours - ERM by seed.

    Few give too short an interval: of 3, 5 and 10 normal differences, a nominal 95% holds the true
    mean in 74%, 83% and 89% of cases.
    """
    if len(differences) < 2:
        raise DataError(f"{len(differences)} differences; an interval needs at least 2")
    if not np.isfinite(differences).all():
        raise NumericError("differences hold values that are not numbers")
    return interval(np.mean, differences, level=level, num=num, seed=seed)
