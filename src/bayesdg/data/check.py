"""Is this data fit to train on? Everything odd by name, before any training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bayesdg.data.decode import BrokenImage, decode, read_bytes
from bayesdg.data.flaws import (
    counts,
    leaks,
    missing_classes,
    repeated,
    training_verdict,
    uneven,
    without_validation,
)
from bayesdg.data.folders import count_differences, listing
from bayesdg.data.known import KNOWN
from bayesdg.data.store import Progress
from bayesdg.data.tree import Tree, natural, shown
from bayesdg.errors import DataError
from bayesdg.stages import DataSettings

# In the format of sha256sum, so that `sha256sum -c` reads it, too.
MANIFEST = "manifest.sha256"
# Of 256: in how many bits two copies of a picture may differ.
LOOK_ALIKE_BITS = 16
# Every pair is compared, which takes a second for this many images and grows with the square.
MOST_COMPARED = 20_000


Hash = NDArray[np.uint64]


@dataclass(frozen=True)
class Report:
    """What was found; every list holds readable lines or names.

    Attributes:
        name: Of the data set or folder.
        counts: Readable images by domain and class.
        broken: Path -> why it cannot be read.
        odd: Path -> what is unusual, for files that can be read.
        ignored: Reason -> number of files that are not counted as images.
        duplicates: Groups of paths with the same content in several domains or classes.
        look_alikes: Pairs from different domains that are nearly equal when small and grey.
        warnings: What a person should know; training would go on.
        unsafe: Why training should not begin.
    """

    name: str
    counts: Mapping[str, Mapping[str, int]]
    broken: Mapping[str, str]
    odd: Mapping[str, Sequence[str]]
    ignored: Mapping[str, int]
    duplicates: Sequence[Sequence[str]]
    look_alikes: Sequence[Sequence[str]]
    warnings: Sequence[str]
    unsafe: Sequence[str]


@dataclass(frozen=True)
class _Seen:
    """One file: content hash, look-alike hash, why it is broken, what is odd."""

    digest: str
    look: Hash | None
    reason: str | None
    oddities: tuple[str, ...]


def check_folder(
    name: str,
    root: Path,
    data: DataSettings,
    progress: Progress = lambda done, total: None,
    write_manifest: bool = False,
) -> Report:
    """Open every image of a folder data set and report.

    Args:
        name: A name in KNOWN, or a path.
        root: Where named data sets lie.
        data: Settings; bad_images = 'skip' makes broken images no reason to stop.
        progress: Is told the number of images done.
        write_manifest: Write manifest.sha256 into the folder; otherwise one that is there is
            compared.
    """
    listed = listing(name, KNOWN.get(name), root, data)
    tree = listed.tree
    seen = _look_at(tree, progress)
    bad = {row: s.reason for row, s in enumerate(seen) if s.reason}
    paths = [shown(entry.path) for entry in tree.entries]
    broken = {path: s.reason for path, s in zip(paths, seen, strict=True) if s.reason}
    odd = {path: s.oddities for path, s in zip(paths, seen, strict=True) if s.oddities}
    groups = repeated(tree, ["" if s.reason else s.digest for s in seen])
    counted = counts(tree, bad)
    warnings = [*tree.warnings, *missing_classes(counted), *uneven(counted)]
    if (known := KNOWN.get(name)) is not None:
        warnings += count_differences(tree, known)
    unsafe = _unsafe(tree, broken, skip=data.bad_images == "skip")
    try:
        parts = listed.parts(bad)
    except DataError as error:
        unsafe.append(str(error))
    else:
        against, notes = training_verdict(tree, parts)
        unsafe += against
        warnings += [*without_validation(tree, parts), *notes]
    unsafe += leaks(tree, groups)
    within = sum(len({tree.entries[row].domain for row in rows}) == 1 for rows in groups)
    if within:
        warnings.append(f"{within} groups of equal images under several classes")
    if len(seen) > MOST_COMPARED:
        warnings.append(f"look-alikes were sought among the first {MOST_COMPARED} images only")
    manifest = tree.root / MANIFEST
    if write_manifest:
        lines = (_manifest_line(s.digest, e.path) for s, e in zip(seen, tree.entries, strict=True))
        manifest.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    elif manifest.is_file():
        unsafe += _manifest_differences(manifest, tree, seen)
    alike = _look_alikes(tree, seen)
    exact = [[paths[row] for row in rows] for rows in groups]
    return Report(name, counted, broken, odd, tree.ignored, exact, alike, warnings, unsafe)


def _look_at(tree: Tree, progress: Progress) -> list[_Seen]:
    def one(path: Path) -> _Seen:
        try:
            content = read_bytes(path)
        except BrokenImage as error:
            return _Seen("", None, str(error), ())
        digest = sha256(content).hexdigest()
        try:
            decoded = decode(content)
        except BrokenImage as error:
            return _Seen(digest, None, str(error), ())
        return _Seen(digest, difference_hash(decoded.pixels), None, decoded.oddities)

    seen = []
    paths = [tree.root / entry.path for entry in tree.entries]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, result in enumerate(pool.map(one, paths), start=1):
            seen.append(result)
            if number % 64 == 0 or number == len(paths):
                progress(number, len(paths))
    return seen


def difference_hash(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Hash | None:
    """Which neighbours in a 17 x 16 grey picture grow brighter: 256 bits, as (4,) uint64.

    Resized and recompressed copies differ in a few bits, other pictures in dozens. None for a
    picture with too little in it to tell, such as a thin drawing on white.
    """
    small = Image.fromarray(pixels).convert("L").resize((17, 16), Image.Resampling.BOX)
    values = np.asarray(small).astype(int)
    brighter = values[:, 1:] > values[:, :-1]
    if not 80 <= int(brighter.sum()) <= 176:
        return None
    return np.packbits(brighter).view(np.uint64)


def _look_alikes(tree: Tree, seen: Sequence[_Seen]) -> list[list[str]]:
    """Pairs from different domains whose difference hashes are nearly equal."""
    rows = [row for row, s in enumerate(seen) if s.look is not None][:MOST_COMPARED]
    hashes = np.array([seen[row].look for row in rows], dtype=np.uint64).reshape(-1, 4)
    domains = np.array([tree.domains.index(tree.entries[row].domain) for row in rows])
    pairs = []
    for i, row in enumerate(rows):
        distance = np.bitwise_count(hashes[i + 1 :] ^ hashes[i]).sum(-1)
        near = (distance <= LOOK_ALIKE_BITS) & (domains[i + 1 :] != domains[i])
        for j in near.nonzero()[0] + i + 1:
            other = rows[j]
            if seen[row].digest != seen[other].digest:
                pairs.append([shown(tree.entries[r].path) for r in (row, other)])
    return pairs


def _unsafe(tree: Tree, broken: Mapping[str, str], skip: bool) -> list[str]:
    unsafe = []
    if broken and not skip:
        unsafe.append(f"{len(broken)} broken images; mend or remove them, or use --skip-bad")
    if len(tree.domains) < 2:
        unsafe.append(f"only one domain, {shown(tree.domains[0])}: there is no unseen one")
    if len(tree.classes) < 2:
        unsafe.append(f"only one class, {shown(tree.classes[0])}: there is nothing to tell apart")
    return unsafe


def _manifest_line(digest: str, path: str) -> str:
    """As sha256sum writes it: unusual names are escaped, which a backslash in front announces."""
    escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == path else chr(92)}{digest}  {escaped}\n"


def _manifest_differences(manifest: Path, tree: Tree, seen: Sequence[_Seen]) -> list[str]:
    text = manifest.read_bytes().decode("utf-8", "surrogateescape")
    recorded = set(text.split("\n"))
    found = {
        _manifest_line(s.digest, e.path)[:-1]: e.path
        for s, e in zip(seen, tree.entries, strict=True)
    }
    listed = {line.lstrip("\\").partition("  ")[2] for line in recorded if line}
    now = {line.lstrip("\\").partition("  ")[2] for line in found}
    differences = []
    for what, names in (
        (
            "changed",
            [line.lstrip("\\").partition("  ")[2] for line in found if line not in recorded],
        ),
        ("missing", sorted(listed - now, key=natural)),
        ("new", [name for name in now if name not in listed]),
    ):
        names = [name for name in names if what != "changed" or name in listed]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            differences.append(f"{what} since {MANIFEST} was written: {shown(names[0])}{more}")
    return differences
