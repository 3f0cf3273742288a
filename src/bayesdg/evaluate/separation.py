"""What the eye should see on a feature map, as numbers. Imports no torch.

Axes: n images, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.evaluate.arrays import Floats

Names = NDArray[Any]

FOLDS = 5


@dataclass(frozen=True)
class ClassDistances:
    """Mean Euclidean distances between pairs of images; None where there is no such pair.

    In units of the mean distance of any two of the images, so that the features of different
    networks can be compared.

    Attributes:
        intra: Of two images of the same class.
        inter: Of two images of different classes.
    """

    intra: float | None
    inter: float | None


def class_distances(features: Floats, labels: Names) -> ClassDistances:
    """Within and between classes, of (n, D) features with (n,) labels; all pairs count once.

    >>> class_distances(np.array([[0.0], [1.0], [4.0]]), np.array([0, 0, 1]))
    ClassDistances(intra=0.375, inter=1.3125)
    """
    if len(labels) < 2:
        return ClassDistances(None, None)
    above = np.triu_indices(len(labels), k=1)
    distance = _distances(features, features)[above]
    same = (labels[:, None] == labels[None, :])[above]
    unit = float(distance.mean())
    return ClassDistances(_relative(distance[same], unit), _relative(distance[~same], unit))


def class_gap(features: Floats, labels: Names, is_target: NDArray[np.bool_]) -> float | None:
    """How far target images lie from source images of their class, in 0..: 1 is no gap.

    The mean distance of a source and a target image of the same class, over that of two source
    images of the same class.
    """
    distance = _distances(features, features)
    same = labels[:, None] == labels[None, :]
    across = distance[same & is_target[:, None] & ~is_target[None, :]]
    among = distance[
        same & ~is_target[:, None] & ~is_target[None, :] & ~np.eye(len(labels), dtype=bool)
    ]
    return _relative(across, float(among.mean())) if len(among) else None


def domain_separability(features: Floats, domains: Names) -> float | None:
    """Balanced accuracy of a linear classifier of the domain, cross-validated, in 0..1.

    Logistic regression on standardised features, five folds. 1 / (number of domains) is guessing:
    the features do not tell where an image is from. None with fewer than two domains, or fewer
    images of one than there are folds.
    """
    names, count = np.unique(domains, return_counts=True)
    if len(names) < 2 or count.min() < FOLDS:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    linear = LogisticRegression(class_weight="balanced", C=0.01, max_iter=1000)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    with threadpool_limits(1):
        found = cross_val_predict(
            make_pipeline(StandardScaler(), linear), features, domains, cv=folds
        )
    return float(np.mean([(found[domains == name] == name).mean() for name in names]))


def _distances(left: Floats, right: Floats) -> NDArray[np.float64]:
    """(n, D), (m, D) -> (n, m); centred first, so that squares of large means do not cancel."""
    centre = left.mean(0, dtype=np.float64)
    a, b = left - centre, right - centre
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    return np.sqrt(np.maximum(squares, 0))


def _relative(distance: Floats, unit: float) -> float | None:
    return float(distance.mean()) / unit if len(distance) and unit > 0 else None
