"""Programs that play Slurm, submitit's executor for one machine in its place, and a real one.

The tests with a real one begin where `sinfo` answers; the nodes have to see pytest's folder
(--basetemp) under the same path.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from bayesdg.bench import slurm
from bayesdg.bench.drive import Quiet, drive
from bayesdg.bench.folder import job_path, last_step, write_plan
from bayesdg.bench.jobs import Job, jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.bench.slurm import Slurm
from bayesdg.errors import UsageError
from bayesdg.records import NoteRecord, StartRecord, read_records
from benches import miniature, tiny_pacs

if find_spec("submitit") is None:
    pytest.skip("needs the extra slurm", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")


class Played:
    """sbatch, squeue and scancel that say what a test tells them, and begin nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs = {
            "srun": "",
            "sbatch": f"""
                if [ -s {folder}/refusal ]; then cat {folder}/refusal >&2; exit 1; fi
                echo . >> {folder}/submitted
                echo Submitted batch job $(wc -l < {folder}/submitted)""",
            "squeue": f"cat {folder}/queue",
            "scancel": f"echo $@ >> {folder}/cancelled",
        }
        (folder / "bin").mkdir(parents=True)
        for name, script in programs.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        for name in ("submitted", "cancelled", "refusal", "queue"):
            (folder / name).touch()

    @property
    def num_submitted(self) -> int:
        return (self._folder / "submitted").read_text().count(".")

    @property
    def cancelled(self) -> list[str]:
        return (self._folder / "cancelled").read_text().split()

    def lists(self, *rows: str) -> None:
        (self._folder / "queue").write_text("".join(f"{row}\n" for row in rows))

    def refuses(self, why: str) -> None:
        (self._folder / "refusal").write_text(why)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setenv("PATH", f"{tmp_path / 'played' / 'bin'}:{os.environ['PATH']}")
    for name in ("LOOK", "SETTLE", "PATIENT"):
        monkeypatch.setattr(slurm, name, 0.0)
    return Played(tmp_path / "played")


def engine_in(folder: Path) -> Slurm:
    folder.mkdir(exist_ok=True)
    return Slurm(folder, None, None, 1, 0.0, None, hours=1.0)


def ends_with(folder: Path, number: int, code: int | str) -> None:
    """What submitit leaves behind: an exit code, or a traceback."""
    result = ("error" if isinstance(code, str) else "success", code)
    (folder / "slurm" / f"{number}_0_result.pkl").write_bytes(pickle.dumps(result))


def test_what_became_of_a_job_is_told_by_its_result_or_else_by_slurm(
    played: Played, tmp_path: Path
) -> None:
    engine, log = engine_in(tmp_path / "bench"), tmp_path / "log"
    names = ("works", "fails", "cancelled", "left", "lost", "too-big", "again", "breaks")
    for name in names:
        engine.start(name, log)
    played.lists(*(f"{number}|RUNNING|None|{name}" for number, name in enumerate(names, 1)))
    assert engine.ended() == {}
    ends_with(tmp_path / "bench", 1, 0)
    ends_with(tmp_path / "bench", 2, 3)
    ends_with(tmp_path / "bench", 8, "Traceback:\n  ...\nOSError: no such folder\n")
    played.lists(
        "3|CANCELLED|None|cancelled",
        "4|COMPLETED|None|left",  # told to leave, by whom ever, it saved and left no result
        "6|OUT_OF_MEMORY|None|too-big",
        "7|PENDING|BeginTime|again",
    )
    expected = {"works": 0, "fails": 3, "cancelled": 130, "left": 75, "lost": 1, "too-big": 1}
    assert engine.ended() == {**expected, "breaks": 1}
    assert "Slurm ended job 6 (OUT_OF_MEMORY)" in log.read_text()
    assert "bayesdg: OSError: no such folder\n" in log.read_text()
    assert engine.ended() == {}, "a job that is queued again has not ended"


def test_slurm_that_does_not_answer_ends_no_job(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_in(tmp_path / "bench")
    engine.start("mine", tmp_path / "log")
    (tmp_path / "played" / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert engine.ended() == {}


def test_a_job_that_another_driver_handed_over_is_waited_for(
    played: Played, tmp_path: Path
) -> None:
    first = engine_in(tmp_path / "bench")
    first.start("mine", tmp_path / "log")
    played.lists("1|PENDING|Priority|mine")
    second = engine_in(tmp_path / "bench")
    second.start("mine", tmp_path / "log")
    elsewhere = engine_in(tmp_path / "other")
    assert played.num_submitted == 1
    elsewhere.start("mine", tmp_path / "log")
    assert played.num_submitted == 2, "a run of the same name in another folder is another one"
    ends_with(tmp_path / "bench", 1, 0)
    assert second.ended() == {"mine": 0}


def test_a_job_cancelled_by_a_driver_that_left_is_for_the_other_one_to_begin_again(
    played: Played, tmp_path: Path
) -> None:
    first, second = engine_in(tmp_path / "bench"), engine_in(tmp_path / "bench")
    first.start("mine", tmp_path / "log")
    played.lists("1|RUNNING|None|mine")
    second.start("mine", tmp_path / "log")
    first.leave()
    assert played.cancelled == ["1"]
    played.lists("1|CANCELLED|None|mine")
    assert second.ended() == {"mine": 75}
    second.start("mine", tmp_path / "log")
    assert played.num_submitted == 2


def test_what_slurm_does_not_take_now_is_handed_over_when_a_job_has_ended(
    played: Played, tmp_path: Path
) -> None:
    engine = engine_in(tmp_path / "bench")
    engine.start("one", tmp_path / "log")
    played.lists("1|RUNNING|None|one")
    played.refuses("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
    engine.start("two", tmp_path / "log")
    ends_with(tmp_path / "bench", 1, 0)
    assert engine.ended() == {"one": 0}
    assert played.num_submitted == 1
    played.refuses("")
    played.lists("2|RUNNING|None|two")
    assert engine.ended() == {}
    assert played.num_submitted == 2
    ends_with(tmp_path / "bench", 2, 0)
    assert engine.ended() == {"two": 0}


def test_where_slurm_takes_nothing_one_line_says_why(
    played: Played, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    played.refuses("sbatch: error: invalid partition\nsbatch: error: Invalid partition name")
    with pytest.raises(UsageError, match="Slurm takes no job: Invalid partition name; --partition"):
        engine_in(tmp_path / "bench").start("mine", tmp_path / "log")
    assert capfd.readouterr() == ("", "")


def test_jobs_that_will_never_begin_are_told_of(played: Played, tmp_path: Path) -> None:
    engine = engine_in(tmp_path / "bench")
    for name in ("one", "two"):
        engine.start(name, tmp_path / "log")
    played.lists("1|RUNNING|None|one", "2|PENDING|PartitionTimeLimit|two")
    engine.ended()
    assert engine.ended() == {}, "one of them runs"
    played.lists("1|PENDING|Priority|one", "2|PENDING|PartitionTimeLimit|two")
    engine.ended()
    assert engine.ended() == {}, "one of them will begin"
    played.lists("1|PENDING|PartitionTimeLimit|one", "2|PENDING|PartitionTimeLimit|two")
    engine.ended()
    why = r"will not begin any of these jobs \(PartitionTimeLimit\)"
    with pytest.raises(UsageError, match=why):
        engine.ended()


@pytest.mark.slow
def test_a_job_whose_time_is_up_saves_is_queued_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "queue", lambda: None)  # there is none to look at
    plan = miniature(
        PLANS["pacs"], tiny_pacs(tmp_path), [["photo"]], methods=["j"],
        **{"training.steps": 600, "training.evaluate_every": 300},
    )  # fmt: skip
    folder = tmp_path / "bench"
    folder.mkdir()
    (job,) = jobs_of(plan)
    write_plan(folder, "mine", plan, [job])
    warned: list[int] = []

    class Scheduler(Quiet):
        """Tells submitit's process that its time is up, as Slurm would, and not the run's own."""

        def at(self, job: Job, step: int) -> None:
            if not warned and last_step(job_path(folder, job))[0] >= 30:
                warned.append(_process_of("submitit.core._submit"))
                os.kill(warned[0], signal.SIGUSR2)

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
    assert "SIGUSR1: saving" in (folder / "logs" / f"{job.name}.log").read_text()


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


@pytest.mark.slow
def test_without_slurm_one_line_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bayesdg", "bench", "pacs", "--engine", "slurm", "--out", tmp_path],
        capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 5
    assert "no Slurm here" in done.stderr
    assert done.stderr.count("\n") == 1


def why_no_slurm() -> str:
    if shutil.which("sinfo") is None:
        return "no Slurm on this machine"
    try:
        done = subprocess.run(["sinfo"], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "Slurm does not answer"
    return f"Slurm does not answer: {done.stderr.partition(chr(10))[0]}" if done.returncode else ""


@pytest.fixture
def real() -> None:
    why = why_no_slurm()
    if why:
        pytest.skip(why)


def runs_of(folder: Path, data: Path, methods: list[str], steps: int) -> list[Job]:
    """Small runs in a plan.json."""
    folder.mkdir()
    plan = miniature(
        PLANS["pacs"], tiny_pacs(data), [["photo"]], methods=methods,
        **{"training.steps": steps, "training.evaluate_every": 300},
    )  # fmt: skip
    jobs = jobs_of(plan)
    write_plan(folder, "mine", plan, jobs)
    return jobs


class When(Quiet):
    """Does something once, when a run has come to a step."""

    def __init__(self, step: int, do: Callable[[Job], None]) -> None:
        self._step, self._do = step, do
        self.done_to: Job | None = None

    def at(self, job: Job, step: int) -> None:
        if self.done_to is None and step >= self._step:
            self.done_to = job
            self._do(job)


def numbers_of(job: Job) -> list[str]:
    """Of Slurm's jobs that have not ended."""
    there = slurm.queue() or {}
    return [n for n, one in there.items() if one.name == job.name and one.state not in slurm.ENDED]


def starts_of(folder: Path, job: Job) -> list[int]:
    records = read_records(job_path(folder, job) / "records.jsonl")
    return [record.step for record in records if isinstance(record, StartRecord)]


@pytest.mark.slow
@pytest.mark.usefixtures("real")
def test_real_slurm_runs_jobs_and_queues_one_again_whose_time_is_up(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    jobs = runs_of(folder, tmp_path, ["a", "j"], 600)

    def time_is_up(job: Job) -> None:
        (number,) = numbers_of(job)
        subprocess.run(["scancel", "--signal=USR2", number], check=True)
        deadline = time.monotonic() + 60
        while (slurm.queue() or {})[number].state != "PENDING":
            assert time.monotonic() < deadline, "it was not queued again"
            time.sleep(1)
        # Slurm lets one that is queued again wait for two minutes.
        subprocess.run(["scontrol", "update", f"JobId={number}", "StartTime=now"], check=True)

    told = When(30, time_is_up)
    with engine_in(folder) as engine:
        outcome = drive(folder, jobs, engine, watcher=told)
    assert outcome.failures == []
    assert sorted(outcome.done) == sorted(job.name for job in jobs)
    assert told.done_to is not None
    (other,) = [job for job in jobs if job is not told.done_to]
    assert starts_of(folder, other) == [0]
    first, second = starts_of(folder, told.done_to)
    assert first == 0
    assert second >= 30, "the run did not save when it was told"


@pytest.mark.slow
@pytest.mark.usefixtures("real")
def test_real_slurm_hands_a_cancelled_job_back_and_leaves_the_other(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    jobs = runs_of(folder, tmp_path, ["a", "j"], 2000)

    def cancel(job: Job) -> None:
        subprocess.run(["scancel", *numbers_of(job)], check=True)

    cancelled = When(30, cancel)
    with engine_in(folder) as engine:
        outcome = drive(folder, jobs, engine, retries=1, watcher=cancelled)
    (failure,) = outcome.failures
    assert (failure.job, failure.exit_code) == (cancelled.done_to, 130)
    assert outcome.done == [job.name for job in jobs if job is not failure.job]
    with engine_in(folder) as engine:
        assert drive(folder, [failure.job], engine).done == [failure.job.name]
    assert starts_of(folder, failure.job)[1] >= 30, "it did not save when it was cancelled"
