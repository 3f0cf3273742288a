"""Sets of classes against their definition, and how often they hold the right one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.conformal import (
    conformal_threshold,
    mass_before,
    prediction_sets,
    set_metrics,
)
from bayesdg.evaluate.temperature import tempered
from forecasts import calibrated

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])


def test_the_mass_before_and_the_sets_of_a_worked_case() -> None:
    np.testing.assert_allclose(mass_before(np.log(P)), [[0, 0.5, 0.8], [0.8, 0.9, 0]])
    sets = prediction_sets(np.log(P), 0.6)
    assert sets.tolist() == [[True, True, False], [False, False, True]]
    assert set_metrics(sets, np.array([1, 0])) == {"set_coverage": 0.5, "set_size": 1.5}


def test_sets_are_the_most_probable_classes_one_by_one() -> None:
    log_p, _ = calibrated(200, num_classes=6)
    sets = prediction_sets(log_p, 0.7)
    for row, chosen in zip(np.exp(log_p), sets, strict=True):
        expected, mass = [], 0.0
        for k in np.argsort(-row):
            if mass > 0.7:
                break
            expected.append(k)
            mass += row[k]
        assert sorted(expected) == np.flatnonzero(chosen).tolist()


@pytest.mark.parametrize("level", [0.6, 0.9])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_new_sets_hold_the_right_class_as_often_as_promised_however_wrong_the_probabilities(
    level: float, temperature: float
) -> None:
    log_p, labels = calibrated(40_000)
    log_p = tempered(log_p, temperature)
    held = []
    for part in range(0, 40_000, 400):  # 100 fits on 200 images, each tested on 200 others
        rows, others = slice(part, part + 200), slice(part + 200, part + 400)
        threshold = conformal_threshold(log_p[rows], labels[rows], level)
        sets = prediction_sets(log_p[others], threshold)
        held.append(set_metrics(sets, labels[others])["set_coverage"])
    # Mean of 20,000 sets, of which a share of about `level` holds: +- 3 standard errors of 0.004.
    assert np.mean(held) > level - 0.012


@given(st.integers(1, 60), st.floats(0.05, 0.95), st.integers(0, 10))
def test_enough_images_of_the_fit_are_held(num: int, level: float, seed: int) -> None:
    log_p, labels = calibrated(num + seed)
    log_p, labels = log_p[seed:], labels[seed:]
    if np.ceil((num + 1) * level - 1e-9) > num:
        with pytest.raises(DataError, match="too few for sets"):
            conformal_threshold(log_p, labels, level)
        return
    threshold = conformal_threshold(log_p, labels, level)
    sets = prediction_sets(log_p, threshold)
    assert sets.any(-1).all()
    assert sets[np.arange(num), labels].sum() >= np.ceil((num + 1) * level - 1e-9)
    # And no lower threshold would do.
    lower = prediction_sets(log_p, np.nextafter(threshold, -1))
    assert lower[np.arange(num), labels].sum() < np.ceil((num + 1) * level - 1e-9)


def test_how_many_images_are_needed_is_said() -> None:
    log_p, labels = calibrated(18)
    with pytest.raises(DataError, match="18 images are too few for sets at 0.95: at least 19"):
        conformal_threshold(log_p, labels, 0.95)
    log_p, labels = calibrated(19)
    conformal_threshold(log_p, labels, 0.95)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, float("nan")])
def test_a_level_that_is_no_share_is_refused(level: float) -> None:
    with pytest.raises(UsageError, match="a share between 0 and 1"):
        conformal_threshold(np.log(P), np.array([0, 1]), level)


def test_no_sets_are_an_error() -> None:
    with pytest.raises(DataError, match="no samples"):
        set_metrics(np.zeros((0, 3), bool), np.zeros(0, int))
