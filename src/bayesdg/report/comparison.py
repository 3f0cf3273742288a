"""What is drawn of many runs: ablation bars, sensitivity and cost curves. Values in, figure out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from bayesdg.report.style import PALETTE, grid, panels, styled
from bayesdg.tables import Cell

LEVEL = 0.95


@dataclass(frozen=True)
class Bar:
    """One method.

    Attributes:
        name: As it is shown.
        cell: Mean and deviation over seeds.
        printed: The paper's mean, in the same unit, where it prints one.
    """

    name: str
    cell: Cell
    printed: float | None = None


@dataclass(frozen=True)
class Curve:
    """One line: a mean, perhaps with a deviation, at each value of a setting."""

    name: str
    x: Sequence[float]
    cells: Sequence[Cell]


def half_width(cell: Cell) -> float:
    """Of the 95% interval of the mean over seeds, by Student's t; 0 for a single seed.

    >>> round(half_width(Cell(0.0, 1.0, 5)), 4)  # 2.7764 / sqrt(5)
    1.2417
    """
    if cell.std is None or cell.num_seeds < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, cell.num_seeds - 1)) * cell.std / math.sqrt(cell.num_seeds)


@styled
def bars(rows: Sequence[Bar], label: str, scale: float = 100) -> Figure:
    """Means with intervals, one method below the other; the paper's figure as an open diamond.

    The axis begins near the lowest value: lengths are not to be compared, places are.
    """
    figure, (axis,) = panels(1, 1, height=0.2 * len(rows) + 0.75)
    places = np.arange(len(rows))
    means = np.array([scale * row.cell.mean for row in rows])
    errors = np.array([scale * half_width(row.cell) for row in rows])
    axis.hlines(places, means - errors, means + errors, color=PALETTE[0], linewidth=3, alpha=0.35)
    axis.plot(means, places, "o", color=PALETTE[0], markersize=4.5, label="these runs")
    printed = [(scale * r.printed, i) for i, r in enumerate(rows) if r.printed is not None]
    if printed:
        axis.plot(
            *np.transpose(printed), "D", color=PALETTE[1], markerfacecolor="none", markersize=4.5,
            label="the paper",
        )  # fmt: skip
        figure.legend(loc="outside lower center", ncols=2)
    axis.set_yticks(places, [row.name for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel(label)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.06)
    grid(axis)
    return figure


@styled
def setting_curves(
    panels_: Mapping[str, Sequence[Curve]], label: str, scale: float = 100
) -> Figure:
    """A panel per setting: what is measured over its values, with intervals over seeds."""
    figure, axes = panels(len(panels_), columns=3, height=1.9)
    for axis, (name, curves) in zip(axes, panels_.items(), strict=True):
        for number, curve in enumerate(curves):
            order = np.argsort(curve.x)
            x = np.array(curve.x, float)[order]
            means = np.array([scale * curve.cells[i].mean for i in order])
            errors = np.array([scale * half_width(curve.cells[i]) for i in order])
            colour = PALETTE[number % len(PALETTE)]
            axis.plot(x, means, "o-", color=colour, markersize=3, label=curve.name)
            axis.fill_between(
                x, means - errors, means + errors, color=colour, alpha=0.2, linewidth=0
            )
        values = sorted({value for curve in curves for value in curve.x})
        above = [value for value in values if value > 0]
        if len(above) > 2 and above[-1] / above[0] > 20:
            axis.set_xscale("log" if above == values else "symlog")
        axis.xaxis.set_major_locator(FixedLocator(values))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xlabel(name)
        grid(axis)
    axes[0].set_ylabel(label)
    handles, labels = axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
