"""Settings from a file and from NAME=VALUE texts, as dotted names and values.

`Settings.replace` takes them and answers names that do not exist and values out of range. A file
is data only: what could run something, grow without end or mean two things is refused with one
line. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel

from bayesdg.data.known import expanded
from bayesdg.errors import UsageError
from bayesdg.settings import Settings

T = TypeVar("T")
# A whole settings.json has 4 KiB and two levels. Reading time grows with the square of some
# inputs (dots of a TOML key, '!' of a YAML tag): these limits keep it below a few seconds.
MOST_BYTES = 64 * 1024
MOST_EVENTS = 10_000
LONGEST_LINE = 2000
DEEPEST = 8
TOO_DEEP = f"nested more than {DEEPEST} deep; settings are written as in training.steps"


def read_config(path: Path) -> dict[str, Any]:
    """Dotted setting names -> values, from a TOML, YAML 1.2 or JSON file.

    The suffix says which. A file of nothing but comments, or of nothing, sets nothing; JSON has
    no such form. Names may be nested, dotted, or both.
    """
    return read_file(path, _named)


def read_file(path: Path, convert: Callable[[object], T]) -> T:
    """What `convert` makes of a TOML, YAML 1.2 or JSON file; one line for a ValueError of its."""
    path = expanded(path)
    try:
        return convert(_parsed(path))
    except OSError as error:
        problem = error.strerror or str(error)
    except RecursionError:
        problem = TOO_DEEP
    except ValueError as error:
        problem = str(error)
    raise UsageError(f"{_printable(str(path))}: {_printable(problem, longest=400)}")


def assignments(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Dotted setting names -> values, from texts such as 'training.steps=500'.

    Numbers stay text, which pydantic reads by the setting's type.

    >>> assignments(["training.steps=500", "model.weights=none", "data.channels=3"])
    {'training.steps': '500', 'model.weights': None, 'data.channels': 3}
    """
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            raise UsageError(
                f"{option} takes NAME=VALUE, such as training.steps=500; got {_short(text)}"
            )
        first = given.setdefault(name, value)
        if first != value:
            raise UsageError(
                f"{option} gives {_short(name)} twice, as {_short(first)} and {_short(value)};"
                " wanted one NAME=VALUE, such as training.steps=500"
            )
    return {
        name: _fitted(name, value, None if value.lower() in ("none", "null") else value)
        for name, value in given.items()
    }


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Lines such as 'training.steps: 1000 -> 500', one for each value that is not the same.

    >>> difference({"seed": 0, "data": {"cache": True}}, {"seed": 1, "data": {"cache": True}})
    ['seed: 0 -> 1']
    """
    before, after = dict(leaves(stored)), dict(leaves(wanted))
    return [
        f"{_printable(name)}: {_shown(name, before)} -> {_shown(name, after)}"
        for name in {**before, **after}
        if name not in before or name not in after or before[name] != after[name]
    ]


def _parsed(path: Path) -> object:
    """What a file says, in Python's own types; a ValueError says why not."""
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"settings are read from {', '.join(PARSERS)} files")
    if not path.exists():
        raise ValueError("no such file")
    if not path.is_file():
        raise ValueError("is a folder or a device; wanted a file")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES // 1024} KiB, the most settings may have")
    try:
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("is no UTF-8 text; save it as UTF-8") from None


def _toml(text: str) -> object:
    import tomllib

    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"line {number} has more than {LONGEST_LINE} characters")
    return tomllib.loads(text)


def _yaml(text: str) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        # Events come one by one, so nothing is built of a file that is refused.
        _refuse_more_than_plain(YAML(typ="safe", pure=True).parse(text))
        parsed = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(where + str(error.problem or error.context)) from None
    except YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    return {} if parsed is None else parsed


def _refuse_more_than_plain(events: Iterable[Any]) -> None:
    """A ValueError at the first event that is not part of one plain, shallow document."""
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for count, event in enumerate(events):
        where = f"line {event.start_mark.line + 1}: "
        merge = getattr(event, "value", "") == "<<" and event.implicit[0]
        if getattr(event, "anchor", None) or merge:
            raise ValueError(f"{where}anchors, aliases and merges (&, *, <<) are not allowed")
        if getattr(event, "tag", None):
            raise ValueError(f"{where}tags (!) are not allowed")
        if getattr(event, "version", None) not in (None, (1, 2)):
            raise ValueError(f"{where}only YAML 1.2 is allowed")
        if count > MOST_EVENTS:
            raise ValueError(f"{where}more entries than settings can have")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(where + TOO_DEEP)


def _json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{_short(name)} is there twice in one object; keep one")
        table[name] = value
    return table


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not allowed; JSON has finite numbers only")


PARSERS: dict[str, Callable[[str], object]] = {
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
}


def _named(parsed: object) -> dict[str, Any]:
    """Dotted names -> values; a ValueError for what can be no setting."""
    if not isinstance(parsed, dict):
        raise ValueError(
            f"holds {_short(parsed)}; wanted names with values, such as training.steps"
        )
    values: dict[str, Any] = {}
    for name, value in leaves(parsed):
        if value == {} and _is_stage(_type(name)):
            continue  # a heading with nothing below it
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, Plain) for part in parts):
            raise ValueError(
                f"{_short(name)} is {_short(value)}; wanted a number, a text, true, false, null"
                " or a list of them"
            )
        value = _fitted(name, value, value)
        first = values.setdefault(name, value)
        if first is not value and first != value:  # NaN differs from itself
            raise ValueError(
                f"{_short(name)} is there twice, as {_short(first)} and {_short(value)}; keep one"
            )
    return values


Plain = str | int | float | None


def leaves(nested: Mapping[Any, Any], depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Dotted names and what stands there; an empty mapping is a value."""
    if depth > DEEPEST:
        raise ValueError(TOO_DEEP)
    for key, value in nested.items():
        if not isinstance(key, str):
            raise ValueError(f"the name {_short(key)} is no text; names are as in training.steps")
        if isinstance(value, Mapping) and value:
            for name, leaf in leaves(value, depth + 1):
                yield f"{key}.{name}", leaf
        else:
            yield key, value


def _fitted(name: str, written: object, otherwise: object) -> object:
    """The listed choice of a setting that is spelt as `written`, such as 3 for '3'.

    Choices are what pydantic does not convert, and 'none' can be one of them.
    """
    return {str(choice): choice for choice in _choices(_type(name))}.get(str(written), otherwise)


def _choices(kind: Any) -> tuple[Any, ...]:
    """The members of every Literal in a type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(choice for part in get_args(kind) for choice in _choices(part))


def _type(name: str) -> Any:
    """The declared type of a setting or a stage; None if there is none of that name."""
    kind: Any = Settings
    for part in name.split("."):
        fields = kind.model_fields if _is_stage(kind) else {}
        if part not in fields:
            return None
        kind = fields[part].annotation
    return kind


def _is_stage(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _shown(name: str, values: Mapping[str, Any]) -> str:
    """A value as it could stand after --set."""
    if name not in values:
        return "(absent)"
    value = values[name]
    if isinstance(value, list | tuple):
        return ",".join(_printable(str(part)) for part in value) or "(empty)"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return _printable(str(value))


def _short(value: object) -> str:
    """`repr`, cut to fit in a line with others."""
    return _printable(repr(value), longest=80)


def _printable(text: str, longest: int = 4096) -> str:
    """Control characters as escapes, so that a file cannot write on the terminal."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
