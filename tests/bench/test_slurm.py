"""submitit's executor for one machine in the place of Slurm's: same jobs, same signals."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bayesdg.bench.drive import drive
from bayesdg.bench.folder import job_path, last_step, write_plan
from bayesdg.bench.jobs import Job, jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.records import NoteRecord, StartRecord, read_records
from benches import miniature, tiny_pacs

if find_spec("submitit") is None:
    pytest.skip("needs the extra slurm", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_a_job_whose_time_is_up_saves_is_queued_again_and_goes_on(tmp_path: Path) -> None:
    from bayesdg.bench.slurm import Slurm

    plan = miniature(
        PLANS["pacs"], tiny_pacs(tmp_path), [["photo"]], methods=["j"],
        **{"training.steps": 600, "training.evaluate_every": 300},
    )  # fmt: skip
    folder = tmp_path / "bench"
    folder.mkdir()
    (job,) = jobs_of(plan)
    write_plan(folder, "mine", plan, [job])
    warned: list[int] = []

    class Scheduler:
        """Tells submitit's process that its time is up, as Slurm would, and not the run's own."""

        def began(self, job: Job) -> None:
            pass

        def at(self, job: Job, step: int) -> None:
            if not warned and last_step(job_path(folder, job))[0] >= 30:
                warned.append(_process_of("submitit.core._submit"))
                os.kill(warned[0], signal.SIGUSR2)

        def ended(self, job: Job, how: str) -> None:
            pass

    with Slurm(folder, None, 1, 1, 0.0, None, hours=1.0, cluster="local") as engine:
        outcome = drive(folder, [job], engine, watcher=Scheduler())
    assert warned
    assert outcome.done == [job.name]
    records = read_records(job_path(folder, job) / "records.jsonl")
    starts = [record.step for record in records if isinstance(record, StartRecord)]
    assert starts[0] == 0
    assert len(starts) == 2
    assert starts[1] >= 30, "the run did not save when it was told"
    # It left as one leaves that was asked: nobody had to find a lock without an owner.
    assert not [r for r in records if isinstance(r, NoteRecord) and "goodbye" in r.text]
    assert "SIGTERM: saving" in (folder / "logs" / f"{job.name}.log").read_text()


def _process_of(module: str) -> int:
    """The child of ours that runs a module."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    (found,) = [int(pid) for pid, _, what in rows if module in what and is_ours(int(pid))]
    return found


def test_without_slurm_one_line_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bayesdg", "bench", "pacs", "--engine", "slurm", "--out", tmp_path],
        capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 5
    assert "no Slurm here" in done.stderr
    assert done.stderr.count("\n") == 1
