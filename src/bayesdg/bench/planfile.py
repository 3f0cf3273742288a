"""Plans in files of the user's own. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bayesdg.bench.plans import PLANS, TOLD, Plan
from bayesdg.config import leaves, read_file
from bayesdg.errors import UsageError
from bayesdg.names import choose, unknown

MOST_SEEDS = 1000
PLAN = TypeAdapter(Plan)


def find_plan(name: str) -> tuple[str, Plan]:
    """The plan called `name`, or the one in the file of that name, and what it is called."""
    path = Path(name)
    if name in PLANS or not path.suffix:
        return name, choose("plan", name, PLANS)
    plan = read_file(path, _plan)
    if path.stem in PLANS:
        raise UsageError(f"{path}: {path.stem} is the name of a plan already; rename the file")
    return path.stem, plan


def group(text: str) -> tuple[str, ...]:
    """Domains that are unseen together.

    >>> group("0+90")
    ('0', '90')
    """
    return tuple(part.strip() for part in text.split("+"))


def seed_numbers(text: str) -> tuple[int, ...]:
    """Seeds from how many, a list, or a range.

    >>> seed_numbers("3"), seed_numbers("4,7"), seed_numbers("2-4")
    ((0, 1, 2), (4, 7), (2, 3, 4))
    """
    try:
        first, dash, last = text.partition("-")
        numbers: Sequence[int]
        if "," in text:
            numbers = [int(part) for part in text.split(",") if part.strip()]
        else:
            numbers = range(int(first), int(last) + 1) if dash else range(int(text))
    except ValueError:
        numbers = ()
    if not 0 < len(numbers) <= MOST_SEEDS or min(numbers) < 0:
        raise UsageError(
            f"--seeds is {text!r}; wanted how many, such as 5, or which, such as 0,2 or 3-7"
        )
    return tuple(dict.fromkeys(numbers))


def to_plain(plan: Plan) -> dict[str, Any]:
    """For JSON."""
    plain: dict[str, Any] = PLAN.dump_python(plan, mode="json")
    return plain


def _plan(parsed: object) -> Plan:
    """A plan from what a file says; a ValueError says what is wrong with it."""
    if not isinstance(parsed, dict):
        raise ValueError("holds no plan; wanted about, methods, datasets, ...")
    values: dict[str, Any] = {"about": "", **parsed}
    for name in values:
        if name not in Plan.__dataclass_fields__:
            raise ValueError(unknown("entry", str(name), Plan.__dataclass_fields__))
    for name in ("settings", "variants"):
        if not isinstance(values.get(name, {}), Mapping):
            raise ValueError(f"{name} is {values[name]!r}; wanted a table")
    if "methods" not in values:
        raise ValueError("methods is missing; wanted a list of them, see bayesdg methods")
    for name in ("methods", "datasets", "seeds", "test_draws"):
        if name in values:
            values[name] = _list(values, name)
    if "targets" in values:
        values["targets"] = [group(str(text)) for text in _list(values, "targets")]
    if "settings" in values:
        values["settings"] = _settings(values["settings"])
    if "variants" in values:
        values["variants"] = {n: _settings(own) for n, own in values["variants"].items()}
    try:
        plan = PLAN.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}, got {first['input']!r}") from None
    for name in ("methods", "datasets", "seeds", "variants"):
        if not getattr(plan, name):
            raise ValueError(f"{name} is empty; wanted at least one")
    if min(plan.test_draws, default=0) < TOLD:
        least = min(plan.test_draws)
        raise ValueError(f"test_draws holds {least}; wanted 0 or more, or -1 for prediction.draws")
    return plan


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(values[name], list):
        raise ValueError(f"{name} is {values[name]!r}; wanted a list")
    return list(values[name])


def _settings(nested: object) -> dict[str, Any]:
    """Dotted names -> values."""
    if not isinstance(nested, Mapping):
        raise ValueError(f"{nested!r} holds no settings; wanted such as training.steps = 500")
    return dict(leaves(nested))
