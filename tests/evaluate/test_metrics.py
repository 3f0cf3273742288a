"""Metrics against scikit-learn, and what holds for all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, log_loss

from bayesdg.errors import DataError, NumericError
from bayesdg.evaluate import rejection
from bayesdg.evaluate.metrics import (
    METRICS,
    accuracy,
    aurc,
    brier,
    confidence,
    macro_accuracy,
    nll,
    worst,
)
from forecasts import calibrated, guesses

every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def test_accuracy_nll_and_brier_are_scikit_learns() -> None:
    log_p, labels = guesses()
    assert accuracy(log_p, labels) == pytest.approx(accuracy_score(labels, log_p.argmax(-1)))
    assert nll(log_p, labels) == pytest.approx(log_loss(labels, np.exp(log_p)))
    assert brier(log_p, labels) == pytest.approx(brier_score_loss(labels, np.exp(log_p)))


def test_macro_accuracy_is_scikit_learns_balanced_accuracy() -> None:
    log_p, labels = calibrated(500)
    kept = (labels != 3) | (np.arange(500) < 20)  # class 3 is rare
    log_p, labels = log_p[kept], labels[kept]
    expected = balanced_accuracy_score(labels, log_p.argmax(-1))
    assert macro_accuracy(log_p, labels) == pytest.approx(expected)
    assert abs(expected - accuracy(log_p, labels)) > 0.02


def test_macro_accuracy_is_over_the_classes_that_occur() -> None:
    """Classes 0, 0, 2 of four; one of the two 0s and the 2 are right: (1/2 + 1) / 2."""
    p = np.full((3, 4), 0.1)
    p[[0, 1, 2], [0, 1, 2]] = 0.7
    assert macro_accuracy(np.log(p), np.array([0, 0, 2])) == pytest.approx(0.75)


def test_brier_is_between_nothing_and_two() -> None:
    with np.errstate(divide="ignore"):
        sure = np.log(np.eye(3))
    assert brier(sure, np.array([0, 1, 2])) == 0
    assert brier(sure, np.array([1, 2, 0])) == 2


def test_a_label_held_impossible_costs_infinitely_many_nats() -> None:
    with np.errstate(divide="ignore"):
        assert nll(np.log(np.eye(2)), np.array([0, 0])) == np.inf


def test_aurc_rejects_by_the_largest_probability() -> None:
    log_p, labels = calibrated(300)
    p = np.exp(log_p)
    expected = rejection.aurc(1 - p.max(-1), p.argmax(-1) == labels)
    assert aurc(log_p, labels) == pytest.approx(expected, rel=1e-12)


def test_confidence_is_the_mean_of_the_largest_probability() -> None:
    p = np.array([[0.8, 0.2], [0.4, 0.6]])
    assert confidence(np.log(p), np.array([0, 0])) == pytest.approx(0.7)


def test_the_worst_domain_is_the_first_with_the_lowest_accuracy() -> None:
    assert worst({"a": 0.9, "b": 0.5, "c": 0.5}) == ("b", 0.5)
    with pytest.raises(DataError, match="no domains"):
        worst({})
    with pytest.raises(NumericError, match="nan"):
        worst({"a": 0.9, "b": float("nan")})


def test_accuracy_comes_first() -> None:
    assert next(iter(METRICS)) == "accuracy"


@every_metric
@settings(deadline=None)
@given(seed=st.integers(0, 1000), tie=st.booleans())
def test_the_order_of_images_does_not_matter(metric, seed: int, tie: bool) -> None:  # type: ignore[no-untyped-def]
    log_p, labels = calibrated(60)
    if tie:
        log_p = log_p[np.arange(60) // 6 * 6]  # six images in a row have the same probabilities
    order = np.random.default_rng(seed).permutation(60)
    assert metric(log_p[order], labels[order]) == pytest.approx(metric(log_p, labels), rel=1e-12)


@every_metric
def test_half_precision_is_let_through(metric) -> None:  # type: ignore[no-untyped-def]
    # Four classes, rounded first: both precisions then have the same bins.
    log_p, labels = calibrated(500)
    half = log_p.astype(np.float16)
    assert metric(half, labels) == pytest.approx(metric(half.astype(np.float64), labels), rel=1e-6)


@every_metric
def test_nothing_and_nan_are_errors_and_not_numbers(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match="no samples"):
        metric(np.empty((0, 3)), np.empty(0, dtype=int))
    with pytest.raises(NumericError):
        metric(np.array([[np.nan, 0.0]]), np.array([0]))
    with pytest.raises(NumericError):
        metric(np.array([[np.inf, 0.0]]), np.array([0]))
    with pytest.raises(NumericError):
        metric(np.array([[2.0, -1.0]]), np.array([0]))
    with pytest.raises(DataError, match="do not fit"):
        metric(np.log(np.full((2, 2), 0.5)), np.array([0]))


@every_metric
def test_what_are_no_log_probabilities_or_labels_is_refused(metric) -> None:  # type: ignore[no-untyped-def]
    log_p, labels = guesses(10)
    with pytest.raises(NumericError):
        metric(np.exp(log_p), labels)  # probabilities where their logarithms belong
    with pytest.raises(NumericError):
        metric(log_p + 0.02, labels)  # their sum is 1.02
    with pytest.raises(DataError, match=r"labels are 0 to 5; with 5 classes 0 to 4 are allowed"):
        metric(log_p, np.arange(10) % 6)
    with pytest.raises(DataError, match="labels are -1"):
        metric(log_p, np.arange(10) % 5 - 1)
    for kind in (float, bool):
        with pytest.raises(DataError, match=f"labels are {np.dtype(kind)}; whole numbers"):
            metric(log_p, (labels % 2).astype(kind))
    assert metric(log_p, labels.astype(np.uint8)) == metric(log_p, labels)
