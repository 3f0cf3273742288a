"""A driver, and jobs that count instead of training: without torch each begins in a moment.

    python tests/counting_bench.py FOLDER             drive the plan 'mine' of the folder
    python tests/counting_bench.py FOLDER NAME        its job NAME

A job holds the lock of its run folder, hears signals and goes on from its records as training
does. A job whose folder of the bench has a file 'hold-NAME' stays at the middle step until it is
asked to leave.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bayesdg.bench import drive as driving
from bayesdg.bench import local
from bayesdg.bench.folder import is_done, job_path, planned_jobs, read_job
from bayesdg.errors import BayesdgError
from bayesdg.records import ResultRecord, StartRecord, StepRecord, read_records, to_line
from bayesdg.training.about import RECORDS, WEIGHTS, now
from bayesdg.training.checkpoint import MANIFEST
from bayesdg.training.lock import FolderLock
from bayesdg.training.signals import Signals

STEPS, MIDDLE = 30, 15


def counted(before: float, step: int) -> float:
    """What a step makes of the number: the end shows a step that was left out or done twice."""
    return (31 * before + step) % 9973


def drive(folder: Path) -> int:
    """The number of failures."""
    driving.LOOK_AGAIN, driving.PERIOD = 0.5, 0.02
    local.command = lambda *what: [sys.executable, __file__, str(what[0]), what[1]]
    jobs = planned_jobs(folder)["mine"]
    with local.Local(folder, None, jobs=1) as engine:
        return len(driving.drive(folder, jobs, engine).failures)


def work(folder: Path, name: str) -> None:
    """Count to STEPS, from where the records end."""
    job = read_job(folder, name)
    path = job_path(folder, job)
    path.mkdir(parents=True, exist_ok=True)
    with FolderLock.acquire(path, print), Signals().heard() as signals:
        if is_done(folder, job):
            return
        signals.can_wait = True
        found = read_records(path / RECORDS) if (path / RECORDS).exists() else []
        steps = [record for record in found if isinstance(record, StepRecord)]
        done, number = (steps[-1].step, steps[-1].loss or 0.0) if steps else (0, 0.0)
        with (path / RECORDS).open("a") as records:

            def write(record: StartRecord | StepRecord | ResultRecord) -> None:
                records.write(to_line(record) + "\n")
                records.flush()

            write(StartRecord(done, now(), {}, "cpu", 1, 1, "32", False))
            for step in range(done + 1, STEPS + 1):
                time.sleep(0.005)
                number = counted(number, step)
                write(StepRecord(step, float(step), {}, number, 0.1, None))
                while step == MIDDLE and (folder / f"hold-{name}").exists():
                    time.sleep(0.005)
                    if signals.requested:
                        break
                if signals.requested:
                    raise signals.error("everything is saved")
            target = job.targets[0]
            write(
                ResultRecord(
                    job.dataset, job.settings.method, "default", 0, "source-val", STEPS, target,
                    "target", "test", 1, 0, 0, {"accuracy": number},
                )
            )  # fmt: skip
        for end in (WEIGHTS, MANIFEST):
            (path / end).touch()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(drive(Path(sys.argv[1])))
    try:
        work(Path(sys.argv[1]), sys.argv[2])
    except BayesdgError as error:
        print(f"bayesdg: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
