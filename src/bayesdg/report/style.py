"""What every figure looks like: one palette, one size of type, and how it becomes a file.

No text is read as mathematics: a class may be called '$x_1$'. Letters that the font lacks, such as
emoji, are drawn as boxes in image files and left to the browser on a page.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesdg.errors import UsageError
from bayesdg.names import choose
from bayesdg.records import write_bytes

P = ParamSpec("P")

# Okabe and Ito's colours, which colour-blind people tell apart, those that show on white and on
# black first. Unseen domains are violet, as in the paper's figures.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#8C8C8C")
SOURCES = ("#0072B2", "#009E73", "#E69F00", "#56B4E9", "#D55E00", "#8C8C8C")
TARGETS = ("#CC79A7", "#7B4FA3")
IN, OUT = "#D55E00", "#0072B2"
INK = "#000000"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

# Inches: a column of a two-column paper, and both.
COLUMN, PAGE = 3.3, 6.9
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "lines.linewidth": 1.2,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "white",
    "text.parse_math": False,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "bayesdg",
}
FORMATS = {".svg": "svg", ".pdf": "pdf", ".png": "png"}
# No times in files: the same figure is the same bytes.
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A function that draws in this style."""

    def inner(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    inner.__name__, inner.__doc__ = draw.__name__, draw.__doc__
    return inner


def panels(
    num: int, columns: int, height: float, width: float | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of `num` panels in rows, each so many inches high."""
    columns = min(num, columns)
    rows = -(-num // columns)
    width = width or (COLUMN if columns <= 2 else PAGE)
    figure = Figure(figsize=(width, height * rows))
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(num)]
    return figure, axes


def grid(axes: Axes, axis: str = "both") -> None:
    """Faint lines behind the data."""
    axes.grid(visible=True, axis=axis, color=INK, alpha=0.12, linewidth=0.5)  # type: ignore[arg-type]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as .svg, .pdf or .png, whole or not at all."""
    kind = file_format(path)
    try:
        write_bytes(path, rendered(figure, kind))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written to ({error.strerror}); give another file (--out)"
        ) from None
    return path


def file_format(path: Path) -> str:
    """'svg', 'pdf' or 'png', by the file's suffix."""
    return choose("kind of figure file", path.suffix.lower(), FORMATS, where=path.name)


def rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of a file; type is embedded, and no time is in it."""
    buffer = io.BytesIO()
    with _without_glyph_warnings(), matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=200, metadata=UNDATED[kind])
    return buffer.getvalue()


def as_page_svg(figure: Figure) -> str:
    """An SVG text with real letters, for a page that has its own type."""
    buffer = io.StringIO()
    page = {**STYLE, "svg.fonttype": "none", "savefig.facecolor": "none"}
    with _without_glyph_warnings(), matplotlib.rc_context(page):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message=".*does not support.*natively")
        yield
