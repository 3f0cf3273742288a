"""Mahalanobis distances against scipy."""

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

from bayesdg.errors import DataError
from bayesdg.evaluate.density import RIDGE, FeatureDensity


def test_distances_are_those_from_the_nearest_class_mean() -> None:
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, 3] * 40)
    mixing = rng.normal(size=(4, 4))
    features = (rng.normal(size=(120, 4)) + 3 * labels[:, None]) @ mixing
    density = FeatureDensity.fit(features, labels)
    means = [features[labels == label].mean(0) for label in (0, 1, 3)]
    centred = features - np.stack(means)[np.searchsorted([0, 1, 3], labels)]
    covariance = np.cov(centred.T, bias=True)
    covariance += RIDGE * np.trace(covariance) / 4 * np.eye(4)
    inverse = np.linalg.inv(covariance)
    new = rng.normal(size=(7, 4))
    expected = [min(mahalanobis(x, mean, inverse) ** 2 for mean in means) for x in new]
    np.testing.assert_allclose(density.distance(new), expected, rtol=1e-8)


def test_features_that_never_vary_are_finite() -> None:
    features = np.c_[np.zeros(10), np.arange(10.0)]
    density = FeatureDensity.fit(features, np.arange(10) % 2)
    assert np.isfinite(density.distance(np.array([[1.0, 5.0]]))).all()
    assert np.isfinite(FeatureDensity.fit(np.zeros((4, 2)), np.arange(4)).distance(features)).all()


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="no training features"):
        FeatureDensity.fit(np.zeros((0, 3)), np.zeros(0, int))
