"""Data sets that lie in folders: PACS, Office-Home, your own.

Everything is decoded before training begins (or found decoded), so that what is broken is known
at once and nothing is read from the folder afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bayesdg.data.domains import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Domain,
    DomainDataset,
    Images,
    ImageSet,
    Rows,
)
from bayesdg.data.flaws import (
    counts,
    first_of,
    leaks,
    missing_classes,
    repeated,
    uneven,
    without_validation,
)
from bayesdg.data.known import KNOWN, Known, expanded, place_of, user_cache
from bayesdg.data.remembered import as_text
from bayesdg.data.splits import Parts, official_pacs_split, seeded_split, split_from_csv
from bayesdg.data.store import Pixels, Progress, Stored, store
from bayesdg.data.tree import Tree, read_tree, shown
from bayesdg.errors import DataError, UsageError
from bayesdg.stages import DataSettings

DEFAULT_SIZE = 224


@dataclass(frozen=True)
class StoredImages:
    """Decoded pixels as images; in memory, or mapped from disk and read where they are indexed.

    Attributes:
        pixels: (n, 3, S, S).
        files: Path and sha256 of each file.
    """

    pixels: Pixels
    files: Sequence[tuple[str, str]] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, 3, S, S)."""
        return tuple(self.pixels.shape)

    def __getitem__(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.pixels[index.cpu().numpy()])


def file_of(images: Images, row: int) -> str | None:
    """Path, below the data set's folder, of the file an image was decoded from, if it was."""
    if isinstance(images, Rows):
        return file_of(images.images, int(images.rows[row]))
    return images.files[row][0] if isinstance(images, StoredImages) and images.files else None


def folder_dataset(
    name: str,
    root: Path,
    data: DataSettings,
    progress: Progress = lambda done, total: None,
) -> DomainDataset:
    """A data set by name ('pacs', 'office-home') or by the path of its folder.

    Args:
        name: A name in KNOWN, or a path.
        root: Where named data sets lie.
        data: Size, split, what to do with broken images.
        progress: Is told how many images of a domain are decoded.
    """
    known = KNOWN.get(name)
    files = listing(name, known, root, data)
    tree = files.tree
    size = data.image_size or DEFAULT_SIZE
    cache = user_cache() / "pixels" if data.cache else None
    rows = {domain: _rows(tree, domain) for domain in tree.domains}
    stored = {
        domain: store(
            [tree.root / tree.entries[row].path for row in rows[domain]],
            size, data.resize, cache, progress,
        )
        for domain in tree.domains
    }  # fmt: skip
    broken = {
        rows[domain][position]: reason
        for domain, found in stored.items()
        for position, reason in found.broken.items()
    }
    if broken and data.bad_images == "error":
        raise DataError(broken_message(tree, broken))
    title = name if known else shown(tree.root.resolve().name)
    notes = [*tree.warnings, *(count_differences(tree, known) if known else ())]
    notes += [f"{number} images: {kind}" for kind, number in kinds_of(stored.values()).items()]
    notes += [f"ignored, {reason}: {number}" for reason, number in tree.ignored.items()]
    parts = files.parts(broken)
    counted = counts(tree, broken)
    notes += [*first_of(missing_classes(counted)), *uneven(counted)]
    notes += first_of(without_validation(tree, parts))
    notes += leaks(tree, repeated(tree, _digests(tree, rows, stored, broken)))
    assembled = _assembled(title, tree, parts, rows, stored, broken)
    return replace(assembled, notes=tuple(notes), place="" if known else as_text(name))


def kinds_of(stored: Iterable[Stored]) -> Counter[str]:
    """How many images have each oddity."""
    return Counter(
        oddity.split(":")[0]
        for found in stored
        for oddities in found.oddities.values()
        for oddity in oddities
    )


def broken_message(tree: Tree, broken: Mapping[int, str]) -> str:
    """Which files cannot be used, and what to do."""
    listed = "; ".join(
        f"{shown(tree.entries[row].path)}: {reason}" for row, reason in sorted(broken.items())[:5]
    )
    more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
    return (
        f"{len(broken)} broken images in {shown(tree.root)}: {listed}{more}; mend or remove them, "
        "or go on without them (--skip-bad, data.bad_images = skip)"
    )


@dataclass(frozen=True)
class Listing:
    """The files of a data set, and how they will be split once the broken ones are known.

    Attributes:
        tree: All files.
        split_seed: Of a seeded split.
        lists: Folder with PACS's official lists, where those decide.
        fixed: A split from a file, where that decides.
    """

    tree: Tree
    split_seed: int
    lists: Path | None = None
    fixed: Parts | None = None

    def parts(self, broken: Mapping[int, str]) -> Parts:
        """The split, without the broken files."""
        if self.fixed is not None:
            return _without(self.fixed, broken)
        if self.lists is not None:
            return _without(official_pacs_split(self.tree, self.lists), broken)
        return _without(seeded_split(self.tree, self.split_seed, skip=broken), broken)


def listing(name: str, known: Known | None, root: Path, data: DataSettings) -> Listing:
    """What files there are; none is opened."""
    folder = place_of(name, root) if known else expanded(name)
    if known and not folder.is_dir():
        raise DataError(
            f"{name} is not at {shown(folder)}; get it from {known.page}, expected {known.layout}; "
            "another place is given by --root or BAYESDG_DATA"
        )
    if data.split_file is not None:
        tree, parts = split_from_csv(expanded(data.split_file), folder)
        return Listing(tree, data.split_seed, fixed=parts)
    if known is None:
        tree = read_tree(folder)
    else:
        tree = read_tree(folder, known.domains, dict(known.aliases))
    lists = folder / "splits"
    has_lists = name == "pacs" and lists.is_dir()
    if data.split == "official" and not has_lists:
        raise UsageError(f"{name} has no official split in {shown(lists)}; use data.split = seeded")
    official = has_lists and data.split != "seeded"
    return Listing(tree, data.split_seed, lists=lists if official else None)


def count_differences(tree: Tree, known: Known) -> list[str]:
    """Where the number of images is not the published one."""
    counts = Counter((entry.domain, entry.label) for entry in tree.entries)
    per_domain = Counter(entry.domain for entry in tree.entries)
    differences = []
    for domain, classes in known.counts.items():
        for label, published in classes.items():
            found = counts[domain, label] if label else per_domain[domain]
            if found != published:
                place = f"{domain}/{label}" if label else domain
                differences.append(f"{shown(place)} has {found} images, published are {published}")
    if len(tree.classes) != known.num_classes:
        differences.append(f"{len(tree.classes)} classes, published are {known.num_classes}")
    return differences


def _rows(tree: Tree, domain: str) -> list[int]:
    return [row for row, entry in enumerate(tree.entries) if entry.domain == domain]


def _digests(
    tree: Tree,
    rows: Mapping[str, Sequence[int]],
    stored: Mapping[str, Stored],
    broken: Mapping[int, str],
) -> list[str]:
    """sha256 of every file in the order of the tree, '' for broken ones."""
    digests = [""] * len(tree.entries)
    for domain, found in stored.items():
        for row, digest in zip(rows[domain], found.digests, strict=True):
            digests[row] = "" if row in broken else digest
    return digests


def _without(parts: Parts, broken: Mapping[int, str]) -> Parts:
    def kept(part: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        return {d: [row for row in rows if row not in broken] for d, rows in part.items()}

    return replace(parts, train=kept(parts.train), val=kept(parts.val), test=kept(parts.test))


def _assembled(
    name: str,
    tree: Tree,
    parts: Parts,
    rows: Mapping[str, Sequence[int]],
    stored: Mapping[str, Stored],
    broken: Mapping[int, str],
) -> DomainDataset:
    class_index = {label: index for index, label in enumerate(tree.classes)}

    # From here on names are for people and for JSON, which knows no raw bytes.
    files = {
        domain: [
            (shown(tree.entries[row].path), digest)
            for row, digest in zip(rows[domain], stored[domain].digests, strict=True)
        ]
        for domain in tree.domains
    }

    def images(domain: str, chosen: Sequence[int]) -> ImageSet:
        position = {row: i for i, row in enumerate(rows[domain])}
        index = torch.tensor([position[row] for row in chosen], dtype=torch.int64)
        labels = [class_index[tree.entries[row].label] for row in chosen]
        pixels: Images = Rows(StoredImages(stored[domain].pixels, files[domain]), index)
        return ImageSet(pixels, torch.tensor(labels, dtype=torch.int64))

    domains = {
        shown(domain): Domain(
            shown(domain),
            train=images(domain, parts.train[domain]),
            val=images(domain, parts.val[domain]),
            test=images(domain, parts.test[domain]),
            held_out_test=domain in parts.held_out,
        )
        for domain in tree.domains
    }
    return DomainDataset(
        name=name,
        classes=tuple(map(shown, tree.classes)),
        domains=domains,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augmentation="photo",
        skipped=tuple(f"{shown(tree.entries[row].path)}: {why}" for row, why in broken.items()),
    )
