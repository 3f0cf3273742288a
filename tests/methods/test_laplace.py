"""The fitted Gaussian, against a case by hand, the matrices written out, and laplace-torch."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayesdg.bayes import LaplaceLinear
from bayesdg.data import DomainDataset
from bayesdg.methods.learner import LastLayers
from bayesdg.settings import Settings
from bayesdg.training.train import train
from worlds import sealed

pytestmark = pytest.mark.skipif(find_spec("laplace") is None, reason="needs laplace-torch")


def posterior_of(
    weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor, precision: float | None = None
) -> tuple[LaplaceLinear, float]:
    from bayesdg.methods.laplace import kronecker_posterior

    found = kronecker_posterior(weight, bias, features, labels, precision)
    output_basis, input_basis, variance, used = found
    layer = LaplaceLinear(weight.shape[1], len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    layer.output_basis.copy_(output_basis)
    layer.input_basis.copy_(input_basis)
    layer.scale.copy_(variance.sqrt())
    return layer, used


def covariance(layer: LaplaceLinear) -> Tensor:
    """Of the flattened [W, b]."""
    basis = torch.kron(layer.output_basis, layer.input_basis)
    return basis @ layer.scale.square().flatten().diag() @ basis.T


def problem(num: int = 40, width: int = 5, classes: int = 3) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    options = {"generator": generator, "dtype": torch.float64}
    features = torch.randn(num, width, **options)
    weight, bias = torch.randn(classes, width, **options), torch.randn(classes, **options)
    labels = torch.randint(classes, (num,), generator=generator)
    return weight, bias, features, labels


def test_one_image_and_two_classes_by_hand() -> None:
    """One image x with probabilities p, q: the Gauss-Newton matrix is exactly
    pq [[1, -1], [-1, 1]] kron x~ x~^T with x~ = (x, 1). With prior precision d, the difference of
    the logits at the image itself, a direction of length |x~| sqrt 2, has the variance
    2 |x~|^2 / (2 pq |x~|^2 + d); at an orthogonal x~ it has the prior's.
    """
    x, weight = torch.tensor([[2.0]]), torch.tensor([[0.3], [-0.2]])
    bias, precision = torch.tensor([0.1, 0.0]), 0.7
    layer, used = posterior_of(weight, bias, x, torch.tensor([0]), precision)
    assert used == pytest.approx(precision)
    difference = (0.3 + 0.2) * 2.0 + 0.1
    p = 1 / (1 + math.exp(-difference))
    length = 2.0**2 + 1.0
    for point, expected in (
        ((2.0, 1.0), 2 * length / (2 * p * (1 - p) * length + precision)),
        ((1.0, -2.0), 2 * length / precision),
    ):
        direction = torch.tensor([*point, *(-value for value in point)], dtype=torch.float64)
        assert float(direction @ covariance(layer) @ direction) == pytest.approx(expected, rel=1e-6)


def test_precision_is_the_kronecker_product_written_out() -> None:
    """sum_i (diag p_i - p_i p_i^T) kron mean_i x~_i x~_i^T + d, inverted without any basis."""
    weight, bias, features, labels = problem()
    layer, precision = posterior_of(weight, bias, features, labels)
    p = (features @ weight.T + bias).softmax(-1)
    ones = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
    outputs = torch.diag(p.sum(0)) - p.T @ p
    inputs = ones.T @ ones / len(ones)
    expected = (torch.kron(outputs, inputs) + precision * torch.eye(18)).inverse()
    torch.testing.assert_close(covariance(layer), expected, rtol=1e-5, atol=1e-8)


def test_the_priors_precision_maximises_the_marginal_likelihood() -> None:
    """Of the Kronecker model, whose eigenvalues are all there is to its determinant."""
    weight, bias, features, labels = problem()
    layer, found = posterior_of(weight, bias, features, labels)
    eigenvalues = layer.scale.square().reciprocal() - found
    square = float(weight.square().sum() + bias.square().sum())

    def log_evidence(precision: float) -> float:
        fit = 0.5 * 18 * math.log(precision) - 0.5 * precision * square
        return fit - 0.5 * float((eigenvalues + precision).log().sum())

    best = log_evidence(found)
    assert all(log_evidence(found * factor) <= best + 1e-6 for factor in (0.5, 0.9, 1.1, 2.0))


def test_predictions_are_those_of_laplace_torch() -> None:
    """Its variances of the logits exactly; its mean of the softmax over draws to sampling error."""
    weight, bias, features, labels = problem()
    layer, precision = posterior_of(weight, bias, features, labels, 0.5)
    ones = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
    linear = nn.Linear(6, 3, bias=False, dtype=torch.float64)
    linear.weight.data = torch.cat([weight, bias.unsqueeze(1)], dim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from laplace import Laplace

        theirs = Laplace(
            linear, "classification", "all", "kron", prior_precision=torch.tensor(precision)
        )
        theirs.fit(DataLoader(TensorDataset(ones, labels), batch_size=len(ones)))
        expected = theirs(ones[:8], pred_type="glm", link_approx="mc", n_samples=20_000)
        _, variance = theirs._glm_predictive_distribution(ones[:8])
    at = torch.einsum("kl,nd->nkld", torch.eye(3, dtype=torch.float64), ones[:8]).flatten(2)
    ours = at @ covariance(layer) @ at.transpose(1, 2)
    torch.testing.assert_close(ours, variance.detach(), rtol=1e-5, atol=1e-8)
    draw = layer.draw(20_000, torch.Generator().manual_seed(0))
    mean = layer(features[:8], draw).softmax(-1).mean(0)
    # Standard errors of both are at most 0.5 / sqrt(20,000) = 0.0035.
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.015)


def test_a_trained_psi_has_the_posterior_of_what_the_sources_training_images_give_it(
    tiny_dataset: DomainDataset, tiny_settings: Callable[..., Settings]
) -> None:
    """The inputs of psi are caught on their way; fitted anew, psi says its prior's precision."""
    from bayesdg.methods.laplace import fit_laplace

    shut = {**tiny_dataset.domains, "far": sealed(tiny_dataset.domains["far"])}
    run = train(replace(tiny_dataset, domains=shut), tiny_settings("laplace"))
    assert isinstance(run.learner, LastLayers)
    psi = run.learner.network.heads["psi"]
    assert isinstance(psi, LaplaceLinear)
    trained = covariance(psi)
    sources = {name: tiny_dataset.domains[name].train for name in run.task.sources}
    caught: list[Tensor] = []
    hook = psi.register_forward_pre_hook(lambda _, given: caught.append(given[0].double()))
    precision = fit_laplace(run.learner, sources)
    hook.remove()
    torch.testing.assert_close(covariance(psi), trained)
    features = torch.cat([torch.cat(caught), torch.ones(len(torch.cat(caught)), 1)], dim=1)
    assert len(features) == sum(len(images) for images in sources.values())
    mean = torch.cat([psi.weight, psi.bias.unsqueeze(1)], dim=1).detach().double()
    p = (features @ mean.T).softmax(-1)
    hessian = torch.kron(torch.diag(p.sum(0)) - p.T @ p, features.T @ features / len(features))
    expected = (hessian + precision * torch.eye(len(hessian))).inverse()
    torch.testing.assert_close(trained.double(), expected, rtol=1e-3, atol=1e-3 / precision)
