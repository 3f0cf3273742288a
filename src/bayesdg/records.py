"""What a run leaves behind, as JSON lines. Imports no torch.

The records are the truth from which every table is made; what else is in a run folder is told in
training/folder.py. A number that is none (NaN, infinity) is written as null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bayesdg.errors import StoredRunError

# Metrics by the name of the domain.
Metrics: TypeAlias = Mapping[str, Mapping[str, float | None]]
# The statistics of batch norm that ordinary results are made with; see evaluate/statistics.py.
TRAINED = "trained"


@dataclass(frozen=True)
class StartRecord:
    """A process has begun or gone on with the run.

    Attributes:
        step: The last one that was done before.
        time: UTC.
        versions: Of everything the numbers depend on.
        device: Name of the hardware.
        processes: That share each episode.
        threads: Per process, on the CPU.
        precision: Of the network.
        compile: Whether the backbone is compiled.
    """

    step: int
    time: str
    versions: Mapping[str, str]
    device: str
    processes: int
    threads: int
    precision: str
    compile: bool


@dataclass(frozen=True)
class NoteRecord:
    """Something a person should know, such as a step that was skipped.

    Attributes:
        step: When.
        text: One line.
        details: For a program.
    """

    step: int
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepRecord:
    """How training stood after a step.

    Attributes:
        step: Counted from 1.
        seconds: Of training, over all starts.
        terms: The named parts of the loss, unweighted.
        loss: Their weighted sum.
        learning_rate: Of this step.
        gradient: Its length, before it was shortened.
        skipped: How many steps were skipped so far, because they were no numbers.
        steps_per_second: Since the record before; None for the first of a process.
        images_per_second: Likewise.
        memory_gb: The most that was in use, on the device or by the process.
        health: See `Learner.health`; when it was taken.
        source_val: Metrics on the validation images of each source domain, when they were taken.
        best: Whether these are the best weights so far by source validation.
        target_test: Metrics on the targets' test images, if somebody asked to watch; they decide
            nothing.
        target_val: Likewise on the targets' validation images.
        source_test: Likewise on test images of sources that have some of their own.
    """

    step: int
    seconds: float
    terms: Mapping[str, float | None]
    loss: float | None
    learning_rate: float
    gradient: float | None
    skipped: int = 0
    steps_per_second: float | None = None
    images_per_second: float | None = None
    memory_gb: float | None = None
    health: Mapping[str, float | None] | None = None
    source_val: Metrics | None = None
    best: bool = False
    target_test: Metrics | None = None
    target_val: Metrics | None = None
    source_test: Metrics | None = None

    @property
    def val_accuracy(self) -> float | None:
        """The mean over source domains, which selects; None without a validation or a number."""
        return mean_accuracy(self.source_val)


@dataclass(frozen=True)
class ResultRecord:
    """One part of one domain, 'test' or 'val', under the selected weights.

    Images of classes that no source domain has are counted in `num_excluded` and in no metric.
    What a recalibration of the run makes of it is in `recalibrated`: metrics after the temperature,
    'set_coverage' and 'set_size', 'accepted' and 'accepted_risk'. `statistics` says by what batch
    norm normalised; anything but 'trained' is no ordinary result.
    """

    dataset: str
    method: str
    preset: str
    seed: int
    selection: str
    step: int
    domain: str
    role: Literal["source", "target"]
    part: Literal["val", "test"]
    num_images: int
    num_excluded: int
    draws: int
    metrics: Mapping[str, float]
    recalibrated: Mapping[str, float] | None = None
    statistics: str = TRAINED


@dataclass(frozen=True)
class DetectionRecord:
    """How well a score tells two kinds of images apart, under the selected weights.

    Attributes:
        task: 'errors': wrong from right answers on the domain; 'domain': its images from those of
            the sources; 'unknown': images of unknown classes from others.
        score: See evaluate/scoring.py; a larger value says 'positive'.
        num_positive: Wrong answers, images of the domain, images of unknown classes.
        num_negative: The others.
        metrics: AUROC, AUPR, FPR95.
        statistics: As of a ResultRecord.
    """

    dataset: str
    method: str
    preset: str
    seed: int
    selection: str
    step: int
    domain: str
    draws: int
    task: Literal["errors", "domain", "unknown"]
    score: str
    num_positive: int
    num_negative: int
    metrics: Mapping[str, float]
    statistics: str = TRAINED


Record: TypeAlias = StartRecord | NoteRecord | StepRecord | ResultRecord | DetectionRecord
KINDS: dict[str, type[Record]] = {
    "start": StartRecord,
    "note": NoteRecord,
    "step": StepRecord,
    "result": ResultRecord,
    "detection": DetectionRecord,
}


def results_of(records: Iterable[Record], statistics: str = TRAINED) -> list[ResultRecord]:
    """The results with these statistics of batch norm; the ordinary ones by default."""
    found = (record for record in records if isinstance(record, ResultRecord))
    return [record for record in found if record.statistics == statistics]


def detections_of(records: Iterable[Record], statistics: str = TRAINED) -> list[DetectionRecord]:
    """Likewise the detections."""
    found = (record for record in records if isinstance(record, DetectionRecord))
    return [record for record in found if record.statistics == statistics]


def mean_accuracy(metrics: Metrics | None) -> float | None:
    """The mean over domains; None if there are none, or one is no number."""
    found = [] if metrics is None else [domain["accuracy"] for domain in metrics.values()]
    numbers = [value for value in found if value is not None and math.isfinite(value)]
    return math.fsum(numbers) / len(numbers) if numbers and len(numbers) == len(found) else None


def to_line(record: Record) -> str:
    """One JSON object; NaN and infinity, which are no JSON, become null."""
    kind = next(name for name, cls in KINDS.items() if isinstance(record, cls))
    fields = _without_nan(dataclasses.asdict(record))
    return json.dumps({"kind": kind, **fields}, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_line(line: str) -> Record:
    """The record of a line; ValueError if it is none."""
    try:
        fields: dict[str, Any] = json.loads(line)
        return KINDS[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("not a record") from None


def write_records(path: Path, records: Iterable[Record]) -> None:
    """All records of a run; the file is there whole or not at all."""
    write_text(path, "".join(to_line(record) + "\n" for record in records))


def read_records(path: Path) -> list[Record]:
    """The records of a run, in order; a last line that was cut is left out.

    A line is written with its end, so one without is what a kill or a full disk cut.
    """
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise StoredRunError(f"no records at {path}; is it a run folder?") from None
    except OSError as error:
        raise StoredRunError(f"{path} cannot be read: {error.strerror}") from None
    lines = content.split("\n")[:-1]
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(from_line(line))
        except ValueError:
            raise StoredRunError(f"{path} line {number} is not a record") from None
    return records


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # where the disk was full: room is scarce there
