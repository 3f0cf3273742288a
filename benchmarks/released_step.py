"""A training step as the paper's released code computes it, written plainly.

32 bits, target and source images in two passes, every draw of a layer with every draw of the one
before it, and every pair of a target image and a source image of its class formed. The data comes
ready-made. Weights of the terms are those of the released code (docs/method.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesdg.models.backbones import build_backbone
from bayesdg.objectives import gaussian_invariance, released_categorical_invariance
from bayesdg.stages import ModelSettings

LAYERS = ("phi_prime", "phi", "psi")
EPSILON = 1e-8


class Bayesian(nn.Module):
    """Draws of a layer, each with its log q - log p."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.empty(outputs, inputs + 1).uniform_(-0.1, 0.1))
        self.rho = nn.Parameter(torch.empty(outputs, inputs + 1).uniform_(-3, -2))

    def draw(self, num: int) -> tuple[Tensor, Tensor]:
        """(num, out, in + 1) weights with the bias in the last column, and the log ratio."""
        sigma = torch.log1p(self.rho.exp())
        weight = self.mu + sigma * torch.randn(num, *self.mu.shape, device=self.mu.device)
        log_q = -sigma.log() - 0.5 * ((weight - self.mu) / sigma).square()
        narrow = (-0.5 * (weight / 0.1).square()).exp() / 0.1
        wide = (-0.5 * (weight / 1.5).square()).exp() / 1.5
        return weight, (log_q - (0.5 * narrow + 0.5 * wide + EPSILON).log()).sum()

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the activations."""
        sigma = torch.log1p(self.rho.exp())
        mean = functional.linear(x, self.mu[:, :-1], self.mu[:, -1])
        return mean, functional.linear(x**2, sigma[:, :-1] ** 2, sigma[:, -1] ** 2)


def every_draw(x: Tensor, weight: Tensor) -> Tensor:
    """(S, R, in) under (M, out, in + 1) -> (S * M, R, out)."""
    y = torch.einsum("sri,moi->smro", x, weight[..., :-1]) + weight[:, None, :, -1]
    return y.flatten(0, 1)


def pairs(values: Tensor, labels: Tensor, wanted: Tensor, num_classes: int) -> Tensor:
    """(n, D) source values -> (B, n / K, D): those of each target image's class."""
    by_class = torch.stack([values[labels == k] for k in range(num_classes)])
    return by_class[wanted]


def gaussian_pairs(
    target: tuple[Tensor, Tensor], source: tuple[Tensor, Tensor], y_t: Tensor, y_i: Tensor, k: int
) -> Tensor:
    """Mean over pairs and dimensions of KL[N(g_t, v_t) || N(g_i, v_i)]."""
    (g_t, v_t), (g_i, v_i) = target, (pairs(x, y_i, y_t, k) for x in source)
    g_t, v_t = g_t.unsqueeze(1), v_t.unsqueeze(1)
    kl = 0.5 * ((v_i / v_t).log() - 1 + (v_t + (g_t - g_i) ** 2) / v_i)
    return kl.mean()


def categorical_pairs(
    logits_t: Tensor, logits_i: Tensor, y_t: Tensor, y_i: Tensor, k: int
) -> Tensor:
    """Mean over pairs of the summed Bernoulli KLs between flattened, averaged predictions."""

    def probabilities(logits: Tensor) -> Tensor:
        spread = logits.amax(-1, keepdim=True) - logits.amin(-1, keepdim=True)
        return (logits / spread).softmax(-1).mean(0)

    p_t = probabilities(logits_t).unsqueeze(1)
    p_i = pairs(probabilities(logits_i), y_i, y_t, k)
    kl = p_t * (p_t / p_i).log() + (1 - p_t) * ((1 - p_t) / (1 - p_i)).log()
    return kl.sum(-1).mean()


def released_step(
    num_bayesian: int, draws: int, target: Tensor, source: Tensor, y_t: Tensor, y_i: Tensor, k: int
) -> Callable[[], object]:
    """One step on ready-made (B, 3, H, W) and (n, 3, H, W) images, as a function."""
    device = target.device
    backbone, width = build_backbone(ModelSettings(pretrained=False), 3)
    names = LAYERS if num_bayesian == 3 else LAYERS[1:]
    bayesian = names[len(names) - num_bayesian :]
    layers = nn.ModuleDict()
    for name in names:
        outputs = k if name == "psi" else width
        kind = Bayesian if name in bayesian else nn.Linear
        layers[name] = kind(width, outputs)
    backbone.to(device)
    layers.to(device)
    parameters = [*backbone.parameters(), *layers.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, weight_decay=5e-4)

    def step() -> None:
        x_t, x_i = backbone(target).unsqueeze(0), backbone(source).unsqueeze(0)
        loss = target.new_zeros(())
        for name in names:
            layer = layers[name]
            if isinstance(layer, Bayesian):
                if name != "psi":
                    moments = [[m.mean(0) for m in layer.moments(x)] for x in (x_t, x_i)]
                    loss = loss + gaussian_pairs(*map(tuple, moments), y_t, y_i, k)  # type: ignore[arg-type]
                weight, ratio = layer.draw(draws)
                loss = loss + (1e-5 if name == "psi" else 1e-7) * ratio
                x_t, x_i = every_draw(x_t, weight), every_draw(x_i, weight)
            else:
                x_t, x_i = layer(x_t), layer(x_i)
            if name != "psi":
                x_t, x_i = x_t.relu(), x_i.relu()
        p = x_t.softmax(-1).mean(0)
        nll = -(p.gather(1, y_t.unsqueeze(1)) + EPSILON).log().mean()
        loss = loss + nll + 100 * categorical_pairs(x_t, x_i, y_t, y_i, k)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def check() -> None:
    """The pairs give what our terms give: an AssertionError otherwise."""
    chance = torch.Generator().manual_seed(0)
    b, n, k, d = 12, 21, 7, 5

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    y_t, y_i = torch.arange(b) % k, torch.arange(n) % k
    target, source = (normal(b, d), normal(b, d).exp()), (normal(n, d), normal(n, d).exp())
    ours = gaussian_invariance(*target, y_t, *source, y_i, k) / d
    assert math.isclose(ours, gaussian_pairs(target, source, y_t, y_i, k), rel_tol=1e-9)
    logits_t, logits_i = normal(4, b, k), normal(4, n, k)
    ours = released_categorical_invariance(logits_t, y_t, logits_i, y_i)
    assert math.isclose(ours, categorical_pairs(logits_t, logits_i, y_t, y_i, k), rel_tol=1e-9)
