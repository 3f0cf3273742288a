"""Figures by name, for papers: which there are, and what each needs. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.report import figures
from bayesdg.report.bench import bench_figure
from bayesdg.report.build import method_curves, method_diagrams, side_by_side
from bayesdg.report.detail import GALLERIES, run_figures, told
from bayesdg.report.maps import class_on_show, draw_maps, make_map
from bayesdg.report.prepare import worst
from bayesdg.report.runs import ReportedRun

COLUMNS = 4  # of pictures, and of maps
MOST_PICTURES = 8


@dataclass(frozen=True)
class Asked:
    """What a figure is drawn from.

    Attributes:
        places: The folders that were given.
        runs: In them, with their features where the figure needs some.
        view: Of a feature map.
        wanted: The class of the view of one class.
        metric: Of a bench; what its plan shows without.
        plan: Of a bench, the one whose table is drawn.
    """

    places: Sequence[Path]
    runs: Sequence[ReportedRun]
    view: str = "all"
    wanted: str | None = None
    metric: str | None = None
    plan: str | None = None


@dataclass(frozen=True)
class Kind:
    """A figure that can be asked for.

    Attributes:
        about: One line.
        draw: Makes it.
        features: Whether it shows features or pictures.
    """

    about: str
    draw: Callable[[Asked], Figure]
    features: bool = False


def _of_one(name: str) -> Callable[[Asked], Figure]:
    def draw(asked: Asked) -> Figure:
        run = the_run(asked.runs, name)
        for found, figure in run_figures(run):
            if found == name:
                return figure
        raise StoredRunError(f"{run.path} has nothing for {name} yet{_why(run)}")

    return draw


def the_run(runs: Sequence[ReportedRun], name: str) -> ReportedRun:
    """The only run; an error if there are more, or none."""
    if not runs:
        raise StoredRunError(f"no run for the figure {name}; give one that bayesdg train wrote")
    if len(runs) > 1:
        some = ", ".join(run.path.name for run in runs[:3])
        raise UsageError(f"the figure {name} is of one run, here are {len(runs)}; name one: {some}")
    return runs[0]


def _why(run: ReportedRun) -> str:
    return f": {'; '.join(run.problems)}" if run.problems else ""


def _of_bench(kind: str) -> Callable[[Asked], Figure]:
    return lambda asked: bench_figure(asked.places, kind, asked.plan, asked.metric)


def _reliability(asked: Asked) -> Figure:
    if len(asked.runs) == 1:
        return _of_one("reliability")(asked)
    diagrams = method_diagrams(asked.runs)
    if not diagrams:
        raise StoredRunError(f"no run in {asked.places[0]} has predictions; bayesdg evaluate RUN")
    return figures.reliability(diagrams)


def _risk_coverage(asked: Asked) -> Figure:
    if len(asked.runs) == 1:
        return _of_one("risk-coverage")(asked)
    curves = method_curves(asked.runs)
    if not curves:
        raise StoredRunError(f"no run in {asked.places[0]} has predictions; bayesdg evaluate RUN")
    return figures.risk_coverage(curves, {})


def _features(asked: Asked) -> Figure:
    maps = []
    for run in side_by_side(asked.runs):
        if run.task is None or run.features is None:
            continue
        classes = run.task.classes
        label = class_on_show(run.features, classes, asked.wanted)
        method = run.settings.method if run.settings else run.name
        found = make_map(run.features, classes, asked.view, label, method)
        maps += [] if found is None else [found]
    if not maps:
        why = _why(asked.runs[0]) if asked.runs else ""
        raise StoredRunError(f"no feature map in {asked.places[0]}{why}")
    return draw_maps(maps, COLUMNS)


def _failures(asked: Asked) -> Figure:
    run = the_run(asked.runs, "failures")
    if run.features is None or run.task is None:
        raise StoredRunError(f"{run.path} has no pictures{_why(run)}")
    rows: dict[str, list[tuple[bytes, list[str]]]] = {}
    for kind, cases in worst(run.parts, MOST_PICTURES).items():
        shown = [
            (picture, told(each, run.task.classes))
            for each in cases
            if (picture := run.features.picture(each.key.domain, each.key.part, each.row))
        ]
        if shown:
            rows[GALLERIES[kind][0]] = shown
    if not rows:
        raise StoredRunError(f"{run.path} has no failures on unseen domains to show")
    return figures.gallery(rows, COLUMNS)


NAMED: Mapping[str, Kind] = {
    "terms": Kind("terms of the loss over training", _of_one("terms")),
    "validation": Kind("validation accuracy over training", _of_one("validation")),
    "confusion": Kind("confusion matrix on unseen domains", _of_one("confusion")),
    "reliability": Kind("reliability diagrams, of a run or by method", _reliability),
    "risk-coverage": Kind("risk-coverage curves, of a run or by method", _risk_coverage),
    "uncertainty": Kind("histograms of entropy by domain", _of_one("uncertainty")),
    "failures": Kind("confident mistakes and uncertain images", _failures, features=True),
    "ablation": Kind("means with intervals, beside the paper's", _of_bench("ablation")),
    "sensitivity": Kind("accuracy over the values of a setting", _of_bench("sensitivity")),
    "draws": Kind("accuracy over the number of weight draws", _of_bench("draws")),
    "cost": Kind("compute and memory over the number of draws", _of_bench("cost")),
    "features": Kind("feature map (--view), of a run or a grid of methods", _features, True),
}
