"""One image file to RGB bytes, with everything unusual about it told.

Whatever is in the file, the result is 8-bit RGB, upright, opaque: EXIF orientation is applied,
alpha is laid on white, 16 bits are scaled (not clipped), the first frame of an animation is taken.
What cannot be read is a BrokenImage with a reason; nothing is ever replaced or guessed.
"""

from __future__ import annotations

import io
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from bayesdg.data import pillow_warnings

Resize = Literal["squash", "crop"]

# Bump when decoding changes what comes out: stored pixels are made anew.
DECODER_VERSION = 3
# The limit of Pillow's own warning; beyond it a file is a mistake or an attack.
MAX_PIXELS = 89_478_485
# Narrower than this an image has nothing to show at 224 pixels.
TINY = 16
# No others are tried: some of Pillow's readers start programs (EPS), and few are hardened.
WANTED_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
Image.init()
pillow_warnings.listen()
FORMATS = tuple(name for name in WANTED_FORMATS if name in Image.OPEN)
# A network drive may fail once.
READ_ATTEMPTS = 3
SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")
# Pillow's names for 16 bits per channel in a file; 'BGR;16' has that many for all three.
SIXTEEN_BIT_CHANNELS = re.compile(r";16[BLN]$")


class BrokenImage(Exception):  # noqa: N818  (the name says what was found)
    """A file that is no readable image; the message says why."""


@dataclass(frozen=True)
class Decoded:
    """An image and what was unusual about its file.

    Attributes:
        pixels: (H, W, 3), uint8.
        oddities: Short names such as 'alpha on white' or '16 bit'; empty for most files.
    """

    pixels: NDArray[np.uint8]
    oddities: tuple[str, ...]


def read_bytes(path: Path) -> bytes:
    """The content of a regular file; anything else is refused before it is opened."""
    for attempt in range(1, READ_ATTEMPTS + 1):
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise BrokenImage("not a regular file")
            content = path.read_bytes()
            break
        except OSError as error:
            for_good = isinstance(error, FileNotFoundError | PermissionError)
            if for_good or attempt == READ_ATTEMPTS:
                raise BrokenImage(f"cannot be read: {error.strerror}") from None
            time.sleep(0.1 * attempt)
    if not content:
        raise BrokenImage("empty file")
    return content


def decode(content: bytes, size: int | None = None, resize: Resize = "squash") -> Decoded:
    """The picture in a file's bytes.

    Args:
        content: The file.
        size: Side of the square to return; None keeps the picture's own size.
        resize: 'squash' resizes both sides, as the field does; 'crop' resizes the shorter side
            and takes the middle.
    """
    return _decoded(lambda: Image.open(io.BytesIO(content), formats=FORMATS), content, size, resize)


def from_pillow(image: Image.Image, size: int | None = None, resize: Resize = "squash") -> Decoded:
    """The same of an image that somebody has opened, or made; arguments as in `decode`."""
    # A copy: Pillow closes what it leaves, and the image is not ours to turn to another frame.
    return _decoded(image.copy, b"", size, resize)


def _decoded(
    open_image: Callable[[], Image.Image], content: bytes, size: int | None, resize: Resize
) -> Decoded:
    oddities: list[str] = []
    try:
        with pillow_warnings.heard() as warned, open_image() as image:
            width, height = image.size
            if not width * height:
                raise BrokenImage(f"no pixels: {width} x {height}")
            if width * height > MAX_PIXELS:
                raise BrokenImage(_too_large(width * height))
            picture = _to_rgb(image, oddities)
        if warned:
            oddities.append(f"decoder warning: {'; '.join(dict.fromkeys(warned))}")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BrokenImage(_too_large()) from None
    except UnidentifiedImageError:
        raise BrokenImage(_what_else(content)) from None
    # Pillow's plugins raise nearly everything on damaged files, which is the file's fault.
    except Exception as error:
        if isinstance(error, BrokenImage):
            raise
        raise BrokenImage(f"damaged: {error}") from None
    if min(picture.size) < TINY:
        oddities.append(f"tiny: {picture.width} x {picture.height}")
    if size is not None:
        picture = _fitted(picture, size, resize)
    return Decoded(np.asarray(picture), tuple(oddities))


def _to_rgb(image: Image.Image, oddities: list[str]) -> Image.Image:
    """First frame, upright, 8 bit, opaque, RGB."""
    # An MPO is a photograph with a second view or a preview behind it, as telephones make them.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        oddities.append("animated")
        image.seek(0)
    if image.mode not in SIXTEEN_BIT and any(
        SIXTEEN_BIT_CHANNELS.search(_file_mode(tile.args)) for tile in getattr(image, "tile", ())
    ):
        oddities.append("16 bit: the higher 8 of each channel")  # as Pillow reads them
    turned = image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    image.load()
    picture: Image.Image = image
    if image.mode in SIXTEEN_BIT:
        picture = _from_sixteen_bit(image, oddities)
    elif image.mode == "F":
        low, high = image.getextrema()
        raise BrokenImage(f"float pixels ({low:g} to {high:g}); save as 8 or 16 bit")
    elif image.mode not in ("RGB", "L", "1", "P", "RGBA", "LA", "PA", "RGBX"):
        oddities.append(image.mode)
    if turned:
        oddities.append("turned by EXIF")
        picture = ImageOps.exif_transpose(picture)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        lowest: Any = rgba.getchannel("A").getextrema()
        if lowest[0] < 255:
            oddities.append("alpha on white")
            white = Image.new("RGBA", rgba.size, "white")
            return Image.alpha_composite(white, rgba).convert("RGB")
    return picture.convert("RGB")


def _file_mode(arguments: Any) -> str:
    """What Pillow calls the pixels in the file; its readers keep it in several places."""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _from_sixteen_bit(image: Image.Image, oddities: list[str]) -> Image.Image:
    """Grey of 0..65535 to 0..255; Pillow's own conversion would clip it to white."""
    values = np.asarray(image).astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise BrokenImage(f"32-bit pixels ({low} to {high}); save as 8 or 16 bit")
    # The range is told: 12-bit values, say, come out nearly black.
    oddities.append(f"16 bit: {low} to {high}")
    eight = np.round(values / 257).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int) and (values == transparent).any():
        oddities.append("alpha on white")
        eight[values == transparent] = 255
    grey = Image.fromarray(eight)
    # The turn is read from here.
    grey.getexif().update(image.getexif())
    return grey


def _fitted(picture: Image.Image, size: int, resize: Resize) -> Image.Image:
    if picture.size == (size, size):
        return picture
    if resize == "crop":
        return ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)
    return picture.resize((size, size), Image.Resampling.BILINEAR)


def _too_large(pixels: int | None = None) -> str:
    seen = f"{pixels / 1e6:.0f} megapixels" if pixels else "too many pixels"
    return f"{seen}; the limit is {MAX_PIXELS / 1e6:.0f}"


def _what_else(content: bytes) -> str:
    head = content[:200].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, not an image"
    return "not an image"
