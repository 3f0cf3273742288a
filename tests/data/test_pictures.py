"""Pictures from files and folders: what a network is given, and what is told of those it is not."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesdg.data.decode import BrokenImage
from bayesdg.data.pictures import Frame, picture_files, read_pictures, require_there
from bayesdg.errors import UsageError
from pictures import encoded, picture

COLOUR, GREY = Frame(3, 16), Frame(1, 16)


def test_a_file_and_the_image_in_it_are_fitted_alike(tmp_path: Path) -> None:
    image = picture(mode="RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.save(tmp_path / "a.png")
    for frame in (COLOUR, GREY, Frame(3, 16, "crop")):
        found = frame.fit(tmp_path / "a.png")
        assert found.shape == (frame.channels, 16, 16)
        np.testing.assert_array_equal(found, frame.fit(image))
    assert image.mode == "RGBA"  # what was given is left as it was


def test_grey_is_that_of_pillow_and_exact_where_colours_are_equal(tmp_path: Path) -> None:
    picture(size=(16, 16)).save(tmp_path / "colour.png")
    with Image.open(tmp_path / "colour.png") as image:
        np.testing.assert_array_equal(
            GREY.fit(tmp_path / "colour.png")[0], np.asarray(image.convert("L"))
        )
    steps = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(GREY.fit(Image.fromarray(steps))[0], steps)


def test_shapes_that_pictures_cannot_be_made_into_are_refused() -> None:
    assert Frame.of((3, 8, 8), "crop") == Frame(3, 8, "crop")
    for shape in ((4, 8, 8), (3, 8, 9)):
        with pytest.raises(UsageError, match="squares of 1 or 3 channels. Give arrays"):
            Frame.of(shape, "squash")


def test_files_are_taken_as_named_and_folders_by_suffix(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("10.png", "in/b.JPG", "in/deep/c.webp", "in/.hidden.png", "in/notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "in" / "deep" / "up").symlink_to(tmp_path / "in")
    ignored: Counter[str] = Counter()
    named = [tmp_path / "in" / "notes.txt", tmp_path / "in", tmp_path / "10.png"]
    found = [p.relative_to(tmp_path).as_posix() for p in picture_files(named, ignored)]
    assert found == ["in/notes.txt", "in/b.JPG", "in/deep/c.webp", "10.png"]
    assert ignored == {"junk": 1, "no image suffix": 1, "folder linked into itself": 1}


def test_a_name_that_is_nowhere_is_refused_and_a_dangling_link_is_not(tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to(tmp_path / "gone.png")
    require_there([tmp_path / "link.png"])
    with pytest.raises(UsageError, match=r"no file or folder at .*nothing \(and 1 more"):
        require_there([tmp_path, tmp_path / "nothing", tmp_path / "no"])


def test_no_more_is_read_ahead_than_was_asked_for(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    asked = 0

    def endless():  # type: ignore[no-untyped-def]
        nonlocal asked
        while True:
            asked += 1
            yield tmp_path / "a.png"

    found = read_pictures(endless(), COLOUR, ahead=5, workers=2)
    for _ in range(20):
        assert next(found).error == ""
    assert asked <= 20 + 5 + 1
    found.close()  # type: ignore[attr-defined]


def test_an_error_is_one_line_and_takes_the_place_of_pixels(tmp_path: Path) -> None:
    (tmp_path / "two\nlines.png").write_bytes(b"no image")
    picture().save(tmp_path / "good.png")
    os.mkfifo(tmp_path / "pipe.png")
    paths = [tmp_path / name for name in ("two\nlines.png", "good.png", "pipe.png")]
    bad, good, pipe = read_pictures(paths, COLOUR, ahead=2)
    assert bad.name.endswith(r"two\x0alines.png")
    assert (bad.pixels, bad.error) == (None, "not an image")
    assert good.pixels is not None
    assert pipe.error == "not a regular file"
    cut = encoded(picture(), "JPEG")[:-200]
    (tmp_path / "cut.jpg").write_bytes(cut)
    with pytest.raises(BrokenImage, match="truncated"):
        COLOUR.fit(tmp_path / "cut.jpg")
