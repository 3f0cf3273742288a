"""What is fitted after training: on sources alone, for these weights, and applied everywhere."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.errors import DataError, StoredRunError, UsageError
from bayesdg.evaluate.conformal import prediction_sets
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.recalibration import (
    FILE,
    Recalibration,
    Wanted,
    fitted,
    read_recalibration,
    wanted_from,
)
from bayesdg.evaluate.rejection import risk_coverage
from bayesdg.evaluate.stored import (
    PartKey,
    PredictedPart,
    predictions_path,
    read_predictions,
)
from bayesdg.evaluate.temperature import best_temperature, tempered
from bayesdg.settings import Settings
from bayesdg.training.run import Run, load_run
from bayesdg.training.train import train
from forecasts import calibrated, guesses
from worlds import image_set, sealed

MakeSettings = Callable[..., Settings]
ALL: dict[str, Any] = {"conformal": 0.8, "coverage": 0.7}


@pytest.fixture
def dataset(tiny_dataset: DomainDataset) -> DomainDataset:
    """With validation images whose labels are partly wrong, so that there is an optimum."""

    def doubtful(images: ImageSet) -> ImageSet:
        labels = images.labels.clone()
        labels[::4] = (labels[::4] + 1) % 3
        return ImageSet(images.images, labels)

    domains = {
        name: replace(domain, val=doubtful(image_set(30, 3, seed=i, shift=0.3 * i)))
        for i, (name, domain) in enumerate(tiny_dataset.domains.items())
    }
    return replace(tiny_dataset, domains=domains)


@pytest.fixture
def run(dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path) -> Run:
    return train(dataset, tiny_settings("bil", {"training.steps": 20}), out=tmp_path)


def validation(run: Run, dataset: DomainDataset) -> tuple[list[np.ndarray], list[np.ndarray]]:
    sets = [dataset.domains[name].val for name in ("near", "mid", "third")]
    log_p = [run.predict(images.images, raw=True).log_probabilities for images in sets]
    return log_p, [images.labels.numpy() for images in sets]


def test_it_is_fitted_to_source_validation_and_the_target_is_not_opened(
    run: Run, dataset: DomainDataset
) -> None:
    shut = {**dataset.domains, "far": sealed(dataset.domains["far"])}
    found = run.calibrate(replace(dataset, domains=shut), **ALL)
    log_p, labels = (np.concatenate(parts) for parts in validation(run, dataset))
    assert found.temperature == pytest.approx(best_temperature(log_p, labels))
    assert found.num_images == 90
    assert found.domains == ("near", "mid", "third")
    assert found.draws == 4
    assert found.rejection is not None
    assert found.rejection.coverage >= 0.7


def test_the_threshold_is_on_the_uncertainty_that_is_named(
    run: Run, dataset: DomainDataset
) -> None:
    """The 63rd smallest of 90 accepts 70%; an evaluation tells what it accepts elsewhere."""
    images = [dataset.domains[name].val.images for name in ("near", "mid", "third")]
    found = [run.predict(some) for some in images]
    for name in ("entropy", "epistemic", "energy"):
        fit = run.calibrate(dataset, temperature=False, coverage=0.7, reject_by=name)  # type: ignore[arg-type]
        assert fit.rejection is not None
        values = np.sort(np.concatenate([getattr(one, name) for one in found]))
        assert fit.rejection.threshold == pytest.approx(values[62], rel=1e-5)
        assert fit.rejection.coverage == 0.7
        results = {result.domain: result for result in run.evaluate(dataset)}
        far = run.predict(dataset.domains["far"].test.images)
        accepted = getattr(far, name) <= fit.rejection.threshold
        after = results["far"].recalibrated
        assert after is not None
        assert after["accepted"] == pytest.approx(accepted.mean())
        wrong = far.labels != dataset.domains["far"].test.labels.numpy()
        if accepted.any():
            assert after["accepted_risk"] == pytest.approx(wrong[accepted].mean())


def test_predictions_of_the_loaded_run_are_tempered_and_uncertainties_are_not(
    run: Run, dataset: DomainDataset
) -> None:
    images = dataset.domains["far"].test.images
    before = run.predict(images)
    fit = run.calibrate(dataset, **ALL)
    assert run.path is not None
    assert fit.temperature is not None
    again = load_run(run.path)
    assert again.recalibration == fit
    after = again.predict(images)
    expected = tempered(before.log_probabilities, fit.temperature)
    np.testing.assert_allclose(after.log_probabilities, expected)
    np.testing.assert_array_equal(after.entropy, before.entropy)
    np.testing.assert_allclose(after.entropy, after.aleatoric + after.epistemic)
    raw = load_run(run.path, raw=True).predict(images)
    np.testing.assert_array_equal(raw.log_probabilities, before.log_probabilities)
    np.testing.assert_array_equal(
        again.predict(images, raw=True).log_probabilities, before.log_probabilities
    )
    with pytest.raises(UsageError, match="recalibrated for 4 draws, not for 3"):
        again.predict(images, draws=3)


def test_an_evaluation_tells_what_comes_of_it_on_every_domain(
    run: Run, dataset: DomainDataset
) -> None:
    assert {result.recalibrated for result in run.evaluate(dataset)} == {None}
    fit = run.calibrate(dataset, **ALL)
    assert fit.temperature is not None
    assert fit.sets is not None
    assert fit.rejection is not None
    results = run.evaluate(dataset)
    assert run.path is not None
    parts = {p.key.domain: p for p in read_predictions(predictions_path(run.path, 4))}
    for result in results:
        part, found = parts[result.domain], result.recalibrated
        assert found is not None
        log_p = tempered(part.log_probabilities, fit.temperature)
        for name, metric in METRICS.items():
            assert found[name] == metric(log_p, part.labels)
        assert found["accuracy"] == result.metrics["accuracy"]
        held = prediction_sets(log_p, fit.sets.threshold)[range(len(part)), part.labels]
        assert found["set_coverage"] == held.mean()
        curve = risk_coverage(part.scores["entropy"], log_p.argmax(-1) == part.labels)
        within = curve.threshold <= fit.rejection.threshold
        assert found["accepted"] == (curve.coverage[within][-1] if within.any() else 0)
    again = load_run(run.path)
    assert [r.recalibrated for r in again.results] == [r.recalibrated for r in results]
    # Another number of draws is another method: what was fitted does not hold for it.
    assert {result.recalibrated for result in run.evaluate(dataset, draws=0)} == {None}


def test_a_file_that_is_damaged_or_of_other_weights_is_named_with_the_remedy(
    run: Run, dataset: DomainDataset
) -> None:
    run.calibrate(dataset, **ALL)
    assert run.path is not None
    path = run.path / FILE
    whole = json.loads(path.read_text())
    for change, says in (
        ({"weights": "0" * 64}, "was fitted for other weights"),
        ({"temperature": -1}, "damaged: temperature"),
        ({"surprise": 1}, "damaged: surprise"),
        ({"format": 2}, "damaged: format"),
    ):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(StoredRunError, match=f"{says}.*bayesdg calibrate .* fits it anew"):
            load_run(run.path)
    for text in ("", "[]", '{"temperature": NaN}', "\0"):
        path.write_text(text)
        with pytest.raises(StoredRunError, match="damaged"):
            load_run(run.path)
    load_run(run.path, raw=True).calibrate(dataset, **ALL)
    assert json.loads(path.read_text()) == whole


def test_rejection_by_the_largest_probability_is_the_same_wherever_it_is_asked_for(
    run: Run, dataset: DomainDataset
) -> None:
    """By hand: 40% of validation have at least the probability that the threshold leaves."""
    fit = run.calibrate(dataset, coverage=0.4, reject_by="error_probability")
    assert fit.temperature is not None
    assert fit.rejection is not None
    log_p, labels = (np.concatenate(parts) for parts in validation(run, dataset))
    largest = np.exp(tempered(log_p, fit.temperature)).max(-1)
    falling = np.sort(largest)[::-1]
    assert fit.rejection.threshold == pytest.approx(1 - falling[36 - 1])
    kept = largest >= falling[36 - 1]
    assert fit.rejection.risk == pytest.approx((log_p.argmax(-1) != labels)[kept].mean())
    shares = set()
    for result in run.evaluate(dataset):
        found = run.predict(dataset.domains[result.domain].test.images)
        np.testing.assert_allclose(found.error_probability, 1 - found.probabilities.max(-1))
        accepted = (found.error_probability <= fit.rejection.threshold).mean()
        assert result.recalibrated is not None
        assert result.recalibrated["accepted"] == pytest.approx(accepted)
        shares.add(accepted)
    assert len(shares) > 1, "nothing is rejected anywhere"
    _, _, raw = fitted(log_p, {}, labels, Wanted(
        temperature=False, coverage=0.4, reject_by="error_probability"
    ))  # fmt: skip
    assert raw is not None
    assert raw.threshold != pytest.approx(fit.rejection.threshold)


def test_what_an_earlier_version_stored_is_read(tmp_path: Path) -> None:
    """As written before there was a rejection by probability."""
    (tmp_path / FILE).write_text(
        '{"format": 1, "weights": "ab", "draws": 4, "domains": ["art"], "num_images": 72, '
        '"temperature": null, "sets": {"level": 0.6, "threshold": 0.61}, "rejection": {"score": '
        '"entropy", "threshold": 1.05, "wanted": "coverage 0.5", "coverage": 0.5, "risk": 0.25}}'
    )
    found = read_recalibration(tmp_path, "ab")
    assert found is not None
    assert found.rejection is not None
    assert (found.rejection.score, found.rejection.threshold) == ("entropy", 1.05)


def test_a_saved_copy_takes_it_along(run: Run, dataset: DomainDataset, tmp_path: Path) -> None:
    fit = run.calibrate(dataset, **ALL)
    assert load_run(run.save(tmp_path / "copy")).recalibration == fit


def test_each_is_fitted_only_if_it_is_wanted() -> None:
    log_p, labels = guesses()
    uncertainty = 1 - np.exp(log_p.max(-1))
    labels = np.where(uncertainty < 0.4, log_p.argmax(-1), labels)
    scores = {"entropy": uncertainty}
    nothing = fitted(log_p, scores, labels, Wanted(temperature=False))
    assert nothing == (None, None, None)
    _, _, kept = fitted(log_p, scores, labels, Wanted(risk=0.1))
    assert kept is not None
    assert kept.risk <= 0.1
    accepted = uncertainty <= kept.threshold
    assert (log_p.argmax(-1) != labels)[accepted].mean() == pytest.approx(kept.risk)
    assert accepted.mean() == kept.coverage


def test_sets_are_of_the_probabilities_after_the_temperature() -> None:
    """On the images of the fit exactly ceil(0.8 (n + 1)) hold the right class."""
    log_p, labels = calibrated(399)
    log_p = tempered(log_p, 0.2)
    temperature, sets, _ = fitted(log_p, {}, labels, Wanted(conformal=0.8))
    assert temperature is not None
    assert sets is not None
    fit = Recalibration(
        weights="", draws=0, domains=("a",), num_images=399, temperature=temperature, sets=sets
    )
    held = fit.in_sets(fit.log_probabilities(log_p))[np.arange(399), labels]
    assert held.sum() == 320
    part = PredictedPart(
        PartKey("a", "source", "val"), labels.astype(np.int32), log_p.astype(np.float32), {}
    )
    assert fit.metrics(part)["set_coverage"] == pytest.approx(320 / 399, abs=2 / 399)


def test_stored_uncertainties_at_the_threshold_are_accepted() -> None:
    """Of ten draws one dissents: 0.1, which single precision keeps as a little more."""
    ratio = 1 - np.array([0.8, 0.9, 0.9, 1.0, 1.0])
    log_p = np.log(np.tile([0.9, 0.1], (5, 1)))
    labels = np.array([0, 0, 1, 0, 0])
    wanted = Wanted(temperature=False, coverage=0.5, reject_by="variation_ratio")
    _, _, kept = fitted(log_p, {"variation_ratio": ratio}, labels, wanted)
    assert kept is not None
    assert kept.coverage == 0.8
    fit = Recalibration(weights="", draws=10, domains=("a",), num_images=5, rejection=kept)
    single = {"variation_ratio": ratio.astype(np.float32)}
    key = PartKey("a", "source", "val")
    part = PredictedPart(key, labels.astype(np.int32), log_p.astype(np.float32), single)
    assert fit.metrics(part) == {"accepted": 0.8, "accepted_risk": 0.25}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="reject-by is 'entropi': Input should be 'entropy', "):
        wanted_from({"reject_by": "entropi"})
    log_p, _ = guesses()
    wrong = (log_p.argmax(-1) + 1) % 5
    with pytest.raises(UsageError, match="give one of them"):
        wanted_from({"coverage": 0.9, "risk": 0.1})
    with pytest.raises(DataError, match="no threshold on entropy has a risk of 0.1.*lowest is 1"):
        fitted(log_p, {"entropy": np.ones(500)}, wrong, Wanted(temperature=False, risk=0.1))
