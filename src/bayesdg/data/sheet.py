"""A contact sheet: one row of pictures per domain."""

from __future__ import annotations

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from bayesdg.chance import stream
from bayesdg.data.augment import augment
from bayesdg.data.domains import DomainDataset
from bayesdg.data.tree import shown
from bayesdg.stages import AugmentationSettings

CELL = 112
GAP = 4
LABEL_HEIGHT = 16
HEADING = 20


def contact_sheet(
    dataset: DomainDataset, columns: int = 10, augmented: AugmentationSettings | None = None
) -> Image.Image:
    """Training images of every domain, classes in turn, their names below them.

    Args:
        dataset: What to show.
        columns: Pictures per domain.
        augmented: Show them as training sees them.
    """
    row_height = HEADING + CELL + LABEL_HEIGHT + GAP
    width = GAP + columns * (CELL + GAP)
    sheet = Image.new("RGB", (width, GAP + row_height * len(dataset.domains)), "white")
    write = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for row, domain in enumerate(dataset.domains.values()):
        top = GAP + row * row_height
        images = domain.train if len(domain.train) else domain.test
        chosen = _classes_in_turn(images.labels, columns)
        pixels = images.images[chosen]
        if augmented is not None:
            chance = stream(0, f"sheet {domain.name}")
            pixels = (augment(pixels, augmented, chance) * 255).round().to(torch.uint8)
        role = "   unseen unless other targets are named" if domain.name in dataset.targets else ""
        heading = f"{shown(domain.name)}   {len(images)} training images{role}"
        write.text((GAP, top), heading, fill="black", font=font)
        for column, (picture, position) in enumerate(zip(pixels, chosen, strict=True)):
            left = GAP + column * (CELL + GAP)
            sheet.paste(cell(picture), (left, top + HEADING))
            name = shown(dataset.classes[int(images.labels[position])])
            place = (left, top + HEADING + CELL + 1)
            write.text(place, name[:16], fill="black", font=font)
    return sheet


def _classes_in_turn(labels: Tensor, num: int) -> Tensor:
    """Positions of `num` images: the first of each class, then the second of each, ..."""
    seen: dict[int, int] = {}
    turns = []
    for label in labels.tolist():
        seen[label] = seen.get(label, 0) + 1
        turns.append((seen[label], label))
    order = sorted(range(len(turns)), key=turns.__getitem__)
    return torch.tensor(order[:num], dtype=torch.int64)


def cell(pixels: Tensor) -> Image.Image:
    """(C, H, W) uint8, or float in 0..1 -> a cell."""
    if pixels.dtype != torch.uint8:
        pixels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array).resize((CELL, CELL), Image.Resampling.NEAREST)
