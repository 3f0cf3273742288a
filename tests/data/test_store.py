"""Decoded pixels: whole or absent, shared, never stale."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from bayesdg.data import store as module
from bayesdg.data.decode import BrokenImage, decode, read_bytes
from bayesdg.data.store import store
from bayesdg.errors import DataError, ResourceError
from pictures import make_tree, picture


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    root = make_tree(tmp_path / "data", {"a": {"x": 3, "y": 3}})
    (root / "a" / "x" / "bad.png").write_bytes(b"<html>")
    picture(mode="CMYK").save(root / "a" / "x" / "z.jpg")
    return sorted(root.rglob("*.*g"))


def test_pixels_are_those_of_the_decoder_on_disk_and_in_memory(
    paths: list[Path], tmp_path: Path
) -> None:
    on_disk = store(paths, 24, cache=tmp_path / "cache")
    in_memory = store(paths, 24)
    assert isinstance(on_disk.pixels, np.memmap)
    assert not isinstance(in_memory.pixels, np.memmap)
    np.testing.assert_array_equal(on_disk.pixels, in_memory.pixels)
    bad = paths.index(next(p for p in paths if p.name == "bad.png"))
    odd = paths.index(next(p for p in paths if p.name == "z.jpg"))
    for found in (on_disk, in_memory):
        assert found.broken == {bad: "an HTML page, not an image"}
        assert found.oddities == {odd: ("CMYK",)}
    for row, path in enumerate(paths):
        if row != bad:
            expected = decode(path.read_bytes(), 24).pixels.transpose(2, 0, 1)
            np.testing.assert_array_equal(on_disk.pixels[row], expected)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_the_number_of_workers_changes_nothing(paths: list[Path], workers: int) -> None:
    np.testing.assert_array_equal(
        store(paths, 24, workers=workers).pixels, store(paths, 24, workers=3).pixels
    )


def test_what_is_decoded_is_not_decoded_again(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = store(paths, 24, cache=cache)
    monkeypatch.setattr(module, "decode", None)
    np.testing.assert_array_equal(store(paths, 24, cache=cache).pixels, first.pixels)
    # A moved folder is the same content.
    moved = [tmp_path / "moved" / p.relative_to(tmp_path / "data") for p in paths]
    (tmp_path / "data").rename(tmp_path / "moved")
    np.testing.assert_array_equal(store(moved, 24, cache=cache).pixels, first.pixels)


def test_changed_content_size_or_settings_are_decoded_anew(
    paths: list[Path], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = store(paths, 24, cache=cache)
    assert store(paths, 32, cache=cache).pixels.shape[-1] == 32
    assert len(list(cache.glob("*.safetensors"))) == 2
    time.sleep(0.01)  # a later time of change
    Image.new("RGB", (20, 20), "red").save(paths[0])
    assert not np.array_equal(store(paths, 24, cache=cache).pixels[0], first.pixels[0])
    store(paths, 24, resize="crop", cache=cache)
    assert len(list(cache.glob("*.safetensors"))) == 4


def test_the_file_is_plain_safetensors(paths: list[Path], tmp_path: Path) -> None:
    found = store(paths, 24, cache=tmp_path)
    with safe_open(next(tmp_path.glob("*.safetensors")), "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("pixels"), found.pixels)


def test_a_killed_build_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    make_tree(tmp_path / "data", {"a": {"x": 300}})
    script = (
        "import sys; from pathlib import Path; from bayesdg.data.store import store;"
        "paths = sorted(Path(sys.argv[1]).rglob('*.png')); print('begun', flush=True);"
        "store(paths * 20, 64, cache=Path(sys.argv[2]), workers=1)"
    )
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "data", cache], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not list(cache.glob("*.tmp-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert list(cache.glob("*.tmp-*"))  # it was in the middle
    assert not list(cache.glob("*.safetensors"))
    paths = sorted((tmp_path / "data").rglob("*.png")) * 20
    assert store(paths, 64, cache=cache).pixels[-1].any()
    assert not list(cache.glob("*.tmp-*"))  # the litter of the dead is gone


def test_runs_at_the_same_time_build_it_once(tmp_path: Path) -> None:
    make_tree(tmp_path / "data", {"a": {"x": 60}})
    script = (
        "import sys; from pathlib import Path; from bayesdg.data import store as m;"
        "whole = m._decode_into;"
        "m._decode_into = lambda *a: print('decoding', flush=True) or whole(*a);"
        "m.store(sorted(Path(sys.argv[1]).rglob('*.png')), 64, cache=Path(sys.argv[2]))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, tmp_path / "data", tmp_path / "cache"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = "".join(process.communicate(timeout=60)[0] for process in started)
    assert [process.returncode for process in started] == [0] * 4
    assert said.count("decoding") == 1


def test_a_disk_too_small_is_told_before_the_work(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(ResourceError, match=r"GiB left, decoded pixels need .*; make room") as e:
        store(paths, 24, cache=tmp_path / "cache")
    assert e.value.exit_code == 5


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "garbage"])
def test_a_damaged_cache_is_made_anew(
    paths: list[Path], tmp_path: Path, suffix: str, damage: str
) -> None:
    cache = tmp_path / "cache"
    pixels = np.array(store(paths, 24, cache=cache).pixels)
    for path in list(cache.glob(f"*{suffix}")):
        whole = path.read_bytes()
        contents = {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": b"[]" * 50}
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(contents[damage])
    np.testing.assert_array_equal(store(paths, 24, cache=cache).pixels, pixels)


def test_a_cache_that_cannot_be_written_is_done_without(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cannot be written .* decoded into memory"):
        found = store(paths, 24, cache=tmp_path / "file" / "cache")
    np.testing.assert_array_equal(found.pixels, store(paths, 24).pixels)


def test_a_file_that_fails_for_a_while_is_not_remembered_as_broken(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> bytes:
        if path == paths[0]:
            raise BrokenImage("cannot be read: Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(module, "read_bytes", fails)
    assert 0 in store(paths, 24, cache=tmp_path / "cache").broken
    monkeypatch.undo()
    assert 0 not in store(paths, 24, cache=tmp_path / "cache").broken


def test_a_file_that_changes_while_it_is_read_is_named(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module.content_hashes

    def then_changed(*arguments: object) -> list[str]:
        hashes = original(*arguments)  # type: ignore[arg-type]
        Image.new("RGB", (9, 9)).save(paths[0])
        return hashes

    monkeypatch.setattr(module, "content_hashes", then_changed)
    with pytest.raises(DataError, match="changed while it was read; start again"):
        store(paths, 24)


def test_threads_may_share_a_cache(paths: list[Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(
            pool.map(lambda size: store(paths, size, cache=tmp_path / "cache"), [24, 25, 26] * 6)
        )
    assert all(len(f.broken) == 1 for f in found)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 3
    assert not list((tmp_path / "cache").glob("*.tmp*"))


def test_progress_reaches_the_end(paths: list[Path]) -> None:
    seen: list[tuple[int, int]] = []
    store(paths, 24, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(paths), len(paths))
