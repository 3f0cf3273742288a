"""A whole run, evaluated: parts, unknown classes, pictures from elsewhere, what is kept."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdg.data import DomainDataset
from bayesdg.errors import UsageError
from bayesdg.evaluate import evaluation
from bayesdg.evaluate.evaluation import Evaluation, judged_parts
from bayesdg.evaluate.scoring import detections, part_metrics
from bayesdg.evaluate.stored import predictions_path, read_predictions
from bayesdg.records import DetectionRecord, ResultRecord, read_records
from bayesdg.settings import Settings
from bayesdg.training.train import train
from worlds import image_set

MakeSettings = Callable[..., Settings]
NOISE = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_every_reported_number_follows_from_the_stored_predictions(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(tiny_dataset, tiny_settings("bil"), out=tmp_path)
    assert run.path is not None
    results = run.evaluate(tiny_dataset, others={"noise": NOISE})
    parts = read_predictions(predictions_path(run.path, 4))
    by_domain = {part.key.domain: part for part in parts}
    assert list(by_domain) == ["near", "mid", "third", "far", "noise"]
    for result in results:
        assert result.metrics == part_metrics(by_domain[result.domain])
    kept = read_records(run.path / "records.jsonl")
    found = [r for r in kept if isinstance(r, DetectionRecord)]
    assert [r.metrics for r in found] == [d.metrics for d in detections(parts)]
    assert {(r.task, r.domain) for r in found} >= {("domain", "far"), ("unknown", "noise")}
    # The same again replaces, another number of draws adds.
    run.evaluate(tiny_dataset, others={"noise": NOISE})
    assert len(read_records(run.path / "records.jsonl")) == len(kept)
    run.evaluate(tiny_dataset, draws=0)
    assert len([r for r in run.results if r.draws == 0]) == 4
    stored = [r for r in read_records(run.path / "records.jsonl") if isinstance(r, ResultRecord)]
    assert len(stored) == 8


def test_a_hidden_class_is_unknown_on_every_domain_and_never_trained_on(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    hidden = tiny_dataset.hiding(["mean"])
    for domain in hidden.domains.values():
        assert set(domain.train.labels.tolist()) == set(domain.val.labels.tolist()) == {0, 2}
        assert set(domain.test.labels.tolist()) == {0, 1, 2}
    run = train(hidden, tiny_settings("bil"))
    results = run.evaluate(hidden)
    assert run.task.known_classes == (0, 2)
    assert [(r.num_images, r.num_excluded) for r in results] == [(6, 3)] * 4
    far = [d for d in run.detections if (d.task, d.domain) == ("unknown", "far")]
    assert {(d.num_positive, d.num_negative) for d in far} == {(3, 6)}
    assert len(far) == 5


def test_who_forgets_to_hide_the_class_again_gets_the_same_figures(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """Neither the density nor a recalibration sees images of a class that was not trained on."""
    hidden = tiny_dataset.hiding(["mean"])
    run = train(hidden, tiny_settings("bil"))
    run.evaluate(hidden)
    before = list(run.detections)
    run.evaluate(tiny_dataset)
    assert run.detections == before
    wanted = {"temperature": False, "conformal": 0.6, "coverage": 0.5}
    assert run.calibrate(tiny_dataset, **wanted) == run.calibrate(hidden, **wanted)


def test_the_density_is_fitted_to_features_as_they_are_asked_for(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """Masks of dropout make features larger in the mean; that is nothing unfamiliar.

    The mean squared distance of the images of the fit from their own class means is trace(C V) for
    covariance C and precision V: at most the number of features.
    """
    settings = tiny_settings("dropout", {"model.equal_depth": True, "model.dropout": 0.9})
    run = train(tiny_dataset, settings)
    sources = {name: tiny_dataset.domains[name] for name in run.task.sources}
    judge = Evaluation(run.learner, 3, run.task.known_classes, sources)
    parts = [
        judge.unknown(name, domain.train.images).scores["density"]
        for name, domain in sources.items()
    ]
    width = judge.density.whiten.shape[0]
    assert np.concatenate(parts).mean() <= width


def test_the_density_is_fitted_to_some_images_evenly_spread(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 18 with labels 0, 1, 2, 0, ... every fourth, at most five: all classes have a mean."""
    run = train(tiny_dataset, tiny_settings("bil"))
    monkeypatch.setattr(evaluation, "MOST_FITTED", 5)
    passed: list[int] = []
    run.learner.network.backbone.register_forward_hook(  # type: ignore[operator, union-attr]
        lambda _, given, out: passed.append(len(given[0]))
    )
    sources = {name: tiny_dataset.domains[name] for name in run.task.sources}
    judge = Evaluation(run.learner, 3, run.task.known_classes, sources)
    assert passed == [5, 5, 5]
    assert len(judge.density.means) == 3


def test_sources_without_held_out_test_images_are_judged_on_validation(
    tiny_dataset: DomainDataset,
) -> None:
    """Where all images are test images of a target (PACS), those of a source were trained on."""
    known = torch.arange(3)
    domain = tiny_dataset.domains["near"]
    everything = replace(domain, held_out_test=False)
    for one, role, part, num in (
        (domain, "source", "test", 9),
        (everything, "source", "val", 6),
        (everything, "target", "test", 9),
    ):
        ((key, images),) = judged_parts(one, role, known)  # type: ignore[arg-type]
        assert (key.part, len(images)) == (part, num)


def test_methods_without_draws_are_evaluated_without(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    run = train(tiny_dataset, tiny_settings("erm"))
    assert {r.draws for r in run.evaluate(tiny_dataset, draws=20)} == {0}
    information = [d for d in run.detections if d.score == "mutual_information"]
    assert {d.metrics["auroc"] for d in information} == {0.5}


def test_images_from_elsewhere_have_a_name_of_their_own_and_the_shape_of_the_others(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    run = train(tiny_dataset, tiny_settings("bil"))
    for name in ("near", "far"):
        with pytest.raises(UsageError, match=f"{name!r} is a domain of the run"):
            run.evaluate(tiny_dataset, others={name: NOISE})
    with pytest.raises(UsageError, match=r"shape \(3, 8, 8\), this run was trained on \(1, 8, 8\)"):
        run.evaluate(tiny_dataset, others={"colour": NOISE.expand(5, 3, 8, 8)})


def test_density_is_larger_for_images_unlike_those_trained_on(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(tiny_dataset, tiny_settings("bil", {"training.steps": 30}), out=tmp_path)
    assert run.path is not None
    others = {"noise": 5 * NOISE, "alike": image_set(9, 3, seed=7).images}
    run.evaluate(tiny_dataset, others=others)
    parts = read_predictions(predictions_path(run.path, 4))
    density = {part.key.domain: np.median(part.scores["density"]) for part in parts}
    assert density["alike"] < density["noise"]
