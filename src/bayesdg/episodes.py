"""What one training step sees.

Axes: B target images, S source domains, N images per class and source domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Literal

import torch
from torch import Tensor

from bayesdg.data import ImageSet
from bayesdg.data.sending import sent
from bayesdg.errors import DataError, UsageError
from bayesdg.ranks import ALONE, Ranks

# How images are put together, by name:
# episode: B images of one domain, the meta-target, and N of each class from every other domain;
# single-domain: the B images alone; pooled: B images from all domains together.
Batching = Literal["episode", "single-domain", "pooled"]


@dataclass(frozen=True)
class Plan:
    """Which images an episode will hold; none is fetched yet.

    Attributes:
        picks: Domain and positions in it, target images first.
        num_target: How many of them are target images.
        meta_target: The domain of the target images; None when they come from all domains.
    """

    picks: tuple[tuple[str, Tensor], ...]
    num_target: int
    meta_target: str | None

    @property
    def total(self) -> int:
        """How many images in all."""
        return sum(len(rows) for _, rows in self.picks)

    def rows(self, ranks: Ranks) -> Tensor:
        """Positions in the episode of one rank's share, which is a share of either side."""
        num_source = self.total - self.num_target
        if 0 < num_source < ranks.size:  # batch norm would wait for ranks that have nothing
            raise UsageError(
                f"an episode has {num_source} source images, too few for {ranks.size} processes; "
                "raise episode.per_class or use fewer processes"
            )
        target, source = ranks.share(self.num_target), ranks.share(num_source)
        everything = torch.arange(self.total)
        return torch.cat(
            [everything[: self.num_target][target], everything[self.num_target :][source]]
        )


@dataclass(frozen=True)
class Episode:
    """Target images first, source images behind them, so that one pass covers both.

    Attributes:
        images: (B + S*K*N, C, H, W), or one rank's share of them.
        labels: (B + S*K*N,).
        num_target: B.
        meta_target: The domain of the target images; None when they come from all domains.
        domain_sizes: How many of these images each domain has, in their order.
        rows: Positions of these images in the whole episode; None where they are all there.
        total: How many images the whole episode has; None likewise.
    """

    images: Tensor
    labels: Tensor
    num_target: int
    meta_target: str | None
    domain_sizes: tuple[int, ...] = ()
    rows: Tensor | None = None
    total: int | None = None

    @property
    def target_labels(self) -> Tensor:
        """(B,)."""
        return self.labels[: self.num_target]

    @property
    def source_labels(self) -> Tensor:
        """(S*K*N,), less where a domain lacks a class."""
        return self.labels[self.num_target :]

    def to(self, device: torch.device | str) -> Episode:
        """The same episode on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Episode:
        """The same in page-locked memory, from where a GPU fetches it by itself."""
        return self._each(lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Episode:
        rows = None if self.rows is None else change(self.rows)
        return replace(self, images=change(self.images), labels=change(self.labels), rows=rows)


class EpisodeSampler:
    """Draws episodes from the training images of the source domains.

    A class that a domain lacks is left out of that domain's part. Images are drawn without
    replacement within an episode, and with it where there are fewer than asked for. Every
    domain is the meta-target equally often, whatever its size.
    """

    def __init__(
        self,
        domains: Mapping[str, ImageSet],
        batch_size: int,
        per_class: int,
        batching: Batching,
    ) -> None:
        empty = [name for name, images in domains.items() if len(images) == 0]
        if empty:
            raise DataError(f"no training images in the domain {', '.join(empty)}")
        if batching == "episode" and len(domains) < 2:
            raise UsageError(
                f"an episode needs two source domains, there is only {', '.join(domains)}; "
                "use a method without invariance, such as 'erm' or 'h'"
            )
        self.domains = domains
        self.batch_size = batch_size
        self.per_class = per_class
        self.batching = batching
        self._by_class = {name: _indices_by_class(images) for name, images in domains.items()}

    @property
    def sizes(self) -> set[int]:
        """The numbers of target images and of source images that an episode may have."""
        if self.batching != "episode":
            return {self.batch_size}
        num = {name: len(members) * self.per_class for name, members in self._by_class.items()}
        return {self.batch_size, *(sum(num.values()) - own for own in num.values())}

    def draw(self, generator: torch.Generator) -> Episode:
        """The next episode; all chance comes from `generator`."""
        return self.fetch(self.plan(generator))

    def plan(self, generator: torch.Generator) -> Plan:
        """Which images come next; all chance comes from `generator`."""
        if self.batching == "pooled":
            return self._pooled(generator)
        names = list(self.domains)
        meta_target = names[int(torch.randint(len(names), (), generator=generator))]
        everything = torch.arange(len(self.domains[meta_target]))
        picks = [(meta_target, _pick(everything, self.batch_size, generator))]
        if self.batching == "episode":
            picks += [
                (name, _pick(members, self.per_class, generator))
                for name in names
                if name != meta_target
                for members in self._by_class[name]
            ]
        return Plan(tuple(picks), self.batch_size, meta_target)

    def fetch(self, plan: Plan, ranks: Ranks = ALONE) -> Episode:
        """The images of a plan, or one rank's share of them."""
        wanted = plan.rows(ranks)
        images, labels, start = [], [], 0
        sizes: dict[str, int] = {}
        # A domain at a time: a GPU is quicker with few large orders than with many small ones.
        for name, group in groupby(plan.picks, key=itemgetter(0)):
            rows = torch.cat([rows for _, rows in group])
            own = rows[wanted[(wanted >= start) & (wanted < start + len(rows))] - start]
            if len(rows):
                sizes[name] = sizes.get(name, 0) + len(own)
            if len(own):
                held = self.domains[name]
                index = sent(own, held.images.device) if isinstance(held.images, Tensor) else own
                images.append(held.images[index])
                labels.append(held.labels[own])
            start += len(rows)
        share = ranks.share(plan.num_target)
        return Episode(
            torch.cat(images),
            torch.cat(labels),
            share.stop - share.start,
            plan.meta_target,
            tuple(sizes.values()),
            *((wanted, plan.total) if ranks.size > 1 else ()),
        )

    def _pooled(self, generator: torch.Generator) -> Plan:
        """Every image of every domain is equally likely."""
        sizes = [len(domain) for domain in self.domains.values()]
        index = _pick(torch.arange(sum(sizes)), self.batch_size, generator)
        picks, start = [], 0
        for (name, _), size in zip(self.domains.items(), sizes, strict=True):
            picks.append((name, index[(index >= start) & (index < start + size)] - start))
            start += size
        return Plan(tuple(picks), self.batch_size, None)


def _indices_by_class(images: ImageSet) -> list[Tensor]:
    """One index tensor per class that is there."""
    return [(images.labels == label).nonzero().squeeze(1) for label in images.labels.unique()]


def _pick(pool: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """`num` entries of `pool`: without replacement if it holds enough of them."""
    if len(pool) >= num:
        return pool[torch.randperm(len(pool), generator=generator)[:num]]
    return pool[torch.randint(len(pool), (num,), generator=generator)]
