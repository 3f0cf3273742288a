"""What the paper prints, beside which ours is shown; the figures are in bench/paper.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# The same row under its other name.
ALIASES = {"erm": "a", "bil": "j"}


@dataclass(frozen=True)
class Printed:
    """A figure of the paper; accuracies are in percent.

    Attributes:
        mean: As printed.
        std: As printed; None where there is none.
        is_exceeded: Whether the paper prints 'more than' this.
    """

    mean: float
    std: float | None
    is_exceeded: bool = False


@cache
def paper() -> Mapping[str, Any]:
    """The whole file."""
    return tomllib.loads((files("bayesdg.bench") / "paper.toml").read_text(encoding="utf-8"))


def printed(dataset: str, method: str, column: str) -> tuple[Printed, str] | None:
    """A figure and the table it is in; None if the paper has none.

    Args:
        dataset: Its name.
        method: A method's name, or another paper as ours cites it.
        column: A domain, 'mean', 'in' or 'out'.
    """
    for table in paper().values():
        names = [_column(table, name) for name in table.get("columns", ())]
        row = _rows(table).get(ALIASES.get(method, method))
        if row is not None and (dataset, column) in names:
            place = names.index((dataset, column))
            std = row["std"][place] if "std" in row else None
            return Printed(row["mean"][place], std), table["source"]
    return None


def other_papers(plan: str) -> list[str]:
    """The rows of a printed table that are no methods of ours."""
    return [name for name in _rows(paper().get(plan, {})) if " " in name]


def printed_order(dataset: str) -> list[str]:
    """The domains of a data set, and their mean, as the paper orders them."""
    tables = (table for table in paper().values() if table.get("dataset") == dataset)
    return next((list(table["columns"]) for table in tables if "columns" in table), [])


def _column(table: Mapping[str, Any], name: str) -> tuple[str, str]:
    """(data set, column) of a column's name."""
    if "dataset" in table:
        return table["dataset"], name
    dataset, _, column = name.partition(" ")
    return dataset, column


def _rows(table: Mapping[str, Any]) -> Mapping[str, Any]:
    rows = table.get("rows")
    return rows if isinstance(rows, dict) else {}
