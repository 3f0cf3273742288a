"""Random changes to training images, a batch at a time on its device, with a draw per image.

Drawing and applying are apart: `draw` is all the chance there is, `apply` a plain function that
gives what torchvision's functions give for the same parameters (a test compares them). Order:
crop and resize, flip, brightness, contrast, saturation, grey. The network normalises.
Never used on validation or test images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bayesdg.errors import UsageError
from bayesdg.stages import AugmentationSettings

# torchvision's attempts at a crop that fits before it takes the whole image.
ATTEMPTS = 10
CACHED_VALUES = 2**18
# ITU-R 601, as torchvision and Pillow use it.
LUMA = (0.2989, 0.587, 0.114)


@dataclass(frozen=True)
class Changes:
    """What happens to each of n images; every attribute has shape (n,).

    Attributes:
        top: First row of the crop.
        left: First column of the crop.
        height: Of the crop.
        width: Of the crop.
        flip: Whether it is mirrored.
        brightness: Factor, 1 changes nothing.
        contrast: Factor, 1 changes nothing.
        saturation: Factor, 1 changes nothing.
        grey: Whether colour is dropped.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    grey: Tensor

    def at(self, rows: Tensor | slice) -> Changes:
        """What happens to some of the images."""
        return Changes(**{name: value[rows] for name, value in vars(self).items()})


def draw(
    num: int, size: int, settings: AugmentationSettings, generator: torch.Generator
) -> Changes:
    """Changes for `num` images of `size` x `size` pixels; one draw from `generator`."""
    u = torch.rand(2 * ATTEMPTS + 7, num, generator=generator, device=generator.device)
    area = size**2 * _between(u[:ATTEMPTS], settings.crop_low, settings.crop_high)
    log_ratio = _between(u[ATTEMPTS : 2 * ATTEMPTS], -1, 1) * math.log(settings.crop_ratio)
    width = (area * log_ratio.exp()).sqrt().round()
    height = (area * (-log_ratio).exp()).sqrt().round()
    fits = (width >= 1) & (width <= size) & (height >= 1) & (height <= size)
    first = fits.int().argmax(0, keepdim=True)
    found = fits.any(0)
    width = width.gather(0, first)[0].masked_fill(~found, size)
    height = height.gather(0, first)[0].masked_fill(~found, size)
    down, right, flip, brightness, contrast, saturation, grey = u[2 * ATTEMPTS :]
    low, high = max(0.0, 1 - settings.jitter), 1 + settings.jitter
    return Changes(
        top=(down * (size - height + 1)).floor(),
        left=(right * (size - width + 1)).floor(),
        height=height,
        width=width,
        flip=flip < settings.flip,
        brightness=_between(brightness, low, high),
        contrast=_between(contrast, low, high),
        saturation=_between(saturation, low, high),
        grey=grey < settings.grey,
    )


def apply(images: Tensor, changes: Changes) -> Tensor:
    """(n, C, S, S), uint8 or float in 0..1 -> (n, C, S, S) float in 0..1."""
    channels, height, width = images.shape[1:]
    if height != width or channels not in (1, 3):
        raise UsageError(
            f"photo augmentation takes square images of 1 or 3 channels, these are {channels} x "
            f"{height} x {width}; use data.augmentation = none"
        )
    if images.device.type != "cpu":
        return _apply(images, changes)
    # A few images at a time stay in a core's cache, which is worth a factor of two.
    out = torch.empty(images.shape, dtype=torch.float32)
    chunk = max(1, CACHED_VALUES // images[0].numel()) if len(images) else 1
    for start in range(0, len(images), chunk):
        part = slice(start, start + chunk)
        out[part] = _apply(images[part], changes.at(part))
    return out


def _apply(images: Tensor, changes: Changes) -> Tensor:
    pixels = images / 255 if images.dtype == torch.uint8 else images
    x = _crop(pixels, changes)
    x = x.mul_(_per_image(changes.brightness)).clamp_(0, 1)
    mean = _luma(x).mean((1, 2, 3), keepdim=True)
    x = torch.lerp(mean, x, _per_image(changes.contrast)).clamp_(0, 1)
    if x.shape[1] == 1:
        return x
    x = torch.lerp(_luma(x), x, _per_image(changes.saturation)).clamp_(0, 1)
    return torch.where(_per_image(changes.grey), _luma(x), x)


def augment(
    images: Tensor,
    settings: AugmentationSettings,
    generator: torch.Generator,
    rows: Tensor | None = None,
    total: int | None = None,
) -> Tensor:
    """(n, C, S, S), uint8 or float in 0..1 -> float in 0..1, changed at random.

    Images that are some `rows` of a batch of `total` are changed as in the whole batch.
    """
    changes = draw(total or len(images), images.shape[-1], settings, generator)
    return apply(images, changes if rows is None else changes.at(rows))


def _crop(x: Tensor, changes: Changes) -> Tensor:
    """The crops, mirrored or not, at the images' own size, bilinear.

    Coordinates stop at the middle of a crop's outermost pixels, as if the rest did not exist.
    """
    size = x.shape[-1]
    steps = (torch.arange(size, device=x.device, dtype=x.dtype) + 0.5) / size
    mirrored = torch.where(changes.flip.unsqueeze(-1), steps.flip(0), steps)
    rows = _inside(changes.top, changes.height, steps.expand(len(x), -1))
    columns = _inside(changes.left, changes.width, mirrored)
    to_grid = 2 / (size - 1)
    grid = torch.stack(
        torch.broadcast_tensors(
            columns.unsqueeze(1) * to_grid - 1, rows.unsqueeze(2) * to_grid - 1
        ),
        dim=-1,
    )
    return functional.grid_sample(x, grid, align_corners=True, padding_mode="border")


def _inside(start: Tensor, length: Tensor, steps: Tensor) -> Tensor:
    """(n,), (n,), (n, S) in 0..1 -> (n, S) pixel coordinates within start .. start+length-1."""
    start, length = start.unsqueeze(-1), length.unsqueeze(-1)
    return torch.minimum(torch.maximum(start + steps * length - 0.5, start), start + length - 1)


def _luma(x: Tensor) -> Tensor:
    """(n, C, S, S) -> (n, 1, S, S)."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _between(u: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * u
