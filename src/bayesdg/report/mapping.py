"""Feature maps of several runs as parts of a page, and what each point says when pointed at.

Runs on the same data show the same images, so a picture is on the page once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesdg.report.maps import VIEWS, Map, class_on_show, embedded, make_map, plain, separation
from bayesdg.report.page import Block, PointMap, Row, Table, View, data_uri
from bayesdg.report.runs import ReportedRun
from bayesdg.report.style import MARKERS, PALETTE

# Digits are shown pixel by pixel.
SMALL_SIDE = 32
SIDE = 100


class Points:
    """What the points of all maps of a page say; grows with each map.

    Attributes:
        images: What they look like, each once.
        maps: By id, lists with an entry per point.
    """

    def __init__(self) -> None:
        self.images: list[dict[str, Any]] = []
        self.maps: dict[str, dict[str, Any]] = {}
        self._known: dict[tuple[bytes, str, int], int] = {}

    @property
    def data(self) -> dict[str, Any]:
        """For page.js."""
        return {"images": self.images, "maps": self.maps}

    def image(self, picture: bytes, domain: str, label: int, small: bool) -> int:
        """The number of a picture."""
        key = (picture, domain, label)
        if key not in self._known:
            self._known[key] = len(self.images)
            entry = {"src": data_uri(picture), "domain": domain, "label": label, "small": small}
            self.images.append(entry)
        return self._known[key]

    def add(self, run: ReportedRun, shown: Map, identifier: str) -> PointMap:
        """A map as a picture; its points are ordered by colour."""
        assert run.features is not None
        assert run.task is not None
        sample = run.features
        parts = {part.key: part for part in run.parts}
        order = np.argsort(shown.colour, kind="stable")
        about: dict[str, list[Any]] = {
            name: [] for name in ("images", "answer", "probability", "entropy", "epistemic")
        }
        small = is_small(run)
        groups: list[tuple[str, list[tuple[int, float, float]]]] = []
        for place in order.tolist():
            row = int(shown.rows[place])
            key = sample.keys[sample.part[row]]
            part, there = parts[key], int(sample.row[row])
            log_p = part.log_probabilities[there]
            picture = self.image(sample.pictures[row], key.domain, int(sample.labels[row]), small)
            about["images"].append(picture)
            about["answer"].append(int(log_p.argmax()))
            about["probability"].append(round(float(np.exp(log_p.max())), 3))
            for name in ("entropy", "epistemic"):
                about[name].append(round(float(part.scores[name][there]), 3))
            colour = shown.colours[shown.colour[place]][1]
            if not groups or groups[-1][0] != colour:
                groups.append((colour, []))
            x, y = shown.xy[place]
            spot = (2 + round(SIDE * float(x), 1), 2 + round(SIDE * (1 - float(y)), 1))
            groups[-1][1].append((int(shown.shape[place]) % len(MARKERS), *spot))
        self.maps[identifier] = {**about, "classes": list(run.task.classes)}
        description = f"{len(order)} images, {shown.title}; the arrow keys walk from point to point"
        return PointMap(identifier, shown.title, description, groups)


def is_small(run: ReportedRun) -> bool:
    """Whether its images are so small that every pixel counts."""
    return run.task is not None and max(run.task.image_shape[1:]) <= SMALL_SIDE


def map_block(
    runs: Sequence[ReportedRun], points: Points, page_id: str, wanted: str | None
) -> Block:
    """Every view of the features of some runs on the same data, and the numbers beneath."""
    runs = [run for run in runs if run.features is not None and run.parts]
    if not runs or runs[0].task is None or runs[0].features is None:
        return Block()
    task, sample = runs[0].task, runs[0].features
    classes, label = task.classes, class_on_show(sample, task.classes, wanted)
    views = []
    for view in VIEWS:
        if view == "in-out" and len(task.targets) < 2:
            continue
        maps, legend = [], None
        for number, run in enumerate(runs):
            assert run.features is not None
            ready = embedded(run.features, view, label)
            shown = make_map(ready, classes, view, label, run.name)
            if shown is not None:
                maps.append(points.add(run, shown, plain(f"{page_id}-{view}-{number}")))
                legend = shown
        if legend is not None:
            views.append(_view(plain(f"{page_id}-{view}"), legend, maps))
    return Block("Feature map", _lead(sample), views=views, numbers=[_numbers(runs)])


def _view(identifier: str, shown: Map, maps: Sequence[PointMap]) -> View:
    by_shape = len(shown.shapes) > 1
    named = by_shape and all(shown.shapes)
    colours = [
        (name, colour, 0 if named or not by_shape else index // len(PALETTE) % len(MARKERS))
        for index, (name, colour) in enumerate(shown.colours)
    ]
    shapes = [(name, i % len(MARKERS)) for i, name in enumerate(shown.shapes)] if named else []
    title = shown.legend[0].upper() + shown.legend[1:]
    return View(identifier, title, colours, shapes, maps)


def _lead(sample: Any) -> str:
    on_map, total = int(sample.on_map.sum()), sum(sample.totals)
    which = (
        f"All {total:,} evaluated images"
        if on_map == total
        else f"{on_map:,} of {total:,} evaluated images, drawn at random with a fixed seed, evenly "
        "from the domains"
    )
    return (
        f"{which}; t-SNE of the features before the classifier. Point at a picture, or walk from "
        "point to point with the arrow keys. Neighbours mean something in such a map, directions "
        "and distances between groups do not: the numbers beneath are of the features themselves."
    )


NUMBERS = {
    "intra_source": "intra-class in",
    "inter_source": "inter-class in",
    "intra_target": "intra-class out",
    "inter_target": "inter-class out",
    "class_gap": "in to out",
    "separability_source": "domain told in %",
    "separability_target": "out told from in %",
}


def _numbers(runs: Sequence[ReportedRun]) -> Table:
    rows = []
    for run in runs:
        assert run.features is not None
        rows.append(Row([run.name, *_number_cells(separation(run.features))]))
    task = runs[0].task
    num = len(task.sources) if task is not None else 0
    return Table(
        "What the maps should show, measured on the features of the same images",
        ["", *NUMBERS.values()],
        rows,
        notes=[
            "In: source domains; out: unseen ones. Intra- and inter-class distances are means "
            "over pairs of images, in units of the mean distance of any two; low within a class "
            "and high between classes is good. In to out: over pairs of one class, in units of "
            "that distance among sources; 1 is no gap.",
            "Told: balanced accuracy of a linear classifier of the domain, cross-validated; "
            f"guessing gives {100 / max(num, 1):.0f}% among the sources and 50% for out against "
            "in.",
        ],
    )


def _number_cells(found: Mapping[str, float | None]) -> list[str]:
    cells = []
    for name in NUMBERS:
        value = found[name]
        if value is None:
            cells.append("–")
        else:
            cells.append(f"{100 * value:.0f}" if name.startswith("separ") else f"{value:.2f}")
    return cells
