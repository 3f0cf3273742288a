"""Calibration against torchmetrics, netcal and hand-worked cases.

Predictions are nearly calibrated in most cases: those that are too sure everywhere have the same
expected error, confidence - accuracy, whatever the bins.
"""

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from bayesdg.errors import UsageError
from bayesdg.evaluate.calibration import (
    brier_decomposition,
    classwise_ece,
    ece,
    ece_mass,
    mce,
    reliability_diagram,
)
from bayesdg.evaluate.metrics import brier
from forecasts import calibrated, guesses

# Two images of confidence .8, of which one is right; two of .6, both right.
WORKED = np.log([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]]), np.array([0, 1, 0, 0])


@pytest.mark.parametrize("bins", [1, 5, 15, 20])
def test_ece_mce_and_classwise_ece_are_torchmetrics(bins: int) -> None:
    log_p, labels = calibrated(3000)
    p, y = torch.tensor(np.exp(log_p)), torch.tensor(labels)
    for metric, norm in ((ece, "l1"), (mce, "max")):
        expected = multiclass_calibration_error(p, y, num_classes=4, n_bins=bins, norm=norm)
        assert metric(log_p, labels, bins) == pytest.approx(float(expected), abs=1e-6)
    by_class = [
        binary_calibration_error(p_k.contiguous(), (y == k).int(), bins)
        for k, p_k in enumerate(p.T)
    ]
    assert classwise_ece(log_p, labels, bins) == pytest.approx(np.mean(by_class), abs=1e-6)


def test_calibration_errors_are_netcals() -> None:
    """What netcal 1.4.0 finds: ECE, ECE(equal_intervals=False), MCE, ECE(detection=True)."""
    log_p, labels = calibrated(3000)
    found = [metric(log_p, labels) for metric in (ece, ece_mass, mce, classwise_ece)]
    netcal = [0.01582551582958891, 0.04012223384773961, 0.10967761194386522, 0.019828244104745877]
    assert found == pytest.approx(netcal, rel=1e-12)


def test_ece_and_mce_of_a_worked_case() -> None:
    """Gaps .8 - 1/2 and 1 - .6."""
    assert ece(*WORKED) == pytest.approx((2 * 0.3 + 2 * 0.4) / 4)
    assert mce(*WORKED) == pytest.approx(0.4)


def test_bins_of_equal_mass_are_the_parts_of_the_sorted_images() -> None:
    log_p, labels = calibrated(300)
    order = log_p.max(-1).argsort()
    gap = np.exp(log_p.max(-1)) - (log_p.argmax(-1) == labels)
    expected = np.mean([abs(part.mean()) for part in np.split(gap[order], 20)])
    assert ece_mass(log_p, labels, 20) == pytest.approx(expected, rel=1e-10)


def test_images_of_one_confidence_share_a_bin_of_equal_mass() -> None:
    """Nine of ten are right at confidence .9: no bins can find an error, in whatever order."""
    log_p = np.log(np.tile([0.9, 0.1], (10, 1)))
    assert ece_mass(log_p, np.arange(10) // 9, num_bins=5) == pytest.approx(0)


@pytest.mark.parametrize("metric", [ece, ece_mass, classwise_ece])
def test_errors_of_calibrated_predictions_tend_to_zero(metric) -> None:  # type: ignore[no-untyped-def]
    few, many = (metric(*calibrated(num)) for num in (2_000, 200_000))
    assert many < 0.005
    assert many < few / 4  # ten in the mean over many repetitions


def test_the_diagram_of_a_worked_case() -> None:
    """(.6, .8] holds the images of confidence .8; .6 is the upper end of the bin before."""
    diagram = reliability_diagram(*WORKED, num_bins=5)
    assert diagram.count.tolist() == [0, 0, 2, 2, 0]
    np.testing.assert_allclose(diagram.confidence, [np.nan, np.nan, 0.6, 0.8, np.nan])
    np.testing.assert_allclose(diagram.accuracy, [np.nan, np.nan, 1.0, 0.5, np.nan])
    np.testing.assert_allclose(diagram.gap, [0, 0, 0.4, 0.3, 0], atol=1e-12)


def test_every_image_is_in_one_bin_whatever_its_confidence() -> None:
    with np.errstate(divide="ignore"):
        sure = np.log(np.eye(4))
    diagram = reliability_diagram(sure, np.arange(4))
    assert diagram.count[-1] == 4 == diagram.count.sum()
    assert classwise_ece(sure, np.arange(4)) == 0


@pytest.mark.parametrize("bins", [1, 4, 15])
@pytest.mark.parametrize("forecasts", [guesses(), calibrated(700)], ids=["guesses", "calibrated"])
def test_the_parts_of_the_brier_score_add_up_to_it(
    bins: int, forecasts: tuple[np.ndarray, np.ndarray]
) -> None:
    parts = brier_decomposition(*forecasts, bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(brier(*forecasts), rel=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0


def test_brier_parts_of_a_worked_case() -> None:
    """Both classes give the same, so everything is doubled.

    Class 0 has frequency 3/4, and frequency 1/2 at p = .8, 1 at p = .6:
    reliability (.3^2 + .4^2) / 2, resolution (1/4)^2, uncertainty 3/4 1/4; equal within bins.
    """
    parts = brier_decomposition(*WORKED)
    assert parts.reliability == pytest.approx(0.25)
    assert parts.resolution == pytest.approx(2 / 16)
    assert parts.uncertainty == pytest.approx(6 / 16)
    assert parts.within_bins == pytest.approx(0)


def test_one_bin_has_no_resolution_and_calibrated_predictions_no_unreliability() -> None:
    assert brier_decomposition(*guesses(), num_bins=1).resolution == 0
    parts = brier_decomposition(*calibrated(100_000))
    assert parts.reliability < 0.001
    assert parts.resolution > 0.1


@pytest.mark.parametrize("metric", [ece, ece_mass, mce, classwise_ece, brier_decomposition])
def test_no_bins_are_refused(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="num_bins is 0; at least 1"):
        metric(*WORKED, 0)
