"""Features and pictures of a run that is done: the one part of a report that needs torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bayesdg.data import DomainDataset, ImageSet, load_dataset
from bayesdg.data.domains import Rows
from bayesdg.data.remembered import from_text
from bayesdg.errors import DataError
from bayesdg.evaluate.features import MOST_IMAGES, FeatureSample, sample_rows
from bayesdg.evaluate.gallery import images_of
from bayesdg.evaluate.predict import predict_images
from bayesdg.evaluate.stored import PartKey, PredictedPart
from bayesdg.training.run import Run, load_run

# Sides in pixels: what is shown when a point is pointed at, and in the gallery.
SMALL, LARGE = 64, 112


def collect(
    path: Path,
    parts: Sequence[PredictedPart],
    cases: Mapping[PartKey, Sequence[int]],
    root: Path | None = None,
    most: int = MOST_IMAGES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeatureSample:
    """Look once more at some of the images that a run was evaluated on.

    Args:
        path: Of the run.
        parts: Its stored predictions.
        cases: Images of which a larger picture is wanted, by their rows.
        root: Where named data sets lie.
        most: Images on the map, shared evenly by the parts.
        progress: Of decoding.
    """
    run = load_run(path)
    task, settings = run.task, run.settings
    name = from_text(task.place or task.dataset)
    dataset = load_dataset(name, root, settings.data, progress)
    return sampled(run, dataset, parts, cases, most)


def sampled(
    run: Run,
    dataset: DomainDataset,
    parts: Sequence[PredictedPart],
    cases: Mapping[PartKey, Sequence[int]],
    most: int = MOST_IMAGES,
) -> FeatureSample:
    """`collect` with the run and its data at hand."""
    parts = [part for part in parts if part.key.role != "other" and len(part)]
    if not parts:
        raise DataError(f"no image of {dataset.name} was evaluated")
    images = images_of(dataset, run.task.known_classes, parts)
    columns: dict[str, list[Any]] = {n: [] for n in ("part", "row", "labels", "on_map")}
    features, pictures = [], []
    for index, part in enumerate(parts):
        random = sample_rows(part.key, len(part), max(1, most // len(parts)))
        rows = np.unique([*random, *cases.get(part.key, ())]).astype(np.int64)
        pixels = Rows(images[part.key].images, torch.from_numpy(rows))
        found = predict_images(run.learner, pixels, draws=0, keep_features=True)
        assert found.features is not None
        features.append(found.features.astype(np.float32))
        is_case = np.isin(rows, cases.get(part.key, ()))
        pictures += _pictures(images[part.key], rows, is_case)
        columns["part"].append(np.full(len(rows), index, np.int32))
        columns["row"].append(rows.astype(np.int32))
        columns["labels"].append(part.labels[rows])
        columns["on_map"].append(np.isin(rows, random))
    which, row, labels, on_map = (np.concatenate(values) for values in columns.values())
    return FeatureSample(
        tuple(part.key for part in parts),
        which,
        row,
        labels,
        np.concatenate(features),
        tuple(pictures),
        on_map,
        totals=tuple(map(len, parts)),
    )


def _pictures(images: ImageSet, rows: NDArray[Any], is_case: NDArray[Any]) -> list[bytes]:
    found: list[bytes] = []
    for chunk in np.array_split(np.arange(len(rows)), max(1, len(rows) // 64)):
        pixels = images.images[torch.from_numpy(rows[chunk])]
        found += [
            encoded(one, LARGE if large else SMALL)
            for one, large in zip(pixels, is_case[chunk], strict=True)
        ]
    return found


def encoded(pixels: Tensor, side: int) -> bytes:
    """(C, H, W) uint8, or float in 0..1 -> a WebP file with at most `side` pixels a side."""
    if pixels.dtype != torch.uint8:
        pixels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    image = Image.fromarray(pixels[:3].expand(3, -1, -1).permute(1, 2, 0).cpu().numpy())
    small = max(image.size) <= 32  # digits: every pixel counts
    if not small:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", lossless=small, quality=60, method=6 if small else 4)
    return buffer.getvalue()
