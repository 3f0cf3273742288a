"""The files of a folder `domain/class/image`, and everything odd about their names.

No image is opened here. Domains and classes are named by folders; one list of classes holds for
all domains, so a class that a domain lacks shifts no label.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bayesdg.errors import DataError

SUFFIXES = (
    ".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".jfif", ".pgm", ".png", ".pnm", ".ppm",
    ".tif", ".tiff", ".webp",
)  # fmt: skip
# What operating systems and notebooks leave behind.
JUNK_NAMES = {"thumbs.db", "desktop.ini", "ehthumbs.db", "__macosx", "icon\r"}


@dataclass(frozen=True)
class Entry:
    """One image file.

    Attributes:
        path: Relative to the root, with forward slashes.
        domain: Its domain.
        label: Its class, by name.
    """

    path: str
    domain: str
    label: str


@dataclass(frozen=True)
class Tree:
    """What a folder holds.

    Attributes:
        root: The folder.
        domains: Names in natural order ('2' before '10').
        classes: Names in natural order; a label is an index into them.
        entries: Sorted by domain, class and name: the order never depends on the disk.
        ignored: How many files were left out, by reason.
        warnings: What a person should know; training goes on.
    """

    root: Path
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    entries: tuple[Entry, ...]
    ignored: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_tree(
    root: Path, domains: Sequence[str] | None = None, aliases: dict[str, str] | None = None
) -> Tree:
    """List the images below `root`.

    Args:
        root: Holds one folder per domain.
        domains: The names to look for, for a data set whose domains are known; every folder
            that holds class folders is a domain without it.
        aliases: Other spellings of domain names, as found on disk, and what they stand for.
    """
    if not root.is_dir():
        raise DataError(f"no folder at {shown(root)}")
    ignored: Counter[str] = Counter()
    warnings: list[str] = []
    entries: list[Entry] = []
    spellings: dict[tuple[str, str], set[str]] = {}
    used: list[Path] = []
    misplaced = _image_files(root)
    for folder in _folders(root, ignored):
        name = (aliases or {}).get(folder.name, normal(folder.name))
        if domains is not None and name not in domains:
            continue
        spellings.setdefault(("domain", name), set()).add(folder.name)
        used.append(folder)
        misplaced += _image_files(folder)
        before = len(entries)
        for class_folder in _class_folders(folder, ignored, used):
            label = normal(class_folder.name)
            spellings.setdefault(("class", label), set()).add(class_folder.name)
            images = list(images_below(class_folder, root, ignored, used.append))
            used += images
            entries += [Entry(path.relative_to(root).as_posix(), name, label) for path in images]
            if not images:
                warnings.append(f"no images in {shown(class_folder.relative_to(root))}")
        if len(entries) == before:
            warnings.append(f"no images in {shown(folder.name)}/CLASS")
    if misplaced:
        ignored["not in a class folder"] += len(misplaced)
        example = shown(misplaced[0].relative_to(root))
        warnings.append(
            f"{len(misplaced)} images are not in DOMAIN/CLASS and left out, such as {example}"
        )
    entries.sort(key=lambda e: (natural(e.domain), natural(e.label), natural(e.path)))
    found = tuple(sorted({entry.domain for entry in entries}, key=natural))
    classes = tuple(sorted({entry.label for entry in entries}, key=natural))
    if not entries:
        lack = f"{shown(root)}: {warnings[-1]}" if misplaced else f"no images below {shown(root)}"
        raise DataError(f"{lack}; expected DOMAIN/CLASS/IMAGE, such as photo/dog/1.jpg")
    warnings += _links_out(used, root)
    warnings += _look_alikes("domain", found) + _look_alikes("class", classes)
    warnings += [
        f"{kind} {shown(name)} has several spellings on disk "
        f"({', '.join(sorted(map(shown, found_as)))}); taken as one"
        for (kind, name), found_as in spellings.items()
        if len(found_as) > 1
    ]
    return Tree(root, found, classes, tuple(entries), dict(ignored), tuple(warnings))


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sorting key that puts '2' before '10'.

    >>> sorted(["10", "9", "a10", "a9"], key=natural)
    ['9', '10', 'a9', 'a10']
    """
    # Only ASCII digits: int() would take others, which then tie with these.
    parts = re.split(r"([0-9]+)", name)
    return tuple(
        (0, int(part)) if part.isdigit() and part.isascii() else (1, part) for part in parts
    )


def normal(name: str) -> str:
    """The composed form (NFC): macOS stores 'é' as two characters, others as one."""
    return unicodedata.normalize("NFC", name)


def shown(name: str | Path) -> str:
    r"""A name for people: bytes that are no UTF-8 as \xNN, control characters escaped.

    >>> shown("caf\udce9")
    'caf\\xe9'
    >>> shown("two\nlines")
    'two\\x0alines'
    """
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _look_alikes(kind: str, names: Sequence[str]) -> list[str]:
    """Names that differ in case only are probably one."""
    by_lower: dict[str, list[str]] = {}
    for name in names:
        by_lower.setdefault(name.casefold(), []).append(name)
    return [
        f"{kind} names that differ in case only: {', '.join(map(shown, same))}"
        for same in by_lower.values()
        if len(same) > 1
    ]


def _is_junk(name: str) -> bool:
    return name.startswith(".") or name.lower() in JUNK_NAMES


def _image_files(folder: Path) -> list[Path]:
    """Images directly in a folder that should hold folders."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in SUFFIXES and not _is_junk(path.name) and not path.is_dir()
    ]


def _folders(parent: Path, ignored: Counter[str]) -> list[Path]:
    folders = []
    for path in sorted(parent.iterdir()):
        if path.is_dir():
            if _is_junk(path.name):
                ignored["junk"] += 1
            elif path.is_symlink() and parent.resolve().is_relative_to(path.resolve()):
                ignored["folder linked into itself"] += 1
            else:
                folders.append(path)
    return folders


def _class_folders(domain_folder: Path, ignored: Counter[str], used: list[Path]) -> list[Path]:
    folders = _folders(domain_folder, ignored)
    # Some copies of Office-31 have a level in between: amazon/images/back_pack.
    if [folder.name for folder in folders] == ["images"] and not _image_files(folders[0]):
        used += folders
        return _folders(folders[0], ignored)
    return folders


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def images_below(
    top: Path,
    root: Path,
    ignored: Counter[str],
    enter: Callable[[Path], object] = lambda folder: None,
) -> Iterator[Path]:
    """Every image file below, each folder entered once, however it is linked.

    Of a folder no more than the names are held at a time.

    Args:
        top: Where to begin.
        root: Itself or a folder above it; up to there a link back up leads nowhere.
        ignored: Is told what is left out, by reason.
        enter: Is told every folder that is entered.
    """
    # The folders above count as visited: a link back up would bring in everything again.
    above = [top, *top.parents][1:]
    visited = {_identity(folder) for folder in above if folder.is_relative_to(root)}
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        if _identity(folder) in visited:
            ignored["folder linked into itself"] += 1
            continue
        visited.add(_identity(folder))
        enter(folder)
        for name in sorted(os.listdir(folder)):
            path = folder / name
            if _is_junk(name):
                ignored["junk"] += 1
            elif path.is_dir():
                if path.suffix.lower() in SUFFIXES:
                    ignored["folder named like an image"] += 1
                else:
                    waiting.append(path)
            elif path.suffix.lower() not in SUFFIXES:
                ignored["no image suffix"] += 1
            elif path.exists() and not path.is_file():
                ignored["not a regular file"] += 1
            else:
                yield path


def _links_out(used: Sequence[Path], root: Path) -> list[str]:
    """They work, and are told: folders of domains and classes, and images."""
    links = [path for path in used if path.is_symlink() and not _stays_below(path, root)]
    warnings = []
    for kind in ("folders", "images"):
        own = [path for path in links if path.is_dir() == (kind == "folders")]
        if own:
            example = shown(own[0].relative_to(root))
            warnings.append(f"{len(own)} {kind} are links out of the folder, such as {example}")
    return warnings


def _stays_below(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link to itself: it is found broken when it is read
        return True
