"""How far an image's features are from all that training saw.

A Gaussian per class with one covariance for all (Lee et al., NeurIPS 2018): the score of an image
is its squared Mahalanobis distance from the nearest class mean. Imports no torch.

Axes: n images, K classes, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import DataError

Floats = NDArray[np.floating[Any]]

# Share of the mean variance that is added to every direction: some features never vary.
RIDGE = 1e-3


@dataclass(frozen=True)
class FeatureDensity:
    """Class means in coordinates in which the shared covariance is the identity.

    Attributes:
        whiten: (D, D).
        means: (K', D), whitened, of the classes that were there.
    """

    whiten: NDArray[np.float64]
    means: NDArray[np.float64]

    @classmethod
    def fit(cls, features: Floats, labels: NDArray[np.integer[Any]]) -> FeatureDensity:
        """From training features (n, D) and their labels (n,)."""
        if len(features) == 0:
            raise DataError("no training features to fit a density to")
        features = np.asarray(features, np.float64)
        classes, index = np.unique(labels, return_inverse=True)
        means = np.stack([features[labels == label].mean(0) for label in classes])
        centred = features - means[index]
        covariance = centred.T @ centred / len(features)
        ridge = RIDGE * max(float(np.trace(covariance)) / len(covariance), 1e-12)
        values, vectors = np.linalg.eigh(covariance + ridge * np.eye(len(covariance)))
        whiten = vectors / np.sqrt(values)
        return cls(whiten, means @ whiten)

    def distance(self, features: Floats) -> NDArray[np.float64]:
        """(n, D) -> (n,): squared Mahalanobis distance from the nearest class mean."""
        white = np.asarray(features, np.float64) @ self.whiten
        distances = [np.square(white - mean).sum(-1) for mean in self.means]
        result: NDArray[np.float64] = np.min(distances, axis=0)
        return result
