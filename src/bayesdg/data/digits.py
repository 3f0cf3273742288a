"""Rotated digits: every angle is a domain.

`rotated-digits` is made of scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels, part
of the package, so nothing is downloaded). Source domains are turned by 15, 30, 45, 60 and 75
degrees, the unseen targets by 0 and 90: the layout of the paper's Rotated MNIST.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from bayesdg.data.domains import Domain, DomainDataset, ImageSet

SOURCE_ANGLES = (15, 30, 45, 60, 75)
TARGET_ANGLES = (0, 90)
IMAGE_SIZE = 16
VAL_FRACTION = TEST_FRACTION = 0.2
# Which image is in which split is part of the data set, not of a run.
SPLIT_SEED = 0


def rotated_digits() -> DomainDataset:
    """Five source and two target angles; an image is in one split, the same at every angle."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = torch.from_numpy(digits.images).float().unsqueeze(1) / 16  # their range is 0..16
    labels = torch.from_numpy(digits.target).long()

    generator = torch.Generator().manual_seed(SPLIT_SEED)
    order = torch.randperm(len(labels), generator=generator)
    num_val, num_test = round(VAL_FRACTION * len(order)), round(TEST_FRACTION * len(order))
    test, val, train = order.split([num_test, num_val, len(order) - num_test - num_val])

    domains = {}
    for angle in sorted(SOURCE_ANGLES + TARGET_ANGLES):
        images = to_bytes(rotate(enlarge(pixels, IMAGE_SIZE), angle))
        train_set, val_set, test_set = (
            ImageSet(images[part], labels[part]) for part in (train, val, test)
        )
        domains[str(angle)] = Domain(str(angle), train_set, val_set, test_set)
    return DomainDataset(
        name="rotated-digits",
        classes=tuple(str(digit) for digit in digits.target_names),
        domains=domains,
        targets=tuple(str(angle) for angle in TARGET_ANGLES),
        mean=(0.5,),
        std=(0.5,),
    )


def enlarge(images: Tensor, size: int) -> Tensor:
    """(n, C, H, W) -> (n, C, size, size), bilinear."""
    return functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Images turned counter-clockwise about their centre, bilinear, zeros outside (eq. 2).

    The printed rotation matrix has a sign slip: its last entry is +cos.

    Args:
        images: (n, C, H, W), square.
        degrees: Any angle.
    """
    angle = math.radians(degrees)
    # The grid says where each output pixel comes from: the inverse rotation, with y downwards.
    matrix = torch.tensor(
        [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]],
        dtype=images.dtype,
    )
    grid = functional.affine_grid(matrix.expand(1, 2, 3), [1, *images.shape[1:]], False)
    return functional.grid_sample(
        images, grid.expand(len(images), -1, -1, -1), align_corners=False, padding_mode="zeros"
    )


def to_bytes(images: Tensor) -> Tensor:
    """0..1 to uint8."""
    return (images * 255).round().clamp(0, 255).to(torch.uint8)
