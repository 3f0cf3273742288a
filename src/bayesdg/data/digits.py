"""Rotated digits and clothes.

`rotated-digits`: scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels, part of the
package, so nothing is downloaded). `rotated-mnist` and `rotated-fashion-mnist`: the paper's, from
the four files that torchvision's MNIST keeps in `raw`, compressed or not.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesdg.chance import stream
from bayesdg.data.domains import DomainDataset
from bayesdg.data.rotated import rotated_dataset
from bayesdg.errors import DataError, UsageError
from bayesdg.stages import DataSettings

# Which of scikit-learn's images is in which split is part of the data set, not of a run.
DIGITS_SPLIT_SEED = 0
FASHION = (
    "T-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
VAL_FRACTION = 0.1
UINT8 = 8  # the code of unsigned bytes in an IDX header


def rotated_digits(data: DataSettings) -> DomainDataset:
    """scikit-learn's digits, 60 / 20 / 20 percent for training, validation and test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    size = data.image_size or 16
    pixels = torch.from_numpy(digits.images).float().unsqueeze(1) / 16  # their range is 0..16
    labels = torch.from_numpy(digits.target).long()
    generator = torch.Generator().manual_seed(DIGITS_SPLIT_SEED)
    order = torch.randperm(len(labels), generator=generator)
    num = round(0.2 * len(order))
    rows = {"test": order[:num], "val": order[num : 2 * num], "train": order[2 * num :]}
    parts = {part: (pixels[index], labels[index]) for part, index in rows.items()}
    names = tuple(str(name) for name in digits.target_names)
    return rotated_dataset(
        "rotated-digits", names, parts, size, data.channels or 1, data.interpolation
    )


def rotated_mnist(root: Path, data: DataSettings, fashion: bool = False) -> DomainDataset:
    """The paper's protocol: a random subset of the training images, all test images.

    2,000 images of MNIST or 10,000 of Fashion-MNIST (`data.subset`), drawn by `data.split_seed`;
    a tenth of them validates and the rest trains, the same images at every angle. 28 pixels and
    one channel unless set otherwise; an ImageNet backbone wants data.image_size = 224 and
    data.channels = 3.
    """
    name, folder = (
        ("rotated-fashion-mnist", "FashionMNIST") if fashion else ("rotated-mnist", "MNIST")
    )
    raw = root / folder / "raw"
    images, labels = read_idx_pair(raw, "train")
    subset = data.subset or (10_000 if fashion else 2_000)
    if subset > len(labels):
        raise UsageError(f"data.subset is {subset}, but {folder} has {len(labels)} training images")
    order = torch.randperm(len(labels), generator=stream(data.split_seed, f"{folder} subset"))
    chosen = order[:subset]
    num_val = max(1, round(VAL_FRACTION * subset))
    val, train = chosen[:num_val], chosen[num_val:]
    parts = {
        "train": (images[train], labels[train]),
        "val": (images[val], labels[val]),
        "test": read_idx_pair(raw, "t10k"),
    }
    classes = FASHION if fashion else tuple(str(digit) for digit in range(10))
    size = data.image_size or 28
    name = "rotated-fashion-mnist" if fashion else "rotated-mnist"
    return rotated_dataset(name, classes, parts, size, data.channels or 1, data.interpolation)


def read_idx_pair(raw: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images (n, 1, H, W) uint8 and labels (n,) of 'train' or 't10k'."""
    images = torch.from_numpy(read_idx(raw / f"{part}-images-idx3-ubyte")).unsqueeze(1)
    labels = torch.from_numpy(read_idx(raw / f"{part}-labels-idx1-ubyte")).long()
    if len(images) != len(labels):
        raise DataError(f"{raw}: {len(images)} {part} images have {len(labels)} labels")
    return images, labels


def read_idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array in the IDX format, from the file or from its .gz beside it."""
    packed = path.with_name(path.name + ".gz")
    try:
        content = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DataError(f"neither {path.name} nor {packed.name} in {path.parent}") from None
    except (OSError, EOFError) as error:
        raise DataError(f"{packed} is damaged: {error}") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UINT8:
        raise DataError(f"{path} is no IDX file of bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else (0,)
    if len(content) != start + int(np.prod(shape)):
        raise DataError(f"{path} is cut: {len(content)} bytes do not hold an array of {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
