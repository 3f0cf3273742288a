"""The figure of benchmarks/invariance.py, from its results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that every kind of colour vision tells apart; the markers say the same again.
WAYS = {"linear": ("#0072B2", "o", "bayesdg, linear"), "pairwise": ("#D55E00", "s", "pair by pair")}
MACHINES = ("solid", "dashed", "dotted", "dashdot")


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Time over source images, a panel for each loss and sweep, a line style for each machine."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError:
        sys.exit("the figure needs matplotlib: install it, then draw what is stored with --from")
    losses, sweeps = (
        list(dict.fromkeys(row[key] for row in results[0]["rows"])) for key in ("loss", "targets")
    )
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(len(losses), len(sweeps), sharex=True, sharey="row", squeeze=False)
    for loss, line in zip(losses, axes, strict=True):
        for targets, axis in zip(sweeps, line, strict=True):
            axis.set(xscale="log", yscale="log")
            axis.set_title(f"{loss}\n{targets}", fontsize=10)
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
            for result, dashes in zip(results, MACHINES, strict=False):
                rows = [r for r in result["rows"] if (r["loss"], r["targets"]) == (loss, targets)]
                draw_lines(axis, rows, result["slopes"][f"{loss}; {targets}"], dashes)
    figure.supxlabel("source images", fontsize=11)
    figure.supylabel("milliseconds, forward and backward", fontsize=11)
    handles = [
        Line2D([], [], color=color, marker=marker, markersize=5, label=label)
        for color, marker, label in WAYS.values()
    ]
    handles += [
        Line2D([], [], color="0.3", linestyle=dashes, label=result["machine"])
        for result, dashes in zip(results, MACHINES, strict=False)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "bayesdg"}):  # the same bytes from the same numbers
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw_lines(
    axis: Axes, rows: Sequence[Mapping[str, Any]], slopes: Mapping[str, Any], dashes: str
) -> None:
    """Both ways on one machine; what is written at the end of a line is its slope."""
    for way, (color, marker, _) in WAYS.items():
        points = [(row["sources"], row[f"{way}_ms"]) for row in rows if row[f"{way}_ms"]]
        axis.plot(
            *zip(*points, strict=True), color=color, marker=marker, markersize=5, linestyle=dashes
        )
        text = "" if slopes[way] is None else f"slope {slopes[way]:.1f}"
        if len(points) < len(rows):
            text += f"\nout of {rows[len(points)]['pairwise_stopped']}"
        axis.annotate(
            text, points[-1], (7, 0), textcoords="offset points", va="center", color=color,
            fontsize=8, annotation_clip=False,
        )  # fmt: skip
