"""Domains: data sets by name or by folder, their pixels, and what changes them in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesdg.lazy import lazy

if TYPE_CHECKING:
    from bayesdg.data.domains import Domain, DomainDataset, Images, ImageSet, Split
    from bayesdg.data.load import load_dataset

__getattr__ = lazy(
    __name__,
    {
        "Domain": "bayesdg.data.domains",
        "DomainDataset": "bayesdg.data.domains",
        "ImageSet": "bayesdg.data.domains",
        "Images": "bayesdg.data.domains",
        "Split": "bayesdg.data.domains",
        "load_dataset": "bayesdg.data.load",
    },
)

__all__ = ["Domain", "DomainDataset", "ImageSet", "Images", "Split", "load_dataset"]
