"""Images of none of a run's classes, to see whether it notices: a data set by name, or a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesdg.data.domains import Images, Rows
from bayesdg.data.folders import StoredImages
from bayesdg.data.known import KNOWN, expanded, user_cache
from bayesdg.data.load import load_dataset
from bayesdg.data.pictures import Frame, of_channels, picture_files
from bayesdg.data.store import Progress, store
from bayesdg.data.tree import shown
from bayesdg.errors import DataError, UsageError
from bayesdg.names import unknown
from bayesdg.stages import DataSettings


@dataclass(frozen=True)
class Joined:
    """Several sets of images behind each other; all of one shape and type."""

    parts: tuple[Images, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, C, H, W)."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def __getitem__(self, index: Tensor) -> Tensor:
        ends = torch.tensor([part.shape[0] for part in self.parts]).cumsum(0)
        part_of = torch.bucketize(index, ends, right=True)
        found = torch.empty((len(index), *self.shape[1:]), dtype=torch.uint8)
        for number, part in enumerate(self.parts):
            here = part_of == number
            if here.any():
                start = int(ends[number]) - part.shape[0]
                found[here] = part[index[here] - start]
        return found


@dataclass(frozen=True)
class Grey:
    """Coloured images, grey where they are indexed."""

    images: Images

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, 1, H, W)."""
        return (self.images.shape[0], 1, *self.images.shape[2:])

    def __getitem__(self, index: Tensor) -> Tensor:
        coloured = self.images[index].numpy()
        return torch.from_numpy(np.stack([of_channels(pixels, 1) for pixels in coloured]))


def images_elsewhere(
    name: str,
    frame: Frame,
    data: DataSettings,
    root: Path | None = None,
    domains: Collection[str] = (),
    progress: Progress = lambda done, total: None,
) -> tuple[Images, dict[str, str]]:
    """Images as a run takes them, and which files were left out, with the reason.

    Args:
        name: A data set that `bayesdg data list` shows, of which the test images are taken, or a
            folder of pictures in any order.
        frame: What they are fitted to.
        data: Of the run: how pixels are made and kept.
        root: Where named data sets lie.
        domains: Of a named data set those with these names are taken, if it has any, else all.
        progress: Is told how many images are decoded.
    """
    skipped: dict[str, str] = {}
    if name in KNOWN:
        same_pixels = {
            "image_size": frame.size, "channels": frame.channels, "resize": frame.resize,
            "interpolation": data.interpolation, "cache": data.cache, "bad_images": "skip",
        }  # fmt: skip
        found = load_dataset(name, root, DataSettings.model_validate(same_pixels), progress)
        chosen = [found.domains[d] for d in domains if d in found.domains]
        parts = [domain.test.images for domain in chosen or found.domains.values()]
        images: Images = Joined(tuple(parts))
        skipped = dict(line.split(": ", 1) for line in found.skipped)
    elif name and expanded(name).is_dir():
        images, skipped = _folder(expanded(name), frame, data, progress)
    else:
        summary = f"{', '.join(KNOWN)}, or the path of a folder of pictures"
        raise UsageError(unknown("data set", name, KNOWN, summary=summary))
    grey = frame.channels == 1 and images.shape[1] == 3
    return Grey(images) if grey else images, skipped


def _folder(
    folder: Path, frame: Frame, data: DataSettings, progress: Progress
) -> tuple[Images, dict[str, str]]:
    paths = list(picture_files([folder], Counter()))
    cache = user_cache() / "pixels" if data.cache else None
    stored = store(paths, frame.size, frame.resize, cache, progress)
    sound = [row for row in range(len(paths)) if row not in stored.broken]
    if not sound:
        raise DataError(f"no pictures that can be read below {shown(folder)}")
    skipped = {shown(paths[row]): reason for row, reason in stored.broken.items()}
    return Rows(StoredImages(stored.pixels), torch.tensor(sound)), skipped
