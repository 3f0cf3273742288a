"""What Pillow warns of while an image is decoded, by the thread that decodes it.

Python's own way to catch warnings changes the whole process, so threads would hear each other's
or nobody's. Here Pillow's modules have a stand-in for the module `warnings`, which hands a warning
to whoever listens in the same thread, and passes it on where nobody does.

libjpeg, libtiff and the like have warnings of their own, which Pillow keeps from the screen and
tells nobody: a JPEG with a few flipped bits decodes without a word. Only checksums find those
(`bayesdg data check --write-manifest`).
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_thread = threading.local()


class _StandIn:
    """The module `warnings`, but for `warn`."""

    def warn(
        self,
        message: Warning | str,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        source: Any = None,
    ) -> None:
        heard: list[str] | None = getattr(_thread, "heard", None)
        if heard is None:
            warnings.warn(message, category, stacklevel + 1, source)
        else:
            heard.append(" ".join(str(message).split()))

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)


@contextmanager
def heard() -> Iterator[list[str]]:
    """The warnings of Pillow's readers in this thread, one line each, as they come."""
    _thread.heard = []
    try:
        yield _thread.heard
    finally:
        _thread.heard = None


def listen() -> None:
    """Once, when all of Pillow's readers are imported."""
    stand_in = _StandIn()
    for name, module in list(sys.modules.items()):
        is_reader = name == "PIL.Image" or (name.startswith("PIL.") and name.endswith("Plugin"))
        if is_reader and getattr(module, "warnings", None) is warnings:
            setattr(module, "warnings", stand_in)  # noqa: B010  (mypy knows the module's type)
