"""Decoded pixels, once: a uint8 array of all images of a domain, in memory or mapped from disk.

The file on disk is a safetensors file named by what is in it (content of the images, size,
decoder), so it can be shared by runs and survives a moved data folder. It is there whole or not at
all; one that was damaged in its form since is made anew. Whether a file of the data has changed is
told by its size, inode and times.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bayesdg.data.decode import DECODER_VERSION, BrokenImage, Resize, decode, read_bytes
from bayesdg.data.tree import shown
from bayesdg.errors import DataError, ResourceError

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
        digests: sha256 of each file, '' where it cannot be read.
    """

    pixels: Pixels
    broken: Mapping[int, str]
    oddities: Mapping[int, Sequence[str]]
    digests: Sequence[str] = ()


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
    if cache is not None and paths:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=cache):
                pass
        except OSError as error:
            warnings.warn(
                f"{cache} cannot be written ({error.strerror}); pixels are decoded into memory",
                stacklevel=2,
            )
            cache = None
    hashes = content_hashes(paths, cache, workers)
    # What cannot be read now may be readable next time: nothing to remember.
    if cache is None or "" in hashes:
        pixels = np.zeros((len(paths), 3, size, size), np.uint8)
        found = _decode_into(pixels, paths, hashes, resize, progress, workers)
        return Stored(pixels, *found, hashes)
    key = json.dumps([DECODER_VERSION, size, resize, hashes])
    target = cache / f"{sha256(key.encode()).hexdigest()[:32]}.safetensors"
    shape = (len(paths), 3, size, size)
    with _alone(target.with_suffix(".lock")):
        mapped = _mapped(target, shape)
        if mapped is None:
            _write(target, shape, paths, hashes, resize, progress, workers)
            mapped = _mapped(target, shape)
    if mapped is None:
        raise ResourceError(f"{target} was written but cannot be read back; is the disk sound?")
    return replace(mapped, digests=hashes)


def content_hashes(paths: Sequence[Path], cache: Path | None, workers: int) -> list[str]:
    """sha256 of each file, '' where it cannot be read.

    Files whose size, times of change and inode are those of the last visit are not read again.
    """
    index = _StatIndex(cache, paths)
    with ThreadPoolExecutor(workers) as pool:
        hashes = list(pool.map(index.hash, paths))
    index.save()
    return hashes


class _StatIndex:
    """What was hashed before: path -> (size, times of change, inode, sha256)."""

    def __init__(self, cache: Path | None, paths: Sequence[Path]) -> None:
        self.file = None
        self.known: dict[str, list[object]] = {}
        self.changed = False
        if cache is not None and paths:
            place = sha256(os.fsencode(paths[0].parent.parent.resolve())).hexdigest()[:16]
            self.file = cache / f"hashes-{place}.json"
            try:
                stored = json.loads(self.file.read_text())
                self.known = {k: v for k, v in stored.items() if len(v) == 5}
            except (OSError, ValueError, AttributeError, TypeError):
                self.known = {}

    def hash(self, path: Path) -> str:
        try:
            status = path.stat()
        except OSError:
            return ""
        name = os.fsencode(path).hex()
        known = self.known.get(name)
        identity = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        if known and known[:4] == identity:
            return str(known[4])
        try:
            digest = sha256(read_bytes(path)).hexdigest()
        except BrokenImage:
            return ""
        self.known[name] = [*identity, digest]
        self.changed = True
        return digest

    def save(self) -> None:
        if self.file is None or not self.changed:
            return
        _write_whole(self.file, json.dumps(self.known))


def _write_whole(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _decode_into(
    pixels: Pixels,
    paths: Sequence[Path],
    hashes: Sequence[str],
    resize: Resize,
    progress: Progress,
    workers: int,
) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    size = pixels.shape[-1]

    def one(row: int) -> tuple[str | None, tuple[str, ...]]:
        try:
            content = read_bytes(paths[row])
        except BrokenImage as error:
            if hashes[row]:
                raise DataError(f"{shown(paths[row])}: {error}, but could be before") from None
            return str(error), ()
        if sha256(content).hexdigest() != hashes[row]:
            raise DataError(f"{shown(paths[row])} changed while it was read; start again")
        try:
            decoded = decode(content, size, resize)
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
    target: Path,
    shape: tuple[int, int, int, int],
    paths: Sequence[Path],
    hashes: Sequence[str],
    resize: Resize,
    progress: Progress,
    workers: int,
) -> None:
    """Decode straight into a file beside the target, then give it its name."""
    num_bytes = int(np.prod(shape))
    _check_room(target.parent, num_bytes)
    # Whoever holds the lock is alone: what others began here, they left behind when they died.
    for litter in target.parent.glob(f"{target.name}.tmp-*"):
        litter.unlink()
    temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            start = _write_header(file, shape)
            _reserve(file, start + num_bytes)
        pixels: Pixels = np.memmap(temporary, np.uint8, "r+", offset=start, shape=shape)
        broken, oddities = _decode_into(pixels, paths, hashes, resize, progress, workers)
        pixels.flush()  # type: ignore[attr-defined]
        del pixels
        # The report first: pixels without it count as absent.
        report = {"broken": broken, "oddities": oddities}
        _write_whole(target.with_suffix(".json"), json.dumps(report))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _reserve(file: BinaryIO, num_bytes: int) -> None:
    """Take the room now: a disk that fills up under a mapped file would kill the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        else:
            file.truncate(num_bytes)
    except OSError as error:
        raise ResourceError(
            f"no room for {num_bytes / 2**30:.1f} GiB of decoded pixels ({error.strerror}); make "
            "room, set BAYESDG_CACHE, or use a smaller data.image_size"
        ) from None


def _check_room(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
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


def _mapped(path: Path, shape: tuple[int, int, int, int]) -> Stored | None:
    """What is stored, or None where it is absent or not as it should be."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 4096)))
        start, num_bytes = 8 + length, int(np.prod(shape))
        if header["pixels"]["shape"] != list(shape) or path.stat().st_size != start + num_bytes:
            return None
        report = json.loads(path.with_suffix(".json").read_text())
        broken = {int(row): str(reason) for row, reason in report["broken"].items()}
        oddities = {int(row): tuple(odd) for row, odd in report["oddities"].items()}
        pixels: Pixels = np.memmap(path, np.uint8, "r", offset=start, shape=shape)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None
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
        # Some network drives know no locks; then as on Windows.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
