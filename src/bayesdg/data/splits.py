"""Which image is for training, for validation, for testing.

A split is one word per entry of a tree: 'train', 'val', 'test', or 'all' for images that are in
no list but count when their domain is a target. Everything here works on names alone.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePosixPath

from bayesdg.data.tree import Entry, Tree, natural, normal, shown
from bayesdg.errors import DataError
from bayesdg.names import unknown

VAL_FRACTION = 0.1
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
        held_out_test: Whether test images are in neither train nor val, so that the test
            accuracy of a source domain means something.
    """

    train: Mapping[str, Sequence[int]]
    val: Mapping[str, Sequence[int]]
    test: Mapping[str, Sequence[int]]
    held_out_test: bool


def seeded_split(
    tree: Tree,
    seed: int = 0,
    fraction: float = VAL_FRACTION,
    skip: Container[int] = (),
) -> Parts:
    """A share of every class of every domain for validation, at least one image for training.

    The order within a class follows from names and seed alone, the same on every machine.
    Positions in `skip` are left out before anything is counted.
    """
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, entry in enumerate(tree.entries):
        if row not in skip:
            groups[entry.domain, entry.label].append(row)
    train: dict[str, list[int]] = {domain: [] for domain in tree.domains}
    val: dict[str, list[int]] = {domain: [] for domain in tree.domains}
    for (domain, _), rows in groups.items():
        by_hash = sorted(rows, key=lambda row: _hash(seed, tree.entries[row].path))
        num_val = min(round(fraction * len(rows)), len(rows) - 1)
        val[domain] += by_hash[:num_val]
        train[domain] += by_hash[num_val:]
    return Parts(_sorted(train), _sorted(val), everything(tree), held_out_test=False)


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
    row_of = {normal(entry.path): row for row, entry in enumerate(tree.entries)}
    parts: dict[str, dict[str, list[int]]] = {"train": {}, "crossval": {}}
    for part, by_domain in parts.items():
        for domain in tree.domains:
            path = folder / f"{domain}_{part}_kfold.txt"
            by_domain[domain] = [
                _row(row_of, name, f"{path.name} line {number}")
                for number, name in _kfold_lines(path, tree.classes)
            ]
    both = {
        tree.entries[row].path
        for domain in tree.domains
        for row in set(parts["train"][domain]) & set(parts["crossval"][domain])
    }
    if both:
        raise DataError(f"{shown(min(both))} is in a train and in a crossval list of {folder.name}")
    return Parts(
        _sorted(parts["train"]), _sorted(parts["crossval"]), everything(tree), held_out_test=False
    )


def _kfold_lines(path: Path, classes: Sequence[str]) -> Iterable[tuple[int, str]]:
    """(line number, image path) of a list; label and folder must agree."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        where = f"{path.name} line {number}"
        if not name or not label.isdigit():
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
    """
    rows = csv.DictReader(io.StringIO(read_text(path)))
    columns = [name.strip().lower() for name in rows.fieldnames or ()]
    missing = [name for name in ("path", "domain", "class", "split") if name not in columns]
    if missing:
        raise DataError(
            f"{path.name} lacks the column {missing[0]}; needed: path,domain,class,split"
        )
    rows.fieldnames = columns
    listed: list[tuple[Entry, str]] = []
    for row in rows:
        where = f"{path.name} line {rows.line_num}"
        if any(row[name] is None or not row[name].strip() for name in columns[:4]):
            raise DataError(f"{where}: a column is empty")
        part = row["split"].strip().lower()
        if part not in PART_NAMES:
            raise DataError(f"{where}: {unknown('split', part, PART_NAMES)}")
        name = row["path"].strip().replace("\\", "/")
        _check_below(name, where)
        if not (root / name).is_file():
            raise DataError(f"{where}: no file {shown(name)} below {shown(root)}")
        entry = Entry(name, normal(row["domain"].strip()), normal(row["class"].strip()))
        listed.append((entry, PART_NAMES[part]))
    if not listed:
        raise DataError(f"{path.name} lists no images")
    listed.sort(key=lambda pair: tuple(map(natural, (pair[0].domain, pair[0].label, pair[0].path))))
    twice = [a.path for (a, _), (b, _) in pairwise(listed) if a.path == b.path]
    if twice:
        raise DataError(f"{path.name} lists {shown(twice[0])} twice")
    domains = tuple(sorted({entry.domain for entry, _ in listed}, key=natural))
    classes = tuple(sorted({entry.label for entry, _ in listed}, key=natural))
    tree = Tree(root, domains, classes, tuple(entry for entry, _ in listed))
    parts: dict[str, dict[str, list[int]]] = {
        part: {domain: [] for domain in domains} for part in ("train", "val", "test")
    }
    for position, (entry, part) in enumerate(listed):
        parts[part][entry.domain].append(position)
    held_out = any(parts["test"].values())
    # A domain without test images is tested on all it has.
    whole = everything(tree)
    test = {domain: parts["test"][domain] or whole[domain] for domain in domains}
    return tree, Parts(parts["train"], parts["val"], test, held_out_test=held_out)


def read_text(path: Path) -> str:
    """A text file in UTF-8, with or without BOM, with any line ends."""
    try:
        return path.read_bytes().decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    except OSError as error:
        raise DataError(f"{shown(path)} cannot be read: {error.strerror}") from None


def _row(row_of: Mapping[str, int], name: str, where: str) -> int:
    _check_below(name, where)
    try:
        return row_of[normal(name)]
    except KeyError:
        raise DataError(f"{where}: {shown(name)} is not there") from None


def _check_below(name: str, where: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name[1:2] == ":":
        raise DataError(f"{where}: {shown(name)} leads out of the data folder")


def _hash(seed: int, path: str) -> bytes:
    return sha256(f"{seed}:{normal(path)}".encode("utf-8", "surrogateescape")).digest()


def _sorted(rows: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {domain: sorted(numbers) for domain, numbers in rows.items()}
