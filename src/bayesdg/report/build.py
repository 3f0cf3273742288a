"""From runs to a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesdg.evaluate.calibration import ReliabilityDiagram, reliability_diagram
from bayesdg.evaluate.rejection import RiskCoverage, risk_coverage
from bayesdg.evaluate.scoring import SCORES
from bayesdg.methods import METHODS
from bayesdg.report import figures
from bayesdg.report.detail import number_text, run_section
from bayesdg.report.mapping import Points, map_block
from bayesdg.report.page import Block, Page, Panel, Row, Section, Table
from bayesdg.report.runs import ReportedRun, pooled
from bayesdg.report.svg import inline

# More runs than these are compared, not told one by one.
MOST_TOLD = 4
# Curves that can be told apart in one figure.
MOST_CURVES = 14


def build_page(
    runs: Sequence[ReportedRun],
    title: str = "",
    wanted: str | None = None,
    benches: Sequence[Section] = (),
) -> Page:
    """The report on some runs.

    Args:
        runs: As they were read and prepared.
        title: Heads it.
        wanted: The class that has a map of its own.
        benches: Sections of tables, which come first.
    """
    points = Points()
    sections = list(benches)
    mapped: set[Path] = set()
    block = Block()
    if len(runs) > 1:
        shown = [run for run in side_by_side(runs) if run.features is not None]
        if len(shown) > 1:
            block = map_block(shown, points, "grid", wanted)
            mapped = {run.path for run in shown}
        sections.append(_compared(runs, block))
    if len(runs) <= MOST_TOLD:
        sections += [
            run_section(run, number, points, wanted, with_map=run.path not in mapped)
            for number, run in enumerate(runs, 1)
        ]
    if not title:
        title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return Page(title, _subtitle(runs), sections, len(runs), data=points.data)


def _subtitle(runs: Sequence[ReportedRun]) -> str:
    data = sorted({run.task.dataset for run in runs if run.task})
    times = sorted(start.time for run in runs for start in run.starts)
    span = sorted({time[:10] for time in times[:1] + times[-1:]})
    return " · ".join(part for part in (", ".join(data), " to ".join(span)) if part)


def mapped_runs(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Those whose features are shown: all of a few, or one of each method."""
    return list(runs) if len(runs) <= MOST_TOLD else side_by_side(runs)


def side_by_side(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """One run of each method, on the data and targets that most methods have, the first seed.

    Only runs that were tested: the others have nothing to be put on a map.
    """
    groups: dict[tuple[object, ...], dict[str, ReportedRun]] = defaultdict(dict)
    known = [run for run in runs if run.task and run.settings and run.parts]
    for run in sorted(known, key=lambda run: run.settings.seed if run.settings else 0):
        assert run.task is not None
        assert run.settings is not None
        key = (run.task.dataset, run.task.targets, run.task.sources)
        groups[key].setdefault(run.settings.method, run)
    if not groups:
        return []
    order = {name: number for number, name in enumerate(METHODS)}
    chosen = max(groups.values(), key=len)
    return [chosen[method] for method in sorted(chosen, key=order.__getitem__)]


def _compared(runs: Sequence[ReportedRun], maps: Block) -> Section:
    missing = [f"{run.path.name}: {line}" for run in runs for line in run.problems]
    every = [_overview(runs)]
    few = len(runs) <= MOST_TOLD
    blocks = [
        Block("All runs", tables=every) if few else Block(),
        Block("By method", panels=_panels(runs)),
        maps,
        Block() if few else Block("Single runs", folded=every),
    ]
    return Section(
        "comparison",
        "Comparison",
        problems=missing,
        blocks=[b for b in blocks if b.tables or b.panels or b.views or b.folded],
    )


def _overview(runs: Sequence[ReportedRun]) -> Table:
    """A line per run: how far it came, and accuracy, NLL, ECE on what it never saw."""
    rows = []
    for run in runs:
        last = max((step.step for step in run.steps), default=0)
        done = f"{last:,}" if run.is_done else f"{last:,}, not finished"
        values = []
        for role in ("source", "target"):
            found = [r for r in run.results if r.role == role]
            for name, scale, digits in (("accuracy", 100, 1), ("nll", 1, 3), ("ece", 100, 1)):
                numbers = [r.metrics.get(name) for r in found]
                known = [n for n in numbers if n is not None]
                mean = sum(known) / len(known) if known and len(known) == len(numbers) else None
                values.append(number_text(mean, scale, digits))
        where = ", ".join(run.task.targets) if run.task else "?"
        data = run.task.dataset if run.task else "?"
        rows.append(Row([run.name, data, where, done, *values]))
    heads = [
        "run", "data", "unseen", "steps", "accuracy % in", "NLL in", "ECE % in", "accuracy % out",
        "NLL out", "ECE % out",
    ]  # fmt: skip
    caption = (
        "Every run. In: test images of the source domains (validation images where the protocol "
        "holds out no others). Out: domains that training never saw. Means over domains."
    )
    return Table(caption, heads, rows, texts=3)


def by_method(runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Runs with predictions, by method, in the order of the table of methods."""
    groups: dict[str, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        if run.settings is not None and run.parts:
            groups[run.settings.method].append(run)
    return {name: groups[name] for name in METHODS if name in groups}


def method_curves(runs: Sequence[ReportedRun]) -> dict[str, RiskCoverage]:
    """Risk and coverage on unseen domains, the images of all runs of a method together."""
    curves = {}
    for name, group in by_method(runs).items():
        parts = [p for run in group for p in run.parts if p.key.role == "target"]
        known = [p for p in parts if p.key.part != "unknown" and len(p)]
        if known:
            unsure = np.concatenate([SCORES["max_probability"](p) for p in known])
            right = np.concatenate([p.log_probabilities.argmax(1) == p.labels for p in known])
            curves[name] = risk_coverage(unsure, right)
    return curves


def method_diagrams(runs: Sequence[ReportedRun]) -> Mapping[str, ReliabilityDiagram]:
    """Reliability on unseen domains, likewise; of runs with the same classes."""
    diagrams = {}
    for name, group in by_method(runs).items():
        parts = [part for run in group for part in run.parts]
        widths = {part.log_probabilities.shape[1] for part in parts}
        found = pooled(parts, "target") if len(widths) == 1 else None
        if found is not None:
            diagrams[name] = reliability_diagram(*found)
    return diagrams


def _panels(runs: Sequence[ReportedRun]) -> list[Panel]:
    panels = []
    curves, diagrams = method_curves(runs), method_diagrams(runs)
    if 1 < len(curves) <= MOST_CURVES:
        caption = "On unseen domains: errors that remain when the least sure answers are left out."
        svg = inline(figures.risk_coverage(curves, {}), f"Risk and coverage. {caption}", "all-risk")
        panels.append(Panel("Risk and coverage", svg, caption))
    if len(diagrams) > 1:
        caption = "On unseen domains; below the diagonal a method is surer than it is right."
        svg = inline(figures.reliability(diagrams), f"Reliability. {caption}", "all-reliability")
        panels.append(Panel("Reliability", svg, caption))
    return panels
