"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable

from bayesdg.data.digits import rotated_digits
from bayesdg.data.domains import Domain, DomainDataset, Images, ImageSet, Split
from bayesdg.names import choose

DATASETS: dict[str, Callable[[], DomainDataset]] = {
    "rotated-digits": rotated_digits,
}


def load_dataset(name: str) -> DomainDataset:
    """The data set called `name`."""
    return choose("data set", name, DATASETS)()


__all__ = ["DATASETS", "Domain", "DomainDataset", "ImageSet", "Images", "Split", "load_dataset"]
