"""What a data set as a whole lacks or has twice, told in lines for people.

Works on names and hashes alone. `bayesdg data check` tells everything; loading, which should stay
short, tells the first of each kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence

from bayesdg.data.splits import Parts
from bayesdg.data.tree import Tree, natural, shown

# Class names and paths in one line.
MOST_NAMES = 5

Counts = Mapping[str, Mapping[str, int]]


def counts(tree: Tree, broken: Container[int]) -> dict[str, dict[str, int]]:
    """Readable images by domain and class."""
    found = Counter(
        (entry.domain, entry.label) for row, entry in enumerate(tree.entries) if row not in broken
    )
    return {shown(d): {shown(c): found[d, c] for c in tree.classes} for d in tree.domains}


def missing_classes(counted: Counts) -> list[str]:
    """A line for each domain that lacks classes which others have."""
    return [
        f"{domain} has no images of {_some(missing)}"
        for domain, row in counted.items()
        if (missing := [label for label, number in row.items() if number == 0])
    ]


def uneven(counted: Counts) -> list[str]:
    """A line if domains are of very different size, with what training does then.

    >>> uneven({"photo": {"dog": 3000}, "web": {"dog": 30}})
    ['photo has 3000 images, web 30: episodes draw from every domain equally often, so an image of \
web repeats 100 times as often']
    """
    sizes = {domain: sum(row.values()) for domain, row in counted.items()}
    small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[large] < 20 * max(sizes[small], 1):
        return []
    return [
        f"{large} has {sizes[large]} images, {small} {sizes[small]}: episodes draw from every "
        f"domain equally often, so an image of {small} repeats "
        f"{sizes[large] / max(sizes[small], 1):.0f} times as often"
    ]


def without_validation(tree: Tree, parts: Parts) -> list[str]:
    """A line for each domain with classes that it trains on and cannot validate."""
    lines = []
    for domain in tree.domains:
        trained, validated = (
            {tree.entries[row].label for row in rows[domain]} for rows in (parts.train, parts.val)
        )
        if lacking := sorted(trained - validated, key=natural):
            lines.append(f"{shown(domain)} has no validation for {_some(lacking)}")
    return lines


def training_verdict(tree: Tree, parts: Parts) -> tuple[list[str], list[str]]:
    """Why no domain could be held out, and what a person should know about which can."""
    unsafe, notes = [], []
    trainable = [domain for domain in tree.domains if parts.train[domain]]
    for domain in tree.domains:
        if domain in trainable:
            continue
        if len(trainable) >= 2 and parts.test[domain]:
            notes.append(f"{shown(domain)} has no train images: it can only be a target")
        else:
            unsafe.append(f"{shown(domain)} has no train images")
    validating = [domain for domain in trainable if parts.val[domain]]
    if trainable and not validating:
        unsafe.append(
            "no domain has validation images: two readable images of a class leave one, or a table "
            "names some (--split-file)"
        )
    if len(validating) == 1 < len(trainable):
        notes.append(
            f"only {shown(validating[0])} has validation images: it cannot be held out as a target"
        )
    if len(tree.domains) == 2:
        notes.append(
            "only two domains: with one of them held out a single source remains, which methods "
            "with invariance refuse; use one without, such as erm or h, or --single-source"
        )
    return unsafe, notes


def repeated(tree: Tree, digests: Sequence[str]) -> list[list[int]]:
    """Positions that share content but not domain and class; '' is no content."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, digest in enumerate(digests):
        if digest:
            rows_of[digest].append(row)
    return [
        rows
        for rows in rows_of.values()
        if len({(tree.entries[row].domain, tree.entries[row].label) for row in rows}) > 1
    ]


def leaks(tree: Tree, groups: Sequence[Sequence[int]]) -> list[str]:
    """One line if any of these groups of equal images spans domains."""
    across = [rows for rows in groups if len({tree.entries[row].domain for row in rows}) > 1]
    if not across:
        return []
    example = " = ".join(shown(tree.entries[row].path) for row in across[0][:MOST_NAMES])
    return [
        f"{len(across)} groups of equal images in several domains, such as {example}: the unseen "
        "domain would be seen"
    ]


def first_of(lines: Sequence[str]) -> list[str]:
    """The first line, with the number of the others.

    >>> first_of(["photo has no images of dog", "web has no images of cat"])
    ['photo has no images of dog (and 1 more such note; bayesdg data check has all)']
    """
    if len(lines) < 2:
        return list(lines)
    more = f"{len(lines) - 1} more such note{'s' if len(lines) > 2 else ''}"
    return [f"{lines[0]} (and {more}; bayesdg data check has all)"]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:MOST_NAMES])) + (", ..." if len(names) > MOST_NAMES else "")
