"""Choosing by name, with an answer to a typo."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from bayesdg.errors import UsageError

T = TypeVar("T")


def choose(kind: str, name: str, table: Mapping[str, T], where: str = "") -> T:
    """The entry called `name`, or a UsageError that lists what there is.

    >>> choose("colour", "red", {"red": 1})
    1
    >>> choose("colour", "rad", {"red": 1, "blue": 2})
    Traceback (most recent call last):
    bayesdg.errors.UsageError: unknown colour 'rad'; did you mean 'red'? allowed: red, blue
    """
    if name in table:
        return table[name]
    raise UsageError(unknown(kind, name, table, where))


def unknown(
    kind: str, name: str, allowed: Iterable[str], where: str = "", summary: str = ""
) -> str:
    """One line that says what was asked for, what is nearest and what is allowed.

    `summary` stands for the allowed names where they are too many to list.
    """
    names = list(allowed)
    # A typo is often only one of case: compare without it, show the name as it is written.
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    place = f" in {where}" if where else ""
    return f"unknown {kind} {name!r}{place}; {hint}allowed: {summary or ', '.join(names)}"
