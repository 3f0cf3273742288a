"""Names that are imported when they are first used, because torch takes seconds to load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds each name in the module `home` says."""

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    return find
