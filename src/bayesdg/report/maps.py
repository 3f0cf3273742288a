"""Feature maps: t-SNE of the features before the classifier (the paper's Figures 3 and D.1-D.3).

A view is a choice of images and of what colour and shape mean; each has an embedding of its own,
computed once and kept with the features.

Axes: n images, D features.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.arrays import Floats
from bayesdg.evaluate.features import FeatureSample
from bayesdg.evaluate.separation import class_distances, class_gap, domain_separability
from bayesdg.names import choose, unknown
from bayesdg.report.figures import domain_colours
from bayesdg.report.style import COLUMN, IN, MARKERS, OUT, PAGE, PALETTE, panels, styled

# Beyond this many images scikit-learn's t-SNE takes minutes, and openTSNE's does not.
MOST_EXACT = 10_000
# t-SNE looks at the leading directions, as is usual; the rest is noise and time.
MOST_DIRECTIONS = 50
FEWEST = 4

VIEWS = {
    "all": "colour: domain, shape: class",
    "target": "the unseen domain alone, colour: class",
    "class": "one class, colour: domain",
    "in-out": "colour: in or out of distribution, shape: class",
}


@dataclass(frozen=True)
class Map:
    """One view of the features of one run, ready to be drawn.

    Attributes:
        title: Of the panel.
        rows: (n,) which images of the sample.
        xy: (n, 2) in 0..1, y upwards.
        colour: (n,) index into `colours`.
        shape: (n,) index into `shapes`.
        colours: (name, colour) of each group.
        shapes: Name of each group of shapes; one nameless group where shape means nothing.
        legend: What colour and shape mean.
    """

    title: str
    rows: NDArray[np.int64]
    xy: Floats
    colour: NDArray[np.int64]
    shape: NDArray[np.int64]
    colours: tuple[tuple[str, str], ...]
    shapes: tuple[str, ...]
    legend: str = ""


def embed(features: Floats) -> NDArray[np.float32]:
    """(n, D) -> (n, 2): t-SNE from a PCA start, one seed, one thread: the same map every time."""
    from threadpoolctl import threadpool_limits

    num = len(features)
    if num < FEWEST:
        raise DataError(f"{num} images; a map needs at least {FEWEST}")
    perplexity = min(30.0, (num - 1) / 3)
    with threadpool_limits(1):
        centred = features - features.mean(0, dtype=np.float64)
        left, length, _ = np.linalg.svd(centred, full_matrices=False)
        reduced = (left * length)[:, :MOST_DIRECTIONS]
        if num > MOST_EXACT:
            return _embed_many(reduced, perplexity)
        from sklearn.manifold import TSNE

        init = np.zeros((num, 2))
        leading = reduced[:, :2] / max(float(reduced[:, 0].std()), 1e-12) * 1e-4
        init[:, : leading.shape[1]] = leading
        # Exactly equal positions would never part.
        init += 1e-6 * np.random.default_rng(0).standard_normal(init.shape)
        xy = TSNE(perplexity=perplexity, init=init, random_state=0, n_jobs=1).fit_transform(reduced)
    return np.asarray(xy, np.float32)


def _embed_many(reduced: Floats, perplexity: float) -> NDArray[np.float32]:
    try:
        from openTSNE import TSNE
    except ImportError:
        raise UsageError(
            f"a map of {len(reduced):,} images needs openTSNE: pip install 'bayesdg[viz]'"
        ) from None
    found = TSNE(perplexity=perplexity, random_state=0, n_jobs=1).fit(reduced)
    return np.asarray(found, np.float32)


def view_rows(sample: FeatureSample, view: str, label: int) -> NDArray[np.int64]:
    """Which images a view shows."""
    choose("view", view, VIEWS)
    shown = sample.on_map & (sample.labels >= 0)
    if view == "target":
        shown = shown & sample.is_target
    elif view == "class":
        shown = shown & (sample.labels == label)
    return np.flatnonzero(shown)


def embedded(sample: FeatureSample, view: str, label: int) -> FeatureSample:
    """The sample with the embedding of a view among its extras."""
    name = _name(view, label)
    rows = view_rows(sample, view, label)
    if name in sample.extra or len(rows) < FEWEST:
        return sample
    extra = {**sample.extra, name: embed(sample.features[rows])}
    return dataclasses.replace(sample, extra=extra)


def _name(view: str, label: int) -> str:
    # 'in-out' shows the same images as 'all', in other colours.
    return f"class-{label}" if view == "class" else "all" if view == "in-out" else view


def class_on_show(sample: FeatureSample, classes: Sequence[str], wanted: str | None) -> int:
    """The label that is shown alone: of 'horse', as in the paper, or the most frequent one."""
    if wanted is not None:
        if wanted not in classes:
            raise UsageError(unknown("class", wanted, classes))
        return classes.index(wanted)
    if "horse" in classes:
        return classes.index("horse")
    labels = sample.labels[sample.on_map & (sample.labels >= 0)]
    return int(np.bincount(labels).argmax()) if len(labels) else 0


def make_map(
    sample: FeatureSample, classes: Sequence[str], view: str, label: int, title: str
) -> Map | None:
    """A view of an embedded sample; None if there are too few images for it."""
    name = _name(view, label)
    rows = view_rows(sample, view, label)
    if name not in sample.extra:
        return None
    domains = list(dict.fromkeys(key.domain for key in sample.keys))
    targets = [k.domain for k in sample.keys if k.role == "target"]
    palette = domain_colours([d for d in domains if d not in targets], list(dict.fromkeys(targets)))
    labels = sample.labels[rows].astype(np.int64)
    shape, shapes = labels, tuple(classes)
    if view == "target":
        colours = tuple((c, PALETTE[i % len(PALETTE)]) for i, c in enumerate(classes))
        # A shape for every round through the colours: 7 x 10 classes differ.
        colour, shape = labels, labels // len(PALETTE)
        shapes = tuple("" for _ in range(-(-len(classes) // len(PALETTE))))
    elif view == "in-out":
        colours = (("in distribution", IN), ("out of distribution", OUT))
        colour = sample.is_target[rows].astype(np.int64)
    else:
        colours = tuple(
            (f"{domain} (unseen)" if domain in targets else domain, colour)
            for domain, colour in palette.items()
        )
        order = {domain: index for index, domain in enumerate(palette)}
        colour = np.array([order[domain] for domain in sample.domains[rows]])
        if view == "class":
            shape, shapes = np.zeros_like(labels), ("",)
    xy = _unit(sample.extra[name])
    return Map(title, rows, xy, colour, shape, colours, shapes, told(view, classes[label]))


def told(view: str, name: str) -> str:
    """What a view shows, with the name of the class that is shown alone."""
    return VIEWS[view].replace("one class", f"the class {name} alone")


def _unit(xy: Floats) -> Floats:
    """Into the unit square, one scale for both directions, in the middle."""
    low, high = xy.min(0), xy.max(0)
    size = max(float((high - low).max()), 1e-12)
    return (xy - (low + high) / 2) / size + 0.5


@styled
def draw_maps(maps: Sequence[Map], columns: int = 4) -> Figure:
    """Panels side by side under one legend."""
    width = COLUMN if len(maps) <= 2 else PAGE
    side = width / min(len(maps), columns)
    figure, axes = panels(len(maps), columns, height=side, width=width)
    handles, lines = _legend(maps[0], columns=5 if len(maps) > 2 else 3)
    figure.set_figheight(figure.get_figheight() + 0.16 * (lines + 1))
    for axis, each in zip(axes, maps, strict=True):
        for group, (_, colour) in enumerate(each.colours):
            for shape in np.unique(each.shape):
                here = (each.colour == group) & (each.shape == shape)
                x, y = each.xy[here].T
                axis.scatter(
                    x, y, s=9 if len(maps) == 1 else 4, color=colour, alpha=0.75, linewidth=0,
                    marker=MARKERS[shape % len(MARKERS)],
                )  # fmt: skip
        axis.set_title(each.title, loc="left")
        axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[], yticks=[])
        axis.set_aspect("equal")
        for spine in axis.spines.values():
            spine.set(visible=True, alpha=0.3)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles) // lines,
        title=maps[0].legend, title_fontsize=7,
    )  # fmt: skip
    return figure


def _legend(shown: Map, columns: int) -> tuple[list[Line2D], int]:
    """Colours, then shapes, in columns of their own; and how many lines these have."""

    def dot(name: str, colour: str, marker: str) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=4, label=name)

    named = all(shown.shapes)
    colours = [
        dot(name, colour, "o" if named else MARKERS[index // len(PALETTE) % len(MARKERS)])
        for index, (name, colour) in enumerate(shown.colours[:30])
    ]
    shapes = [
        dot(name, "#8C8C8C", MARKERS[i % len(MARKERS)])
        for i, name in enumerate(shown.shapes[:20])
        if named and len(shown.shapes) > 1
    ]
    lines = next(n for n in count(1) if -(-len(colours) // n) - (-len(shapes) // n) <= columns)
    for group in (colours, shapes):
        group += [dot(" ", "none", "") for _ in range(-len(group) % lines)]
    return colours + shapes, lines


SEPARATION = (
    "intra_source",
    "inter_source",
    "intra_target",
    "inter_target",
    "class_gap",
    "separability_source",
    "separability_target",
)


def separated(sample: FeatureSample) -> FeatureSample:
    """The sample with what `separation` says among its extras."""
    if "separation" in sample.extra:
        return sample
    rows = np.flatnonzero(sample.on_map & (sample.labels >= 0))
    features, labels = sample.features[rows], sample.labels[rows]
    target, domains = sample.is_target[rows], sample.domains[rows]
    inside = class_distances(features[~target], labels[~target])
    outside = class_distances(features[target], labels[target])
    numbers = [
        inside.intra,
        inside.inter,
        outside.intra,
        outside.inter,
        class_gap(features, labels, target),
        domain_separability(features[~target], domains[~target]),
        domain_separability(features, target),
    ]
    values = np.array([np.nan if number is None else number for number in numbers], np.float32)
    return dataclasses.replace(sample, extra={**sample.extra, "separation": values})


def separation(sample: FeatureSample) -> dict[str, float | None]:
    """What the eye should see, as numbers by name; None where there is too little to tell."""
    values = separated(sample).extra["separation"].tolist()
    return {
        name: None if np.isnan(value) else value
        for name, value in zip(SEPARATION, values, strict=True)
    }


def plain(text: str) -> str:
    """A name that can be part of a file or of an HTML id."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)
