"""What a report needs beside the records: features, pictures, embeddings; made once and kept."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bayesdg.errors import BayesdgError
from bayesdg.evaluate.failures import Failure, Kind, failures
from bayesdg.evaluate.features import NAME, FeatureSample, write_features
from bayesdg.evaluate.stored import PartKey, PredictedPart
from bayesdg.report.maps import VIEWS, class_on_show, embedded, separated
from bayesdg.report.runs import ReportedRun

# Images of a kind in a gallery.
MOST_SHOWN = 12


def prepared(
    run: ReportedRun,
    wanted: str | None = None,
    compute: bool = True,
    root: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ReportedRun:
    """The run with its features, and these with all embeddings.

    Args:
        run: As it was read.
        wanted: The class that has a map of its own.
        compute: Whether features may be computed where none were kept, which needs the data and
            torch.
        root: Where named data sets lie.
        progress: Of decoding.
    """
    if run.task is None or not run.parts:
        return run
    sample, problem = run.features, ""
    if sample is not None and not _fits(sample, run.parts):
        sample, problem = None, "the images kept for the feature map are of another evaluation"
    if sample is None and compute and run.is_done:
        try:
            sample, problem = _collected(run, root, progress), ""
        except BayesdgError as error:
            problem = f"no feature map and no pictures: {error}"
    elif sample is None:
        problem = problem or "no feature map and no pictures yet; bayesdg report --maps makes them"
    if sample is not None:
        label = class_on_show(sample, run.task.classes, wanted)
        ready = separated(sample)
        for view in VIEWS:
            ready = embedded(ready, view, label)
        if ready is not run.features:
            with suppress(OSError):  # a folder that can only be read still makes a report
                write_features(run.path / NAME, ready)
        sample = ready
    problems = (*run.problems, problem) if problem else run.problems
    return dataclasses.replace(run, features=sample, problems=problems)


def worst(parts: Sequence[PredictedPart], most: int = MOST_SHOWN) -> dict[Kind, list[Failure]]:
    """The most confident mistakes and the most uncertain images of all unseen domains."""
    unseen = [p for p in parts if p.key.role == "target" and p.key.part != "unknown"]
    found = failures(unseen, most)
    mistakes = [failure for failure in found if failure.kind == "mistake"]
    unsure = [failure for failure in found if failure.kind == "unsure"]
    return {
        "mistake": sorted(mistakes, key=lambda failure: -failure.probabilities[0])[:most],
        "unsure": sorted(unsure, key=lambda failure: -failure.entropy)[:most],
    }


def _collected(
    run: ReportedRun, root: Path | None, progress: Callable[[int, int], None]
) -> FeatureSample:
    from bayesdg.report.collect import collect

    cases: dict[PartKey, list[int]] = defaultdict(list)
    for found in worst(run.parts).values():
        for failure in found:
            cases[failure.key].append(failure.row)
    return collect(run.path, run.parts, cases, root, progress=progress)


def _fits(sample: FeatureSample, parts: Sequence[PredictedPart]) -> bool:
    """Whether the stored predictions are about these images."""
    there = {part.key: part for part in parts}
    for index, (key, total) in enumerate(zip(sample.keys, sample.totals, strict=True)):
        here = sample.part == index
        if key not in there or len(there[key]) != total:
            return False
        if not np.array_equal(there[key].labels[sample.row[here]], sample.labels[here]):
            return False
    return True
