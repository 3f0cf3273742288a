"""Detection against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bayesdg.errors import DataError, NumericError
from bayesdg.evaluate.detection import DETECTION, aupr, auroc, fpr95

POSITIVE = np.array([True, False, True])

every_figure = pytest.mark.parametrize("figure", DETECTION.values(), ids=DETECTION)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60).filter(
        lambda pairs: len({positive for _, positive in pairs}) == 2
    )
)
def test_figures_are_scikit_learns_also_with_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, positive = np.array(pairs).T
    scores, positive = scores / 3, positive.astype(bool)
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert aupr(scores, positive) == pytest.approx(average_precision_score(positive, scores))
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    assert fpr95(scores, positive) == pytest.approx(false[true >= 0.95].min())


def test_figures_are_scikit_learns_on_many_scores() -> None:
    rng = np.random.default_rng(0)
    positive = rng.random(5000) < 0.2
    scores = rng.normal(size=5000) + positive
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert aupr(scores, positive) == pytest.approx(average_precision_score(positive, scores))
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    assert fpr95(scores, positive) == pytest.approx(false[true >= 0.95].min())


def test_nineteen_of_twenty_are_ninety_five_percent() -> None:
    """Twenty positives, the lowest of them below both negatives: it need not be found."""
    scores = np.array([0, *range(10, 29), 1, 2])
    positive = np.arange(22) < 20
    assert fpr95(scores, positive) == 0


def test_perfect_and_useless_scores() -> None:
    positive = np.arange(10) >= 6
    perfect, useless = np.arange(10.0), np.zeros(10)
    assert [f(perfect, positive) for f in DETECTION.values()] == [1, 1, 0]
    assert [f(useless, positive) for f in DETECTION.values()] == [0.5, 0.4, 1]


@every_figure
def test_scores_may_be_whole_numbers_of_any_kind(figure) -> None:  # type: ignore[no-untyped-def]
    """-0 of an unsigned number is 0, below -1, which is 255."""
    scores, positive = np.array([0, 1, 2, 0, 3]), np.array([False, True, True, False, False])
    for kind in (np.uint8, np.uint64, np.int8, np.float16):
        assert figure(scores.astype(kind), positive) == figure(scores.astype(float), positive)
    assert figure(positive, positive) == figure(positive.astype(float), positive)


@every_figure
@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_images_does_not_matter(figure, seed: int) -> None:  # type: ignore[no-untyped-def]
    scores, positive = np.arange(30) // 7, np.arange(30) % 3 == 0
    order = np.random.default_rng(seed).permutation(30)
    assert figure(scores[order], positive[order]) == figure(scores, positive)


@every_figure
def test_one_kind_nothing_and_nan_are_errors_and_not_numbers(figure) -> None:  # type: ignore[no-untyped-def]
    scores = np.array([0.1, 0.2, 0.3])
    for all_the_same in (np.ones(3, dtype=bool), np.zeros(3, dtype=bool)):
        with pytest.raises(DataError, match="both kinds"):
            figure(scores, all_the_same)
    with pytest.raises(DataError, match="no samples"):
        figure(np.empty(0), np.empty(0, dtype=bool))
    for none in (np.nan, np.inf):
        with pytest.raises(NumericError):
            figure(np.array([0.1, none, 0.3]), POSITIVE)
    with pytest.raises(DataError, match="do not fit"):
        figure(scores[:2], POSITIVE)
