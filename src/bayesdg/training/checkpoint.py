"""Checkpoints that are there whole or not at all. Imports no torch.

A checkpoint is a folder of files and a manifest with the sha256 of each. It is written under
another name and renamed when everything is on the disk, so whatever is called `step-...` was
complete once; the manifest tells whether it still is. Order is by step, never by a clock.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from hashlib import sha256
from pathlib import Path

from bayesdg.errors import ResourceError, StoredRunError

MANIFEST = "manifest.json"
NAME = "step-{:09d}"
# Waits between attempts when a disk stutters, in seconds.
PAUSES = (0.5, 2.0, 8.0)
# A disk that is nearly full is left alone: a little more than the files themselves is asked for.
ROOM = 1.2


def write_checkpoint(
    folder: Path, step: int, files: Mapping[str, bytes], make_room: Callable[[], None]
) -> Path:
    """Write the files of a step below `folder`; returns where.

    Args:
        folder: Of all checkpoints.
        step: Names the checkpoint; one that is there is replaced.
        files: Content by name.
        make_room: Is called once if the disk is full, and may remove what is not needed.

    Raises:
        ResourceError: The disk is full; nothing is left behind.
        OSError: The disk did not answer, several times.
    """
    target = folder / NAME.format(step)
    folder.mkdir(exist_ok=True)  # somebody may have cleared it away meanwhile
    _check_room(folder, sum(map(len, files.values())), make_room)
    for pause in (*PAUSES, None):
        try:
            return _write(target, files)
        except OSError as error:
            if error.errno == ENOSPC:
                make_room()
                try:
                    return _write(target, files)
                except OSError as again:
                    if again.errno != ENOSPC:
                        raise
                needed = sum(map(len, files.values()))
                raise disk_full(folder, needed) from None
            if pause is None or error.errno == EDQUOT:
                raise
            time.sleep(pause)
    raise AssertionError("the loop returns or raises")


def read_checkpoint(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint, each compared with the manifest."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        listed = {str(name): str(entry["sha256"]) for name, entry in manifest["files"].items()}
    except FileNotFoundError:
        raise StoredRunError(f"{path} is no checkpoint: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StoredRunError(
            f"checkpoint {path} is damaged: its {MANIFEST} cannot be read"
        ) from None
    files = {}
    for name, digest in listed.items():
        if Path(name).name != name:
            raise StoredRunError(f"checkpoint {path} is damaged: it lists {name!r}")
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise StoredRunError(
                f"checkpoint {path} is damaged: {name}: {error.strerror}"
            ) from None
        if sha256(content).hexdigest() != digest:
            raise StoredRunError(f"checkpoint {path} is damaged: the sha256 of {name} differs")
        files[name] = content
    return files


def checkpoints(folder: Path) -> dict[int, Path]:
    """All checkpoints by step, the newest first; not yet looked into."""
    found = {}
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            number = path.name.removeprefix("step-")
            if path.name.startswith("step-") and number.isdecimal() and path.is_dir():
                found[int(number)] = path
    return dict(sorted(found.items(), reverse=True))


def remove(paths: Iterable[Path]) -> None:
    """Remove checkpoints: each is renamed first, so that none is there in part."""
    for path in paths:
        trash = path.with_name(f".trash-{os.getpid()}-{path.name}")
        with suppress(OSError):
            path.replace(trash)
            shutil.rmtree(trash)


def sweep(folder: Path) -> list[str]:
    """Remove what a killed process left behind; returns the names. Only whoever holds the lock."""
    litter = [path for path in folder.glob(".*") if path.name.startswith((".trash-", ".tmp-"))]
    for path in litter:
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return sorted(path.name for path in litter)


def disk_full(folder: Path, needed: int) -> ResourceError:
    """The error, with numbers."""
    wanted, free = ROOM * needed / 2**20, shutil.disk_usage(folder).free / 2**20
    return ResourceError(
        f"disk full: {folder} needs {wanted:.1f} MB and has {free:.1f}; make room and start the "
        "same command again"
    )


def _check_room(folder: Path, num_bytes: int, make_room: Callable[[], None]) -> None:
    if shutil.disk_usage(folder).free >= ROOM * num_bytes:
        return
    make_room()
    if shutil.disk_usage(folder).free < ROOM * num_bytes:
        raise disk_full(folder, num_bytes)


def _write(target: Path, files: Mapping[str, bytes]) -> Path:
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        entries = {
            name: {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in files.items()
        }
        for name, content in files.items():
            _write_synced(temporary / name, content)
        manifest = json.dumps({"files": entries}, indent=1) + "\n"
        _write_synced(temporary / MANIFEST, manifest.encode())
        sync_folder(temporary)
        if target.exists():  # a step that was done again: a folder cannot be replaced by one
            remove([target])
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames last through a power failure; where folders cannot be synced, do nothing."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
