"""Priors and KLs against torch.distributions and a dense numerical integral."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import simpson
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

from bayesdg.bayes import (
    GaussianPrior,
    ScaleMixturePrior,
    closed_form_kl,
    monte_carlo_kl,
    quadrature_kl,
)
from bayesdg.errors import UsageError

MU = (-5.0, -1.0, -0.3, 0.0, 0.05, 0.2, 0.233, 0.3, 0.7, 2.0, 5.0)
PAPER = ScaleMixturePrior(pi=0.5, std1=0.1, std2=1.5)


def float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def dense_kl(prior: ScaleMixturePrior, mu: float, sigma: float) -> float:
    """KL by Simpson's rule with 200,001 nodes over +-10 sigma, written with numpy."""
    z = np.linspace(-10, 10, 200_001)
    w = mu + sigma * z
    narrow = np.log(prior.pi / prior.std1) - 0.5 * (w / prior.std1) ** 2
    wide = np.log((1 - prior.pi) / prior.std2) - 0.5 * (w / prior.std2) ** 2
    log_ratio = -0.5 * z**2 - np.log(sigma) - np.logaddexp(narrow, wide)
    return float(simpson(np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) * log_ratio, x=z))


def test_mixture_density_is_that_of_torch_distributions() -> None:
    weight = torch.linspace(-6, 6, 201, dtype=torch.float64)
    mixture = MixtureSameFamily(
        Categorical(float64(0.3, 0.7)), Normal(float64(0, 0), float64(0.1, 1.5))
    )
    ours = ScaleMixturePrior(0.3, 0.1, 1.5).log_prob(weight)
    torch.testing.assert_close(ours, mixture.log_prob(weight))


def test_mixture_density_is_finite_far_out() -> None:
    weight = torch.tensor([1e6], requires_grad=True)
    PAPER.log_prob(weight).sum().backward()
    assert weight.grad is not None
    assert torch.isfinite(PAPER.log_prob(weight)).all()
    assert torch.isfinite(weight.grad).all()


def test_closed_form_is_that_of_torch_distributions() -> None:
    mu, sigma = float64(-2, 0, 0.1, 3), float64(0.5, 1, 1e-4, 2)
    expected = kl_divergence(Normal(mu, sigma), Normal(0.0, 0.7))
    torch.testing.assert_close(closed_form_kl(GaussianPrior(0.7), mu, sigma), expected)


@pytest.mark.parametrize("sigma", [1e-4, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0])
@pytest.mark.parametrize(
    "prior",
    [PAPER, ScaleMixturePrior(0.25, 0.1, 1.5), ScaleMixturePrior(0.9, 0.01, 10)],
    ids=["paper", "quarter", "extreme"],
)
def test_quadrature_agrees_with_a_dense_integral(prior: ScaleMixturePrior, sigma: float) -> None:
    expected = float64(*(dense_kl(prior, mu, sigma) for mu in MU))
    mu = float64(*MU)
    ours = quadrature_kl(prior, mu, torch.full_like(mu, sigma))
    assert (ours - expected).abs().max() < 1e-7


def test_quadrature_holds_in_float32() -> None:
    mu = torch.linspace(-5, 5, 501).repeat(5)
    sigma = torch.tensor([1e-4, 0.01, 0.1, 0.5, 2.0]).repeat_interleave(501)
    exact = quadrature_kl(PAPER, mu.double(), sigma.double())
    error = (quadrature_kl(PAPER, mu, sigma) - exact).abs()
    assert (error / exact.clamp_min(1)).max() < 2e-6


def test_quadrature_of_a_gaussian_prior_is_the_closed_form() -> None:
    mu, sigma = float64(0.1, -1), float64(0.2, 0.5)
    prior = GaussianPrior(0.3)
    assert torch.equal(quadrature_kl(prior, mu, sigma), closed_form_kl(prior, mu, sigma))


def test_quadrature_gradients_are_right() -> None:
    mu = float64(-5, -0.3, 0, 0.2, 0.25, 1).requires_grad_()
    sigma = float64(0.5, 0.02, 0.1, 0.3, 1.0, 0.05).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda mu, sigma: quadrature_kl(PAPER, mu, sigma), (mu, sigma), eps=1e-5, atol=1e-6
    )


def test_quadrature_and_its_gradient_are_finite_at_the_extremes() -> None:
    mu = torch.tensor([0.0, 1e4, -1e4, 0.2]).repeat(3).requires_grad_()
    sigma = torch.tensor([1e-12, 1.0, 1e4]).repeat_interleave(4).requires_grad_()
    kl = quadrature_kl(PAPER, mu, sigma).sum()
    kl.backward()
    assert torch.isfinite(kl)
    assert mu.grad is not None
    assert sigma.grad is not None
    assert torch.isfinite(mu.grad).all()
    assert torch.isfinite(sigma.grad).all()


def test_monte_carlo_converges_to_quadrature() -> None:
    mu, sigma = float64(-0.4, 0.0, 0.2, 1.0), float64(0.05, 0.1, 0.3, 0.5)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200_000, 4, dtype=torch.float64, generator=generator)
    estimate = monte_carlo_kl(PAPER, mu, sigma, noise)
    # The summands have a standard deviation near 1: five standard errors.
    assert (estimate - quadrature_kl(PAPER, mu, sigma)).abs().max() < 5 / math.sqrt(200_000)


def test_monte_carlo_of_a_gaussian_prior_converges_to_the_closed_form() -> None:
    mu, sigma = float64(-0.4, 1.0), float64(0.05, 0.5)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200_000, 2, dtype=torch.float64, generator=generator)
    estimate = monte_carlo_kl(GaussianPrior(1.0), mu, sigma, noise)
    exact = closed_form_kl(GaussianPrior(1.0), mu, sigma)
    assert (estimate - exact).abs().max() < 5 / math.sqrt(200_000)


def test_kl_is_never_negative() -> None:
    mu = torch.linspace(-3, 3, 61, dtype=torch.float64)
    for sigma in (0.01, 0.1, 0.5, 1.5, 3.0):
        assert (quadrature_kl(PAPER, mu, torch.full_like(mu, sigma)) > 0).all()


def test_a_mixture_has_no_closed_form() -> None:
    with pytest.raises(UsageError, match="no closed-form KL; use 'quadrature' or 'monte-carlo'"):
        closed_form_kl(PAPER, float64(0), float64(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pi": 2}, "pi is 2"),
        ({"pi": 1}, "pi is 1"),
        ({"std1": 0}, "std1 is 0"),
        ({"std1": math.nan}, "std1 is nan"),
        ({"std2": math.inf}, "std2 is inf"),
        ({"std1": 2.0}, "std1 must be the smaller"),
    ],
)
def test_impossible_priors_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScaleMixturePrior(**arguments)


@pytest.mark.parametrize("prior", [PAPER, ScaleMixturePrior(pi=0.9, std1=0.02, std2=0.5)])
@pytest.mark.parametrize(("draws", "shape"), [(1, (3,)), (10, (70, 60)), (5000, (7, 5))])
def test_monte_carlo_and_its_slopes_are_those_of_the_plain_formula(
    prior: ScaleMixturePrior, draws: int, shape: tuple[int, ...]
) -> None:
    """log q - log p by torch.distributions, differentiated by autograd; more than one block."""
    generator = torch.Generator().manual_seed(0)
    mu = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    sigma = (0.01 + torch.rand(shape, dtype=torch.float64, generator=generator)).requires_grad_()
    noise = torch.randn(draws, *shape, dtype=torch.float64, generator=generator)
    share = torch.tensor([prior.pi, 1 - prior.pi], dtype=torch.float64)
    scales = torch.tensor([prior.std1, prior.std2], dtype=torch.float64)
    mixture = MixtureSameFamily(Categorical(share), Normal(torch.zeros_like(scales), scales))
    w = mu + sigma * noise
    plain = (Normal(mu, sigma).log_prob(w) - mixture.log_prob(w)).mean(0)
    ours = monte_carlo_kl(prior, mu, sigma, noise)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    weights = torch.randn(shape, dtype=torch.float64, generator=generator)
    expected = torch.autograd.grad((weights * plain).sum(), (mu, sigma))
    found = torch.autograd.grad((weights * ours).sum(), (mu, sigma))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mu", [0.0, 30.0, -1e4])
@pytest.mark.parametrize("sigma", [1e-12, 1.0, 1e3])
def test_monte_carlo_is_finite_in_float32_wherever_the_weight_is(mu: float, sigma: float) -> None:
    leaves = [torch.full((4,), value, requires_grad=True) for value in (mu, sigma)]
    noise = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    kl = monte_carlo_kl(PAPER, *leaves, noise)
    slopes = torch.autograd.grad(kl.sum(), leaves)
    assert all(torch.isfinite(x).all() for x in (kl, *slopes))
