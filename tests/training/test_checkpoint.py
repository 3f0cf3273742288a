"""Checkpoints whole or absent, on disks that misbehave. Numbers are those of the scenarios."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from errno import EDQUOT, EIO, ENOSPC
from pathlib import Path

import pytest

from bayesdg.errors import ResourceError, StoredRunError
from bayesdg.training import checkpoint as module
from bayesdg.training.checkpoint import read_checkpoint, write_checkpoint

FILES = {"weights.safetensors": bytes(range(256)) * 40, "state.json": b'{"step": 5}\n'}


def nothing() -> None:
    """There is no room to make."""


def failing(errors: list[int | None]) -> Callable[[Path, bytes], None]:
    """A disk that takes half of a file and fails, once for each error; None is a good write."""
    original = module._write_synced

    def write(path: Path, content: bytes) -> None:
        error = errors.pop(0) if errors else None
        if error is not None:
            path.write_bytes(content[: len(content) // 2])
            raise OSError(error, os.strerror(error))
        original(path, content)

    return write


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    return waited


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 5, FILES, nothing)
    assert path == tmp_path / "step-000000005"
    assert read_checkpoint(path) == FILES
    assert list(tmp_path.iterdir()) == [path]


def test_02_all_content_is_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of calls, by the inodes they are about: files, their folder, name, parent."""
    events: list[tuple[str, int]] = []
    sync, replace = os.fsync, Path.replace

    def spied_sync(handle: int) -> None:
        sync(handle)
        events.append(("sync", os.fstat(handle).st_ino))

    def spied_replace(path: Path, target: Path) -> Path:
        events.append(("name", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", spied_sync)
    monkeypatch.setattr(Path, "replace", spied_replace)
    path = write_checkpoint(tmp_path, 5, FILES, nothing)
    files = [("sync", (path / name).stat().st_ino) for name in (*FILES, "manifest.json")]
    folder = path.stat().st_ino
    assert events == [*files, ("sync", folder), ("name", folder), ("sync", tmp_path.stat().st_ino)]


def test_03_too_little_room_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_checkpoint(tmp_path, 1, FILES, nothing)
    usage = type("Usage", (), {"free": sum(map(len, FILES.values()))})  # not a little more
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(module, "_write", None)
    asked: list[int] = []
    with pytest.raises(ResourceError, match=f"disk full: {tmp_path} needs .*; make room") as e:
        write_checkpoint(tmp_path, 2, FILES, lambda: asked.append(1))
    assert e.value.exit_code == 5
    assert asked == [1]
    assert read_checkpoint(old) == FILES


@pytest.mark.parametrize("file", [0, 1, 2])
def test_03_a_disk_that_fills_up_half_way_leaves_the_old_checkpoint_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], file: int
) -> None:
    """In the middle of either file, or of the manifest; after making room in vain."""
    old = write_checkpoint(tmp_path, 1, FILES, nothing)
    full = [*[None] * file, ENOSPC]
    monkeypatch.setattr(module, "_write_synced", failing([*full, *full]))
    asked: list[int] = []
    with pytest.raises(ResourceError, match="disk full"):
        write_checkpoint(tmp_path, 2, FILES, lambda: asked.append(1))
    assert asked == [1]
    assert list(tmp_path.iterdir()) == [old]
    assert read_checkpoint(old) == FILES
    assert pauses == []


def test_03_room_that_can_be_made_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write_checkpoint(tmp_path, 1, FILES, nothing)
    monkeypatch.setattr(module, "_write_synced", failing([ENOSPC]))
    path = write_checkpoint(tmp_path, 2, FILES, lambda: module.remove([old]))
    assert list(tmp_path.iterdir()) == [path]
    assert read_checkpoint(path) == FILES


def test_05_a_disk_that_stutters_is_tried_three_times_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(module, "_write_synced", failing([EIO, None, EIO, EIO]))
    assert read_checkpoint(write_checkpoint(tmp_path, 2, FILES, nothing)) == FILES
    assert pauses == [0.5, 2.0, 8.0]


@pytest.mark.parametrize(("error", "waits"), [(EIO, 3), (EDQUOT, 0)])
def test_05_a_disk_that_does_not_answer_is_an_error_that_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pauses: list[float],
    error: int,
    waits: int,
) -> None:
    """A quota does not go away by waiting."""
    monkeypatch.setattr(module, "_write_synced", failing([error] * 10))
    with pytest.raises(OSError, match=os.strerror(error)):
        write_checkpoint(tmp_path, 2, FILES, nothing)
    assert len(pauses) == waits
    assert list(tmp_path.iterdir()) == []


def test_07_08_two_hundred_flipped_bits_are_found(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 5, FILES, nothing)
    chance = random.Random(0)
    for _ in range(200):
        file = path / chance.choice(list(FILES))
        content = bytearray(file.read_bytes())
        whole, place = bytes(content), chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        with pytest.raises(StoredRunError, match=f"sha256 of {file.name} differs"):
            read_checkpoint(path)
        file.write_bytes(whole)
    assert read_checkpoint(path) == FILES


def test_07_whatever_is_in_the_manifest_no_other_content_is_read(tmp_path: Path) -> None:
    """Cut anywhere, or with any bit flipped: refused in one line, or the files as they were."""
    manifest = write_checkpoint(tmp_path, 5, FILES, nothing) / "manifest.json"
    whole, chance = manifest.read_bytes(), random.Random(0)
    refusals: list[str] = []
    flipped = []
    for _ in range(200):
        place = chance.randrange(len(whole))
        flipped.append(
            whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]
        )
    for content in [*flipped, *(whole[:length] for length in range(len(whole) - 1))]:
        manifest.write_bytes(content)
        try:
            assert read_checkpoint(manifest.parent) == FILES
        except StoredRunError as error:
            refusals.append(str(error))
    assert len(refusals) > len(whole)
    assert not any("\n" in refusal for refusal in refusals)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", ".."])
def test_a_manifest_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    path = write_checkpoint(tmp_path, 5, FILES, nothing)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace("weights.safetensors", name))
    (tmp_path / "outside").write_bytes(FILES["weights.safetensors"])
    with pytest.raises(StoredRunError, match="damaged"):
        read_checkpoint(path)


def test_14_a_checkpoint_that_is_removed_is_never_there_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill in the middle leaves has another name, and is swept."""
    path = write_checkpoint(tmp_path, 5, FILES, nothing)
    seen: list[list[str]] = []

    def killed(trash: Path) -> None:
        seen.append([p.name for p in tmp_path.iterdir()])
        raise OSError(EIO, "as if killed")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        module.remove([path])
    assert module.checkpoints(tmp_path) == {}
    assert seen == [[f".trash-{os.getpid()}-step-000000005"]]
    assert module.sweep(tmp_path) == seen[0]
    assert list(tmp_path.iterdir()) == []


def test_no_torch_is_loaded() -> None:
    script = "import sys, bayesdg.training.checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
