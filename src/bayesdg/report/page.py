"""One HTML file of plain values: nothing is fetched, nothing of it is run but what is written here.

Every text is escaped by the template; the content policy names the style and the scripts by their
hash, so that nothing a class name smuggles in could act.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bayesdg import __version__
from bayesdg.errors import UsageError
from bayesdg.records import write_text

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        cells: Texts; the first one is its heading.
        best: Which of them are the best of their column.
        emphasis: Whether the line stands out.
        kind: 'printed' and 'other' are figures of the paper, beside ours.
    """

    cells: Sequence[str]
    best: frozenset[int] = frozenset()
    emphasis: bool = False
    kind: str = "ours"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        caption: What it shows.
        heads: Of its columns.
        rows: From above.
        texts: So many columns are aligned as words, the others as numbers.
        notes: Below it, a line each.
        quiet: Whether the caption is for screen readers alone, as it stands above already.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Row]
    texts: int = 1
    notes: Sequence[str] = ()
    quiet: bool = False


@dataclass(frozen=True)
class Panel:
    """A figure with its heading."""

    title: str
    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Shown:
    """An image in a gallery; `src` is empty where no picture was kept."""

    src: str
    alt: str
    lines: Sequence[str]
    small: bool = False


@dataclass(frozen=True)
class PointMap:
    """A feature map: for each colour, points of a shape at a place."""

    id: str
    title: str
    description: str
    groups: Sequence[tuple[str, Sequence[tuple[int, float, float]]]]


@dataclass(frozen=True)
class View:
    """Maps that share a legend: (name, colour, shape) and (name, shape)."""

    id: str
    title: str
    colours: Sequence[tuple[str, str, int]]
    shapes: Sequence[tuple[str, int]]
    maps: Sequence[PointMap]


@dataclass(frozen=True)
class Block:
    """What stands under a smaller heading, in this order."""

    title: str = ""
    lead: str = ""
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()
    gallery: Sequence[Shown] = ()
    views: Sequence[View] = ()
    numbers: Sequence[Table] = ()
    folded: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """What stands under a heading."""

    id: str
    title: str
    lead: str = ""
    facts: Sequence[tuple[str, str]] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    blocks: Sequence[Block] = ()


@dataclass(frozen=True)
class Page:
    """All of it.

    Attributes:
        title: Heads it.
        subtitle: One line below.
        sections: In order.
        num_runs: It was made from.
        problems: What concerns all of it.
        data: What the maps say about their points; see page.js.
    """

    title: str
    subtitle: str
    sections: Sequence[Section]
    num_runs: int
    problems: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contents(self) -> list[tuple[str, str]]:
        """(id, title) of the sections."""
        return [(section.id, section.title) for section in self.sections]


# Circle, square, triangle, diamond, triangle down, plus, cross, left, right, star: as in style.py.
MARKS = (
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0",
    "M-.9-.9H.9V.9H-.9z",
    "M0-1.1L1.05.85H-1.05z",
    "M0-1.25L1.1 0L0 1.25L-1.1 0z",
    "M0 1.1L1.05-.85H-1.05z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4z",
    "M-.5-1.1L0-.6L.5-1.1L1.1-.5L.6 0L1.1.5L.5 1.1L0 .6L-.5 1.1L-1.1.5L-.6 0L-1.1-.5z",
    "M-1.1 0L.85-1.05V1.05z",
    "M1.1 0L-.85-1.05V1.05z",
    "M0-1.3L.36-.45L1.25-.4L.55.17L.78 1.05L0 .55L-.78 1.05L-.55.17L-1.25-.4L-.36-.45z",
)


def to_html(page: Page, live: str = "") -> str:
    """The whole file; with a tag in `live` it asks its own server for what has another one."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    css, script, asking = (_part(name) for name in ("page.css", "page.js", "live.js"))
    scripts = [script, asking] if live else [script]
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            f"style-src {_hash(css)}",
            f"script-src {' '.join(map(_hash, scripts))}",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    text = environment.get_template("page.html").render(
        page=page, policy=policy, css=css, script=script, live=asking if live else "", tag=live,
        marks=MARKS, version=__version__,
    )  # fmt: skip
    # A name that is no Unicode is shown with its bytes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_page(page: Page, path: Path) -> int:
    """Write the file, whole or not at all; its size in bytes."""
    text = to_html(page)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written to ({error.strerror}); give another file (--out)"
        ) from None
    return len(text.encode())


def data_uri(picture: bytes) -> str:
    """A picture file as an address that needs no network."""
    return f"data:image/webp;base64,{base64.b64encode(picture).decode()}"


def _part(name: str) -> Markup:
    return Markup((HERE / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
