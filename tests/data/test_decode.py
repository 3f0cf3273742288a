"""Image files of every kind (bad-input scenarios 49 to 56)."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesdg.data import decode as module
from bayesdg.data.decode import BrokenImage, decode, from_pillow, read_bytes
from pictures import encoded, picture

WHITE = (255, 255, 255)


def gradient16() -> np.ndarray:
    return np.linspace(0, 65535, 40 * 30).reshape(30, 40).astype(np.uint16)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF"])
def test_plain_modes_are_what_pillow_shows(mode: str, kind: str) -> None:
    image = picture(mode=mode)
    content = encoded(image, kind)
    decoded = decode(content)
    with Image.open(__import__("io").BytesIO(content)) as again:
        expected = np.asarray(again.convert("RGB"))
    np.testing.assert_array_equal(decoded.pixels, expected)
    assert decoded.oddities == ()


def test_cmyk_is_converted_and_told() -> None:
    decoded = decode(encoded(picture(mode="CMYK"), "JPEG", quality=95))
    assert decoded.oddities == ("CMYK",)
    error = np.abs(decoded.pixels.astype(int) - np.asarray(picture()).astype(int))
    assert error.mean() < 12


def test_a_png_named_jpg_is_a_png() -> None:
    assert decode(encoded(picture(), "PNG")).pixels.shape == (30, 40, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_laid_on_white(mode: str) -> None:
    image = picture(mode=mode)
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    decoded = decode(encoded(image, "PNG"))
    alpha = np.asarray(image.getchannel("A"))[..., None] / 255
    colours = np.asarray(image.convert("RGB"))
    expected = alpha * colours + (1 - alpha) * 255
    assert np.abs(decoded.pixels - expected).max() <= 1.5
    assert decoded.oddities == ("alpha on white",)


def test_hidden_colours_under_full_transparency_stay_hidden() -> None:
    image = picture(mode="RGBA")
    image.putalpha(0)
    assert (decode(encoded(image, "PNG")).pixels == 255).all()


def test_a_transparent_palette_entry_is_white() -> None:
    image = Image.new("P", (20, 20), 0)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.paste(1, (0, 0, 10, 20))
    decoded = decode(encoded(image, "PNG", transparency=0))
    assert tuple(decoded.pixels[0, 15]) == WHITE
    assert tuple(decoded.pixels[0, 5]) == (0, 255, 0)


def test_full_alpha_is_nothing_unusual() -> None:
    assert decode(encoded(picture(mode="RGBA"), "PNG")).oddities == ()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind: str) -> None:
    values = gradient16()
    decoded = decode(encoded(Image.fromarray(values), kind))
    assert decoded.oddities == ("16 bit: 0 to 65535",)
    np.testing.assert_allclose(decoded.pixels[..., 0], values / 257, atol=0.51)


def test_a_transparent_grey_of_16_bits_is_that_grey_and_no_other() -> None:
    values = np.full((20, 20), 40000, np.uint16)
    values[:10] = 156  # what 40000 becomes in 8 bits
    image = Image.fromarray(values)
    hidden = decode(encoded(image, "PNG", transparency=40000))
    assert (hidden.pixels[10:] == 255).all()
    assert (hidden.pixels[:10] == 1).all()
    assert "alpha on white" in hidden.oddities


def test_a_telephones_second_view_is_no_animation() -> None:
    views = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    decoded = decode(encoded(views[0], "MPO", save_all=True, append_images=views[1:]))
    assert decoded.oddities == ()
    assert decoded.pixels[0, 0, 0] > 240


def test_readers_that_start_programs_are_not_tried() -> None:
    with pytest.raises(BrokenImage, match="not an image"):
        decode(encoded(picture(), "EPS"))


def test_a_read_that_fails_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.png"
    path.write_bytes(encoded(picture(), "PNG"))
    read, failures = Path.read_bytes, iter([OSError(5, "Input/output error"), None])

    def flaky(self: Path) -> bytes:
        error = next(failures, None)
        if error:
            raise error
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", flaky)
    assert read_bytes(path) == read(path)


def test_decoding_leaves_the_process_warnings_alone() -> None:
    import warnings
    from concurrent.futures import ThreadPoolExecutor

    before = list(warnings.filters)
    content = encoded(picture(), "PNG")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode, [content] * 200))
    assert warnings.filters == before


def test_float_pixels_are_refused_with_advice() -> None:
    image = Image.fromarray(np.linspace(-1, 2, 100, dtype=np.float32).reshape(10, 10))
    with pytest.raises(BrokenImage, match=r"float pixels \(-1 to 2\); save as 8 or 16 bit"):
        decode(encoded(image, "TIFF"))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation_is_taken(kind: str) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    decoded = decode(content)
    assert decoded.oddities == ("animated",)
    assert tuple(decoded.pixels[10, 10]) == (255, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    image = picture()
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode(encoded(image, "PNG", exif=exif))
    # What each value means, by numpy alone (EXIF 2.3, tag 0x0112).
    a = np.asarray(image)
    upright = {
        1: a, 2: a[:, ::-1], 3: a[::-1, ::-1], 4: a[::-1], 5: a.transpose(1, 0, 2),
        6: np.rot90(a, -1), 7: a[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(a),
    }[orientation]  # fmt: skip
    np.testing.assert_array_equal(decoded.pixels, upright)
    assert decoded.oddities == (() if orientation == 1 else ("turned by EXIF",))


def test_sixteen_bit_and_turned_is_both() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    decoded = decode(encoded(Image.fromarray(gradient16()), "PNG", exif=exif))
    assert decoded.pixels.shape == (40, 30, 3)
    assert set(decoded.oddities) == {"16 bit: 0 to 65535", "turned by EXIF"}


@pytest.mark.parametrize("tenth", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_truncated_file_is_broken_wherever_it_is_cut(kind: str, tenth: int) -> None:
    content = encoded(picture(size=(200, 200)), kind)
    with pytest.raises(BrokenImage):
        decode(content[: len(content) * tenth // 10])


def test_one_byte_short_is_broken() -> None:
    content = encoded(picture(size=(200, 200)), "JPEG")
    with pytest.raises(BrokenImage, match="truncated"):
        decode(content[:-20])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<!DOCTYPE html><html>not found</html>", "an HTML page, not an image"),
        (b"  <html>", "an HTML page"),
        (b"hello", "not an image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "not an image|damaged"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 50, "not an image|damaged"),
    ],
)
def test_other_content_is_named(content: bytes, says: str) -> None:
    with pytest.raises(BrokenImage, match=says):
        decode(content)


def test_bombs_are_refused_before_they_unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = encoded(Image.new("1", (30_000, 30_000)), "PNG")
    assert len(huge) < 500_000
    with pytest.raises(BrokenImage, match="too many pixels|megapixels; the limit is 89"):
        decode(huge)
    monkeypatch.setattr(module, "MAX_PIXELS", 100)
    with pytest.raises(BrokenImage, match="megapixels"):
        decode(encoded(picture(), "PNG"))


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
def test_tiny_images_are_resized_and_told(size: tuple[int, int]) -> None:
    decoded = decode(encoded(picture(size=size), "PNG"), size=32)
    assert decoded.pixels.shape == (32, 32, 3)
    assert decoded.oddities == (f"tiny: {size[0]} x {size[1]}",)


def test_an_image_without_pixels_is_broken() -> None:
    for size in ((0, 5), (5, 0)):
        with pytest.raises(BrokenImage, match=f"no pixels: {size[0]} x {size[1]}"):
            from_pillow(Image.new("RGB", size), 8)


def test_squash_keeps_everything_and_crop_keeps_the_shape() -> None:
    image = Image.new("RGB", (60, 30), "white")
    image.paste("black", (0, 0, 15, 30))  # a black quarter at the left
    squashed = decode(encoded(image, "PNG"), 20, "squash").pixels
    cropped = decode(encoded(image, "PNG"), 20, "crop").pixels
    assert squashed.shape == cropped.shape == (20, 20, 3)
    assert 60 < 255 - squashed.mean() < 68  # a quarter of 255
    assert (cropped[:, 2:] == 255).all()  # but for the blend at the very edge


def test_empty_missing_and_odd_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "broken-link.png").symlink_to(tmp_path / "nowhere")
    for name, says in {
        "empty.png": "empty file",
        "folder.png": "not a regular file",
        "pipe.png": "not a regular file",
        "broken-link.png": "cannot be read: No such file",
        "absent.png": "cannot be read: No such file",
    }.items():
        with pytest.raises(BrokenImage, match=says):
            read_bytes(tmp_path / name)
