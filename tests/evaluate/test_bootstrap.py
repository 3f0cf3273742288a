"""Intervals against known standard errors and against scipy."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from bayesdg.errors import DataError, NumericError, UsageError
from bayesdg.evaluate.bootstrap import Interval, difference_interval, interval
from bayesdg.evaluate.detection import auroc
from bayesdg.evaluate.metrics import accuracy, nll
from forecasts import calibrated


def test_the_width_is_that_of_the_known_standard_error() -> None:
    """An accuracy a of n images has standard error sqrt(a (1 - a) / n)."""
    log_p, labels = calibrated(2000)
    a = accuracy(log_p, labels)
    found = interval(accuracy, log_p, labels)
    assert found.value == a
    assert found.low < a < found.high
    expected = 2 * 1.96 * np.sqrt(a * (1 - a) / 2000)
    assert found.high - found.low == pytest.approx(expected, rel=0.08)


def test_ends_are_scipys() -> None:
    log_p, labels = calibrated(1000)
    losses = -log_p[np.arange(1000), labels]
    found = interval(nll, log_p, labels, level=0.9, num=4000)
    expected = bootstrap(
        (losses,), np.mean, confidence_level=0.9, n_resamples=4000, method="percentile", rng=0
    ).confidence_interval
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.05 * width)
    assert found.high == pytest.approx(expected.high, abs=0.05 * width)


def test_nominal_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = []
    for seed in range(300):
        found = interval(np.mean, rng.normal(size=80), level=0.8, num=150, seed=seed)
        hits.append(found.low <= 0 <= found.high)
    assert np.mean(hits) == pytest.approx(0.8, abs=0.06)  # two and a half standard errors


def test_rows_of_all_arrays_stay_together() -> None:
    values = np.arange(50.0)

    def apart(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs(a - b[:, 0]).max())

    assert interval(apart, values, values[:, None]) == Interval(0, 0, 0)


def test_the_seed_decides() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert interval(np.mean, values) == interval(np.mean, values, seed=0)
    assert interval(np.mean, values) != interval(np.mean, values, seed=1)


def test_resamples_without_meaning_are_left_out() -> None:
    """A third of the resamples lack the one positive image; with it the area is 0.5 to 1."""
    scores, positive = np.arange(10.0), np.arange(10) == 7
    found = interval(auroc, scores, positive)
    assert found.value == pytest.approx(7 / 9)
    assert 0.4 < found.low < found.value < found.high <= 1


def test_no_resample_with_meaning_is_an_error() -> None:
    """Half of the resamples of two images are of one kind; this one is, as its mean tells."""
    scores, positive = np.array([0.1, 0.2]), np.array([True, False])
    seed = next(s for s in range(20) if interval(np.mean, scores, num=1, seed=s).low == 0.1)
    with pytest.raises(DataError, match="on none of 1 resamples"):
        interval(auroc, scores, positive, num=1, seed=seed)


def test_a_metric_may_be_infinite_on_some_resamples() -> None:
    with np.errstate(divide="ignore"):
        log_p = np.log([[1, 0], *[[0.5, 0.5]] * 9])
    found = interval(nll, log_p, np.ones(10, dtype=int))
    assert (found.low, found.high) == (pytest.approx(np.log(2)), np.inf)


def test_a_difference_that_is_always_the_same_is_certain() -> None:
    assert difference_interval(np.full(5, 0.25)) == Interval(0.25, 0.25, 0.25)


def test_a_difference_of_two_seeds_has_known_resamples() -> None:
    """Means 0, 1/2 and 1 with probabilities 1/4, 1/2, 1/4."""
    differences = np.array([0.0, 1.0])
    assert difference_interval(differences, level=0.6) == Interval(0.5, 0, 1)
    assert difference_interval(differences, level=0.4) == Interval(0.5, 0.5, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("num_seeds", "coverage"), [(3, 0.74), (5, 0.83), (10, 0.89)])
def test_few_seeds_give_intervals_that_are_as_much_too_short_as_is_said(
    num_seeds: int, coverage: float
) -> None:
    rng = np.random.default_rng(0)
    found = [difference_interval(rng.normal(size=num_seeds), num=200) for _ in range(1000)]
    assert np.mean([f.low <= 0 <= f.high for f in found]) == pytest.approx(coverage, abs=0.03)


def test_what_gives_no_interval_is_refused() -> None:
    with pytest.raises(DataError, match="no samples"):
        interval(np.mean, np.empty(0))
    with pytest.raises(DataError, match=r"lengths \[2, 3\]"):
        interval(np.dot, np.ones(3), np.ones(2))
    with pytest.raises(UsageError, match="level 95"):
        interval(np.mean, np.ones(3), level=95)
    with pytest.raises(DataError, match="1 differences"):
        difference_interval(np.ones(1))
    with pytest.raises(NumericError):
        difference_interval(np.array([1.0, np.nan]))
