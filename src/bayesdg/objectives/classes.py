"""Averages over the source images of a class: all that an invariance term needs of the sources.

Where several processes train together, each holds a share of both sides, and averages run over all
of them: a sum per class is all that travels.

Axes: B target images, n source images, K classes, D features; leading axes are draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdg.errors import UsageError
from bayesdg.ranks import ALONE, Ranks


@dataclass(frozen=True)
class ClassAverages:
    """Which image belongs to which class.

    Attributes:
        target: (B,) labels of the target images.
        source: (n,) labels of the source images.
        count: (K,) how many source images each class has, on all ranks.
        ranks: Who holds the other shares of the images.
    """

    target: Tensor
    source: Tensor
    count: Tensor
    ranks: Ranks = ALONE

    @classmethod
    def of(
        cls,
        target: Tensor,
        source: Tensor,
        num_classes: int | None,
        sides: tuple[Tensor, Tensor],
        ranks: Ranks = ALONE,
    ) -> ClassAverages:
        """From the labels of both sides; without K the largest label decides.

        `sides` are the (..., B, D) target and (..., n, D) source values the labels belong to.
        """
        check_labels("target_labels", target, "target values", sides[0])
        check_labels("source_labels", source, "source values", sides[1])
        if num_classes is None:
            if ranks.size > 1:
                raise UsageError("num_classes is needed where several processes share the labels")
            both = torch.cat([target, source])
            num_classes = int(both.amax()) + 1 if len(both) else 1
        count = torch.zeros(num_classes, dtype=source.dtype, device=source.device)
        count = count.index_add(0, source, torch.ones_like(source))
        return cls(target, source, ranks.sum(count), ranks)

    @property
    def present(self) -> Tensor:
        """(K, 1): whether the class has source images."""
        return (self.count > 0).unsqueeze(-1)

    def means(self, *values: Tensor) -> tuple[Tensor, ...]:
        """(..., n, D) each -> (..., K, D) each: means over the source images of a class, 0 if none.

        All of them travel between processes at once.
        """
        totals = [
            v.new_zeros((*v.shape[:-2], len(self.count), v.shape[-1])).index_add(-2, self.source, v)
            for v in values
        ]
        if self.ranks.size > 1:
            sizes = [value.shape[-1] for value in values]
            totals = list(self.ranks.sum(torch.cat(totals, dim=-1)).split(sizes, dim=-1))
        count = self.count.clamp_min(1).unsqueeze(-1)
        return tuple(total / count for total in totals)

    def mean(self, values: Tensor) -> Tensor:
        """(..., n, D) -> (..., K, D): the mean over the source images of each class, 0 if none."""
        return self.means(values)[0]

    def at_target(self, statistic: Tensor) -> Tensor:
        """(..., K, D) -> (..., B, D): the statistic of each target image's class."""
        return statistic.index_select(-2, self.target)

    def at_source(self, statistic: Tensor) -> Tensor:
        """(..., K, D) -> (..., n, D): the statistic of each source image's class."""
        return statistic.index_select(-2, self.source)

    def average(self, divergence: Tensor) -> Tensor:
        """(..., B) -> scalar: the mean over the target images that have a counterpart."""
        matched = self.count.index_select(0, self.target) > 0
        return mean_over_matched(divergence, matched, self.ranks)


def mean_over_matched(divergence: Tensor, matched: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """(..., B) -> scalar: the mean over draws and over the target images that are matched.

    With several ranks it is their average that is this mean.
    """
    # Filled and not multiplied: for an unmatched image the divergence is meaningless, even NaN.
    total = divergence.masked_fill(~matched, 0.0).sum(-1) / ranks.sum(matched.sum()).clamp_min(1)
    return total.mean() * ranks.size


def check_labels(name: str, labels: Tensor, what: str, values: Tensor) -> None:
    """One label per row of the second last axis, or a UsageError; waits for no device."""
    if labels.shape != values.shape[-2:-1]:
        raise UsageError(
            f"{name} has shape {tuple(labels.shape)}, but {what} has shape "
            f"{tuple(values.shape)}: one label per row of the second last axis is needed"
        )
