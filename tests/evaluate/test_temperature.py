"""Temperature scaling against scikit-learn and a search by SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from bayesdg.errors import DataError, NumericError, UsageError
from bayesdg.evaluate.calibration import ece
from bayesdg.evaluate.metrics import nll
from bayesdg.evaluate.temperature import LOWEST, best_temperature, tempered
from forecasts import calibrated, guesses


def test_of_two_classes_it_is_the_slope_of_a_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    log_odds = 3 * rng.normal(size=2000)
    labels = (rng.random(2000) < 1 / (1 + np.exp(-0.4 * log_odds))).astype(int)
    log_p = -np.logaddexp(0, np.stack([log_odds, -log_odds], -1))
    line = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10)
    slope = line.fit(log_odds[:, None], labels).coef_[0, 0]
    assert best_temperature(log_p, labels) == pytest.approx(1 / slope, rel=1e-5)


@pytest.mark.parametrize("distortion", [0.2, 0.7, 1.5, 6.0])
def test_of_more_classes_it_is_what_a_search_finds(distortion: float) -> None:
    log_p, labels = calibrated(3000)
    distorted = tempered(log_p, distortion)
    found = minimize_scalar(
        lambda log_t: nll(tempered(distorted, np.exp(log_t)), labels),
        bounds=(-4, 4), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    temperature = best_temperature(distorted, labels)
    assert temperature == pytest.approx(np.exp(found.x), rel=1e-4)
    # What was calibrated before it was distorted is so again.
    assert temperature == pytest.approx(1 / distortion, rel=0.1)
    assert ece(tempered(distorted, temperature), labels) < 0.5 * ece(distorted, labels)


def test_answers_stay_and_rows_sum_to_one() -> None:
    log_p, _ = guesses()
    for temperature in (0.01, 1.0, 30.0):
        scaled = tempered(log_p, temperature)
        assert (scaled.argmax(-1) == log_p.argmax(-1)).all()
        np.testing.assert_allclose(np.exp(scaled).sum(-1), 1)
    np.testing.assert_allclose(tempered(log_p, 1.0), log_p)


def test_the_coldest_and_the_hottest_of_many_classes_are_numbers() -> None:
    """K equal probabilities stay equal; without care exp(log(1 / 345) / T) is 0 for all of them."""
    equal = np.full((2, 345), -np.log(345))
    for temperature in (1e-3, 1e3):
        np.testing.assert_allclose(tempered(equal, temperature), equal)
        assert np.isfinite(tempered(guesses()[0], temperature)).all()


def test_impossible_classes_stay_impossible() -> None:
    """And the others share: 0.8^2 to 0.2^2."""
    with np.errstate(divide="ignore"):
        log_p = np.log([[0.8, 0.2, 0.0], [1.0, 0.0, 0.0]])
    expected = [[0.64 / 0.68, 0.04 / 0.68, 0], [1, 0, 0]]
    np.testing.assert_allclose(np.exp(tempered(log_p, 0.5)), expected)


def test_ties_alone_do_not_stop_it() -> None:
    """An image whose two classes are equal is no mistake that a temperature could mend."""
    log_p = np.log([[0.5, 0.5], *[[0.9, 0.1]] * 3])
    assert best_temperature(log_p, np.array([1, 0, 0, 0])) == LOWEST


def test_a_temperature_that_does_not_exist_is_an_error() -> None:
    log_p, _ = guesses()
    with pytest.raises(DataError, match="all 500 images are classified right"):
        best_temperature(log_p, log_p.argmax(-1))
    with pytest.raises(DataError, match="no better than guessing"):
        best_temperature(log_p, log_p.argmin(-1))
    with pytest.raises(DataError, match="no samples"):
        best_temperature(log_p[:0], np.zeros(0, int))
    with pytest.raises(NumericError, match="probability of zero"):
        best_temperature(np.array([[0.0, -np.inf], [0.0, -np.inf]]), np.array([0, 1]))
    with pytest.raises(UsageError, match="above 0"):
        tempered(log_p, 0.0)
