"""Batch norm with other statistics: against training-mode passes, and what must stay as it was."""

import copy
import dataclasses
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate import normalised
from bayesdg.evaluate.normalised import BATCH, normalised_by, shuffled_batches
from bayesdg.evaluate.predict import predict_images
from bayesdg.evaluate.stored import PredictedPart, predictions_path, read_predictions
from bayesdg.methods.learner import Answer, Ensemble, LastLayers, Learner
from bayesdg.models.normalisation import norms_with_statistics
from bayesdg.objectives import Terms
from bayesdg.records import ResultRecord, read_records, results_of
from bayesdg.settings import Settings
from bayesdg.training.run import Run, load_run
from bayesdg.training.train import train

MakeSettings = Callable[..., Settings]


class OneNorm(Learner):
    """Answers with the mean over pixels of what a single batch norm makes of three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def terms(self, episode: object, generator: torch.Generator) -> Terms:
        raise NotImplementedError

    def draw(self, num: int, generator: torch.Generator) -> None:
        return None

    def answer(self, images: Tensor, draw: None) -> Answer:
        logits = self.norm(images).mean((2, 3))
        return Answer(logits.unsqueeze(0), logits)


def pixels(num: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(num, 3, 4, 4, generator=torch.Generator().manual_seed(seed)) + 7


def features(learner: Learner, images: Tensor) -> np.ndarray:
    found = predict_images(learner, images, 0, keep_features=True).features
    assert found is not None
    return found


def test_of_a_single_batch_the_statistics_are_its_mean_and_its_unbiased_variance() -> None:
    learner, images = OneNorm(), pixels(BATCH)
    mean = images.double().mean((0, 2, 3), keepdim=True)
    variance = images.double().var((0, 2, 3), keepdim=True)
    expected = ((images[:5] - mean) / (variance + learner.norm.eps).sqrt()).mean((2, 3))
    with normalised_by(learner, "here", [images]):
        found = features(learner, images[:5])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    # What training kept, which is nothing yet: mean 0 and variance 1.
    plain = images[:5].mean((2, 3)).numpy()
    np.testing.assert_allclose(features(learner, images[:5]), plain, rtol=1e-4)


def test_of_several_batches_they_are_nearly_those_of_all_images_even_if_these_are_sorted() -> None:
    """Sorted by brightness, a batch would know a small part of the variance."""
    learner, images = OneNorm(), pixels(5 * BATCH + 1)
    images += torch.linspace(-20, 20, len(images)).view(-1, 1, 1, 1)
    with normalised_by(learner, "here", [images]):
        mean, variance = learner.norm.running_mean, learner.norm.running_var
        np.testing.assert_allclose(mean, images.mean((0, 2, 3)), rtol=5e-3)
        np.testing.assert_allclose(variance, images.var((0, 2, 3)), rtol=2e-2)


def test_batches_hold_every_image_once_mixed_and_of_even_size() -> None:
    parts = [torch.arange(0, 200).view(-1, 1, 1, 1), torch.arange(200, 257).view(-1, 1, 1, 1)]
    batches = list(shuffled_batches(parts))
    assert sorted(map(len, batches)) == [85, 86, 86]
    assert sorted(torch.cat(batches).flatten().tolist()) == list(range(257))
    assert all((batch >= 200).any() and (batch < 200).any() for batch in batches)
    again = torch.cat(list(shuffled_batches(parts)))
    assert torch.equal(torch.cat(batches), again)


def trained_pass(learner: Learner, images: Tensor) -> Learner:
    """A copy after one pass in training mode that forgets everything before it."""
    twin = copy.deepcopy(learner).eval()
    for norm in norms_with_statistics(twin):
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        twin.answer(images, {})
    return twin.eval()


def stored(run: Run, statistics: str, draws: int = 4) -> dict[tuple[str, str], PredictedPart]:
    assert run.path is not None
    parts = read_predictions(predictions_path(run.path, draws, statistics))
    return {(part.key.domain, part.key.part): part for part in parts}


def assert_said(part: PredictedPart, learner: Learner, images: Tensor, draws: int = 4) -> None:
    expected = predict_images(learner, images, draws).log_probabilities
    np.testing.assert_allclose(part.log_probabilities, expected, rtol=1e-3, atol=1e-4)


def test_each_domain_is_normalised_by_all_its_judged_images(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """Those of unknown classes too: only labels could tell them from the others."""
    hidden = tiny_dataset.hiding(["high"])
    run = train(hidden, tiny_settings("bil"), out=tmp_path)
    noise = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    results = run.evaluate(hidden, statistics="own", others={"noise": noise})
    assert {result.statistics for result in results} == {"own"}
    said = stored(run, "own")
    for name, domain in hidden.domains.items():
        images = domain.test.images
        twin = trained_pass(run.learner, images)
        known = domain.test.labels != 2
        assert_said(said[name, "test"], twin, images[known])
        assert_said(said[name, "unknown"], twin, images[~known])
    assert_said(said["noise", "unknown"], trained_pass(run.learner, noise), noise)


def test_statistics_of_the_sources_are_of_their_training_images_together(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """Whoever brings the data set anew may have forgotten what was hidden."""
    hidden = tiny_dataset.hiding(["high"])
    run = train(hidden, tiny_settings("bil"), out=tmp_path)
    run.evaluate(tiny_dataset, statistics="sources")
    sources = [hidden.domains[name].train for name in run.task.sources]
    assert sum(map(len, sources)) <= BATCH
    shown = torch.cat([part.images[torch.arange(len(part))] for part in sources])
    twin = trained_pass(run.learner, shown)
    for (name, which), part in stored(run, "sources").items():
        test = tiny_dataset.domains[name].test
        chosen = (test.labels == 2) == (which == "unknown")
        assert_said(part, twin, test.images[chosen])


def with_target(dataset: DomainDataset, test: ImageSet) -> DomainDataset:
    far = dataclasses.replace(dataset.domains["far"], test=test)
    return dataclasses.replace(dataset, domains={**dataset.domains, "far": far})


def test_only_own_statistics_look_at_the_other_images_of_the_target_and_never_at_labels(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    run = train(tiny_dataset, tiny_settings("bil"))
    test = tiny_dataset.domains["far"].test
    wrong = with_target(tiny_dataset, ImageSet(test.images, (test.labels + 1) % 3))
    few = with_target(tiny_dataset, ImageSet(test.images[:6], test.labels[:6]))

    def said(dataset: DomainDataset, statistics: str) -> Tensor:
        kept: list[PredictedPart] = []
        write = "bayesdg.training.run.judged"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write, lambda parts, *_: kept.extend(parts) or [])
            run.evaluate(dataset, statistics=statistics)
        (far,) = (part for part in kept if part.key.domain == "far")
        return torch.from_numpy(far.log_probabilities)

    for statistics in ("trained", "sources", "own"):
        whole = said(tiny_dataset, statistics)
        assert torch.equal(said(wrong, statistics), whole)
        alike = torch.allclose(said(few, statistics), whole[:6], atol=1e-5)
        assert alike == (statistics != "own")


def test_everything_that_was_there_stays_as_it_was_to_the_bit(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", {"training.evaluate_target": "end"})
    path = train(tiny_dataset, settings, out=tmp_path).path
    assert path is not None
    run = load_run(path)
    run.calibrate(tiny_dataset, temperature=False, conformal=0.6)
    run.evaluate(tiny_dataset)

    def files() -> dict[str, str]:
        found = (p for p in path.rglob("*") if p.is_file() and p.name != "records.jsonl")
        return {str(p): sha256(p.read_bytes()).hexdigest() for p in found}

    def modes() -> list[tuple[bool, object]]:
        return [(m.training, getattr(m, "momentum", None)) for m in run.learner.modules()]

    weights = {name: value.clone() for name, value in run.learner.state_dict().items()}
    before, results, detections = files(), run.results, run.detections
    ordinary, kept_modes = read_records(path / "records.jsonl"), modes()
    images = tiny_dataset.domains["far"].test.images
    answers = run.predict(images).log_probabilities
    found = {name: run.evaluate(tiny_dataset, statistics=name) for name in ("sources", "own")}
    new = {str(predictions_path(path, 4, name)) for name in found}
    assert {p: digest for p, digest in files().items() if p not in new} == before
    assert set(files()) == set(before) | new
    assert all(torch.equal(weights[n], v) for n, v in run.learner.state_dict().items())
    assert modes() == kept_modes
    assert np.array_equal(run.predict(images).log_probabilities, answers)
    assert (run.results, run.detections) == (results, detections)
    records = read_records(path / "records.jsonl")
    assert records[: len(ordinary)] == ordinary
    for name, own in found.items():
        assert results_of(records, name) == own
        assert [r.metrics for r in own] != [r.metrics for r in results]
        # Sets and thresholds are of other predictions.
        assert {r.recalibrated for r in own} == {None}
    # The same bits again, in place of the first ones.
    digests = files()
    assert load_run(path).evaluate(tiny_dataset, statistics="own") == found["own"]
    assert read_predictions(predictions_path(path, 4, "own"))
    assert files() == digests
    assert len(read_records(path / "records.jsonl")) == len(records)


def test_a_learner_that_was_training_goes_on_with_its_own_statistics(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    run = train(tiny_dataset, tiny_settings("erm"))
    run.learner.train()
    run.evaluate(tiny_dataset, statistics="own")
    assert all(module.training for module in run.learner.modules())
    assert {norm.momentum for norm in norms_with_statistics(run.learner)} == {0.1}


def test_every_member_of_an_ensemble_has_statistics_of_its_own(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(tiny_dataset, tiny_settings("ensemble", {"model.members": 2}), out=tmp_path)
    assert isinstance(run.learner, Ensemble)
    run.evaluate(tiny_dataset, statistics="own")
    images = tiny_dataset.domains["far"].test.images
    twins = [trained_pass(member, images) for member in run.learner.members]
    parts = [twin for twin in twins if isinstance(twin, LastLayers)]
    assert_said(stored(run, "own", 2)["far", "test"], Ensemble(parts), images, 2)


def test_a_run_tested_with_other_statistics_alone_is_not_tested(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    from bayesdg.bench.folder import is_tested

    settings = tiny_settings("erm")
    run = train(tiny_dataset, settings, out=tmp_path)
    assert run.path is not None
    run.evaluate(tiny_dataset, statistics="own")
    assert run.results == []
    assert not is_tested(run.path)
    watched = settings.replace({"training.evaluate_target": "end"})
    again = train(tiny_dataset, watched, out=tmp_path)
    assert again.path == run.path
    assert [result.role for result in again.results] == ["source"] * 3 + ["target"]
    assert is_tested(run.path)
    kinds = [r.statistics for r in again.records if isinstance(r, ResultRecord)]
    assert kinds == ["own"] * 4 + ["trained"] * 4


def test_what_cannot_be_done_is_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tiny_dataset, tiny_settings("erm"))
    with pytest.raises(UsageError, match="unknown statistics 'onw'; did you mean 'own'"):
        run.evaluate(tiny_dataset, statistics="onw")
    test = tiny_dataset.domains["far"].test
    one = with_target(tiny_dataset, ImageSet(test.images[:1], test.labels[:1]))
    with pytest.raises(DataError, match="fewer than two images of far have no statistics"):
        run.evaluate(one, statistics="own")
    assert run.evaluate(one)[-1].num_images == 1
    monkeypatch.setattr(normalised, "norms_with_statistics", lambda learner: [])
    for name in ("sources", "own"):
        with pytest.raises(UsageError, match=r"no batch norm .*\(--statistics trained\)"):
            run.evaluate(tiny_dataset, statistics=name)
    assert run.evaluate(tiny_dataset)
