"""Appendix F: what is counted, against the paper's printed figures and sums written out."""

from pathlib import Path

import pytest
import torch

from bayesdg.bench import cost as costs
from bayesdg.bench.cost import Shape, measured, multiply_adds, shape_of
from bayesdg.bench.jobs import jobs_of, narrowed
from bayesdg.bench.plans import PLANS
from bayesdg.methods.learner import build_learner
from bayesdg.settings import Settings
from bayesdg.training.engine import Engine
from bayesdg.training.state import TrainingState
from benches import MINIATURE

# Extra FLOPs and parameters in millions, by Bayesian layers and draws, as printed.
PRINTED = {
    (1, 10): (0.04, 0.004), (2, 10): (2.98, 0.530), (3, 10): (32.42, 1.060),
    (1, 15): (0.05, 0.004), (2, 15): (4.74, 0.530), (3, 15): (75.01, 1.060),
    (1, 20): (0.07, 0.004), (2, 20): (6.68, 0.530), (3, 20): (138.77, 1.060),
}  # fmt: skip
D, K = 512, 7  # features of ResNet-18, classes of PACS


@pytest.fixture(scope="module")
def counted() -> dict[tuple[int, int], tuple[int, int]]:
    """Multiply-adds and parameters by layers and draws, of the product, on ResNet-18."""
    found = {}
    image = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)  # the last layers see 512 features of it
    wanted = {"product 10": 10, "product 15": 15, "product 20": 20, "": 0}
    for job in jobs_of(PLANS["cost"]):
        if job.variant not in wanted:
            continue
        settings = job.settings.replace({"model.pretrained": False})
        learner = build_learner(settings, K, 3, num_sources=3).train()
        num = sum(parameter.numel() for parameter in learner.parameters())
        layers = sum(layer.bayes for layer in settings.row.layers.values())
        adds = multiply_adds(learner, image)
        assert adds is not None
        found[layers, wanted[job.variant]] = adds, num
    return found


@pytest.mark.parametrize(("layers", "draws"), PRINTED)
def test_counts_are_those_of_appendix_f(
    layers: int, draws: int, counted: dict[tuple[int, int], tuple[int, int]]
) -> None:
    """Print counts what the draws cost; we count eq. 8, which feature invariance needs, as well."""
    base, _ = counted[0, 0]
    adds, _ = counted[layers, draws]
    # Mean and variance of phi' once, of phi for every draw of phi'.
    moments = {1: 0, 2: 2 * D * D, 3: 2 * D * D + 2 * D * D * draws}[layers]
    # Print leaves the classifier of the network without draws in: 0.0036 M.
    printed, _ = PRINTED[layers, draws]
    assert (adds - base - moments + D * K) / 1e6 == pytest.approx(printed, abs=0.0051)


@pytest.mark.parametrize(("layers", "draws"), PRINTED)
def test_parameters_are_those_of_appendix_f(
    layers: int, draws: int, counted: dict[tuple[int, int], tuple[int, int]]
) -> None:
    """A rho for every weight of the classifier, and mu and rho of each further layer."""
    _, base = counted[0, 0]
    _, num = counted[layers, draws]
    classifier, further = (D + 1) * K, 2 * (D + 1) * D
    assert num - base == classifier + (layers - 1) * further
    assert (num - base) / 1e6 == pytest.approx(PRINTED[layers, draws][1], abs=0.006)


def small(method: str, **values: object) -> Settings:
    plan = narrowed(PLANS["cost"], {}, methods=[method])
    job = next(job for job in jobs_of(plan))
    return job.settings.replace({**MINIATURE, **values})


def test_paired_draws_hold_memory_in_proportion_and_products_by_the_power() -> None:
    """Between the passes; three Bayesian layers have M, M^2 and M^3 activations."""
    shape = Shape(channels=1, image_size=16, num_classes=3, num_sources=3)

    def saved(method: str, combine: str, draws: int) -> int:
        values = {"model.combine": combine, "model.draws": draws, "episode.batch_size": 24}
        settings = small(method, **values)
        with Engine(settings) as engine:
            cost = measured(settings, shape, engine)
        assert cost.seconds is not None
        assert cost.peak_bytes is None  # only a GPU tells
        assert cost.saved_bytes is not None
        return cost.saved_bytes

    none = saved("c", "paired", 1)
    paired, product = (
        {num: saved("j-deep-invariant", combine, num) for num in (8, 16)}
        for combine in ("paired", "product")
    )
    assert none < paired[8] < product[8]
    assert paired[16] - none <= 2 * (paired[8] - none)
    assert 4 < (product[16] - paired[16]) / (product[8] - paired[8]) < 8


@pytest.mark.slow
def test_three_bayesian_layers_with_20_paired_draws_hold_hardly_more_than_none() -> None:
    """At the size of appendix F, from two smaller steps: what is held grows by the image."""
    shape = Shape(channels=3, image_size=224, num_classes=K, num_sources=3)
    whole = 128 + 32 * K * 2

    def held(method: str, variant: str) -> float:
        jobs = jobs_of(narrowed(PLANS["cost"], {"model.pretrained": False}, methods=[method]))
        (job,) = [job for job in jobs if job.variant == variant]
        found = []
        for num in (1, 2):
            size = {"episode.per_class": num, "episode.batch_size": 4 * num}
            settings = job.settings.replace({**size, "engine.device": "cpu"})
            learner = build_learner(settings, K, 3, num_sources=3).train()
            state = TrainingState(learner, settings.training)
            with Engine(settings) as engine:
                engine.prepare(learner)
                episode = costs._episode(settings, shape, target_only=False)
                held = costs._saved_bytes(state, engine, episode, settings)
            found.append((len(episode.labels), held))
        (few, less), (many, more) = found
        return less + (more - less) / (many - few) * (whole - few)

    assert 1 < held("j-deep-invariant", "paired 20") / held("c", "") < 1.1


def test_a_step_counts_the_images_of_appendix_f() -> None:
    """128 target images; 32 of each of 7 classes from 2 domains."""
    job = jobs_of(PLANS["cost"])[0]
    episode = costs._episode(job.settings, shape_of(job, None), target_only=False)
    assert tuple(episode.images.shape) == (128 + 32 * 7 * 2, 3, 224, 224)
    assert episode.num_target == 128


def test_a_step_too_large_for_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "free_bytes", lambda device: 1000)
    settings = small("c")
    with Engine(settings) as engine:
        cost = measured(settings, Shape(1, 16, 3, 3), engine)
    assert cost.saved_bytes is None
    assert cost.problem.endswith("GiB; not tried")
    assert cost.parameters > 0


def test_shapes_come_from_what_is_published_or_from_the_folder(tmp_path: Path) -> None:
    from benches import tiny_pacs

    assert shape_of(jobs_of(PLANS["cost"])[0], None) == Shape(3, 224, 7, 3)
    plan = narrowed(
        PLANS["cost"], {"data.image_size": 32, "data.cache": False}, [str(tiny_pacs(tmp_path))]
    )
    assert shape_of(jobs_of(plan)[0], None) == Shape(3, 32, 3, 3)
