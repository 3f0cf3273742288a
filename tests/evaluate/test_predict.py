"""Uncertainties against their definitions."""

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from bayesdg.errors import DataError, NumericError
from bayesdg.evaluate.predict import predict_batches, predict_images, summarise
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.presets import preset

IMAGES = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def log_p(draws: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(draws, 6, 4, dtype=torch.float64, generator=generator)
    return logits.log_softmax(-1)


@pytest.fixture(scope="module")
def learner() -> Learner:
    settings = preset("default", "bil").replace({"model.backbone": "small-cnn"})
    return build_learner(settings, num_classes=4, in_channels=1)


def test_uncertainties_are_those_of_the_mixture_of_draws() -> None:
    draws = log_p(9)
    predictions = summarise(draws)
    mean = draws.exp().mean(0)
    total = Categorical(probs=mean).entropy().numpy()
    expected = Categorical(logits=draws).entropy().mean(0).numpy()
    np.testing.assert_allclose(predictions.probabilities, mean.numpy(), rtol=1e-12)
    np.testing.assert_allclose(predictions.entropy, total, rtol=1e-10)
    np.testing.assert_allclose(predictions.aleatoric, expected, rtol=1e-10)
    # Mutual information by another way: the mean KL of each draw from the mean.
    information = (draws.exp() * (draws - mean.log())).sum(-1).mean(0).numpy()
    np.testing.assert_allclose(predictions.epistemic, information, rtol=1e-9)


def test_total_is_aleatoric_plus_epistemic() -> None:
    p = summarise(log_p(9))
    np.testing.assert_allclose(p.entropy, p.aleatoric + p.epistemic, rtol=1e-12)


def test_one_draw_has_no_epistemic_uncertainty() -> None:
    assert (summarise(log_p(1)).epistemic == 0).all()


def test_certainty_has_entropy_zero_and_not_nan() -> None:
    certain = torch.tensor([[[0.0, -torch.inf]]])
    predictions = summarise(certain)
    assert predictions.entropy == predictions.aleatoric == predictions.epistemic == 0


def test_mean_weights_have_no_epistemic_uncertainty(learner: Learner) -> None:
    assert (predict_images(learner, IMAGES, draws=0).epistemic == 0).all()
    assert (predict_images(learner, IMAGES, draws=20).epistemic > 0).all()


def test_a_prediction_depends_neither_on_the_batch_size_nor_on_the_call(learner: Learner) -> None:
    whole = predict_images(learner, IMAGES, draws=5)
    pieces = predict_images(learner, IMAGES, draws=5, batch_size=2)
    np.testing.assert_allclose(whole.log_probabilities, pieces.log_probabilities, atol=1e-5)
    again = predict_images(learner, IMAGES, draws=5)
    assert (whole.log_probabilities == again.log_probabilities).all()


def test_more_draws_converge_at_the_monte_carlo_rate(learner: Learner) -> None:
    dense = predict_images(learner, IMAGES, draws=10_000).probabilities
    few, many = (
        np.abs(predict_images(learner, IMAGES, draws=n).probabilities - dense).mean()
        for n in (10, 1000)
    )
    assert many < few / 3  # ten in the limit of many repetitions


def test_the_error_of_t_draws_falls_as_one_over_the_root_of_t(learner: Learner) -> None:
    """Root mean squares over disjoint blocks of one bank of draws, against all of it."""
    bank = predict_images(learner, IMAGES, draws=10_000, keep_draws=True).per_draw
    assert bank is not None
    p = np.exp(bank)
    dense, per_draw = p.mean(0), p.var(0)
    for size in (4, 25, 100):
        blocks = p.reshape(-1, size, *p.shape[1:]).mean(1)
        error = ((blocks - dense) ** 2).mean(0)
        np.testing.assert_allclose(error.sum(), per_draw.sum() / size, rtol=0.25)
        np.testing.assert_allclose(
            summarise(torch.from_numpy(bank[:size])).probabilities, blocks[0]
        )


def test_training_mode_is_given_back(learner: Learner) -> None:
    learner.train()
    predict_images(learner, IMAGES, draws=0)
    assert learner.training


def test_images_that_are_no_numbers_are_an_error(learner: Learner) -> None:
    with pytest.raises(NumericError, match="not numbers"):
        predict_images(learner, torch.full((2, 1, 8, 8), torch.nan), draws=0)


def test_no_images_are_an_error(learner: Learner) -> None:
    with pytest.raises(DataError, match="no images"):
        predict_images(learner, IMAGES[:0], draws=0)


def test_the_variation_ratio_is_the_share_of_dissenting_draws() -> None:
    votes = torch.tensor([[0, 1], [0, 2], [1, 2], [0, 0], [0, 1]])  # five draws, two images
    found = summarise(torch.nn.functional.one_hot(votes, 3).double())
    np.testing.assert_allclose(found.variation_ratio, [1 / 5, 3 / 5])


def test_energy_is_minus_the_log_of_the_summed_exponentials() -> None:
    logits = 3 * torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
    expected = -np.log(np.exp(logits.double().numpy()).sum(-1)).mean(0)
    np.testing.assert_allclose(summarise(logits).energy, expected, rtol=1e-9)


def test_asking_leaves_gradients_to_the_caller(learner: Learner) -> None:
    for _ in predict_batches(learner, IMAGES.split(3), draws=2):
        assert torch.is_grad_enabled()


def test_draws_and_features_are_there_when_asked_for(learner: Learner) -> None:
    plain = predict_images(learner, IMAGES, draws=5, batch_size=3)
    assert plain.per_draw is None
    assert plain.features is None
    full = predict_images(
        learner, IMAGES, draws=5, batch_size=3, keep_draws=True, keep_features=True
    )
    assert full.per_draw is not None
    assert full.features is not None
    assert full.per_draw.shape == (5, 7, 4)
    np.testing.assert_allclose(np.exp(full.per_draw).mean(0), full.probabilities, rtol=1e-9)
    with torch.no_grad():
        learner.eval()
        expected = learner.network(IMAGES).features["phi"].mean  # type: ignore[union-attr, operator]
    np.testing.assert_allclose(full.features, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_predicting_compiles_nothing(learner: Learner) -> None:
    """Even where training does: batches of many sizes would each be compiled."""
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        compiled.append(graph)
        return graph.forward

    images = torch.rand(7, 1, 8, 8)
    expected = predict_images(learner, images, draws=2).log_probabilities
    (part,) = learner.heavy_parts()
    part.compile(backend=backend)
    found = predict_images(learner, images, draws=2).log_probabilities
    assert compiled == []
    np.testing.assert_array_equal(found, expected)
    part(images)
    assert len(compiled) == 1
