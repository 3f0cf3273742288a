"""Unpacking an archive that a person was given, without trusting it."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from errno import EACCES, EDQUOT, ENOSPC, EROFS
from pathlib import Path, PurePosixPath

from bayesdg.data.tree import shown
from bayesdg.errors import DataError

MAX_MEMBERS = 2_000_000
MAX_BYTES = 200 * 2**30
# Pictures hardly compress: what unpacks to much more than it weighs is no data set.
MAX_RATIO = 100
# What these say is about the disk, and not about what was to be written.
OF_THE_DISK = (EACCES, EROFS, ENOSPC, EDQUOT)
DAMAGED = (OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .zip or .tar(.gz, .xz, .bz2) so that `target` is there whole or not at all.

    Refused: links, devices, paths that lead out, too many members, bombs. If everything lies in
    one folder inside the archive, that folder becomes the target.
    """
    if target.exists():
        raise DataError(f"{shown(target)} is there already; remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.unpacking-{os.getpid()}")
    fresh.mkdir()
    try:
        if not archive.is_file():
            raise DataError(f"no archive at {shown(archive)}")
        if zipfile.is_zipfile(archive):
            _unzip(archive, fresh)
        else:
            _untar(archive, fresh)
        inside = [path for path in fresh.iterdir() if path.name != "__MACOSX"]
        whole = inside[0] if len(inside) == 1 and inside[0].is_dir() else fresh
        whole.replace(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _unzip(archive: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            links = [m.filename for m in members if stat.S_ISLNK(m.external_attr >> 16)]
            _check(archive, (m.filename for m in members), sum(m.file_size for m in members), links)
            file.extractall(into)
    except (zipfile.BadZipFile, NotImplementedError, *DAMAGED) as error:
        unless_of_the_disk(error, into)
        raise DataError(f"{shown(archive)} is damaged: {error}") from None


def _untar(archive: Path, into: Path) -> None:
    try:
        with tarfile.open(archive) as file:
            members = file.getmembers()
            special = [m.name for m in members if not (m.isfile() or m.isdir())]
            _check(archive, (m.name for m in members), sum(m.size for m in members), special)
            file.extractall(into, filter="data")
    except (tarfile.TarError, *DAMAGED) as error:
        unless_of_the_disk(error, into)
        reason = str(error).splitlines()[0].rstrip(":") if str(error) else "cut short"
        raise DataError(f"{shown(archive)} is no whole zip or tar archive: {reason}") from None


def unless_of_the_disk(error: Exception, place: Path) -> None:
    """Raise an error that says that `place` is full or cannot be written to; let others pass."""
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        raise OSError(error.errno, error.strerror, str(place)) from None


def _check(archive: Path, names: Iterable[str], num_bytes: int, special: list[str]) -> None:
    place = shown(archive.name)
    listed = list(names)
    for name in listed:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in path.as_posix()[:2]:
            raise DataError(f"{place}: {shown(name)} leads out of the archive; refused")
    if special:
        raise DataError(f"{place}: {shown(special[0])} is a link or a device; refused")
    if len(listed) > MAX_MEMBERS:
        raise DataError(f"{place}: {len(listed)} files, more than {MAX_MEMBERS}; refused")
    if num_bytes > min(MAX_BYTES, MAX_RATIO * archive.stat().st_size):
        raise DataError(
            f"{place}: unpacks to {num_bytes / 2**20:.0f} MiB from "
            f"{archive.stat().st_size / 2**20:.0f}; refused as a bomb"
        )
