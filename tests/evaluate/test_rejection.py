"""Rejection against hand-worked cases and brute force."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesdg.errors import DataError, NumericError, UsageError
from bayesdg.evaluate.rejection import (
    Rejection,
    aurc,
    coverage_at_risk,
    risk_at_coverage,
    risk_coverage,
)

# Accepting one after the other, the risk is 0, 1/2, 1/3, 1/2.
UNCERTAINTY = np.array([0.3, 0.1, 0.4, 0.2])
CORRECT = np.array([True, True, False, False])

# Few levels of uncertainty, so that many images are equal.
images = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


def arrays(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    uncertainty, correct = zip(*pairs, strict=True)
    return np.array(uncertainty, dtype=float), np.array(correct)


def test_the_curve_of_a_worked_case() -> None:
    curve = risk_coverage(UNCERTAINTY, CORRECT)
    np.testing.assert_allclose(curve.threshold, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 3, 1 / 2])


def test_aurc_of_a_worked_case() -> None:
    assert aurc(UNCERTAINTY, CORRECT) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


@settings(deadline=None)
@given(images)
def test_aurc_is_the_mean_over_all_orders_of_equal_uncertainties(
    pairs: list[tuple[int, bool]],
) -> None:
    uncertainty, correct = arrays(pairs)
    areas = []
    for order in map(list, permutations(range(len(pairs)))):
        if (np.diff(uncertainty[order]) >= 0).all():
            risks = [np.mean(~correct[order][: i + 1]) for i in range(len(pairs))]
            areas.append(np.mean(risks))
    assert aurc(uncertainty, correct) == pytest.approx(np.mean(areas))


def test_an_uncertainty_that_knows_nothing_has_the_error_rate_for_area() -> None:
    correct = np.arange(50) % 5 > 0
    assert aurc(np.zeros(50), correct) == pytest.approx(0.2)


def test_the_best_order_has_its_known_area() -> None:
    """All errors last: with error rate e the area tends to e + (1 - e) log(1 - e)."""
    num, e = 100_000, 0.3
    correct = np.arange(num) < (1 - e) * num
    expected = e + (1 - e) * np.log(1 - e)
    assert aurc(np.arange(num) / num, correct) == pytest.approx(expected, rel=1e-4)


def test_only_the_order_of_uncertainties_matters() -> None:
    assert aurc(np.exp(50 * UNCERTAINTY), CORRECT) == aurc(UNCERTAINTY, CORRECT)


def test_coverage_and_risk_of_a_worked_case() -> None:
    assert coverage_at_risk(UNCERTAINTY, CORRECT, 0.4) == 0.75  # though .5 of the images is worse
    assert coverage_at_risk(UNCERTAINTY, CORRECT, 0) == 0.25
    assert coverage_at_risk(UNCERTAINTY, CORRECT, 0.5) == 1
    assert coverage_at_risk(UNCERTAINTY, ~CORRECT, 0.1) == 0  # the surest is wrong
    assert risk_at_coverage(UNCERTAINTY, CORRECT, 0.3) == 0.5
    assert risk_at_coverage(UNCERTAINTY, CORRECT, 0.75) == pytest.approx(1 / 3)
    assert risk_at_coverage(UNCERTAINTY, CORRECT, 0) == 0


@settings(deadline=None)
@given(images, st.sampled_from([0, 0.25, 0.5, 0.7, 1]))
def test_chosen_thresholds_are_the_best_of_all(
    pairs: list[tuple[int, bool]], wanted: float
) -> None:
    uncertainty, correct = arrays(pairs)
    all_of_them = []
    for threshold in sorted(set(uncertainty.tolist())):
        accepted = uncertainty <= threshold
        all_of_them.append(Rejection(threshold, accepted.mean(), np.mean(~correct[accepted])))
    curve = risk_coverage(uncertainty, correct)
    safe = [one for one in all_of_them if one.risk <= wanted]
    assert curve.at_risk(wanted) == (safe[-1] if safe else None)
    assert curve.at_coverage(wanted) == next(x for x in all_of_them if x.coverage >= wanted)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_coverage_or_risk_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        risk_at_coverage(UNCERTAINTY, CORRECT, share)
    with pytest.raises(UsageError, match="from 0 to 1"):
        coverage_at_risk(UNCERTAINTY, CORRECT, share)


def test_nothing_and_nan_are_errors_and_not_numbers() -> None:
    with pytest.raises(DataError, match="no samples"):
        aurc(np.empty(0), np.empty(0, dtype=bool))
    with pytest.raises(NumericError):
        aurc(np.array([0.1, np.nan]), np.array([True, False]))
    with pytest.raises(DataError, match="do not fit"):
        aurc(UNCERTAINTY, CORRECT[:3])
    with pytest.raises(DataError, match="booleans"):
        aurc(UNCERTAINTY, CORRECT.astype(int))  # whose ~ is no negation
