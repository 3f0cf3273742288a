"""Mixing the styles of images in early features (MixStyle, Zhou et al., ICLR 2021).

The style of an image is the mean and standard deviation of each channel of a feature map. While
training, with some probability, an image keeps its content and gets a mixture of its own style and
another image's. Images are mixed that go through the backbone together; with several processes,
among those of one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesdg.errors import UsageError
from bayesdg.names import unknown
from bayesdg.stages import ModelSettings

EPSILON = 1e-6


class StyleMixing:
    """Mixes the outputs of some layers of a backbone, inside of `drawing` only."""

    def __init__(self, backbone: nn.Module, settings: ModelSettings) -> None:
        self.probability = settings.style_mixing
        self.alpha = settings.style_alpha
        self._generator: torch.Generator | None = None
        modules = dict(backbone.named_modules())
        for name in settings.style_layers or early_layers(backbone):
            if name not in modules:
                summary = ", ".join(early_layers(backbone)) + " and deeper layers of the backbone"
                raise UsageError(unknown("layer", name, [*modules][1:], summary=summary))
            modules[name].register_forward_hook(self._hook)

    @contextmanager
    def drawing(self, generator: torch.Generator | None) -> Iterator[None]:
        """Inside, styles are mixed with chance from `generator`."""
        self._generator = generator
        try:
            yield
        finally:
            self._generator = None

    def _hook(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        generator = self._generator
        if generator is None:
            return output
        if output.dim() != 4:
            raise UsageError(
                f"style mixing needs feature maps, {type(module).__name__} returns "
                f"{tuple(output.shape)}; choose other model.style_layers"
            )
        num, device = len(output), output.device
        coin, order = torch.rand(1 + num, generator=generator, device=device).split([1, num])
        concentration = torch.full((num, 2), self.alpha, device=device)
        share = torch._sample_dirichlet(concentration, generator=generator)[:, 0]
        # Decided on the device: asking for the coin would make the processor wait.
        share = share.masked_fill(coin >= self.probability, 1.0)
        return mixed(output, order.argsort(), share)


def mixed(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Each image with its own style mixed with its partner's.

    Args:
        x: (R, C, H, W).
        partner: (R,), a permutation.
        share: (R,), how much of the own style is kept; 1 changes nothing.
    """
    wide = x.detach().float() if x.dtype.itemsize < 4 else x.detach()
    mean = wide.mean((2, 3), keepdim=True)
    std = (wide.var((2, 3), keepdim=True, correction=0) + EPSILON).sqrt()
    kept = share.to(wide.dtype).view(-1, 1, 1, 1)
    new_mean = torch.lerp(mean[partner], mean, kept)
    new_std = torch.lerp(std[partner], std, kept)
    scale = new_std / std
    # Statistics are constants here, as in the original: gradients flow through the content.
    return x * scale.to(x.dtype) + (new_mean - mean * scale).to(x.dtype)


def early_layers(backbone: nn.Module) -> tuple[str, ...]:
    """The first two stages after the stem, where style lives."""
    own = getattr(backbone, "early_layers", None)
    if own is not None:
        return tuple(own)
    stages = getattr(backbone, "feature_info", None)
    found = [] if stages is None else list(stages)
    names = [str(stage["module"]) for stage in found if stage.get("reduction", 0) >= 4]
    if len(names) < 2:
        raise UsageError(
            "this backbone has no stages that are known; name layers in model.style_layers"
        )
    return tuple(names[:2])
