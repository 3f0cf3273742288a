"""What a run was trained on, in a form that can be compared: files by sha256, tensors by bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

from torch import Tensor

from bayesdg.data.domains import Domain, Images, ImageSet, Rows
from bayesdg.data.folders import StoredImages
from bayesdg.data.rotated import Turned

# Enough hexadecimal digits to tell files apart that nobody forged.
DIGITS = 16


def contents(sources: Mapping[str, Domain]) -> dict[str, str]:
    """Name -> digest of all that training and validation read; targets are not looked at."""
    found: dict[str, str] = {}
    for name, domain in sources.items():
        for part, images in (("train", domain.train), ("val", domain.val)):
            found.update(_of(f"{name}/{part}", images))
    return found


def _of(place: str, images: ImageSet) -> Iterator[tuple[str, str]]:
    # Which image carries which label, in which order, matters as much as the pixels.
    order = sha256(images.labels.numpy().tobytes())
    pixels: Images = images.images
    if isinstance(pixels, Rows) and isinstance(pixels.images, StoredImages) and pixels.images.files:
        for row in pixels.rows.tolist():
            path, digest = pixels.images.files[row]
            order.update(path.encode())
            yield path, digest[:DIGITS]
    else:
        yield f"{place} images", _digest(pixels)
    yield f"{place} labels", order.hexdigest()[:DIGITS]


def _digest(images: Images) -> str:
    """Of pixels that come from no files; of their shape alone where they are of a foreign kind."""
    digest = sha256(str(tuple(images.shape)).encode())
    if isinstance(images, Rows):
        digest.update(images.rows.numpy().tobytes())
        digest.update(_digest(images.images).encode())
    elif isinstance(images, Turned):
        about = (images.degrees, images.size, images.channels, images.interpolation)
        digest.update(str(about).encode())
        digest.update(images.upright.cpu().contiguous().numpy().tobytes())
    elif isinstance(images, Tensor):
        digest.update(images.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:DIGITS]
