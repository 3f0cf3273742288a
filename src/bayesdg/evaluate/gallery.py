"""Failures as pictures: two rows per part of a domain, mistakes above, unsure answers below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.data.sheet import CELL, GAP, HEADING, LABEL_HEIGHT, cell
from bayesdg.data.tree import shown
from bayesdg.errors import DataError
from bayesdg.evaluate.evaluation import judged_parts
from bayesdg.evaluate.failures import Failure
from bayesdg.evaluate.stored import PartKey, PredictedPart
from bayesdg.names import choose

# Below each picture: its class, two guesses, the uncertainties.
LINES = 4
UNKNOWN = "(unknown class)"
TITLES = {"mistake": "most confident mistakes", "unsure": "highest entropy"}
RIGHT, WRONG = "darkgreen", "firebrick"


def images_of(
    dataset: DomainDataset, known_classes: Sequence[int], parts: Sequence[PredictedPart]
) -> dict[PartKey, ImageSet]:
    """The images that stored predictions are about; DataError if they are others by now."""
    known = torch.tensor(known_classes)
    found: dict[PartKey, ImageSet] = {}
    for part in parts:
        if part.key.role == "other":
            continue  # from elsewhere
        domain = choose("domain", part.key.domain, dataset.domains, dataset.name)
        images = dict(judged_parts(domain, part.key.role, known)).get(part.key)
        if images is None or not _are_of(part, images):
            raise DataError(
                f"{dataset.name}/{part.key.domain} has other images than the stored predictions "
                "are about; bayesdg evaluate renews them"
            )
        found[part.key] = images
    return found


def _are_of(part: PredictedPart, images: ImageSet) -> bool:
    if part.key.part == "unknown":
        return len(part) == len(images)
    return part.labels.tolist() == images.labels.tolist()


def gallery(
    failures: Sequence[Failure], images: Mapping[PartKey, ImageSet], classes: Sequence[str]
) -> Image.Image:
    """A picture of all failures whose images are there.

    Args:
        failures: From `failures`, in the order in which they are shown.
        images: From `images_of`.
        classes: Names.
    """
    rows: dict[tuple[PartKey, str], list[Failure]] = {}
    for failure in failures:
        if failure.key in images:
            rows.setdefault((failure.key, failure.kind), []).append(failure)
    height = HEADING + CELL + LINES * LABEL_HEIGHT + GAP
    columns = max(map(len, rows.values()), default=1)
    size = (GAP + max(columns, 4) * (CELL + GAP), GAP + height * max(len(rows), 1))
    sheet = Image.new("RGB", size, "white")
    write = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for number, ((key, kind), row) in enumerate(rows.items()):
        top = GAP + number * height
        heading = f"{shown(key.domain)} ({key.role}, {key.part}): {TITLES[kind]}"
        write.text((GAP, top), heading, fill="black", font=font)
        pixels = images[key].images[torch.tensor([failure.row for failure in row])]
        for column, (failure, picture) in enumerate(zip(row, pixels, strict=True)):
            left = GAP + column * (CELL + GAP)
            sheet.paste(cell(picture), (left, top + HEADING))
            below = top + HEADING + CELL + 1
            for line, (text, colour) in enumerate(caption(failure, classes)):
                text = _fitting(text, font)
                place = (left, below + line * LABEL_HEIGHT)
                write.text(place, text, fill=colour, font=font)
    return sheet


def caption(failure: Failure, classes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lines below a picture, with their colours."""
    yield f"is {class_name(failure.label, classes)}", "black"
    for label, probability in zip(failure.classes, failure.probabilities, strict=True):
        colour = RIGHT if label == failure.label else WRONG
        yield f"{probability:.1%}  {class_name(label, classes)}", colour
    yield f"H {failure.entropy:.2f}, MI {failure.epistemic:.2f}", "dimgrey"


def class_name(label: int, classes: Sequence[str]) -> str:
    """For people."""
    return UNKNOWN if label < 0 else shown(classes[label])


def _fitting(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """What of a text fits below a picture."""
    while text and font.getlength(text) > CELL:
        text = text[:-1]
    return text
