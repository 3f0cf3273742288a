"""Turned images: every angle is a domain (paper, section 4.1 and eq. 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from bayesdg.data.domains import IMAGENET_MEAN, IMAGENET_STD, Domain, DomainDataset, ImageSet
from bayesdg.data.known import SOURCE_ANGLES, TARGET_ANGLES
from bayesdg.data.sending import sent

Interpolation = Literal["nearest", "bilinear", "bicubic"]
# Up to here all angles are turned once and kept; beyond, images are turned when they are asked for.
KEEP_BYTES = 2**28


@dataclass(frozen=True)
class Turned:
    """Images at one angle, made when they are asked for: enlarged first, turned then.

    Attributes:
        upright: (n, 1, H, W), uint8, or float in 0..1.
        degrees: Counter-clockwise.
        size: Side of the square that comes out.
        channels: 1, or 3 equal ones for networks that expect colour.
        interpolation: Of the turn; enlarging is bilinear.
    """

    upright: Tensor
    degrees: float
    size: int
    channels: int = 1
    interpolation: Interpolation = "bilinear"

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, channels, size, size)."""
        return (len(self.upright), self.channels, self.size, self.size)

    def __getitem__(self, index: Tensor) -> Tensor:
        pixels = self.upright[sent(index, self.upright.device)]
        pixels = pixels / 255 if pixels.dtype == torch.uint8 else pixels
        turned = rotate(enlarge(pixels, self.size), self.degrees, self.interpolation)
        return to_bytes(turned).expand(-1, self.channels, -1, -1)

    def to(self, device: torch.device | str) -> Turned:
        """The same, turned on another device; angles of one set share the upright images."""
        return replace(self, upright=_moved(self.upright, device))


@lru_cache(maxsize=8)
def _moved(upright: Tensor, device: torch.device | str) -> Tensor:
    return upright.to(device)


def rotated_dataset(
    name: str,
    classes: tuple[str, ...],
    parts: Mapping[str, tuple[Tensor, Tensor]],
    size: int,
    channels: int = 1,
    interpolation: Interpolation = "bilinear",
) -> DomainDataset:
    """Five source and two target angles; an image is in one part, the same at every angle.

    Args:
        name: Of the data set.
        classes: Class names.
        parts: 'train', 'val' and 'test' -> upright images (n, 1, H, W) and labels (n,).
        size: Side of the square.
        channels: 1 or 3.
        interpolation: Of the turn.
    """
    angles = sorted(SOURCE_ANGLES + TARGET_ANGLES)
    total = sum(len(labels) for _, labels in parts.values()) * len(angles) * channels * size**2
    domains = {}
    for angle in angles:
        sets = {}
        for part, (upright, labels) in parts.items():
            turned = Turned(upright, angle, size, channels, interpolation)
            everything = torch.arange(len(labels))
            sets[part] = ImageSet(turned[everything] if total <= KEEP_BYTES else turned, labels)
        domains[str(angle)] = Domain(str(angle), sets["train"], sets["val"], sets["test"])
    colour = channels == 3
    return DomainDataset(
        name=name,
        classes=classes,
        domains=domains,
        targets=tuple(str(angle) for angle in TARGET_ANGLES),
        mean=IMAGENET_MEAN if colour else (0.5,),
        std=IMAGENET_STD if colour else (0.5,),
    )


def enlarge(images: Tensor, size: int) -> Tensor:
    """(n, C, H, W) -> (n, C, size, size), bilinear."""
    return functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)


def rotate(images: Tensor, degrees: float, interpolation: Interpolation = "bilinear") -> Tensor:
    """Images turned counter-clockwise about their centre, zeros outside (eq. 2).

    The printed rotation matrix has a sign slip: its last entry is +cos.

    Args:
        images: (n, C, H, W), square.
        degrees: Any angle.
        interpolation: Between pixels.
    """
    angle = math.radians(degrees)
    # The grid says where each output pixel comes from: the inverse rotation, with y downwards.
    matrix = torch.tensor(
        [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]],
        dtype=images.dtype,
    )
    matrix = sent(matrix, images.device)
    grid = functional.affine_grid(matrix.expand(1, 2, 3), [1, *images.shape[1:]], False)
    return functional.grid_sample(
        images,
        grid.expand(len(images), -1, -1, -1),
        mode=interpolation,
        align_corners=False,
        padding_mode="zeros",
    )


def to_bytes(images: Tensor) -> Tensor:
    """0..1 to uint8."""
    return (images * 255).round().clamp(0, 255).to(torch.uint8)
