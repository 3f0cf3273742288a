from pathlib import Path

import numpy as np
import pytest

from bayesdg.errors import StoredRunError
from bayesdg.evaluate.features import FeatureSample, read_features, sample_rows, write_features
from bayesdg.evaluate.stored import PartKey

PHOTO = PartKey("photo", "source", "val")
SKETCH = PartKey("sketch", "target", "test")


def sample() -> FeatureSample:
    return FeatureSample(
        (PHOTO, SKETCH),
        np.array([0, 0, 1], np.int32),
        np.array([3, 5, 0], np.int32),
        np.array([1, 0, -1], np.int32),
        np.arange(6, dtype=np.float32).reshape(3, 2),
        (b"first", b"", b"third"),
        np.array([True, False, True]),
        (7, 9),
        {"all": np.ones((2, 2), np.float32)},
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "features.npz"
    assert read_features(path) is None
    write_features(path, sample())
    found = read_features(path)
    assert found is not None
    for name, value in vars(sample()).items():
        if name == "extra":
            assert list(found.extra) == ["all"]
            assert np.array_equal(found.extra["all"], value["all"])
        elif isinstance(value, np.ndarray):
            assert getattr(found, name).dtype == value.dtype
            assert np.array_equal(getattr(found, name), value)
        else:
            assert getattr(found, name) == value


def test_pictures_are_found_by_where_they_are_from() -> None:
    assert sample().picture("photo", "val", 3) == b"first"
    assert sample().picture("photo", "val", 4) is None
    assert sample().picture("photo", "test", 3) is None
    assert sample().domains.tolist() == ["photo", "photo", "sketch"]
    assert sample().is_target.tolist() == [False, False, True]


def test_the_sample_knows_the_part_and_nothing_else() -> None:
    rows = sample_rows(SKETCH, 1000, 50)
    assert np.array_equal(rows, sample_rows(PartKey("sketch", "source", "test"), 1000, 50))
    assert not np.array_equal(rows, sample_rows(PHOTO, 1000, 50))
    assert len(np.unique(rows)) == 50
    assert (np.diff(rows) > 0).all()
    assert sample_rows(SKETCH, 20, 50).tolist() == list(range(20))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"<html>"])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "features.npz"
    path.write_bytes(content)
    with pytest.raises(StoredRunError, match=r"features.npz is damaged"):
        read_features(path)
