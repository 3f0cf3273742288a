"""Packages that only some commands need."""

from __future__ import annotations

from importlib.util import find_spec

from bayesdg.errors import UsageError


def need(extra: str, *modules: str) -> None:
    """One line for who lacks a package of an extra, before the work and not in the middle of it."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"this needs {', '.join(missing)}, not installed here; pip install 'bayesdg[{extra}]'"
        )
