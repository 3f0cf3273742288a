"""What one training step sees.

Axes: B target images, S source domains, N images per class and source domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bayesdg.data import ImageSet
from bayesdg.errors import DataError, UsageError

# How images are put together, by name:
# episode: B images of one domain, the meta-target, and N of each class from every other domain;
# single-domain: the B images alone; pooled: B images from all domains together.
Batching = Literal["episode", "single-domain", "pooled"]


@dataclass(frozen=True)
class Episode:
    """Target images first, source images behind them, so that one pass covers both.

    Attributes:
        images: (B + S*K*N, C, H, W).
        labels: (B + S*K*N,).
        num_target: B.
        meta_target: The domain of the target images; None when they come from all domains.
    """

    images: Tensor
    labels: Tensor
    num_target: int
    meta_target: str | None

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
        images = self.images.to(device, non_blocking=True)
        labels = self.labels.to(device, non_blocking=True)
        return Episode(images, labels, self.num_target, self.meta_target)

    def pinned(self) -> Episode:
        """The same in page-locked memory, from where a GPU fetches it by itself."""
        images = self.images if self.images.is_cuda else self.images.pin_memory()
        return Episode(images, self.labels.pin_memory(), self.num_target, self.meta_target)


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

    def draw(self, generator: torch.Generator) -> Episode:
        """The next episode; all chance comes from `generator`."""
        if self.batching == "pooled":
            return self._pooled(generator)
        names = list(self.domains)
        meta_target = names[int(torch.randint(len(names), (), generator=generator))]
        target = self.domains[meta_target]
        picks = [(target, _pick(torch.arange(len(target)), self.batch_size, generator))]
        if self.batching == "episode":
            picks += [
                (domain, _pick(members, self.per_class, generator))
                for name, domain in self.domains.items()
                if name != meta_target
                for members in self._by_class[name]
            ]
        return Episode(
            images=torch.cat([domain.images[index] for domain, index in picks]),
            labels=torch.cat([domain.labels[index] for domain, index in picks]),
            num_target=self.batch_size,
            meta_target=meta_target,
        )

    def _pooled(self, generator: torch.Generator) -> Episode:
        """Every image of every domain is equally likely."""
        sizes = [len(domain) for domain in self.domains.values()]
        index = _pick(torch.arange(sum(sizes)), self.batch_size, generator)
        images, labels, start = [], [], 0
        for domain, size in zip(self.domains.values(), sizes, strict=True):
            own = index[(index >= start) & (index < start + size)] - start
            images.append(domain.images[own])
            labels.append(domain.labels[own])
            start += size
        return Episode(torch.cat(images), torch.cat(labels), self.batch_size, None)


def _indices_by_class(images: ImageSet) -> list[Tensor]:
    """One index tensor per class that is there."""
    return [(images.labels == label).nonzero().squeeze(1) for label in images.labels.unique()]


def _pick(pool: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """`num` entries of `pool`: without replacement if it holds enough of them."""
    if len(pool) >= num:
        return pool[torch.randperm(len(pool), generator=generator)[:num]]
    return pool[torch.randint(len(pool), (num,), generator=generator)]
