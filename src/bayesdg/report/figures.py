"""What is drawn of one run: values in, a matplotlib figure out.

Sizes are those of a column of a paper; a page scales them. Axes: n images, K classes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from bayesdg.evaluate.arrays import Floats
from bayesdg.evaluate.calibration import ReliabilityDiagram
from bayesdg.evaluate.rejection import RiskCoverage
from bayesdg.records import StepRecord
from bayesdg.report.style import (
    COLUMN,
    IN,
    INK,
    OUT,
    PALETTE,
    SOURCES,
    TARGETS,
    grid,
    panels,
    styled,
)

# The terms as the paper writes them.
TERMS = {
    "nll": "likelihood: -log p(y|x)",
    "inv_psi": "classifier invariance",
    "inv_phi": "feature invariance",
    "inv_phi_prime": "invariance of φ'",
    "kl_psi": "KL of ψ from its prior",
    "kl_phi": "KL of φ from its prior",
    "kl_phi_prime": "KL of φ' from its prior",
}
# More points than pixels say nothing more.
MOST_POINTS = 400
# With more classes than this a matrix has no room for numbers and names.
MOST_NAMED = 15
NICE = [1, 2, 5, 10]
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.3g}%")


def domain_colours(sources: Sequence[str], targets: Sequence[str]) -> dict[str, str]:
    """A colour for every domain; unseen ones are violet."""
    colours = {name: SOURCES[i % len(SOURCES)] for i, name in enumerate(sources)}
    return colours | {name: TARGETS[i % len(TARGETS)] for i, name in enumerate(targets)}


@styled
def term_curves(steps: Sequence[StepRecord]) -> Figure:
    """The unweighted terms of the loss over training, a panel each."""
    names = list(dict.fromkeys(name for step in steps for name in step.terms))
    figure, axes = panels(len(names), columns=2, height=1.15, width=COLUMN)
    shown = steps[:: max(1, -(-len(steps) // MOST_POINTS))]
    for axis, name in zip(axes, names, strict=True):
        axis.plot([s.step for s in shown], [_number(s.terms.get(name)) for s in shown])
        axis.set_title(TERMS.get(name, name), fontsize=7, loc="left")
        axis.yaxis.set_major_locator(MaxNLocator(4, steps=NICE))
        axis.xaxis.set_major_locator(MaxNLocator(3, steps=NICE, integer=True))
        axis.ticklabel_format(axis="y", scilimits=(-3, 4))
        axis.yaxis.get_offset_text().set_fontsize(6)
        grid(axis)
    _only_bottom_labels(axes, 2, "step")
    return figure


@styled
def validation_curves(
    steps: Sequence[StepRecord], colours: Mapping[str, str], selected: int | None = None
) -> Figure:
    """Accuracy on the validation images of each source domain; the mean chooses the weights.

    Where targets were watched they are drawn dashed: they decide nothing.
    """
    figure, (axis,) = panels(1, 1, height=2.4)
    looks = [step for step in steps if step.source_val is not None]
    for dashed, found in ((False, "source_val"), (True, "target_test")):
        names = dict.fromkeys(n for step in looks for n in (getattr(step, found) or {}))
        for name in names:
            values = [(getattr(s, found) or {}).get(name, {}).get("accuracy") for s in looks]
            axis.plot(
                [s.step for s in looks], [_number(v) for v in values], color=colours.get(name),
                linestyle="--" if dashed else "-", linewidth=0.9, marker="o", markersize=2,
                label=f"{name} (unseen)" if dashed else name,
            )  # fmt: skip
    axis.plot(
        [s.step for s in looks], [_number(s.val_accuracy) for s in looks], color=INK, linewidth=1.6,
        label="mean, which selects", marker="o", markersize=2.5,
    )  # fmt: skip
    if selected:
        axis.axvline(selected, color=INK, linewidth=0.6, linestyle=":")
        axis.annotate(
            "selected", (selected, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=7,
        )  # fmt: skip
    axis.set(xlabel="step", ylabel="validation accuracy")
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=NICE, integer=True))
    axis.yaxis.set_major_formatter(PERCENT)
    figure.legend(loc="outside lower center", ncols=3)
    grid(axis)
    return figure


@styled
def confusion(matrix: NDArray[np.int64], classes: Sequence[str]) -> Figure:
    """(K, K) counts of label (row) and prediction (column), shaded by the share of the row."""
    num = len(classes)
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    figure, (axis,) = panels(1, 1, height=3.0 if num <= MOST_NAMED else 3.3)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        colour = PALETTE[0] if row == column else PALETTE[1]
        # Shades are transparency, so that they do on a white and on a black page.
        axis.add_patch(_cell(column, row, colour, 0.08 + 0.62 * float(share[row, column])))
        if num <= MOST_NAMED:
            text = f"{matrix[row, column]}"
            axis.text(column, row, text, ha="center", va="center", fontsize=6)
    axis.set(xlim=(-0.5, num - 0.5), ylim=(num - 0.5, -0.5), xlabel="prediction", ylabel="label")
    axis.set_aspect("equal")
    if num <= MOST_NAMED:
        names = [_short(name) for name in classes]
        upright = max(map(len, names)) > 2
        axis.set_xticks(range(num), names, rotation=90 if upright else 0)
        axis.set_yticks(range(num), names)
    axis.tick_params(length=0)
    return figure


@styled
def reliability(diagrams: Mapping[str, ReliabilityDiagram]) -> Figure:
    """Confidence against accuracy, a panel each; below the diagonal a classifier is too sure."""
    figure, axes = panels(len(diagrams), columns=2, height=1.75, width=COLUMN)
    for axis, (name, diagram) in zip(axes, diagrams.items(), strict=True):
        colour = IN if name.startswith("in ") else OUT
        there = diagram.count > 0
        axis.plot([0, 1], [0, 1], color=INK, linewidth=0.6, linestyle=":")
        axis.vlines(
            diagram.confidence[there], diagram.accuracy[there], diagram.confidence[there],
            color=colour, alpha=0.35, linewidth=3,
        )  # fmt: skip
        axis.plot(diagram.confidence[there], diagram.accuracy[there], color=colour, linewidth=0.8)
        sizes = 3 + 45 * diagram.share[there]
        axis.scatter(diagram.confidence[there], diagram.accuracy[there], s=sizes, color=colour)
        axis.set_title(f"{name}\nECE {100 * diagram.error:.1f}%", fontsize=7, loc="left")
        axis.set(xlim=(0, 1.03), ylim=(0, 1.03), xlabel="confidence")
        for direction in (axis.xaxis, axis.yaxis):
            direction.set_ticks([0, 0.5, 1])
            direction.set_major_formatter(PERCENT)
        axis.set_aspect("equal")
        grid(axis)
    axes[0].set_ylabel("accuracy")
    return figure


@styled
def risk_coverage(curves: Mapping[str, RiskCoverage], colours: Mapping[str, str]) -> Figure:
    """Error rate among the images that are kept, when the most uncertain ones are handed over."""
    figure, (axis,) = panels(1, 1, height=2.4)
    for index, (name, curve) in enumerate(curves.items()):
        colour = colours.get(name, PALETTE[index % len(PALETTE)])
        points = np.linspace(0, len(curve.coverage) - 1, MOST_POINTS).round().astype(int)
        rows = np.unique(points)
        style = ("-", "--")[index // len(PALETTE) % 2] if name not in colours else "-"
        axis.plot(curve.coverage[rows], curve.risk[rows], style, color=colour, label=name)
        axis.plot(curve.coverage[-1:], curve.risk[-1:], "o", color=colour, markersize=3)
    axis.set(xlabel="images answered, the surest first", ylabel="errors among them", xlim=(0, 1.02))
    axis.set_ylim(bottom=0)
    for direction in (axis.xaxis, axis.yaxis):
        direction.set_major_formatter(PERCENT)
    figure.legend(loc="outside lower center", ncols=4)
    grid(axis)
    return figure


@styled
def uncertainty_histograms(
    values: Mapping[str, Floats], colours: Mapping[str, str], num_classes: int
) -> Figure:
    """How uncertain the images of each domain are: entropy, one row per domain on one scale."""
    figure, axes = panels(len(values), columns=1, height=0.52)
    figure.set_figheight(0.52 * len(values) + 0.35)
    edges = np.linspace(0, np.log(num_classes), 33)
    for axis, (name, entropy) in zip(axes, values.items(), strict=True):
        colour = colours.get(name, PALETTE[0])
        share = np.histogram(entropy, edges)[0] / max(1, len(entropy))
        axis.stairs(share, edges, fill=True, color=colour, alpha=0.75)
        axis.axvline(float(np.median(entropy)), color=INK, linewidth=0.8)
        axis.set(xlim=(0, edges[-1]), yticks=[], ylim=(0, None))
        axis.set_ylabel(_short(name, 14), rotation=0, ha="right", va="center")
        axis.spines["left"].set_visible(False)
        if axis is not axes[-1]:
            axis.set_xticklabels([])
    axes[-1].set_xlabel("entropy in nats; the line is the median image")
    return figure


@styled
def gallery(rows: Mapping[str, Sequence[tuple[bytes, Sequence[str]]]], columns: int) -> Figure:
    """Pictures with a few lines below each, under headings."""
    lines = [-(-len(shown) // columns) for shown in rows.values()]
    figure = Figure(figsize=(COLUMN, 1.08 * sum(lines) + 0.2 * len(rows)))
    tops = np.cumsum([0, *lines])
    for top, (heading, shown) in zip(tops, rows.items(), strict=False):
        for index, (picture, words) in enumerate(shown):
            axis = figure.add_subplot(sum(lines), columns, int(top) * columns + index + 1)
            axis.imshow(np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")))
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_visible(False)
            axis.set_xlabel("\n".join(_short(line, 20) for line in words), fontsize=5, labelpad=2)
            if index == 0:
                axis.set_title(heading, loc="left", fontsize=7)
    return figure


def _only_bottom_labels(axes: Sequence[Axes], columns: int, label: str) -> None:
    for axis in axes[-columns:]:
        axis.set_xlabel(label)


def _cell(column: int, row: int, colour: str, alpha: float) -> Rectangle:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, alpha=alpha, linewidth=0)


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
