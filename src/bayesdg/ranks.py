"""The processes that train together, seen from one of them.

Every process (a rank) holds a share of each episode and reports a loss. The gradients are averaged
over ranks afterwards, so a loss is right when the *average* of the ranks' losses is that of one
process with the whole episode. `sum` is differentiable; its gradient is the sum of all ranks'
gradients, which is what the average needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Ranks:
    """Which process this is and how many there are; the default process group connects them."""

    rank: int = 0
    size: int = 1

    def sum(self, x: Tensor) -> Tensor:
        """x summed over all ranks, on every rank; with gradients."""
        return x if self.size == 1 else _Sum.apply(x)

    def gather(self, x: Tensor) -> Tensor:
        """(..., n, D) of every rank, behind each other along the second last axis."""
        if self.size == 1:
            return x
        counts = torch.zeros(self.size, dtype=torch.int64, device=x.device)
        counts[self.rank] = x.shape[-2]
        sizes = self.sum(counts).tolist()
        blank = [x.new_zeros((*x.shape[:-2], size, x.shape[-1])) for size in sizes]
        return self.sum(torch.cat([*blank[: self.rank], x, *blank[self.rank + 1 :]], dim=-2))

    def share(self, total: int) -> slice:
        """The part of `total` things in a row that is this rank's; shares differ by one at most."""
        return slice(total * self.rank // self.size, total * (self.rank + 1) // self.size)


# The usual case: one process.
ALONE = Ranks()


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total
