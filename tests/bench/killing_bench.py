"""Run a bench undisturbed, and one whose driver is killed and which two drivers then go on with.

    python tests/bench/killing_bench.py FOLDER

A process that has imported torch but never computed forks the drivers, and a driver its jobs, so
that none of them has to load torch. Jobs are tied to their driver as bench/local.py ties them.
Prints how many runs were done when the driver was killed, and which.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch._dynamo  # torch needs it at the first step, and every child would load it again

import bayesdg.training.train  # noqa: F401  (loaded once, for all)
from bayesdg.bench import drive as driving
from bayesdg.bench.drive import drive
from bayesdg.bench.folder import is_done, job_path, last_step, write_plan
from bayesdg.bench.jobs import Job, jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.bench.work import main
from benches import miniature, tiny_pacs


class Forking:
    """An engine of forked processes."""

    jobs = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[int, str] = {}

    def start(self, name: str, log: Path) -> None:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
            with log.open("a") as file:
                os.dup2(file.fileno(), 2)
            code = 75 if os.getppid() != parent else 1
            try:
                code = code if code == 75 else main([str(self._folder), name])
            finally:
                os._exit(code)
        self._running[child] = name

    def ended(self) -> dict[str, int]:
        codes = {}
        for child in list(self._running):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                codes[self._running.pop(child)] = os.waitstatus_to_exitcode(status)
        return codes

    def leave(self) -> None:
        pass


def driver(folder: Path, jobs: list[Job]) -> int:
    """A forked process that runs the whole plan; its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            code = len(drive(folder, jobs, Forking(folder)).failures)
        finally:
            os._exit(code)
    return child


def ended_well(child: int) -> None:
    """Wait."""
    _, status = os.waitpid(child, 0)
    assert status == 0, f"a driver ended with {status}"


def run(folder: Path) -> None:
    """Both benches; see the top."""
    driving.LOOK_AGAIN, driving.PERIOD = 1.0, 0.02
    plan = miniature(
        PLANS["pacs"], tiny_pacs(folder), [["art"], ["photo"]],
        **{
            "training.steps": 40, "training.checkpoint_every": 5, "training.evaluate_every": 20,
        },
    )  # fmt: skip
    jobs = jobs_of(plan)
    calm, killed = folder / "calm", folder / "killed"
    for place in (calm, killed):
        place.mkdir()
        write_plan(place, "mine", plan, jobs)
    ended_well(driver(calm, jobs))

    first = driver(killed, jobs)
    while last_step(job_path(killed, jobs[1]))[0] < 10:
        time.sleep(0.01)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    done = [job.name for job in jobs if is_done(killed, job)]
    print(len(done), *done)
    for child in [driver(killed, jobs), driver(killed, jobs)]:
        ended_well(child)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
