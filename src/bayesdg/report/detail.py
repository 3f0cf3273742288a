"""One run as a section of a page: all that its folder knows, and what is missing. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from bayesdg.errors import BayesdgError
from bayesdg.evaluate.calibration import reliability_diagram
from bayesdg.evaluate.failures import Failure, Kind
from bayesdg.evaluate.rejection import RiskCoverage, risk_coverage
from bayesdg.evaluate.scoring import SCORES
from bayesdg.evaluate.statistics import STATISTICS, explanation
from bayesdg.records import ResultRecord
from bayesdg.report import figures
from bayesdg.report.mapping import Points, is_small, map_block
from bayesdg.report.page import Block, Panel, Row, Section, Shown, Table, data_uri
from bayesdg.report.prepare import worst
from bayesdg.report.runs import ReportedRun, entropies, pooled
from bayesdg.report.svg import inline
from bayesdg.settings import Settings

RESULTS = {
    "accuracy": ("accuracy %", 100, 1),
    "macro_accuracy": ("macro acc. %", 100, 1),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier", 1, 3),
    "ece": ("ECE %", 100, 1),
    "aurc": ("AURC %", 100, 2),
    "confidence": ("confidence %", 100, 1),
}
TASKS = {
    "errors": "wrong answers",
    "domain": "images of an unseen domain",
    "unknown": "unknown classes",
}


def run_figures(run: ReportedRun) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of everything that can be drawn of the run now."""
    task, parts = run.task, run.parts
    colours = figures.domain_colours(task.sources, task.targets) if task else {}
    if run.steps:
        yield "terms", figures.term_curves(run.steps)
    if any(step.source_val for step in run.steps):
        yield "validation", figures.validation_curves(run.steps, colours, run.selected)
    inside, outside = pooled(parts, "source"), pooled(parts, "target")
    if outside is not None and task is not None:
        log_p, labels = outside
        matrix = np.zeros((len(task.classes),) * 2, np.int64)
        np.add.at(matrix, (labels, log_p.argmax(1)), 1)
        yield "confusion", figures.confusion(matrix, task.classes)
    told = {"in distribution": inside, "unseen domains": outside}
    diagrams = {name: reliability_diagram(*found) for name, found in told.items() if found}
    if diagrams:
        yield "reliability", figures.reliability(diagrams)
        yield "risk-coverage", figures.risk_coverage(curves(run), colours)
        num = len(task.classes) if task else parts[0].log_probabilities.shape[1]
        yield "uncertainty", figures.uncertainty_histograms(entropies(parts), colours, num)


def curves(run: ReportedRun) -> dict[str, RiskCoverage]:
    """The risk-coverage curve of every domain, by the largest probability."""
    return {
        part.key.domain: risk_coverage(
            SCORES["max_probability"](part), part.log_probabilities.argmax(1) == part.labels
        )
        for part in run.parts
        if part.key.part != "unknown" and len(part)
    }


GALLERIES: dict[Kind, tuple[str, str]] = {
    "mistake": ("Most confident mistakes", "Unseen domains, the surest first."),
    "unsure": ("Most uncertain images", "Unseen domains, the highest entropy first."),
}
# name -> (heading, what it says)
CAPTIONS = {
    "terms": ("Terms of the loss", "Unweighted, over the steps of training."),
    "validation": (
        "Validation accuracy",
        "On images of the source domains that training does not see. Their mean chooses the "
        "weights; a watched target (dashed) decides nothing.",
    ),
    "confusion": (
        "Confusion on unseen domains",
        "Rows are labels, columns answers; blue is right. Shades are shares of the row.",
    ),
    "reliability": (
        "Reliability",
        "Below the diagonal the run is surer than it is right. Dots grow with the images in a bin.",
    ),
    "risk-coverage": (
        "Risk and coverage",
        "Errors that remain when the least sure answers are left to a person. Low is good. "
        "Unseen domains are violet.",
    ),
    "uncertainty": (
        "Uncertainty by domain",
        "Entropy of the prediction, unseen domains last. Further right is less sure.",
    ),
}
TRAINING = ("terms", "validation")


def run_section(
    run: ReportedRun, number: int, points: Points, wanted: str | None, with_map: bool = True
) -> Section:
    """The whole section; without a map where a comparison has shown it."""
    panels = {}
    problems = list(run.problems)
    try:
        for name, figure in run_figures(run):
            title, caption = CAPTIONS[name]
            svg = inline(figure, f"{title}: {run.name}. {caption}", f"r{number}{name}")
            panels[name] = Panel(title, svg, caption)
    except BayesdgError as error:  # damaged predictions, say: the rest is still shown
        problems.append(f"some figures cannot be drawn: {error}")
    blocks = [
        Block(
            "Results",
            tables=_results(run),
            panels=[p for n, p in panels.items() if n not in TRAINING],
        ),
        *_galleries(run),
        map_block([run], points, f"run{number}", wanted) if with_map else Block(),
        Block("Training", panels=[panels[n] for n in TRAINING if n in panels]),
        Block(
            "Settings and details",
            tables=_changed(run),
            folded=[*_detections(run), *_settings(run)],
        ),
    ]
    return Section(
        id=f"run-{number}",
        title=_title(run),
        facts=_facts(run),
        problems=problems,
        notes=[f"step {note.step:,}: {note.text}" for note in run.notes],
        blocks=[block for block in blocks if _holds(block)],
    )


def _holds(block: Block) -> bool:
    return bool(block.tables or block.panels or block.gallery or block.views or block.folded)


def _title(run: ReportedRun) -> str:
    if run.task is None:
        return run.name
    return f"{run.name}: {run.task.dataset}, unseen {', '.join(run.task.targets)}"


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    facts = [("folder", run.path.name)]
    if run.settings is not None:
        facts.append(("method", f"{run.settings.method}: {run.settings.row.about}"))
        facts.append(("preset", run.settings.preset))
    if run.task is not None:
        facts.append(("classes", _listed(run.task.classes)))
        facts.append(("sources", ", ".join(run.task.sources)))
        facts.append(("unseen", ", ".join(run.task.targets)))
    if run.steps:
        last = run.steps[-1]
        facts.append(("trained", f"{last.step:,} steps, {_duration(last.seconds)}"))
    if run.selected:
        facts.append(("weights", f"of step {run.selected:,}, the best by source validation"))
    for start in run.starts[-1:]:
        versions = ", ".join(f"{name} {v}" for name, v in start.versions.items())
        facts.append(("computed on", f"{start.device}; {versions}; begun {start.time}"))
    if run.results:
        draws = run.results[0].draws
        facts.append(("tested with", f"{draws} weight draws" if draws else "the mean weights"))
    return facts


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)}: {', '.join(names[:most])}{more}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def number_text(value: float | None, scale: float, digits: int) -> str:
    """A number as it is printed; a dash for none."""
    return "–" if value is None else f"{value * scale:.{digits}f}"


def _results(run: ReportedRun) -> list[Table]:
    """The ordinary results; below, and said to be so, those with other statistics."""
    tables = []
    for name in STATISTICS:
        rows = _result_rows(run.results_with(name))
        about = [explanation(name), "Every domain; unseen ones in bold."]
        heads = ["domain", "", "images", *(head for head, *_ in RESULTS.values())]
        if rows:
            tables.append(Table(". ".join(filter(None, about)), heads, rows, texts=2))
    return tables


def _result_rows(results: Sequence[ResultRecord]) -> list[Row]:
    rows = []
    for result in results:
        what = f"source, {'test' if result.part == 'test' else 'validation'}"
        values = [
            number_text(result.metrics.get(name), scale, digits)
            for name, (_, scale, digits) in RESULTS.items()
        ]
        is_target = result.role == "target"
        cells = [result.domain, "unseen, test" if is_target else what, f"{result.num_images:,}"]
        rows.append(Row([*cells, *values], emphasis=is_target))
    return rows


def _detections(run: ReportedRun) -> list[Table]:
    rows = []
    for found in run.detections:
        score = found.score.replace("_", " ")
        counts = f"{found.num_positive:,} / {found.num_negative:,}"
        values = [number_text(found.metrics.get(n), 100, 1) for n in ("auroc", "aupr", "fpr95")]
        rows.append(Row([found.domain, TASKS[found.task], score, counts, *values]))
    heads = ["domain", "what is detected", "by", "these / others", "AUROC %", "AUPR %", "FPR95 %"]
    about = "How well each score tells what to mistrust (AUROC: 50 is guessing, 100 is perfect)"
    return [Table(about, heads, rows, texts=3)] if rows else []


def _changed(run: ReportedRun) -> list[Table]:
    """What is set otherwise than by default."""
    if run.settings is None:
        return []
    default = dict(_leaves(Settings().model_dump(mode="json")))
    rows = [
        Row([name, str(value), str(default.get(name))])
        for name, value in _leaves(run.settings.model_dump(mode="json"))
        if value != default.get(name)
    ]
    caption = "Settings that are not at their default"
    return [Table(caption, ["setting", "value", "default"], rows, texts=3)]


def _galleries(run: ReportedRun) -> Iterator[Block]:
    if run.task is None or not run.parts:
        return
    for kind, found in worst(run.parts).items():
        title, lead = GALLERIES[kind]
        yield Block(title, lead, gallery=[_shown(run, each) for each in found])


def _shown(run: ReportedRun, each: Failure) -> Shown:
    assert run.task is not None
    classes = run.task.classes
    label = classes[each.label] if each.label >= 0 else "no known class"
    picture = run.features and run.features.picture(each.key.domain, each.key.part, each.row)
    lines = [
        *told(each, classes),
        f"domain: {each.key.domain}",
        f"entropy {each.entropy:.2f}",
        f"epistemic {each.epistemic:.2f}",
    ]
    return Shown(
        data_uri(picture) if picture else "", f"a picture of {label}", lines, is_small(run)
    )


def told(each: Failure, classes: Sequence[str]) -> list[str]:
    """Label and the two most probable answers, a line each."""
    label = classes[each.label] if each.label >= 0 else "no known class"
    found = zip(("answer", "then"), each.classes, each.probabilities, strict=True)
    return [f"label: {label}", *(f"{word}: {classes[k]} {100 * p:.0f}%" for word, k, p in found)]


def _settings(run: ReportedRun) -> list[Table]:
    if run.settings is None:
        return []
    leaves = _leaves(run.settings.model_dump(mode="json"))
    rows = [Row([name, str(value)]) for name, value in leaves]
    return [Table("All settings", ["setting", "value"], rows, texts=2)]


def _leaves(nested: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
