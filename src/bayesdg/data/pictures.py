"""Pictures that somebody brings: files and folders of them, decoded ahead, one after another.

However many they are, only those of a few batches are in memory. A picture that cannot be read is
one with an error in place of pixels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from bayesdg.data.decode import BrokenImage, Decoded, Resize, decode, from_pillow, read_bytes
from bayesdg.data.prefetch import prefetched
from bayesdg.data.store import Pixels
from bayesdg.data.tree import images_below, shown
from bayesdg.errors import UsageError


@dataclass(frozen=True)
class Frame:
    """What a network takes.

    Attributes:
        channels: 3, or 1 for grey.
        size: Side of the square.
        resize: See `decode`.
    """

    channels: int
    size: int
    resize: Resize = "squash"

    @classmethod
    def of(cls, shape: tuple[int, ...], resize: Resize) -> Frame:
        """For (C, H, W) images, if pictures can be made into such."""
        channels, height, width = shape
        if channels not in (1, 3) or height != width:
            raise UsageError(
                f"this run was trained on images of shape {shape}: channels, height, width; "
                "pictures are made into squares of 1 or 3 channels. Give arrays of that shape"
            )
        return cls(channels, height, resize)

    def fit(self, image: Path | Image.Image) -> Pixels:
        """(channels, size, size); BrokenImage if it cannot be read."""
        found: Decoded
        if isinstance(image, Path):
            found = decode(read_bytes(image), self.size, self.resize)
        else:
            found = from_pillow(image, self.size, self.resize)
        return of_channels(found.pixels.transpose(2, 0, 1), self.channels)


@dataclass(frozen=True)
class Picture:
    """A picture, or why there is none.

    Attributes:
        name: For people.
        pixels: (C, S, S), or None.
        error: Why; empty where there are pixels.
    """

    name: str
    pixels: Pixels | None
    error: str = ""


def picture_files(paths: Iterable[Path], ignored: Counter[str]) -> Iterator[Path]:
    """Files as they are named, and every image file below folders, each folder entered once."""
    for path in paths:
        if path.is_dir():
            yield from images_below(path, path, ignored)
        else:
            yield path


def require_there(paths: Sequence[Path]) -> None:
    """Refuse what is neither a file nor a folder, before any work; a dangling link is there."""
    missing = [path for path in paths if not os.path.lexists(path)]
    if missing:
        more = f" (and {len(missing) - 1} more such names)" if len(missing) > 1 else ""
        raise UsageError(f"no file or folder at {shown(missing[0])}{more}")


def read_pictures(
    images: Iterable[Path | Image.Image], frame: Frame, ahead: int, workers: int | None = None
) -> Iterator[Picture]:
    """Files and PIL images as pictures, in order.

    Args:
        images: Are asked for as they are needed.
        frame: What the network takes.
        ahead: How many are decoded before they are asked for.
        workers: Threads; all cores by default. Decoders release Python's lock.
    """

    def read(image: Path | Image.Image) -> Picture:
        name = shown(image) if isinstance(image, Path) else "an image in memory"
        try:
            return Picture(name, frame.fit(image))
        except BrokenImage as error:
            return Picture(name, None, " ".join(str(error).split()))

    return prefetched(read, images, ahead, workers or os.cpu_count() or 1)


def of_channels(pixels: Pixels, channels: int) -> Pixels:
    """(3, S, S) colours as they are, or as (1, S, S) grey as Pillow makes it."""
    if channels == 3:
        return pixels
    grey = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).convert("L")
    return np.asarray(grey)[None]
