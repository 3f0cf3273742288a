"""Runs jobs on an engine until each is done, has failed or was asked to leave. Imports no torch.

The truth is in the run folders: whatever happens to this process, another one that is started the
same way goes on from there. Several may work on one folder at once: the lock of a run folder lets
one of them have it, and the others see it done when it is.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bayesdg.bench.folder import is_done, job_path, last_step, log_path
from bayesdg.bench.jobs import Job
from bayesdg.errors import BayesdgError, FolderInUseError
from bayesdg.training.about import now
from bayesdg.training.launch import last_words
from bayesdg.training.signals import CTRL_C, PRE_EMPTED, Signals

PERIOD = 0.2  # seconds between two looks
LOOK_AGAIN = 30.0  # seconds until a run that another process had is tried again
# Usage, data, numbers, a damaged folder: the same again would end the same way. What somebody has
# cancelled is not begun again behind their back.
HOPELESS = (2, 3, 4, 6, CTRL_C)
BEGIN = "# begun "


class Engine(Protocol):
    """Where jobs run."""

    @property
    def jobs(self) -> int:
        """How many at a time."""
        ...

    def start(self, name: str, log: Path) -> None:
        """Run the job of this name; what it prints goes to the end of the log."""
        ...

    def ended(self) -> Mapping[str, int]:
        """Exit codes of the jobs that ended since the last call."""
        ...

    def leave(self) -> None:
        """Ask all jobs to save and leave."""
        ...


class Watcher(Protocol):
    """Is told how it goes."""

    def began(self, job: Job) -> None:
        """A job was started."""
        ...

    def at(self, job: Job, step: int) -> None:
        """A running job has come so far."""
        ...

    def ended(self, job: Job, how: str) -> None:
        """A job runs no more; '' if it is done."""
        ...


@dataclass(frozen=True)
class Failure:
    """Of a job, for good.

    Attributes:
        exit_code: See errors.py; negative for the signal that ended it.
        why: The last line it printed.
        log: All it printed.
    """

    job: Job
    exit_code: int
    why: str
    log: Path


@dataclass
class Outcome:
    """How it ended: names of what is done, what failed, and the signal that stopped it."""

    done: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stopped: BayesdgError | None = None


class Quiet:
    """A watcher that says nothing."""

    def began(self, job: Job) -> None:
        """Nothing."""

    def at(self, job: Job, step: int) -> None:
        """Nothing."""

    def ended(self, job: Job, how: str) -> None:
        """Nothing."""


def drive(
    folder: Path,
    jobs: Sequence[Job],
    engine: Engine,
    retries: int = 0,
    watcher: Watcher | None = None,
    signals: Signals | None = None,
) -> Outcome:
    """Run what is not done yet.

    Args:
        folder: Of the bench; the jobs are in its plan.json.
        jobs: Each once.
        engine: Where.
        retries: How often a job that failed is started again, unless it would fail again anyway.
        watcher: Is told how it goes.
        signals: That are heard; one makes all jobs save and leave.
    """
    watcher, signals = watcher or Quiet(), signals or Signals()
    outcome = Outcome()
    waiting = list(jobs)
    running: dict[str, Job] = {}
    not_before: dict[str, float] = {}
    left = {job.name: retries for job in jobs}
    asked = False
    while waiting or running:
        if signals.requested and not asked:
            asked = True
            engine.leave()
            waiting.clear()
        for job in list(waiting):
            if len(running) >= engine.jobs:
                break
            if is_done(folder, job):
                waiting.remove(job)
                outcome.done.append(job.name)
                watcher.ended(job, "")
            elif not_before.get(job.name, 0.0) <= time.monotonic():
                waiting.remove(job)
                running[job.name] = job
                watcher.began(job)
                engine.start(job.name, _begun_log(folder, job))
        for name, code in engine.ended().items():
            job = running.pop(name)
            if code == 0 and is_done(folder, job):
                outcome.done.append(name)
                watcher.ended(job, "")
            elif asked:
                watcher.ended(job, "left")
            elif code == FolderInUseError.exit_code:
                watcher.ended(job, "another process has it")
                not_before[name] = time.monotonic() + LOOK_AGAIN
                waiting.append(job)
            elif code in (PRE_EMPTED, -signal.SIGTERM):
                watcher.ended(job, "was asked to leave; goes on")
                waiting.append(job)
            elif left[name] and code not in HOPELESS:
                left[name] -= 1
                watcher.ended(job, "failed; tried again")
                waiting.append(job)
            else:
                log = log_path(folder, job)
                outcome.failures.append(Failure(job, code, _why(log, code), log))
                watcher.ended(job, f"failed: {outcome.failures[-1].why}")
        for job in running.values():
            watcher.at(job, last_step(job_path(folder, job))[0])
        if waiting or running:
            time.sleep(PERIOD)
    if asked:
        outcome.stopped = signals.error("everything is saved; the same command goes on")
    return outcome


def _begun_log(folder: Path, job: Job) -> Path:
    """The job's log, with a line that this start begins with."""
    path = log_path(folder, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{BEGIN}{now()}\n")
    return path


def _why(log: Path, code: int) -> str:
    """The last line a job printed, or how it ended if it printed none."""
    if code == CTRL_C:
        return "it was cancelled"
    words = last_words(log)
    if words and not words.startswith(BEGIN):
        return words.removeprefix("bayesdg: ")
    if code == -signal.SIGKILL:
        return "killed, perhaps by the system for lack of memory"
    return f"ended with {code} and without a word"
