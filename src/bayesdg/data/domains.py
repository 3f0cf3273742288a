"""Images by domain and by split; the split into sources and unseen targets.

Domains have names everywhere. Training is handed `sources` and nothing else, so that the
targets cannot reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from bayesdg.errors import DataError, UsageError
from bayesdg.names import choose

# ImageNet's, which pretrained backbones expect.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Images(Protocol):
    """Pixels that are fetched when they are asked for; a tensor is one such thing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, C, H, W)."""
        ...

    def __getitem__(self, index: Tensor, /) -> Tensor:
        """(k,) positions -> (k, C, H, W): uint8, or float as the network takes it."""
        ...


@dataclass(frozen=True)
class Rows:
    """Some of the images of a larger set, in a given order."""

    images: Images
    rows: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, C, H, W)."""
        return (len(self.rows), *self.images.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """As the images; decoded files, which have none, are bytes."""
        return getattr(self.images, "dtype", torch.uint8)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.images[self.rows[index]]


@dataclass(frozen=True)
class ImageSet:
    """Labelled images.

    Attributes:
        images: (n, C, H, W), a tensor or anything that is indexed like one; uint8, or float.
        labels: (n,), int64 class indices into DomainDataset.classes.
    """

    images: Images
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.images.shape) != 4:
            raise DataError(f"images have shape {tuple(self.images.shape)}, needed (n, C, H, W)")
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise DataError(
                f"labels are {self.labels.dtype} of shape {tuple(self.labels.shape)}, needed "
                "int64 class indices of shape (n,)"
            )
        if self.images.shape[0] != len(self.labels):
            raise DataError(f"{self.images.shape[0]} images have {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def of_classes(self, labels: Iterable[int]) -> ImageSet:
        """The images of these classes alone."""
        mask = torch.isin(self.labels, torch.tensor(list(labels)))
        if mask.all():
            return self
        return ImageSet(Rows(self.images, mask.nonzero().squeeze(1)), self.labels[mask])


@dataclass(frozen=True)
class Domain:
    """One domain; no image is both in train and in val.

    Attributes:
        name: Its name.
        train: For training.
        val: For choosing weights; may be empty.
        test: For judging; as a target always, as a source where they are held out.
        held_out_test: Whether the test images are in no other part. Where they are not, a
            source domain is evaluated on its validation images.
    """

    name: str
    train: ImageSet
    val: ImageSet
    test: ImageSet
    held_out_test: bool = True


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
        targets: The domains that are unseen by default; none where the user has to say.
        mean: Per channel, of pixels in 0..1; what the network subtracts.
        std: Per channel; what the network divides by.
        augmentation: What 'auto' augmentation means here.
        skipped: Files that were left out, with the reason.
        notes: What a person should know, such as counts other than the published ones.
        place: Path of a folder of the user's own; empty for data sets that are known by name.
    """

    name: str
    classes: tuple[str, ...]
    domains: Mapping[str, Domain]
    targets: tuple[str, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augmentation: Literal["none", "photo"] = "none"
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    place: str = ""

    def __post_init__(self) -> None:
        shapes: set[tuple[int, ...]] = set()
        types: set[torch.dtype] = set()
        for name, domain in self.domains.items():
            for split in ("train", "val", "test"):
                images: ImageSet = getattr(domain, split)
                shapes.add(tuple(images.images.shape[1:]))
                types.add(getattr(images.images, "dtype", torch.uint8))
                if len(images) == 0:
                    continue
                low, high = int(images.labels.min()), int(images.labels.max())
                if low < 0 or high >= len(self.classes):
                    raise DataError(
                        f"labels of {self.name}/{name}/{split} run from {low} to {high}, but "
                        f"there are {len(self.classes)} classes: 0 to {len(self.classes) - 1}"
                    )
        if len(shapes) > 1:
            raise DataError(f"images of {self.name} differ in shape: {sorted(shapes)}")
        if len(types) > 1:
            raise DataError(f"images of {self.name} differ in type: {', '.join(map(str, types))}")

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(next(iter(self.domains.values())).train.images.shape[1:])

    def without(self, names: Iterable[str]) -> DomainDataset:
        """The same without some domains, as if they were not there."""
        gone = [choose("domain", name, {n: n for n in self.domains}, self.name) for name in names]
        kept = {name: domain for name, domain in self.domains.items() if name not in gone}
        if not kept:
            raise UsageError(f"all domains of {self.name} are excluded; leave out fewer")
        targets = tuple(name for name in self.targets if name in kept)
        return replace(self, domains=kept, targets=targets)

    def hiding(self, classes: Iterable[str]) -> DomainDataset:
        """The same with some classes in no training and no validation image; test keeps them."""
        position = {name: index for index, name in enumerate(self.classes)}
        gone = torch.tensor([choose("class", name, position, self.name) for name in classes])
        if not len(gone):
            return self

        def seen(images: ImageSet) -> ImageSet:
            rows = (~torch.isin(images.labels, gone)).nonzero().squeeze(1)
            return ImageSet(Rows(images.images, rows), images.labels[rows])

        domains = {
            name: replace(domain, train=seen(domain.train), val=seen(domain.val))
            for name, domain in self.domains.items()
        }
        return replace(self, domains=domains)

    def split(self, targets: Iterable[str] | None = None) -> Split:
        """Sources and targets, checked to have the images that each needs.

        A source may lack validation images as long as another has some.

        Args:
            targets: Names of unseen domains; the data set's own by default.
        """
        if isinstance(targets, str):
            targets = [targets]
        names = list(self.targets if targets is None else targets)
        if not names:
            raise UsageError(
                f"{self.name} has no target of its own; name one: {', '.join(self.domains)}"
            )
        for name in names:
            choose("domain", name, self.domains, where=self.name)
        sources = {name: domain for name, domain in self.domains.items() if name not in names}
        if not sources:
            raise UsageError(
                f"all domains of {self.name} are targets; leave at least one to train on: "
                f"{', '.join(self.domains)}"
            )
        split = Split(sources, {name: self.domains[name] for name in names})
        needed = [(domain, "train") for domain in split.sources.values()]
        needed += [(domain, "test") for domain in split.targets.values()]
        for domain, part in needed:
            if len(getattr(domain, part)) == 0:
                raise DataError(f"{self.name}: the domain {domain.name} has no {part} images")
        if not any(len(domain.val) for domain in split.sources.values()):
            raise DataError(
                f"{self.name}: no validation images in {', '.join(sources)}, by which weights are "
                "chosen; one of them needs some: two images of a class leave one, or a table names "
                "them (data.split_file)"
            )
        return split
