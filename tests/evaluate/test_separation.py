"""Against scipy's pairwise distances and against cases whose answer is known."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from bayesdg.evaluate.separation import class_distances, class_gap, domain_separability

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 5)) + 1000  # far from zero: squares must not cancel
LABELS = np.arange(60) % 3


def test_distances_are_those_of_all_pairs() -> None:
    first, second = np.triu_indices(60, k=1)
    pairs = pdist(FEATURES)
    same = LABELS[first] == LABELS[second]
    found = class_distances(FEATURES, LABELS)
    assert found.intra == pytest.approx(pairs[same].mean() / pairs.mean(), rel=1e-9)
    assert found.inter == pytest.approx(pairs[~same].mean() / pairs.mean(), rel=1e-9)


def test_scale_and_place_of_the_features_do_not_matter() -> None:
    found = class_distances(FEATURES, LABELS)
    moved = class_distances(7 * FEATURES - 300, LABELS)
    assert (moved.intra, moved.inter) == pytest.approx((found.intra, found.inter))


def test_where_there_is_no_pair_there_is_no_distance() -> None:
    assert class_distances(FEATURES[:2], np.array([0, 1])).intra is None
    assert class_distances(FEATURES[:2], np.array([1, 1])).inter is None
    assert class_distances(FEATURES[:1], np.array([1])) == class_distances(FEATURES[:0], LABELS[:0])


def test_the_gap_is_that_between_domains_within_a_class() -> None:
    """Sources at 0 and 1, the target at 3: (3 + 2) / 2 over the one distance among sources, 1."""
    features = np.array([[0.0], [1.0], [3.0], [50.0]])
    target = np.array([False, False, True, True])
    assert class_gap(features, np.array([0, 0, 0, 1]), target) == pytest.approx(2.5)
    assert class_gap(features, np.array([0, 1, 0, 1]), target) is None


def test_domains_that_differ_are_told_and_others_are_guessed() -> None:
    domains = np.array(["photo", "sketch"])[np.arange(400) % 2]
    noise = RNG.normal(size=(400, 6))
    shifted = noise + 3 * (domains == "photo")[:, None]
    told, guessed = domain_separability(shifted, domains), domain_separability(noise, domains)
    assert told is not None
    assert guessed is not None
    assert told > 0.99
    assert abs(guessed - 0.5) < 0.08


def test_a_rare_domain_counts_as_much() -> None:
    """Chance is a half with 20 images against 380, too."""
    domains = np.array(["rare"] * 20 + ["frequent"] * 380)
    found = domain_separability(RNG.normal(size=(400, 3)), domains)
    assert found is not None
    assert abs(found - 0.5) < 0.2


def test_one_domain_cannot_be_told_from_others() -> None:
    assert domain_separability(FEATURES, np.zeros(60)) is None
    assert domain_separability(FEATURES, np.arange(60) == 0) is None
