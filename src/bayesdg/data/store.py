"""Decoded pixels, once: a uint8 array of all images of a domain, in memory or mapped from disk.

The file on disk is a safetensors file named by what is in it (content of the images, size,
decoder), so it can be shared by runs, survives a moved data folder, and is never stale. It is
there whole or not at all.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bayesdg.data.decode import DECODER_VERSION, BrokenImage, Resize, decode, read_bytes

Pixels = NDArray[np.uint8]
# Is told the number of images done and of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stored:
    """The pixels of a list of files.

    Attributes:
        pixels: (n, 3, size, size); rows of broken files are black.
        broken: Position -> reason.
        oddities: Position -> what was unusual.
    """

    pixels: Pixels
    broken: Mapping[int, str]
    oddities: Mapping[int, Sequence[str]]


def store(
    paths: Sequence[Path],
    size: int,
    resize: Resize = "squash",
    cache: Path | None = None,
    progress: Progress = lambda done, total: None,
    workers: int | None = None,
) -> Stored:
    """Decode files, or find them decoded.

    Args:
        paths: Image files; the order is kept.
        size: Side of the square.
        resize: See `decode`.
        cache: Folder for decoded pixels, mapped from there; None decodes into memory.
        progress: Called now and then.
        workers: Threads; all cores by default. Decoders release Python's lock.
    """
    workers = workers or os.cpu_count() or 1
    if cache is None:
        pixels = np.zeros((len(paths), 3, size, size), np.uint8)
        return Stored(pixels, *_decode_into(pixels, paths, resize, progress, workers))
    cache.mkdir(parents=True, exist_ok=True)
    hashes = content_hashes(paths, cache, workers)
    key = json.dumps([DECODER_VERSION, size, resize, hashes])
    target = cache / f"{sha256(key.encode()).hexdigest()[:32]}.safetensors"
    with _alone(target.with_suffix(".lock")):
        if not target.exists():
            _write(target, paths, size, resize, progress, workers)
    return _mapped(target)


def content_hashes(paths: Sequence[Path], cache: Path | None, workers: int) -> list[str]:
    """sha256 of each file, '' where it cannot be read.

    Files whose size and time of change are those of the last visit are not read again.
    """
    index = _StatIndex(cache, paths)
    with ThreadPoolExecutor(workers) as pool:
        hashes = list(pool.map(index.hash, paths))
    index.save()
    return hashes


class _StatIndex:
    """What was hashed before: path -> (size, time of change, sha256)."""

    def __init__(self, cache: Path | None, paths: Sequence[Path]) -> None:
        self.file = None
        self.known: dict[str, list[object]] = {}
        self.changed = False
        if cache is not None and paths:
            place = sha256(os.fsencode(paths[0].parent.parent.resolve())).hexdigest()[:16]
            self.file = cache / f"hashes-{place}.json"
            try:
                self.known = json.loads(self.file.read_text())
            except (OSError, ValueError):
                self.known = {}

    def hash(self, path: Path) -> str:
        try:
            status = path.stat()
        except OSError:
            return ""
        name = os.fsencode(path).hex()
        known = self.known.get(name)
        if known and known[:2] == [status.st_size, status.st_mtime_ns]:
            return str(known[2])
        try:
            digest = sha256(read_bytes(path)).hexdigest()
        except BrokenImage:
            return ""
        self.known[name] = [status.st_size, status.st_mtime_ns, digest]
        self.changed = True
        return digest

    def save(self) -> None:
        if self.file is None or not self.changed:
            return
        temporary = self.file.with_name(f"{self.file.name}.tmp-{os.getpid()}")
        temporary.write_text(json.dumps(self.known))
        temporary.replace(self.file)


def _decode_into(
    pixels: Pixels, paths: Sequence[Path], resize: Resize, progress: Progress, workers: int
) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    size = pixels.shape[-1]

    def one(row: int) -> tuple[str | None, tuple[str, ...]]:
        try:
            decoded = decode(read_bytes(paths[row]), size, resize)
        except BrokenImage as error:
            return str(error), ()
        pixels[row] = decoded.pixels.transpose(2, 0, 1)
        return None, decoded.oddities

    broken: dict[int, str] = {}
    oddities: dict[int, tuple[str, ...]] = {}
    with ThreadPoolExecutor(workers) as pool:
        for row, (reason, odd) in enumerate(pool.map(one, range(len(paths)))):
            if reason is not None:
                broken[row] = reason
            if odd:
                oddities[row] = odd
            if row % 64 == 63 or row == len(paths) - 1:
                progress(row + 1, len(paths))
    return broken, oddities


def _write(
    target: Path, paths: Sequence[Path], size: int, resize: Resize, progress: Progress, workers: int
) -> None:
    """Decode straight into a file beside the target, then give it its name."""
    shape = (len(paths), 3, size, size)
    num_bytes = int(np.prod(shape))
    _check_room(target.parent, num_bytes)
    # Whoever holds the lock is alone: what others began here, they left behind when they died.
    for litter in target.parent.glob(f"{target.name}.tmp-*"):
        litter.unlink()
    temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}")
    try:
        # What is broken is known only afterwards: the report goes into a file of its own.
        with temporary.open("wb") as file:
            start = _write_header(file, shape)
            file.truncate(start + num_bytes)
        pixels: Pixels = np.memmap(temporary, np.uint8, "r+", offset=start, shape=shape)
        broken, oddities = _decode_into(pixels, paths, resize, progress, workers)
        pixels.flush()  # type: ignore[attr-defined]
        del pixels
        report = target.with_suffix(".json")
        report.write_text(json.dumps({"broken": broken, "oddities": oddities}))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _check_room(folder: Path, num_bytes: int) -> None:
    from shutil import disk_usage

    from bayesdg.errors import ResourceError

    free = disk_usage(folder).free
    if free < 1.1 * num_bytes:
        raise ResourceError(
            f"{folder} has {free / 2**30:.1f} GiB left, decoded pixels need "
            f"{num_bytes / 2**30:.1f}; make room, choose another cache or a smaller data.image_size"
        )


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> int:
    """A safetensors header for one tensor; returns where its bytes begin."""
    entry = {"dtype": "U8", "shape": list(shape), "data_offsets": [0, int(np.prod(shape))]}
    header = json.dumps({"pixels": entry}).encode()
    header += b" " * (-(8 + len(header)) % 64)
    file.write(struct.pack("<Q", len(header)) + header)
    return 8 + len(header)


def _mapped(path: Path) -> Stored:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        shape = tuple(json.loads(file.read(length))["pixels"]["shape"])
    pixels = np.memmap(path, np.uint8, "r", offset=8 + length, shape=shape)
    report = json.loads(path.with_suffix(".json").read_text())
    broken = {int(row): reason for row, reason in report["broken"].items()}
    oddities = {int(row): tuple(odd) for row, odd in report["oddities"].items()}
    return Stored(pixels, broken, oddities)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; a dead one holds nothing."""
    try:
        import fcntl
    except ImportError:  # not on Windows: two processes then do the work twice, nothing breaks
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
