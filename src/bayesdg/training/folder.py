"""The folder of a run: what was asked for, what came out, and how to go on.

    settings.json        everything that was set
    run.json             the task, versions, the format of this folder
    data.json            what was trained on, by sha256
    records.jsonl        how it went, a line each
    checkpoints/step-N/  to go on from; the best by source validation is among them
    weights.safetensors, manifest.json    the selected weights: the run is done

One process at a time works in it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bayesdg.errors import ResourceError, StoredRunError, UsageError
from bayesdg.records import (
    NoteRecord,
    Record,
    ResultRecord,
    StartRecord,
    StepRecord,
    read_records,
    to_line,
    write_bytes,
    write_records,
    write_text,
)
from bayesdg.settings import Settings
from bayesdg.training import checkpoint
from bayesdg.training.about import (
    CHECKPOINTS,
    DATA,
    RECORDS,
    RUN,
    SETTINGS,
    WEIGHTS,
    Task,
    compare,
    identity,
    start_differences,
    write_about,
)
from bayesdg.training.keeper import require_best
from bayesdg.training.lock import FolderLock
from bayesdg.training.state import PROGRESS, Progress, TrainingState, to_bytes


class RunFolder:
    """A run folder, open for training.

    Attributes:
        path: The folder.
        records: All that is recorded so far.
        unjudged: The record of a step whose validation was cut short, taken out of the others.
        watch: Is told every new record.
    """

    def __init__(self, path: Path, kept: int, watch: Callable[[Record], None]) -> None:
        self.path = path
        self.records: list[Record] = []
        self.unjudged: StepRecord | None = None
        self.watch = watch
        self._kept = kept
        self._best = 0
        self._length = 0  # of the records on the disk, in bytes
        self._unwritten: list[str] = []
        self._told_of_full_disk = False
        # The lock has a thread, which speaks when nobody else does; it is heard at the next line.
        self._heard: deque[str] = deque()
        self._lock = FolderLock.acquire(path, self._heard.append)

    @classmethod
    def open(cls, path: Path, kept: int, watch: Callable[[Record], None]) -> RunFolder:
        """The folder, made if it is not there; FolderInUseError if another process has it."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            return cls(path, kept, watch)
        except OSError as error:
            if error.errno == ENOSPC:
                raise checkpoint.disk_full(path.parent, 2**20) from None
            raise UsageError(
                f"{path} cannot be written to ({error.strerror}); give another folder (--out)"
            ) from None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / CHECKPOINTS

    def begin(self, settings: Settings, task: Task, data: Mapping[str, str]) -> None:
        """Write what was asked for, or refuse if something else was asked for here before."""
        wanted = identity(settings)
        if (self.path / RUN).exists():
            compare(self.path, wanted, task, data)
            return
        write_text(self.path / DATA, json.dumps(data, indent=0) + "\n")
        write_text(self.path / SETTINGS, settings.model_dump_json(indent=2) + "\n")
        write_about(self.path, settings, task)  # last: where it is there, the others are

    def resume(self, state: TrainingState) -> None:
        """Bring the state to the newest checkpoint that is whole, and the records with it."""
        self.checkpoints.mkdir(exist_ok=True)
        litter = checkpoint.sweep(self.checkpoints)
        old = self._old_records()
        notes = [f"removed {name}, which a killed process left" for name in litter]
        found = self._newest_whole(notes)
        if found is not None:
            step, files = found
            state.load(files, str(self.checkpoints / checkpoint.NAME.format(step)))
        step = state.progress.step
        done = max((r.step for r in old if isinstance(r, StepRecord)), default=0)
        if found is None and done:
            notes.append(f"there is no checkpoint: training begins anew, step {done} was recorded")
        self._best = state.progress.best_step
        self.records = [r for r in old if not isinstance(r, ResultRecord) and r.step <= step]
        if state.progress.cut_short:
            last = [r for r in self.records if isinstance(r, StepRecord) and r.step == step][-1:]
            self.records = [r for r in self.records if r not in last]
            self.unjudged = last[0] if last else None
        write_records(self.path / RECORDS, self.records)
        self._length = (self.path / RECORDS).stat().st_size
        if found is not None:
            # Steps beyond it were undone with their records: what is newer is of no use.
            newer = (p for s, p in checkpoint.checkpoints(self.checkpoints).items() if s > step)
            checkpoint.remove(newer)
        for text in notes:
            self.note(step, text)

    def _old_records(self) -> list[Record]:
        if not (self.path / RECORDS).exists():
            return []
        return read_records(self.path / RECORDS)

    def _newest_whole(self, notes: list[str]) -> tuple[int, dict[str, bytes]] | None:
        """The newest checkpoint that is whole, and whose best one is."""
        available = checkpoint.checkpoints(self.checkpoints)
        damaged: list[str] = []
        for step, path in available.items():
            try:
                files = checkpoint.read_checkpoint(path)
                best = best_step(files, path)
                if best not in (0, step):
                    checkpoint.read_checkpoint(self.checkpoints / checkpoint.NAME.format(best))
            except StoredRunError as error:
                damaged.append(str(error))
                continue
            notes += [f"{why}; using step {step} instead" for why in damaged]
            return step, files
        if damaged:
            raise StoredRunError(
                f"{damaged[0]}; no other checkpoint can be used. Remove {self.path} to begin anew"
            )
        return None

    def record(self, record: Record) -> None:
        """Add a line; a disk that does not take it stops nothing, it is written later."""
        spoken = [NoteRecord(record.step, self._heard.popleft()) for _ in range(len(self._heard))]
        for each in (*spoken, record):
            self.records.append(each)
            self._unwritten.append(to_line(each) + "\n")
        self._write_lines()
        self._lock.step = record.step
        for each in (*spoken, record):
            self.watch(each)

    def note(self, step: int, text: str, details: Mapping[str, Any] | None = None) -> None:
        """Record something for people."""
        self.record(NoteRecord(step, text, details or {}))

    def start(self, record: StartRecord) -> None:
        """Record that a process goes on, and what has changed since the last one."""
        before = [r for r in self.records if isinstance(r, StartRecord)]
        self.record(record)
        changes = [] if not before else start_differences(before[-1], record)
        if changes:
            self.note(record.step, f"from here on not the same bits: {'; '.join(changes)}")

    def _write_lines(self) -> None:
        try:
            self._append("".join(self._unwritten).encode())
        except OSError as error:
            if not self._told_of_full_disk:
                self._told_of_full_disk = True
                why = error.strerror or "input/output error"
                self.watch(NoteRecord(0, f"{self.path}: {why}; training goes on, lines are kept"))
            return
        self._unwritten.clear()
        self._told_of_full_disk = False

    def _append(self, text: bytes) -> None:
        """Add to the file, from where the last whole line ends: what was cut is overwritten."""
        with (self.path / RECORDS).open("r+b") as file:
            file.truncate(self._length)
            file.seek(self._length)
            file.write(text)
        self._length += len(text)

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint and remove those that are needed no more."""
        self._lock.check()
        progress = state.progress
        self._best = progress.best_step
        with suppress(OSError), (self.path / RECORDS).open("ab") as file:
            os.fsync(file.fileno())  # a checkpoint without its records would be worth less
        try:
            checkpoint.write_checkpoint(
                self.checkpoints, progress.step, state.files(), make_room=lambda: self._prune(1)
            )
        except ResourceError:
            raise
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.note(progress.step, f"checkpoint not written ({why}); the next one is tried")
            return
        self._prune(self._kept)

    def _prune(self, kept: int) -> None:
        available = checkpoint.checkpoints(self.checkpoints)
        newest = list(available)[:kept]
        checkpoint.remove(p for s, p in available.items() if s not in newest and s != self._best)

    def select(self, state: TrainingState) -> None:
        """Give the learner the best weights and write them: the run is done."""
        require_best(state)
        if self._unwritten:
            try:
                self._append("".join(self._unwritten).encode())
            except OSError:
                raise checkpoint.disk_full(self.path, 2**20) from None
        path = self.checkpoints / checkpoint.NAME.format(state.progress.best_step)
        state.load_selected(checkpoint.read_checkpoint(path))
        write_weights(self.path, to_bytes(state.learner.state_dict()))


def write_weights(folder: Path, content: bytes) -> None:
    """The selected weights and, last, their manifest."""
    write_bytes(folder / WEIGHTS, content)
    entry = {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
    manifest = json.dumps({"files": {WEIGHTS: entry}}, indent=1) + "\n"
    write_text(folder / checkpoint.MANIFEST, manifest)


def best_step(files: Mapping[str, bytes], path: Path) -> int:
    """The best step so far, as a checkpoint knows it."""
    try:
        return Progress.model_validate_json(files[PROGRESS]).best_step
    except (KeyError, ValidationError):
        raise StoredRunError(f"checkpoint {path} is damaged: {PROGRESS} cannot be read") from None
