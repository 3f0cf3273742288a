"""What people would take instead: how those learners answer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bayesdg.evaluate.predict import predict_images
from bayesdg.methods.learner import Ensemble, LastLayers, Learner, build_learner
from bayesdg.settings import Settings

MakeSettings = Callable[..., Settings]
IMAGES = torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
RIVALS = ("ensemble", "dropout", "laplace")


def built(make: MakeSettings, method: str) -> Learner:
    """With weights that differ between members, and some doubt about a fitted psi."""
    learner = build_learner(make(method), 3, 1)
    with torch.no_grad():
        for number, (name, weight) in enumerate(learner.named_parameters()):
            if "heads" in name:
                weight += 0.1 * torch.randn(
                    weight.shape, generator=torch.Generator().manual_seed(number)
                )
        for name, buffer in learner.named_buffers():
            if name.endswith("scale"):
                buffer.fill_(0.1)
    return learner


def backbones(learner: Learner) -> list[nn.Module]:
    parts = learner.parts() if isinstance(learner, Ensemble) else [learner]
    return [part.network.backbone for part in parts if isinstance(part, LastLayers)]


@pytest.mark.parametrize("method", RIVALS)
def test_every_image_goes_through_each_backbone_once(
    tiny_settings: MakeSettings, method: str
) -> None:
    learner = built(tiny_settings, method)
    seen: list[int] = []

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(len(inputs[0]))

    for backbone in backbones(learner):
        backbone.register_forward_pre_hook(count)
    predict_images(learner, IMAGES, draws=50, batch_size=5)
    assert sum(seen) == len(IMAGES) * len(backbones(learner))


@pytest.mark.parametrize("method", RIVALS)
def test_draws_disagree_and_serve_all_images_alike(
    tiny_settings: MakeSettings, method: str
) -> None:
    """One prediction of all images, or one at a time and in another order: the same."""
    learner = built(tiny_settings, method)
    together = predict_images(learner, IMAGES, draws=6, keep_draws=True)
    assert (together.epistemic > 1e-6).all()
    assert together.per_draw is not None
    assert len(together.per_draw) == learner.num_draws(6)
    apart = predict_images(learner, IMAGES.flip(0), draws=6, batch_size=1)
    assert apart.log_probabilities[::-1] == pytest.approx(together.log_probabilities, abs=1e-5)


@pytest.mark.parametrize("method", ["dropout", "laplace"])
def test_the_mean_weights_are_one_answer_without_epistemic_uncertainty(
    tiny_settings: MakeSettings, method: str
) -> None:
    found = predict_images(built(tiny_settings, method), IMAGES, draws=0)
    assert (found.epistemic == 0).all()
    assert found.entropy == pytest.approx(found.aleatoric)
    single = predict_images(built(tiny_settings, method), IMAGES, draws=1)
    assert single.entropy == pytest.approx(single.aleatoric)
    assert (single.variation_ratio == 0).all()


@pytest.mark.parametrize("draws", [0, 1, 50])
def test_an_ensemble_has_its_members_as_draws_whatever_is_asked_for(
    tiny_settings: MakeSettings, draws: int
) -> None:
    learner = built(tiny_settings, "ensemble")
    assert isinstance(learner, Ensemble)
    found = predict_images(learner, IMAGES, draws, keep_draws=True, keep_features=True)
    members = [predict_images(part, IMAGES, 0, keep_features=True) for part in learner.parts()]
    assert found.per_draw is not None
    assert learner.num_draws(draws) == len(found.per_draw) == 5
    mean = sum(member.probabilities for member in members) / 5
    assert found.probabilities == pytest.approx(mean, rel=1e-6)
    assert found.features is not None
    assert found.features.shape[1] == sum(member.features.shape[1] for member in members)


def test_methods_without_draws_have_none(tiny_settings: MakeSettings) -> None:
    assert build_learner(tiny_settings("erm"), 3, 1).num_draws(50) == 0
    assert build_learner(tiny_settings("bil"), 3, 1).num_draws(50) == 50


@pytest.mark.parametrize("method", ["dropout", "laplace"])
def test_rivals_begin_with_the_weights_of_erm(tiny_settings: MakeSettings, method: str) -> None:
    plain = build_learner(tiny_settings("erm"), 3, 1).state_dict()
    other = build_learner(tiny_settings(method), 3, 1).state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in plain.items())


def test_dropout_in_training_comes_from_the_generator_alone(tiny_settings: MakeSettings) -> None:
    learner = build_learner(tiny_settings("dropout"), 3, 1)
    assert isinstance(learner, LastLayers)

    def logits(seed: int) -> Tensor:
        return learner.network(IMAGES, 3, torch.Generator().manual_seed(seed)).logits

    first = logits(0)
    assert first.shape == (1, 12, 3)  # a mask for each image and not a pass for each mask
    torch.rand(1)
    assert torch.equal(first, logits(0))
    assert not torch.equal(first, logits(1))
