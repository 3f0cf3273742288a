"""Averages over the source images of a class: all that an invariance term needs of the sources.

Axes: B target images, n source images, K classes, D features; leading axes are draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdg.errors import UsageError


@dataclass(frozen=True)
class ClassAverages:
    """Which image belongs to which class.

    Attributes:
        target: (B,) labels of the target images.
        source: (n,) labels of the source images.
        count: (K,) how many source images each class has.
    """

    target: Tensor
    source: Tensor
    count: Tensor

    @classmethod
    def of(
        cls, target: Tensor, source: Tensor, num_classes: int | None, sides: tuple[Tensor, Tensor]
    ) -> ClassAverages:
        """From the labels of both sides; without K the largest label decides.

        `sides` are the (..., B, D) target and (..., n, D) source values the labels belong to.
        """
        check_labels("target_labels", target, "target values", sides[0])
        check_labels("source_labels", source, "source values", sides[1])
        if num_classes is None:
            both = torch.cat([target, source])
            num_classes = int(both.amax()) + 1 if len(both) else 1
        count = torch.zeros(num_classes, dtype=source.dtype, device=source.device)
        return cls(target, source, count.index_add(0, source, torch.ones_like(source)))

    @property
    def present(self) -> Tensor:
        """(K, 1): whether the class has source images."""
        return (self.count > 0).unsqueeze(-1)

    def mean(self, values: Tensor) -> Tensor:
        """(..., n, D) -> (..., K, D): the mean over the source images of each class, 0 if none."""
        shape = (*values.shape[:-2], len(self.count), values.shape[-1])
        total = values.new_zeros(shape).index_add(-2, self.source, values)
        return total / self.count.clamp_min(1).unsqueeze(-1)

    def at_target(self, statistic: Tensor) -> Tensor:
        """(..., K, D) -> (..., B, D): the statistic of each target image's class."""
        return statistic.index_select(-2, self.target)

    def at_source(self, statistic: Tensor) -> Tensor:
        """(..., K, D) -> (..., n, D): the statistic of each source image's class."""
        return statistic.index_select(-2, self.source)

    def average(self, divergence: Tensor) -> Tensor:
        """(..., B) -> scalar: the mean over the target images that have a counterpart."""
        return mean_over_matched(divergence, self.count.index_select(0, self.target) > 0)


def mean_over_matched(divergence: Tensor, matched: Tensor) -> Tensor:
    """(..., B) -> scalar: the mean over draws and over the target images that are matched."""
    # `where` and not a product: for an unmatched image the divergence is meaningless, even NaN.
    total = divergence.where(matched, 0.0).sum(-1) / matched.sum().clamp_min(1)
    return total.mean()


def check_labels(name: str, labels: Tensor, what: str, values: Tensor) -> None:
    """One label per row of the second last axis, or a UsageError; waits for no device."""
    if labels.shape != values.shape[-2:-1]:
        raise UsageError(
            f"{name} has shape {tuple(labels.shape)}, but {what} has shape "
            f"{tuple(values.shape)}: one label per row of the second last axis is needed"
        )
