"""Image files of every kind, good and bad, made on the spot."""

import io
import struct
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


def idx_bytes(array: np.ndarray) -> bytes:
    """The content of an IDX file of bytes."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


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


def with_damaged_exif(image: Image.Image) -> bytes:
    """A JPEG whose EXIF block promises a text of 4096 bytes that is not there."""
    entry = struct.pack("<HHII", 270, 2, 4096, 1_000_000)  # tag, type text, length, offset
    tiff = b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
    return encoded(image, "JPEG", exif=b"Exif\0\0" + tiff)
