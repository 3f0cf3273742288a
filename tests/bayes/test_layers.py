"""The three ways through a Bayesian layer, and its KL."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.utils.stateless import _reparametrize_module

from bayesdg.bayes import (
    BayesLinear,
    GaussianPrior,
    ScaleMixturePrior,
    closed_form_kl,
    monte_carlo_kl,
)
from bayesdg.errors import UsageError


def make_layer(in_features: int = 5, out_features: int = 3, bias: bool = True) -> BayesLinear:
    torch.manual_seed(0)
    return BayesLinear(in_features, out_features, bias).double()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(7))


def test_a_layer_begins_with_the_sigma_that_is_asked_for() -> None:
    torch.manual_seed(0)
    for rho in (-2.5, -6.0):
        layer = BayesLinear(30, 20, rho=rho)
        low, high = (math.log1p(math.exp(rho + shift)) for shift in (-0.5, 0.5))
        assert layer.bias_sigma is not None
        for sigma in (layer.weight_sigma, layer.bias_sigma):
            assert low <= float(sigma.detach().min()) <= float(sigma.detach().max()) <= high
        assert float(layer.weight_sigma.detach().std()) > 0


@pytest.mark.parametrize("bias", [True, False])
def test_draws_applied_at_once_equal_draws_applied_one_by_one(bias: bool) -> None:
    layer, x = make_layer(bias=bias), rows(7, 5)
    draw = layer.draw(4, seeded())
    for s in range(4):
        expected = torch.nn.functional.linear(
            x, draw.weight[s], None if draw.bias is None else draw.bias[s]
        )
        torch.testing.assert_close(layer(x, draw)[s], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_paired_rows_meet_their_own_draw_only(bias: bool) -> None:
    layer, x = make_layer(bias=bias), rows(4, 7, 5)
    draw = layer.draw(4, seeded())
    for s in range(4):
        torch.testing.assert_close(layer(x, draw)[s], layer(x[s], draw)[s], rtol=1e-12, atol=1e-12)


def test_all_draws_go_through_one_matrix_product() -> None:
    layer, x = make_layer(), rows(7, 5)
    draw = layer.draw(10, seeded())
    # acc_events changes nothing within one cycle; without it some versions of torch warn.
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        layer(x, draw)
    products = {"aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm"}
    assert sum(event.count for event in profile.key_averages() if event.key in products) == 1


def test_weights_are_mean_plus_sigma_times_noise() -> None:
    layer = make_layer()
    draw = layer.draw(2, seeded())
    sigma = torch.log1p(torch.exp(layer.weight_rho))
    torch.testing.assert_close(draw.weight, layer.weight_mu + sigma * draw.weight_noise)


def test_closed_form_moments_agree_with_monte_carlo() -> None:
    """Eq. 8: 100,000 draws, five standard errors of mean and variance."""
    layer, x = make_layer(), rows(6, 5)
    num = 100_000
    with torch.no_grad():
        samples = layer(x, layer.draw(num, seeded()))
        mean, variance = layer.moments(x)
    assert ((samples.mean(0) - mean).abs() / variance.sqrt()).max() < 5 / math.sqrt(num)
    assert (samples.var(0) / variance - 1).abs().max() < 5 * math.sqrt(2 / num)


def test_moments_are_the_sums_of_equation_8() -> None:
    layer, x = make_layer(), rows(2, 5)
    mean, variance = layer.moments(x)
    sigma, bias_sigma = layer.weight_sigma, layer.bias_sigma
    assert layer.bias_mu is not None
    assert bias_sigma is not None
    for r in range(2):
        for j in range(3):
            gamma = sum(x[r, i] * layer.weight_mu[j, i] for i in range(5)) + layer.bias_mu[j]
            delta2 = sum(x[r, i] ** 2 * sigma[j, i] ** 2 for i in range(5)) + bias_sigma[j] ** 2
            torch.testing.assert_close(mean[r, j], gamma)
            torch.testing.assert_close(variance[r, j], delta2)


def test_mean_weights_give_the_mean_activation() -> None:
    layer, x = make_layer(), rows(6, 5)
    assert torch.equal(layer(x), layer.moments(x)[0])


def test_moments_keep_float32_under_autocast() -> None:
    layer = make_layer().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean, variance = layer.moments(rows(6, 5).bfloat16())
    assert mean.dtype == variance.dtype == torch.float32


def test_gradients_are_right() -> None:
    """Through drawn weights and through the closed-form moments."""
    layer, x = make_layer(3, 2), rows(4, 3)
    names = [name for name, _ in layer.named_parameters()]

    def activations(*values: Tensor) -> tuple[Tensor, ...]:
        with _reparametrize_module(layer, dict(zip(names, values, strict=True))):
            return layer(x, layer.draw(3, seeded(3))), *layer.moments(x)

    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(activations, values)


def test_same_generator_same_draw() -> None:
    layer = make_layer()
    first, second = layer.draw(3, seeded(1)), layer.draw(3, seeded(1))
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, layer.draw(3, seeded(2)).weight)


@pytest.mark.parametrize("bias", [True, False])
def test_layer_kl_is_the_sum_over_all_weights(bias: bool) -> None:
    layer = make_layer(bias=bias)
    prior = GaussianPrior(0.5)
    expected = closed_form_kl(prior, layer.weight_mu, layer.weight_sigma).sum()
    if layer.bias_mu is not None and layer.bias_sigma is not None:
        expected = expected + closed_form_kl(prior, layer.bias_mu, layer.bias_sigma).sum()
    torch.testing.assert_close(layer.kl(prior, "closed-form"), expected)
    torch.testing.assert_close(layer.kl(prior, "quadrature"), expected)


def test_monte_carlo_kl_uses_the_draw_that_went_forward() -> None:
    layer, prior = make_layer(bias=False), ScaleMixturePrior()
    draw = layer.draw(4, seeded())
    expected = monte_carlo_kl(prior, layer.weight_mu, layer.weight_sigma, draw.weight_noise).sum()
    torch.testing.assert_close(layer.kl(prior, "monte-carlo", draw), expected)
    # And by the definition, from the weights themselves.
    q = torch.distributions.Normal(layer.weight_mu, layer.weight_sigma)
    by_hand = (q.log_prob(draw.weight) - prior.log_prob(draw.weight)).mean(0).sum()
    torch.testing.assert_close(expected, by_hand)


def test_monte_carlo_kl_converges_to_quadrature() -> None:
    layer, prior = make_layer(), ScaleMixturePrior()
    exact = layer.kl(prior, "quadrature")
    estimate = layer.kl(prior, "monte-carlo", layer.draw(50_000, seeded()))
    assert abs(estimate - exact) < 5 * math.sqrt(18 / 50_000)


def test_sigma_never_reaches_zero() -> None:
    layer = BayesLinear(2, 2)
    torch.nn.init.constant_(layer.weight_rho, -200.0)
    kl = layer.kl(ScaleMixturePrior(), "quadrature")
    kl.backward()
    assert torch.isfinite(kl)
    assert layer.weight_rho.grad is not None
    assert torch.isfinite(layer.weight_rho.grad).all()


def test_large_rho_does_not_overflow() -> None:
    layer = BayesLinear(2, 2)
    torch.nn.init.constant_(layer.weight_rho, 200.0)
    assert torch.isfinite(layer.kl(ScaleMixturePrior(), "quadrature"))


def test_unknown_estimator_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'quadrature'"):
        make_layer().kl(GaussianPrior(), "quadratur")


def test_monte_carlo_without_draw_is_refused() -> None:
    with pytest.raises(UsageError, match="needs the draw"):
        make_layer().kl(GaussianPrior(), "monte-carlo")


def test_no_draws_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one draw"):
        make_layer().draw(0)
