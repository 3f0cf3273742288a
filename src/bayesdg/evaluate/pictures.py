"""Whatever people have for pictures, as batches; and predictions about them as they come.

Axes: n images, C channels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from bayesdg.data import Images
from bayesdg.data.pictures import Frame, Picture, picture_files, read_pictures, require_there
from bayesdg.data.store import Pixels
from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.predict import Predictions
from bayesdg.evaluate.rows import Form
from bayesdg.tabular import Row

T = TypeVar("T")
Array: TypeAlias = NDArray[np.floating[Any] | np.uint8]
Single: TypeAlias = str | Path | Image.Image
Pictures: TypeAlias = Images | Array | Single | Sequence[Single] | DataLoader[Any]

# Batches that are decoded while one is predicted.
BATCHES_AHEAD = 2


def batches_of(
    pictures: Pictures,
    frame: Callable[[], Frame],
    check: Callable[[tuple[int, ...]], None],
    size: int,
) -> Iterator[Tensor]:
    """(n, C, H, W) batches of whatever pictures come as; DataError if one cannot be read.

    Args:
        pictures: An array or a tensor; a path, a PIL image or a sequence of such; a DataLoader,
            of images alone or with labels and more behind them.
        frame: What files and PIL images are fitted to; asked for only where there are such.
        check: Refuses a wrong (C, H, W).
        size: Images at a time.
    """
    if isinstance(pictures, DataLoader):
        for batch in pictures:
            images = batch[0] if isinstance(batch, Sequence) else batch
            if not isinstance(images, Tensor):
                raise UsageError(
                    f"the DataLoader gives {type(batch).__name__}; tensors are needed, or "
                    "sequences that begin with one"
                )
            yield _checked(images, check)
        return
    if isinstance(pictures, np.ndarray):
        pictures = torch.as_tensor(pictures)
    if isinstance(pictures, str | Path | Image.Image):
        pictures = [pictures]
    if isinstance(pictures, Sequence):
        for chunk in chunks(read_pictures(_files(pictures), frame(), BATCHES_AHEAD * size), size):
            yield torch.from_numpy(np.stack([_pixels(picture) for picture in chunk]))
        return
    if not hasattr(pictures, "shape"):
        raise UsageError(
            f"pictures come as {type(pictures).__name__}; an array, a tensor, paths, PIL images "
            "or a DataLoader are needed"
        )
    _checked(pictures, check)
    for index in torch.arange(pictures.shape[0]).split(size):
        if len(index):
            yield pictures[index]


def rows_of(
    files: Iterable[Path],
    frame: Frame,
    ask: Callable[[Tensor], Predictions],
    form: Form,
    size: int,
) -> Iterator[list[Row]]:
    """Rows of a table, one for each file, in order and some at a time.

    However many files there are, only those of a few batches are in memory.

    Args:
        files: Are asked for as they are needed.
        frame: What they are fitted to.
        ask: Is asked about batches of those that can be read.
        form: Of a row.
        size: Rows at a time.
    """
    for chunk in chunks(read_pictures(files, frame, BATCHES_AHEAD * size), size):
        pixels = [picture.pixels for picture in chunk if picture.pixels is not None]
        found = ask(torch.from_numpy(np.stack(pixels))) if pixels else None
        yield list(form.rows(chunk, found))


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def _checked(images: Any, check: Callable[[tuple[int, ...]], None]) -> Any:
    if len(images.shape) != 4:
        raise UsageError(f"images have shape {tuple(images.shape)}; (n, C, H, W) is needed")
    check(tuple(images.shape[1:]))
    return images


def _pixels(picture: Picture) -> Pixels:
    if picture.pixels is None:
        raise DataError(
            f"{picture.name}: {picture.error}; leave it out, or take bayesdg predict, which gives "
            "it a row with the error"
        )
    return picture.pixels


def _files(pictures: Sequence[Single]) -> Iterator[Path | Image.Image]:
    """Files and PIL images; a folder stands for the pictures in it."""
    for single in pictures:
        if isinstance(single, Image.Image):
            yield single
        elif isinstance(single, str | Path):
            require_there([Path(single)])
            yield from picture_files([Path(single)], Counter())
        else:
            raise UsageError(
                f"a sequence holds {type(single).__name__}; paths and PIL images are taken, "
                "arrays as one array (n, C, H, W)"
            )
