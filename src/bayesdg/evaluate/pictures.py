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
# Resampling leaves 0..1 by less; bytes as floats and normalised pixels leave it by far.
OVERSHOOT = 0.5


def batches_of(
    pictures: Pictures,
    frame: Callable[[], Frame],
    check: Callable[[tuple[int, ...]], None],
    size: int,
    in_unit_range: bool,
) -> Iterator[Tensor]:
    """(n, C, H, W) batches of whatever pictures come as; DataError if one cannot be read.

    Args:
        pictures: An array or a tensor; a path, a PIL image or a sequence of such; a DataLoader,
            of images alone or with labels and more behind them.
        frame: What files and PIL images are fitted to; asked for only where there are such.
        check: Refuses a wrong (C, H, W).
        size: Images at a time.
        in_unit_range: Whether floats outside of 0..1 are refused.
    """
    if isinstance(pictures, DataLoader):
        for batch in pictures:
            images = batch[0] if isinstance(batch, Sequence) else batch
            if not isinstance(images, Tensor | np.ndarray):
                raise UsageError(
                    f"the DataLoader gives {type(batch).__name__}; tensors or arrays are needed, "
                    "or sequences that begin with one"
                )
            _check_shape(images, check)
            yield _as_tensor(images, in_unit_range)
        return
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
    _check_shape(pictures, check)
    for index in torch.arange(pictures.shape[0]).split(size):
        if len(index):
            rows: Any = index.numpy() if isinstance(pictures, np.ndarray) else index
            yield _as_tensor(pictures[rows], in_unit_range)


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


def _check_shape(images: Any, check: Callable[[tuple[int, ...]], None]) -> None:
    if len(images.shape) != 4:
        raise UsageError(f"images have shape {tuple(images.shape)}; (n, C, H, W) is needed")
    check(tuple(images.shape[1:]))


def _as_tensor(images: Tensor | Array, in_unit_range: bool) -> Tensor:
    """Bytes, or floats as the network takes them; what other numbers mean nobody can know."""
    kind = str(images.dtype).removeprefix("torch.")
    if isinstance(images, np.ndarray):
        if images.dtype == np.uint8:
            images = torch.from_numpy(images.copy())
        elif images.dtype.kind == "f":
            images = torch.from_numpy(images.astype(np.float32, order="C"))
    if not isinstance(images, Tensor) or not (
        images.dtype == torch.uint8 or images.is_floating_point()
    ):
        raise UsageError(f"pixels are {kind}; uint8 or floats in 0..1 are needed")
    if in_unit_range and images.is_floating_point() and images.numel():
        low, high = (float(end) for end in images.aminmax())
        if low < -OVERSHOOT or high > 1 + OVERSHOOT:
            raise UsageError(
                f"pixels are floats from {low:.3g} to {high:.3g}; give uint8, or floats in 0..1 "
                "that are not normalised: this run does it itself"
            )
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
