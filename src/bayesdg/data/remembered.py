r"""Where a data set lies, as text that a run keeps in JSON and finds the folder by again.

JSON knows no bytes that are no UTF-8, and names of folders may have some: they are written as \xNN.
"""

from __future__ import annotations

import os
import re

from bayesdg.data.known import KNOWN, expanded
from bayesdg.data.tree import shown
from bayesdg.errors import UsageError

ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def as_text(name: str) -> str:
    r"""A path as text, as it is but for bytes that are no UTF-8.

    >>> as_text("d\udce9j\u00e0")
    'd\\xe9jà'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def from_text(text: str) -> str:
    """The path that was made a text; one that has such a sequence in its name is taken at it."""
    if text in KNOWN or expanded(text).is_dir():
        return text
    raw = ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), os.fsencode(text))
    path = os.fsdecode(raw.replace(b"\0", b""))
    if expanded(path).is_dir():
        return path
    raise UsageError(
        f"the data set of this run is not to be found ({shown(text)}); say where it lies now "
        "(--data)"
    )
