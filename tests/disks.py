"""Disks that are full and folders that cannot be written, as the system itself makes them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

# With these root may do whatever it likes to files; without them it is as anybody else.
POWERS = "-dac_override,-dac_read_search,-fowner"


def mounted(place: Path, *options: str) -> bool:
    """Whether a disk in memory could be mounted."""
    done = subprocess.run(["mount", *options, "tmpfs", place], capture_output=True)
    return done.returncode == 0


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own in a new folder; skips the test where none can be mounted."""
    place.mkdir()
    size = f"size={megabytes}m"
    if shutil.which("mount") is None or not mounted(place, "-t", "tmpfs", "-o", size):
        pytest.skip("a disk cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(disk: Path) -> None:
    """Take all the room there is."""
    with suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def powerless() -> list[str]:
    """What to begin a command with, so that permissions of files hold for it."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root cannot give up its rights here")
    return ["setpriv", f"--bounding-set={POWERS}", f"--inh-caps={POWERS}"]


@contextmanager
def read_only(*tops: Path) -> Iterator[None]:
    """Folders that nobody may write to, with all that is below."""
    modes = {path: mode for top in tops for path, mode in forbid(top).items()}
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def forbid(top: Path) -> dict[Path, int]:
    """Let nobody write to a folder and what is below; returns what was allowed before."""
    modes = {path: path.stat().st_mode for path in (top, *top.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    return modes
