"""Images by domain and by split; the split into sources and unseen targets.

Domains have names everywhere. Training is handed `sources` and nothing else, so that the
targets cannot reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from bayesdg.errors import UsageError
from bayesdg.names import choose


@dataclass(frozen=True)
class ImageSet:
    """Labelled images, ready for the network.

    Attributes:
        images: (n, C, H, W), float.
        labels: (n,), class indices into DomainDataset.classes.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Domain:
    """One domain; no image is in two of its splits."""

    name: str
    train: ImageSet
    val: ImageSet
    test: ImageSet


@dataclass(frozen=True)
class Split:
    """Which domains are trained on and which are unseen."""

    sources: Mapping[str, Domain]
    targets: Mapping[str, Domain]


@dataclass(frozen=True)
class DomainDataset:
    """Domains that share one list of classes.

    Attributes:
        name: As in the table of data sets.
        classes: Class names; a label is an index into them, in every domain.
        domains: By name, in a natural order.
        targets: The domains that are unseen by default.
    """

    name: str
    classes: tuple[str, ...]
    domains: Mapping[str, Domain]
    targets: tuple[str, ...]

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(next(iter(self.domains.values())).train.images.shape[1:])

    def split(self, targets: Iterable[str] | None = None) -> Split:
        """Sources and targets; `targets` are names of domains, the data set's own by default."""
        if isinstance(targets, str):
            targets = [targets]
        names = list(self.targets if targets is None else targets)
        for name in names:
            choose("domain", name, self.domains, where=self.name)
        sources = {name: domain for name, domain in self.domains.items() if name not in names}
        if not sources:
            raise UsageError(
                f"all domains of {self.name} are targets; leave at least one to train on: "
                f"{', '.join(self.domains)}"
            )
        return Split(sources, {name: self.domains[name] for name in names})
