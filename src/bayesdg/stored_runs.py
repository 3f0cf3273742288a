"""Run folders as plain values, whatever state they are in. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bayesdg.errors import StoredRunError
from bayesdg.records import Record, ResultRecord, StepRecord, read_records, results_of
from bayesdg.settings import Settings
from bayesdg.training.about import (
    RECORDS,
    RUN,
    SETTINGS,
    Task,
    read_about,
    read_json,
    read_settings,
    stored_identity,
)

DEEPEST = 3
# Where a bench keeps what a run said under several numbers of draws.
TESTS = "draws.json"


class DrawsTest(BaseModel):
    """What a run said about a domain under a number of weight draws, and in how many seconds."""

    model_config = ConfigDict(frozen=True)

    draws: int
    domain: str
    num_images: int = Field(gt=0)
    seconds: float
    metrics: dict[str, float | None]


@dataclass(frozen=True)
class StoredRun:
    """What a run folder says.

    Attributes:
        path: The folder.
        settings: All of them.
        task: What it was trained on.
        identity: The settings that decide what it computed.
        records: All that is recorded.
        tests: Under several numbers of draws, where that was asked for.
    """

    path: Path
    settings: Settings
    task: Task
    identity: Mapping[str, Any]
    records: Sequence[Record]
    tests: Sequence[DrawsTest] = ()

    @property
    def steps(self) -> list[StepRecord]:
        """How training went."""
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def results(self) -> list[ResultRecord]:
        """What was evaluated, with the statistics of batch norm that training kept."""
        return results_of(self.records)

    @property
    def last_step(self) -> int:
        """How far it came."""
        return max((record.step for record in self.steps), default=0)

    @property
    def is_trained(self) -> bool:
        """Whether it came to its end."""
        return self.last_step >= self.settings.training.steps


def find_runs(folder: Path) -> tuple[list[StoredRun], list[str]]:
    """All runs in or below a folder, in the order of their names, and what could not be read."""
    if not folder.is_dir():
        raise StoredRunError(f"no folder at {folder}; give one that holds run folders")
    runs, problems = [], []
    for path in run_folders(folder):
        try:
            runs.append(read_run(path))
        except StoredRunError as error:
            problems.append(str(error))
    return runs, problems


def read_run(path: Path) -> StoredRun:
    """The run in a folder; StoredRunError if a part of it is missing or damaged."""
    about = read_about(path)
    return StoredRun(
        path,
        read_settings(path),
        about.task,
        stored_identity(about),
        # A run that was killed before its first line has none.
        read_records(path / RECORDS) if (path / RECORDS).exists() else [],
        read_tests(path),
    )


def read_tests(run: Path) -> tuple[DrawsTest, ...]:
    """What a run said under several numbers of draws; nothing where that was not asked for."""
    path = run / TESTS
    if not path.exists():
        return ()
    try:
        return tuple(map(DrawsTest.model_validate, read_json(path)["tests"]))
    except (KeyError, TypeError):
        raise StoredRunError(f"{path} is damaged: it holds no tests") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoredRunError(f"{path} is damaged: {where}: {first['msg']}") from None


def run_folders(folder: Path, deepest: int = DEEPEST) -> Iterator[Path]:
    """Folders that hold what a run leaves behind; what is below such a folder is its own."""
    if any((folder / name).is_file() for name in (RUN, SETTINGS, RECORDS)):
        yield folder
    elif deepest:
        try:
            below = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
        except OSError as error:
            raise StoredRunError(f"{folder} cannot be read: {error.strerror}") from None
        for path in below:
            yield from run_folders(Path(path), deepest - 1)
