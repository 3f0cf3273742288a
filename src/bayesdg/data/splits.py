"""Which image is for training, for validation, for testing.

A split is one word per entry of a tree: 'train', 'val', 'test', or 'all' for images that are in
no list but count when their domain is a target. Everything here works on names alone.
"""

from __future__ import annotations

import csv
import io
import posixpath
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bayesdg.data.tree import Entry, Tree, natural, normal, shown
from bayesdg.errors import DataError
from bayesdg.names import unknown

VAL_FRACTION = 0.1
CSV_COLUMNS = ("path", "domain", "class", "split")
# Other names that are in use for the three parts.
PART_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "crossval": "val",
    "test": "test",
}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """Positions in a tree's entries, by domain; test is every image unless a file says less.

    Attributes:
        train: By domain.
        val: By domain.
        test: By domain.
        held_out: The domains whose test images are in neither train nor val, so that their
            test accuracy means something when they are sources.
    """

    train: Mapping[str, Sequence[int]]
    val: Mapping[str, Sequence[int]]
    test: Mapping[str, Sequence[int]]
    held_out: frozenset[str] = frozenset()


def seeded_split(
    tree: Tree,
    seed: int = 0,
    fraction: float = VAL_FRACTION,
    skip: Container[int] = (),
) -> Parts:
    """A share of every class of every domain for validation: at least one image, if there are two.

    The order within a class follows from seed, domain, class and the path below them alone: the
    same on every machine and under every spelling of the domain's folder.
    Positions in `skip` are left out before anything is counted.
    """
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, entry in enumerate(tree.entries):
        if row not in skip:
            groups[entry.domain, entry.label].append(row)
    train: dict[str, list[int]] = {domain: [] for domain in tree.domains}
    val: dict[str, list[int]] = {domain: [] for domain in tree.domains}
    for (domain, _), rows in groups.items():
        by_hash = sorted(rows, key=lambda row: _hash(seed, tree.entries[row]))
        num_val = min(max(1, round(fraction * len(rows))), len(rows) - 1)
        val[domain] += by_hash[:num_val]
        train[domain] += by_hash[num_val:]
    return Parts(_sorted(train), _sorted(val), everything(tree))


def everything(tree: Tree) -> dict[str, list[int]]:
    """All positions by domain."""
    rows: dict[str, list[int]] = {domain: [] for domain in tree.domains}
    for row, entry in enumerate(tree.entries):
        rows[entry.domain].append(row)
    return rows


def official_pacs_split(tree: Tree, folder: Path) -> Parts:
    """The kfold lists of PACS: 'domain/class/image LABEL' with labels from 1.

    train and crossval as they are, test = every image of the domain. A label that does not fit
    its class folder and a name that has no file are errors with their line.
    """
    # The lists speak of the published domain names, whatever the folder is called.
    row_of = {(entry.domain, _below_domain(entry)): row for row, entry in enumerate(tree.entries)}
    parts: dict[str, dict[str, list[int]]] = {"train": {}, "crossval": {}}
    seen: dict[int, str] = {}
    for part, by_domain in parts.items():
        for domain in tree.domains:
            path = folder / f"{domain}_{part}_kfold.txt"
            by_domain[domain] = []
            for number, name in _kfold_lines(path, tree.classes):
                where = f"{path.name} line {number}"
                _check_below(name, where)
                first, _, rest = name.partition("/")
                if first != domain:
                    raise DataError(f"{where}: {shown(name)} is not of the domain {domain}")
                row = row_of.get((domain, normal(rest)))
                if row is None:
                    raise DataError(f"{where}: {shown(name)} is not there")
                if row in seen:
                    raise DataError(f"{where}: {shown(name)} is listed before, in {seen[row]}")
                seen[row] = where
                by_domain[domain].append(row)
    return Parts(_sorted(parts["train"]), _sorted(parts["crossval"]), everything(tree))


def _kfold_lines(path: Path, classes: Sequence[str]) -> Iterable[tuple[int, str]]:
    """(line number, image path) of a list; label and folder must agree."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        where = f"{path.name} line {number}"
        if not name or not (label.isascii() and label.isdigit()):
            raise DataError(f"{where}: expected 'domain/class/image LABEL', got {line.strip()!r}")
        if not 1 <= int(label) <= len(classes):
            raise DataError(f"{where}: label {label}, allowed are 1 to {len(classes)}")
        folder = PurePosixPath(name).parent.name
        if classes[int(label) - 1] != normal(folder):
            raise DataError(
                f"{where}: label {label} is {classes[int(label) - 1]}, but the image is in "
                f"{shown(folder)}; labels count from 1 in the order of the class names"
            )
        yield number, name


def split_from_csv(path: Path, root: Path) -> tuple[Tree, Parts]:
    """Tree and parts from a table with the columns path, domain, class, split.

    Paths are relative to `root` and stay below it; the folders they lie in may have any shape.
    No image may be listed twice, under whatever domain or spelling.
    """
    listed = _csv_entries(path, root)
    if not listed:
        raise DataError(f"{path.name} lists no images")
    listed.sort(key=lambda pair: tuple(map(natural, (pair[0].domain, pair[0].label, pair[0].path))))
    domains = tuple(sorted({entry.domain for entry, _ in listed}, key=natural))
    classes = tuple(sorted({entry.label for entry, _ in listed}, key=natural))
    tree = Tree(root, domains, classes, tuple(entry for entry, _ in listed))
    parts: dict[str, dict[str, list[int]]] = {
        part: {domain: [] for domain in domains} for part in ("train", "val", "test")
    }
    for position, (entry, part) in enumerate(listed):
        parts[part][entry.domain].append(position)
    held_out = frozenset(domain for domain in domains if parts["test"][domain])
    # A domain without test images is tested, as a target, on all it has.
    whole = everything(tree)
    test = {domain: parts["test"][domain] or whole[domain] for domain in domains}
    return tree, Parts(parts["train"], parts["val"], test, held_out)


def _csv_entries(path: Path, root: Path) -> list[tuple[Entry, str]]:
    """Each line's entry and part."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    listed: list[tuple[Entry, str]] = []
    seen: dict[str, int] = {}
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        for name in CSV_COLUMNS:
            if name not in columns:
                raise DataError(
                    f"{path.name} lacks the column {name}; needed: {','.join(CSV_COLUMNS)}"
                )
        for values in reader:
            where = f"{path.name} line {reader.line_num}"
            row = dict(zip(columns, (value.strip() for value in values), strict=False))
            if not any(row.values()):
                continue
            image, domain, label, part = (row.get(name, "") for name in CSV_COLUMNS)
            if not (image and domain and label and part):
                raise DataError(f"{where}: a column is empty")
            if part.lower() not in PART_NAMES:
                raise DataError(f"{where}: {unknown('split', part, PART_NAMES)}")
            image = posixpath.normpath(image.replace("\\", "/"))
            _check_below(image, where)
            if normal(image) in seen:
                raise DataError(
                    f"{where}: {shown(image)} is listed before, in line {seen[normal(image)]}"
                )
            seen[normal(image)] = reader.line_num
            if not _is_file(root / image):
                raise DataError(f"{where}: no file {shown(image)} below {shown(root)}")
            listed.append((Entry(image, normal(domain), normal(label)), PART_NAMES[part.lower()]))
    except csv.Error as error:
        raise DataError(f"{path.name} line {reader.line_num} is no CSV: {error}") from None
    return listed


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for the disk
        return False


def read_text(path: Path) -> str:
    """A text file in UTF-8, with or without BOM, with any line ends."""
    try:
        return path.read_bytes().decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    except OSError as error:
        raise DataError(f"{shown(path)} cannot be read: {error.strerror}") from None


def _check_below(name: str, where: str) -> None:
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts or name[1:2] == ":":
        raise DataError(f"{where}: {shown(name)} leads out of the data folder")


def _below_domain(entry: Entry) -> str:
    """CLASS/IMAGE: the path without the domain's folder, which has several spellings."""
    return normal(entry.path.partition("/")[2])


def _hash(seed: int, entry: Entry) -> bytes:
    name = f"{seed}:{entry.domain}/{_below_domain(entry)}"
    return sha256(name.encode("utf-8", "surrogateescape")).digest()


def _sorted(rows: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {domain: sorted(numbers) for domain, numbers in rows.items()}
