"""Backbone, then phi' (rarely), phi and psi, each a point estimate or Bayesian.

Axes: R images, S draws, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from bayesdg.bayes import (
    BayesLinear,
    DropoutLinear,
    GaussianPrior,
    LaplaceLinear,
    Prior,
    ScaleMixturePrior,
    WeightDraw,
)
from bayesdg.chance import stream_seed
from bayesdg.errors import UsageError
from bayesdg.methods.rows import Layer, Method
from bayesdg.models.backbones import build_backbone
from bayesdg.models.style import StyleMixing
from bayesdg.ranks import ALONE
from bayesdg.stages import ModelSettings


@dataclass(frozen=True)
class Features:
    """What a hidden layer says about each image.

    Attributes:
        mean: (R, D), or (S, R, D) behind a Bayesian layer. Of a Bayesian layer: the mean of the
            activation before the ReLU (eq. 8). Of a point layer: its output, after the ReLU.
        variance: Of the activation, the shape of mean; None for a point layer.
    """

    mean: Tensor
    variance: Tensor | None


# Layers that have more than one answer.
DRAWN = (BayesLinear, DropoutLinear, LaplaceLinear)
# Draws of the weights of each such layer, by its name; empty for the mean weights.
Draws = Mapping[str, WeightDraw]


@dataclass(frozen=True)
class Output:
    """Everything one forward pass found out; nothing is left behind on a layer.

    Attributes:
        features: Of the backbone and the hidden layers behind it, by name, in order.
        logits: (S, R, K); S is 1 without draws.
        weight_kl: KL[q || p] of each Bayesian layer, by name; empty in evaluation mode.
    """

    features: Mapping[str, Features]
    logits: Tensor
    weight_kl: Mapping[str, Tensor]


class Network(nn.Module):
    """Images in, Output out. Built by `build_network`."""

    def __init__(
        self,
        backbone: nn.Module,
        heads: nn.ModuleDict,
        prior: Prior,
        settings: ModelSettings,
        mean: Tensor,
        std: Tensor,
    ) -> None:
        super().__init__()
        # Saved with the weights, so that a stored network takes pictures as they are.
        self.register_buffer("pixel_mean", mean.view(-1, 1, 1))
        self.register_buffer("pixel_std", std.view(-1, 1, 1))
        # Channels beside each other in memory: what convolutions of today are quickest with.
        self.backbone = backbone.to(memory_format=torch.channels_last)
        self.heads = heads
        self.prior = prior
        self.settings = settings
        # Other processes may hold parts of each group; see share_batch_norm.
        self.ranks = ALONE
        self.style = StyleMixing(backbone, settings) if settings.style_mixing else None

    @property
    def normalises(self) -> bool:
        """Whether it was made for pixels in 0..1, and not for whatever somebody's arrays hold."""
        return bool((self.get_buffer("pixel_std") != 1).any())

    @property
    def is_drawn(self) -> bool:
        """Whether any layer has draws."""
        return any(isinstance(head, DRAWN) for head in self.heads.values())

    def train(self, mode: bool = True) -> Network:
        """Training or evaluation mode; frozen batch norm stays as it is evaluated."""
        super().train(mode)
        if self.settings.batch_norm == "frozen":
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def draw(self, num: int, generator: torch.Generator | None = None) -> Draws:
        """`num` draws of every layer that has any; none for 0.

        None of dropout while training: there every image has a mask of its own.
        """
        kinds = (BayesLinear,) if self.training else DRAWN
        return {
            name: head.draw(num, generator)
            for name, head in self.heads.items()
            if num and isinstance(head, kinds)
        }

    def forward(
        self,
        images: Tensor,
        draws: int | Draws = 0,
        generator: torch.Generator | None = None,
        groups: Sequence[int] | None = None,
    ) -> Output:
        """One pass over all images.

        Args:
            images: (R, C, H, W), uint8, or float in the range 0..1; normalised here.
            draws: Weight draws per layer that has any, or what `draw` returned; 0 for the mean
                weights. Outside of training draws are paired whatever the settings say: the
                expectation is the same.
            generator: Source of all chance.
            groups: Sizes of parts of the batch, in order; with batch_norm 'grouped' or
                'by-domain' each part is normalised by its own statistics while training.
        """
        # Weights are drawn first: what a backbone does with chance must not change them.
        drawn = self.draw(draws, generator) if isinstance(draws, int) else draws
        pixels = self._normalised(images)
        if self.style is not None and self.training:
            with self.style.drawing(generator):
                x = self._backbone_features(pixels, groups)
        else:
            x = self._backbone_features(pixels, groups)
        features = {"backbone": Features(x, None)}
        weight_kl: dict[str, Tensor] = {}
        last = len(self.heads) - 1
        for depth, (name, head) in enumerate(self.heads.items()):
            if isinstance(head, BayesLinear):
                if depth < last:
                    features[name] = Features(*head.moments(x))
                draw = drawn.get(name)
                if self.training:
                    weight_kl[name] = self._kl(head, draw)
                x = self._activations(head, x, draw)
                x = functional.relu(x) if depth < last else x
            else:
                x = self._not_bayesian(head, x, drawn.get(name), generator)
                if depth < last:
                    x = functional.relu(x)
                    features[name] = Features(x, None)
        return Output(features, x if x.dim() == 3 else x.unsqueeze(0), weight_kl)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = self.get_buffer("pixel_mean"), self.get_buffer("pixel_std")
        pixels = images.to(mean.dtype)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return ((pixels - mean) / std).contiguous(memory_format=torch.channels_last)

    def _backbone_features(self, images: Tensor, groups: Sequence[int] | None) -> Tensor:
        """(R, C, H, W) -> (R, F)."""
        parts: Sequence[Tensor] = [images]
        is_apart = self.settings.batch_norm in ("grouped", "by-domain")
        if groups is not None and self.training and is_apart:
            # Where other processes have images of a part, all have to go through it.
            shared = self.ranks.size > 1
            apart = [part for part in images.split(list(groups)) if len(part) or shared]
            # A single image has no statistics of its own, unless other processes have more.
            if shared or min(map(len, apart)) > 1:
                parts = apart
        return torch.cat([self.backbone(part) for part in parts])

    def _activations(self, head: BayesLinear, x: Tensor, draw: WeightDraw | None) -> Tensor:
        """(R, in) or (S, R, in) -> (S', R, out); S' is S times num for a product of draws."""
        if draw is None or x.dim() == 2:
            return head(x, draw)
        if self.training and self.settings.combine == "product":
            every_pair: Tensor = head(x.flatten(0, 1), draw)
            return every_pair.unflatten(1, x.shape[:2]).flatten(0, 1)
        return head(x, draw)

    def _not_bayesian(
        self,
        head: nn.Module,
        x: Tensor,
        draw: WeightDraw | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """(R, in) or (S, R, in) -> (R, out), or (S, R, out) under draws."""
        if isinstance(head, DropoutLinear) and self.training:
            return head.dropped(x, generator, self.ranks)
        activations: Tensor = head(x) if draw is None else head(x, draw)
        return activations

    def _kl(self, head: BayesLinear, draw: WeightDraw | None) -> Tensor:
        if self.settings.kl == "monte-carlo":
            return head.kl(self.prior, "monte-carlo", draw)
        return head.kl(self.prior, "quadrature")


def build_network(
    method: Method,
    settings: ModelSettings,
    num_classes: int,
    in_channels: int,
    seed: int,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Network:
    """The network a method asks for; `seed` decides its initial weights.

    `mean` and `std` of the pixels per channel, or one for all, are what it normalises by.

    phi and phi' keep the width of the backbone. A point phi that is not made invariant changes
    nothing but the depth; `settings.equal_depth` says whether it is there.
    """
    if num_classes < 2:
        raise UsageError(f"{num_classes} class is nothing to classify; at least 2 are needed")
    # Initialisers of torch know no generator: seed the CPU's global one, and give it back
    # unchanged. torch.manual_seed would touch the GPUs' as well.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, "initial weights"))
        backbone, width = build_backbone(settings, in_channels)
        heads = nn.ModuleDict()
        for name, layer in method.layers.items():
            if name == "phi" and not (layer.bayes or layer.invariant or settings.equal_depth):
                continue
            out_features = num_classes if name == "psi" else width
            heads[name] = _head(method, name, layer, (width, out_features), settings)
    prior: Prior = GaussianPrior(1.0)
    if method.prior == "mixture":
        prior = ScaleMixturePrior(settings.pi, settings.std1, settings.std2)
    pixel_mean, pixel_std = (torch.tensor(x).expand(in_channels).clone() for x in (mean, std))
    return Network(backbone, heads, prior, settings, pixel_mean, pixel_std)


def _head(
    method: Method, name: str, layer: Layer, size: tuple[int, int], settings: ModelSettings
) -> nn.Module:
    """A last layer of `size` (in, out); point layers begin with the same weights in every kind."""
    if layer.bayes:
        return BayesLinear(*size, rho=settings.rho)
    if method.uncertainty == "dropout":
        return DropoutLinear(*size, settings.dropout)
    if method.uncertainty == "laplace" and name == "psi":
        return LaplaceLinear(*size)
    return nn.Linear(*size)
