"""What lies in run folders, read for a report: whatever is there, and what is missing.

A run may be half-finished, failed, damaged or not evaluated: nothing of that stops a report, and
all of it is said. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bayesdg import stored_runs
from bayesdg.bench.folder import PLAN
from bayesdg.errors import StoredRunError, UsageError
from bayesdg.evaluate.features import NAME, FeatureSample, read_features
from bayesdg.evaluate.stored import PredictedPart, predictions_path, read_predictions, stored_draws
from bayesdg.records import (
    TRAINED,
    DetectionRecord,
    NoteRecord,
    Record,
    ResultRecord,
    StartRecord,
    StepRecord,
    detections_of,
    read_records,
    results_of,
)
from bayesdg.settings import Settings
from bayesdg.training import about
from bayesdg.training.about import Task
from bayesdg.training.checkpoint import MANIFEST

T = TypeVar("T")


@dataclass(frozen=True)
class ReportedRun:
    """A run folder, read.

    Attributes:
        path: The folder.
        settings: Of the run; None if they cannot be read.
        task: What it was trained on; None likewise.
        records: All of them.
        draws: Of the predictions below; the most there are.
        parts: Stored predictions; none before it was evaluated.
        features: None where none were kept.
        is_done: Whether training came to its end.
        problems: What is missing or damaged, a line each.
    """

    path: Path
    settings: Settings | None
    task: Task | None
    records: Sequence[Record]
    draws: int = 0
    parts: Sequence[PredictedPart] = ()
    features: FeatureSample | None = None
    is_done: bool = False
    problems: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """Method and seed, or the folder's name where the settings are lost."""
        if self.settings is None:
            return self.path.name
        return f"{self.settings.method} seed {self.settings.seed}"

    @property
    def steps(self) -> list[StepRecord]:
        """How training went."""
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def starts(self) -> list[StartRecord]:
        """When it began and went on."""
        return [record for record in self.records if isinstance(record, StartRecord)]

    @property
    def notes(self) -> list[NoteRecord]:
        """What was noted on the way."""
        return [record for record in self.records if isinstance(record, NoteRecord)]

    @property
    def results(self) -> list[ResultRecord]:
        """Of `draws` draws, one per part of a domain; ordinary ones alone."""
        return self.results_with(TRAINED)

    def results_with(self, statistics: str) -> list[ResultRecord]:
        """Likewise with these statistics of batch norm, and the most draws there are of them."""
        found = results_of(self.records, statistics)
        most = max((record.draws for record in found), default=0)
        return [record for record in found if record.draws == most]

    @property
    def detections(self) -> list[DetectionRecord]:
        """Of `draws` draws; ordinary ones alone."""
        found = detections_of(self.records)
        most = max((record.draws for record in found), default=0)
        return [record for record in found if record.draws == most]

    @property
    def selected(self) -> int | None:
        """The step whose weights are the run's."""
        return next((step.step for step in reversed(self.steps) if step.best), None)


def run_folders(places: Iterable[Path]) -> list[Path]:
    """The run folders in these places, each once; a UsageError where there is none.

    A place may be a run, a folder of runs, or a bench; one that measures costs has no runs.
    """
    found: dict[Path, None] = {}
    for place in places:
        if not place.is_dir():
            raise UsageError(f"no folder {place}; give a run, a folder of runs or a bench")
        runs = list(stored_runs.run_folders(place))
        if not runs and not (place / PLAN).is_file():
            raise UsageError(
                f"no run in {place}; bayesdg train and bayesdg bench write them, such as "
                "runs/pacs_sketch_bil_seed0_1d209c4e"
            )
        found |= dict.fromkeys(runs)
    return list(found)


def is_run(place: Path) -> bool:
    """Whether the folder itself is one, and not a folder of runs."""
    return place in stored_runs.run_folders(place, deepest=0)


def read_run(path: Path) -> ReportedRun:
    """Whatever a run folder holds; what cannot be read is named among the problems."""
    problems: list[str] = []

    settings = _tried(lambda: about.read_settings(path), None, problems)
    about_run = _tried(lambda: about.read_about(path), None, problems)
    records: list[Record] = _tried(lambda: read_records(path / about.RECORDS), [], problems)
    draws = max(stored_draws(path), default=0)
    parts: Sequence[PredictedPart] = _tried(
        lambda: read_predictions(predictions_path(path, draws)), [], problems
    )
    features = _tried(lambda: read_features(path / NAME), None, problems)
    is_done = (path / MANIFEST).is_file()
    steps = [record.step for record in records if isinstance(record, StepRecord)]
    if not is_done and settings is not None:
        problems.append(
            f"not finished: step {max(steps, default=0):,} of {settings.training.steps:,}"
        )
    if is_done and not results_of(records):
        problems.append(f"not tested on the unseen domains; bayesdg evaluate {path} does it")
    elif is_done and not parts:
        problems.append(f"no stored predictions; bayesdg evaluate {path} writes them")
    return ReportedRun(
        path, settings, about_run.task if about_run else None, records, draws, parts, features,
        is_done, tuple(problems),
    )  # fmt: skip


def _tried(read: Callable[[], T], otherwise: T, problems: list[str]) -> T:
    try:
        return read()
    except StoredRunError as error:
        problems.append(str(error))
        return otherwise


def pooled(
    parts: Sequence[PredictedPart], role: str
) -> tuple[NDArray[np.float32], NDArray[np.int32]] | None:
    """(n, K) log probabilities and (n,) labels of all known images of a role; None without any."""
    chosen = [p for p in parts if p.key.role == role and p.key.part != "unknown" and len(p)]
    if not chosen:
        return None
    log_p = np.concatenate([part.log_probabilities for part in chosen])
    return log_p, np.concatenate([part.labels for part in chosen])


def entropies(parts: Sequence[PredictedPart]) -> dict[str, NDArray[np.float32]]:
    """The entropy of every image, by domain; images of unknown classes apart."""
    return {
        part.key.domain if part.key.part != "unknown" else f"{part.key.domain}, unknown classes":
            part.scores["entropy"]
        for part in parts
        if len(part)
    }  # fmt: skip
