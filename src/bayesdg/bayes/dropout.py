"""A linear layer whose inputs are dropped at random, while training and afterwards.

Monte Carlo dropout (Gal & Ghahramani, ICML 2016): one mask over the inputs is one draw of the
weights, in which whole columns are zero.

Axes: R rows of the batch, num draws.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesdg.bayes.layers import WeightDraw
from bayesdg.ranks import ALONE, Ranks


class DropoutLinear(nn.Linear):
    """y = W (m * x) + b, where m is 1 / (1 - rate) for inputs that are kept and 0 for others.

    Attributes:
        rate: Probability of an input to be dropped.
    """

    def __init__(self, in_features: int, out_features: int, rate: float) -> None:
        super().__init__(in_features, out_features)
        self.rate = rate

    def draw(self, num: int, generator: torch.Generator | None = None) -> WeightDraw:
        """`num` masks, as the weights they leave; a mask is the same for all images."""
        masks = self._masks(num, generator)
        return WeightDraw(masks.unsqueeze(1) * self.weight, self.bias.expand(num, -1))

    def forward(self, x: Tensor, draw: WeightDraw | None = None) -> Tensor:
        """(num, R, out) under drawn masks; the shape of x with `out` last, nothing dropped, else.

        Args:
            x: (R, in), or (num, R, in) with the rows of each draw.
            draw: From `draw`, or None.
        """
        if draw is None:
            return functional.linear(x, self.weight, self.bias)
        return draw.activations(x)

    def dropped(
        self, x: Tensor, generator: torch.Generator | None = None, ranks: Ranks = ALONE
    ) -> Tensor:
        """(R, in) -> (R, out) with a mask for each image: how it is trained.

        Ranks hold R images each, in order, and the same generator: together they drop what one
        process would drop.
        """
        masks = self._masks(len(x) * ranks.size, generator)
        return functional.linear(x * masks[ranks.share(len(masks))], self.weight, self.bias)

    def _masks(self, num: int, generator: torch.Generator | None) -> Tensor:
        like = self.weight
        chance = torch.rand(
            num, self.in_features, generator=generator, dtype=like.dtype, device=like.device
        )
        return (chance >= self.rate).to(like.dtype) / (1 - self.rate)

    def extra_repr(self) -> str:
        """What `print(layer)` says."""
        return f"{super().extra_repr()}, rate={self.rate}"
