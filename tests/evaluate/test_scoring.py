"""Detection tasks on parts that are written out, against scikit-learn."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from bayesdg.evaluate.scoring import Detection, detections, part_intervals, part_metrics
from bayesdg.evaluate.stored import SCORES, PartKey, PredictedPart

RNG = np.random.default_rng(0)


def part(key: PartKey, num: int, unsure: float, density: bool = True) -> PredictedPart:
    """Predictions of three classes; the larger `unsure`, the flatter."""
    logits = RNG.normal(size=(num, 3)) / unsure
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    names = [*SCORES, *(["density"] if density else [])]
    scores = {name: (RNG.normal(size=num) + unsure).astype(np.float32) for name in names}
    labels = RNG.integers(0, 3, num).astype(np.int32) if key.part != "unknown" else -np.ones(num)
    return PredictedPart(key, labels.astype(np.int32), log_p.astype(np.float32), scores)


SOURCES = [part(PartKey(name, "source", "val"), 30, 0.2) for name in ("near", "mid")]
TARGET = part(PartKey("far", "target", "test"), 40, 1.0)
UNKNOWN = part(PartKey("far", "target", "unknown"), 10, 2.0)
OTHER = part(PartKey("elsewhere", "other", "unknown"), 15, 2.0)


def found(parts: list[PredictedPart], task: str, domain: str, score: str) -> Detection:
    (one,) = [d for d in detections(parts) if (d.task, d.domain, d.score) == (task, domain, score)]
    return one


def auroc(positive: NDArray[np.floating], negative: NDArray[np.floating]) -> float:
    labels = np.r_[np.ones(len(positive)), np.zeros(len(negative))]
    return float(roc_auc_score(labels, np.r_[positive, negative]))


def test_the_unseen_domain_is_told_from_all_sources_together() -> None:
    one = found([*SOURCES, TARGET], "domain", "far", "entropy")
    assert (one.num_positive, one.num_negative) == (40, 60)
    negative = np.concatenate([source.scores["entropy"] for source in SOURCES])
    expected = auroc(TARGET.scores["entropy"], negative)
    assert one.metrics["auroc"] == pytest.approx(expected)
    assert set(one.metrics) == {"auroc", "aupr", "fpr95"}


def test_errors_are_the_positives_of_the_target() -> None:
    one = found([*SOURCES, TARGET], "errors", "far", "max_probability")
    wrong = TARGET.log_probabilities.argmax(-1) != TARGET.labels
    unsure = 1 - np.exp(TARGET.log_probabilities.max(-1).astype(np.float64))
    assert one.num_positive == wrong.sum()
    assert one.metrics["auroc"] == pytest.approx(auroc(unsure[wrong], unsure[~wrong]))


def test_unknown_classes_are_told_from_the_same_domain_and_other_pictures_from_the_sources() -> (
    None
):
    parts = [*SOURCES, TARGET, UNKNOWN, OTHER]
    hidden = found(parts, "unknown", "far", "density")
    assert (hidden.num_positive, hidden.num_negative) == (10, 40)
    expected = auroc(UNKNOWN.scores["density"], TARGET.scores["density"])
    assert hidden.metrics["auroc"] == pytest.approx(expected)
    foreign = found(parts, "unknown", "elsewhere", "energy")
    assert (foreign.num_positive, foreign.num_negative) == (15, 60)
    # Images of unknown classes are no part of the target when the domain is detected.
    assert found(parts, "domain", "far", "energy").num_positive == 40


def test_every_score_is_higher_where_it_trusts_less() -> None:
    """What is stored grows with mistrust, and so does 1 - the largest probability."""
    wrong = TARGET.log_probabilities.argmax(-1) != TARGET.labels
    mistrust = {
        "max_probability": -TARGET.log_probabilities.max(-1),
        "entropy": TARGET.scores["entropy"],
        "mutual_information": TARGET.scores["epistemic"],
        "energy": TARGET.scores["energy"],
        "density": TARGET.scores["density"],
    }
    for name, values in mistrust.items():
        one = found([*SOURCES, TARGET], "errors", "far", name)
        assert one.metrics["auroc"] == pytest.approx(auroc(values[wrong], values[~wrong])), name


def test_a_score_that_one_side_lacks_and_a_task_without_positives_are_left_out() -> None:
    blank = part(PartKey("far", "target", "test"), 20, 1.0, density=False)
    scores = {d.score for d in detections([*SOURCES, blank]) if d.task == "domain"}
    assert scores == {"max_probability", "entropy", "mutual_information", "energy"}
    right = PredictedPart(
        TARGET.key, TARGET.log_probabilities.argmax(-1), TARGET.log_probabilities, TARGET.scores
    )
    assert not [d for d in detections([*SOURCES, right]) if d.task == "errors"]


def test_metrics_are_those_of_the_stored_labels() -> None:
    right = (TARGET.log_probabilities.argmax(-1) == TARGET.labels).mean()
    assert part_metrics(TARGET)["accuracy"] == right


def test_the_two_thresholds_by_hand() -> None:
    """40 answers, the surest first; wrong are the 20th, the 39th and the 40th.

    Among the first 38 one is wrong, among 39 two: 5.1%. 90% are 36, of which one is wrong.
    """
    p = np.linspace(0.99, 0.6, 40)
    log_p = np.log(np.stack([p, 1 - p], -1)).astype(np.float32)
    labels = np.isin(np.arange(1, 41), (20, 39, 40)).astype(np.int32)
    found = part_metrics(PredictedPart(TARGET.key, labels, log_p, {}))
    assert found["coverage_at_5"] == 38 / 40
    assert found["risk_at_90"] == pytest.approx(1 / 36)


def test_every_metric_has_an_interval_but_for_the_parts_of_the_brier_score() -> None:
    found, metrics = part_intervals(TARGET), part_metrics(TARGET)
    assert set(found) == {name for name in metrics if not name.startswith("brier_")}
    assert {"coverage_at_5", "risk_at_90"} <= set(found)
    for name, interval in found.items():
        assert interval.value == metrics[name]
    assert found["accuracy"].low < found["accuracy"].value < found["accuracy"].high
