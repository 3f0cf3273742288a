"""A linear layer whose weights are Gaussian random variables.

Axes: R rows of the batch, num draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesdg.bayes.distributions import (
    KL_ESTIMATORS,
    Prior,
    closed_form_kl,
    monte_carlo_kl,
    quadrature_kl,
)
from bayesdg.errors import UsageError
from bayesdg.names import unknown

# Keeps log sigma finite when softplus underflows; no optimiser gets there on purpose.
MIN_SIGMA = 1e-12
# Where rho begins, within a half: sigma is 0.08 then.
RELEASED_RHO = -2.5


@dataclass(frozen=True)
class WeightDraw:
    """Draws of all parameters of one layer, and the noise they came from.

    Attributes:
        weight: (num, out, in).
        bias: (num, out), or None.
        weight_noise: Standard normal, the shape of weight; None where no KL is taken from it.
        bias_noise: Standard normal, the shape of bias, or None.
    """

    weight: Tensor
    bias: Tensor | None
    weight_noise: Tensor | None = None
    bias_noise: Tensor | None = None

    def activations(self, x: Tensor) -> Tensor:
        """(num, R, out): of x (R, in), which every draw sees, or (num, R, in), its own rows each.

        All in one matrix product.
        """
        if x.dim() == 2:
            bias = None if self.bias is None else self.bias.flatten()
            stacked = functional.linear(x, self.weight.flatten(0, 1), bias)
            return stacked.unflatten(-1, self.weight.shape[:2]).transpose(0, 1)
        product = torch.bmm(x, self.weight.transpose(1, 2))
        return product if self.bias is None else product + self.bias.unsqueeze(1)


class BayesLinear(nn.Module):
    """y = W x + b with q(W) = N(mu, softplus(rho)^2), factorised, the bias included.

    Three ways through it: `layer(x, draw)` with drawn weights that the whole batch shares (the
    reparameterisation trick; eq. 7 compares two images under the same draw, so a draw per image
    would be wrong), `layer.moments(x)` (eq. 8), and `layer(x)` with the mean weights.

    >>> layer = BayesLinear(4, 3)
    >>> draw = layer.draw(10, torch.Generator().manual_seed(0))
    >>> layer(torch.ones(5, 4), draw).shape
    torch.Size([10, 5, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, rho: float = RELEASED_RHO
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features

        # Initialised as in the released code: the paper does not say how.
        def initial(*shape: int) -> tuple[nn.Parameter, nn.Parameter]:
            mu = nn.Parameter(torch.empty(shape).uniform_(-0.1, 0.1))
            return mu, nn.Parameter(torch.empty(shape).uniform_(rho - 0.5, rho + 0.5))

        self.bias_mu: nn.Parameter | None = None
        self.bias_rho: nn.Parameter | None = None
        self.weight_mu, self.weight_rho = initial(out_features, in_features)
        if bias:
            self.bias_mu, self.bias_rho = initial(out_features)

    @property
    def weight_sigma(self) -> Tensor:
        """Standard deviations of the weights, (out, in)."""
        return functional.softplus(self.weight_rho).clamp_min(MIN_SIGMA)

    @property
    def bias_sigma(self) -> Tensor | None:
        """Standard deviations of the bias, (out,)."""
        if self.bias_rho is None:
            return None
        return functional.softplus(self.bias_rho).clamp_min(MIN_SIGMA)

    def draw(self, num: int, generator: torch.Generator | None = None) -> WeightDraw:
        """`num` independent draws of all weights, differentiable in mu and rho."""
        if num < 1:
            raise UsageError(f"num is {num}, at least one draw is needed")
        weight_noise = standard_normal(num, self.weight_mu, generator)
        weight = torch.addcmul(self.weight_mu, self.weight_sigma, weight_noise)
        sigma = self.bias_sigma
        if self.bias_mu is None or sigma is None:
            return WeightDraw(weight, None, weight_noise, None)
        bias_noise = standard_normal(num, self.bias_mu, generator)
        bias = torch.addcmul(self.bias_mu, sigma, bias_noise)
        return WeightDraw(weight, bias, weight_noise, bias_noise)

    def forward(self, x: Tensor, draw: WeightDraw | None = None) -> Tensor:
        """Activations under each draw, all in one matrix product; under the mean without one.

        Args:
            x: (R, in), every draw sees the same rows; or (num, R, in), draw s sees rows x[s].
            draw: From `draw`, or None for the mean weights.

        Returns:
            (num, R, out) with a draw; the shape of x with `out` last without.
        """
        if draw is None:
            return functional.linear(x, self.weight_mu, self.bias_mu)
        return draw.activations(x)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the activation over q(W), in closed form (paper, eq. 8).

        The bias, which eq. 8 leaves out, adds its own mean and variance.

        Args:
            x: (..., in).

        Returns:
            Mean and variance, each (..., out), in the precision of the weights also under
            autocast: variances do not survive bfloat16.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.weight_mu.dtype)
            mean = functional.linear(x, self.weight_mu, self.bias_mu)
            sigma = self.bias_sigma
            bias_variance = None if sigma is None else sigma.square()
            variance = functional.linear(x.square(), self.weight_sigma.square(), bias_variance)
        return mean, variance

    def kl(self, prior: Prior, estimator: str, draw: WeightDraw | None = None) -> Tensor:
        """KL[q(W) || p(W)] summed over all weights and biases, a scalar.

        Args:
            prior: The density of every single weight.
            estimator: 'closed-form' (Gaussian priors), 'quadrature' (deterministic) or
                'monte-carlo' (on `draw`, the one that went forward).
            draw: Needed by 'monte-carlo' only.
        """
        if estimator not in KL_ESTIMATORS:
            raise UsageError(unknown("KL estimator", estimator, KL_ESTIMATORS))
        if estimator == "monte-carlo" and draw is None:
            raise UsageError("the 'monte-carlo' KL needs the draw that went forward")
        total = self.weight_mu.new_zeros(())
        with torch.autocast(self.weight_mu.device.type, enabled=False):
            for mu, sigma, noise in self._parts(draw):
                if estimator == "monte-carlo" and noise is not None:
                    total = total + monte_carlo_kl(prior, mu, sigma, noise).sum()
                elif estimator == "closed-form":
                    total = total + closed_form_kl(prior, mu, sigma).sum()
                else:
                    total = total + quadrature_kl(prior, mu, sigma).sum()
        return total

    def _parts(self, draw: WeightDraw | None) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """(mu, sigma, noise) of the weights and, if there is one, of the bias."""
        parts: list[tuple[Tensor, Tensor, Tensor | None]] = [
            (self.weight_mu, self.weight_sigma, None if draw is None else draw.weight_noise)
        ]
        sigma = self.bias_sigma
        if self.bias_mu is not None and sigma is not None:
            parts.append((self.bias_mu, sigma, None if draw is None else draw.bias_noise))
        return parts

    def extra_repr(self) -> str:
        """What `print(layer)` says."""
        bias = self.bias_mu is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}"


def standard_normal(num: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """(num, ...) noise of the shape, type and device of `like`."""
    return torch.randn(num, *like.shape, generator=generator, dtype=like.dtype, device=like.device)
