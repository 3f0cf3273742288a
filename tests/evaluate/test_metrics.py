"""Metrics against scikit-learn and torchmetrics."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from bayesdg.errors import DataError, NumericError
from bayesdg.evaluate.metrics import METRICS, accuracy, confidence, ece, nll


def example(num: int = 500, num_classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(num, num_classes))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p, rng.integers(num_classes, size=num)


def test_accuracy_and_nll_are_scikit_learns() -> None:
    log_p, labels = example()
    assert accuracy(log_p, labels) == pytest.approx(accuracy_score(labels, log_p.argmax(-1)))
    assert nll(log_p, labels) == pytest.approx(log_loss(labels, np.exp(log_p)))


@pytest.mark.parametrize("bins", [5, 15, 20])
def test_ece_is_torchmetrics(bins: int) -> None:
    log_p, labels = example()
    expected = multiclass_calibration_error(
        torch.tensor(np.exp(log_p)), torch.tensor(labels), num_classes=5, n_bins=bins, norm="l1"
    )
    assert ece(log_p, labels, bins) == pytest.approx(float(expected), abs=1e-6)


def test_ece_of_a_worked_case() -> None:
    """Two bins: confidence .8 with accuracy 1/2 (gap .3), .6 with accuracy 1 (gap .4)."""
    p = np.array([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
    assert ece(np.log(p), np.array([0, 1, 0, 0])) == pytest.approx((2 * 0.3 + 2 * 0.4) / 4)


def test_confidence_is_the_mean_of_the_largest_probability() -> None:
    p = np.array([[0.8, 0.2], [0.4, 0.6]])
    assert confidence(np.log(p), np.array([0, 0])) == pytest.approx(0.7)


def test_ece_of_calibrated_predictions_tends_to_zero() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=200_000)
    labels = (p.cumsum(-1) > rng.random((len(p), 1))).argmax(-1)
    assert ece(np.log(p), labels) < 0.005


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_nothing_and_nan_are_errors_and_not_numbers(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match="no samples"):
        metric(np.empty((0, 3)), np.empty(0, dtype=int))
    with pytest.raises(NumericError):
        metric(np.array([[np.nan, 0.0]]), np.array([0]))
    with pytest.raises(NumericError):
        metric(np.array([[2.0, -1.0]]), np.array([0]))
    with pytest.raises(DataError, match="do not fit"):
        metric(np.log(np.full((2, 2), 0.5)), np.array([0]))
