"""What is drawn of many runs: ablation bars, sensitivity and cost curves. Values in, figure out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from bayesdg.report.style import COLUMN, MARKERS, PAGE, PALETTE, grid, panels, styled
from bayesdg.tables import Cell

LEVEL = 0.95
PERCENT = 100
# With more at an axis, their numbers touch in type of the usual size.
MOST_VALUES = 6


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
class Bars:
    """A panel of methods.

    Attributes:
        label: Of the axis.
        rows: From above.
        scale: What the means are multiplied by.
    """

    label: str
    rows: Sequence[Bar]
    scale: float = PERCENT


@dataclass(frozen=True)
class Curve:
    """One line: a mean, perhaps with a deviation, at each value of a setting."""

    name: str
    x: Sequence[float]
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Curves:
    """A panel of lines.

    Attributes:
        setting: What is varied.
        label: What is measured.
        lines: By name.
        scale: What the means are multiplied by.
        title: Above it, where it has one.
        from_zero: Whether lengths are to be compared, as those of costs are.
    """

    setting: str
    label: str
    lines: Sequence[Curve]
    scale: float = PERCENT
    title: str = ""
    from_zero: bool = False


def half_width(cell: Cell) -> float:
    """Of the 95% interval of the mean over seeds, by Student's t; 0 for a single seed.

    >>> round(half_width(Cell(0.0, 1.0, 5)), 4)  # 2.7764 / sqrt(5)
    1.2417
    """
    if cell.std is None or cell.num_seeds < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, cell.num_seeds - 1)) * cell.std / math.sqrt(cell.num_seeds)


def interval(cell: Cell, scale: float) -> tuple[float, float]:
    """The ends of the 95% interval, scaled, and cut where no measure goes: at 0, and at 100%.

    >>> interval(Cell(0.5, 0.2, 2), 100)  # 50 -+ 12.7062 * 20 / sqrt(2)
    (0, 100)
    """
    low, high = (scale * (cell.mean + sign * half_width(cell)) for sign in (-1, 1))
    return max(low, 0), min(high, 100) if scale == PERCENT else high


@styled
def bars(shown: Sequence[Bars]) -> Figure:
    """Means with intervals, one method below the other; the paper's figure as an open diamond.

    The axis begins near the lowest value: lengths are not to be compared, places are.
    """
    most = max(len(panel.rows) for panel in shown)
    figure, axes = panels(len(shown), 2, 0.2 * most + 0.75, COLUMN if len(shown) == 1 else PAGE)
    for number, (axis, panel) in enumerate(zip(axes, shown, strict=True)):
        _bars(axis, panel)
        names = [row.name for row in panel.rows]
        if number % 2 and names == [row.name for row in shown[number - 1].rows]:
            axis.set_yticklabels([])
    _legend(figure, axes)
    return figure


def _bars(axis: Axes, panel: Bars) -> None:
    rows, scale = panel.rows, panel.scale
    places = np.arange(len(rows))
    means = np.array([scale * row.cell.mean for row in rows])
    ends = np.transpose([interval(row.cell, scale) for row in rows])
    axis.hlines(places, *ends, color=PALETTE[0], linewidth=3, alpha=0.35)
    axis.plot(means, places, "o", color=PALETTE[0], markersize=4.5, label="these runs")
    printed = [(scale * r.printed, i) for i, r in enumerate(rows) if r.printed is not None]
    if printed:
        axis.plot(
            *np.transpose(printed), "D", color=PALETTE[1], markerfacecolor="none", markersize=4.5,
            label="the paper",
        )  # fmt: skip
    axis.set_yticks(places, [row.name for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel(panel.label)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.06)
    grid(axis)


@styled
def setting_curves(shown: Sequence[Curves]) -> Figure:
    """A panel each: what is measured over the values of a setting, with intervals over seeds.

    A name has one colour in all panels.
    """
    figure, axes = panels(len(shown), columns=3, height=2.1)
    names = list(dict.fromkeys(line.name for panel in shown for line in panel.lines))
    for axis, panel in zip(axes, shown, strict=True):
        for line in panel.lines:
            number = names.index(line.name)
            order = np.argsort(line.x)
            x = np.array(line.x, float)[order]
            means = np.array([panel.scale * line.cells[i].mean for i in order])
            ends = np.transpose([interval(line.cells[i], panel.scale) for i in order])
            colour = PALETTE[number % len(PALETTE)]
            axis.plot(
                x, means, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=3,
                linestyle="--" if number // len(PALETTE) % 2 else "-", label=line.name,
            )  # fmt: skip
            axis.fill_between(x, *ends, color=colour, alpha=0.2, linewidth=0)
        _values(axis, sorted({value for line in panel.lines for value in line.x}))
        axis.set(xlabel=panel.setting, ylabel=panel.label)
        axis.set_title(panel.title, loc="left", fontsize=7)
        if panel.from_zero:
            axis.set_ylim(0, 1.08 * axis.dataLim.y1)
        grid(axis)
    _legend(figure, axes)
    return figure


def _values(axis: Axes, values: Sequence[float]) -> None:
    """A tick at each value that was tried, as far as there is room."""
    above = [value for value in values if value > 0]
    if len(above) > 2 and above[-1] / above[0] > 20:
        # Zero is as far from the least value as a doubling is.
        axis.set_xscale("log") if above == values else axis.set_xscale(
            "symlog", linthresh=above[0], linscale=0.5, base=2
        )
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    small = 6 if len(values) > MOST_VALUES else 7
    axis.set_xticks(values, [f"{value:g}" for value in values], fontsize=small)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Below all panels, each name once; one name needs none."""
    named = {
        name: handle
        for axis in axes
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if len(named) > 1:
        figure.legend(
            list(named.values()), list(named), loc="outside lower center",
            ncols=2 if figure.get_figwidth() <= COLUMN else 4,
        )  # fmt: skip
