"""Image files of every kind, good and bad, made on the spot."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Image.Image:
    """Smooth colours, (width, height)."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def make_tree(root: Path, layout: dict[str, dict[str, int]]) -> Path:
    """A folder DOMAIN/CLASS/N.png with different pictures."""
    seed = 0
    for domain, classes in layout.items():
        for label, number in classes.items():
            folder = root / domain / label
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(number):
                seed += 1
                picture(seed, (20, 20)).save(folder / f"{i}.png")
    return root
