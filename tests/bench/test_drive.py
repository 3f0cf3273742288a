"""Every plan in miniature; failures, retries, others at work, signals, a killed driver."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import pytest

import counting_bench
from bayesdg.bench import drive as driving
from bayesdg.bench.drive import drive
from bayesdg.bench.folder import COST, is_done, job_path, last_step, write_plan
from bayesdg.bench.jobs import Job, each_once, inner_jobs, jobs_of
from bayesdg.bench.plans import PLANS, Plan
from bayesdg.records import ResultRecord, StartRecord, StepRecord, read_records
from bayesdg.selection import leave_one_source_out
from bayesdg.stored_runs import TESTS, find_runs, read_tests
from bayesdg.tables.build import tables_of
from bayesdg.training.lock import FolderLock
from bayesdg.training.signals import Signals
from benches import Here, miniature, tiny_pacs
from counting_bench import MIDDLE, STEPS, counted


@pytest.fixture(scope="module")
def pacs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pacs(tmp_path_factory.mktemp("data"))


def begun(folder: Path, plan: Plan, name: str = "mine") -> list[Job]:
    """The plan's jobs, written down as the command does it."""
    folder.mkdir(exist_ok=True)
    write_plan(folder, name, plan, jobs_of(plan))
    return each_once(jobs_of(plan))


def small(pacs: Path, **more: object) -> Plan:
    """Two runs."""
    return miniature(PLANS["pacs"], pacs, [["photo"]], **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bench folder for all plans: a run that two of them want is trained once."""
    return tmp_path_factory.mktemp("bench")


@pytest.mark.parametrize("name", [name for name in PLANS if name != "rotated"])
def test_every_plan_runs_in_miniature(name: str, pacs: Path, shared: Path) -> None:
    plan = PLANS[name]
    if "laplace" in plan.methods and find_spec("laplace") is None:
        pytest.skip("needs the extra laplace")
    plan = replace(plan, test_draws=(0, 2) if len(plan.test_draws) > 1 else plan.test_draws)
    if name == "sensitivity":
        plan = replace(plan, variants=dict(list(plan.variants.items())[::5]))
    if name == "cost":
        plan = replace(plan, variants=dict(list(plan.variants.items())[::3]))
    jobs = begun(shared, miniature(plan, pacs, [["cartoon"]]), name)
    there = {job.name for job in jobs if is_done(shared, job)}
    engine = Here(shared)
    outcome = drive(shared, jobs, engine)
    assert outcome.failures == []
    assert outcome.done == [job.name for job in jobs]
    assert engine.begun == [job.name for job in jobs if job.name not in there]
    assert tables_of(shared, name)[0]
    for job in jobs:
        path = job_path(shared, job)
        if plan.measures == "cost":
            found = json.loads((path / COST).read_text())
            assert found["parameters"] > 0
            assert found["saved_bytes"] > 0
            continue
        records = read_records(path / "records.jsonl")
        results = [r for r in records if isinstance(r, ResultRecord) and r.role == "target"]
        assert [result.domain for result in results] == ["cartoon"]
        steps = [record for record in records if isinstance(record, StepRecord)]
        # What is put together from trained runs has no loss, and no way along which to look.
        assert all(step.target_test is not None for step in steps if step.loss is not None)
        if job.test_draws:
            tests = {test.draws: test for test in read_tests(path)}
            assert tests.keys() >= set(job.test_draws)
        if 2 in job.test_draws and results[0].draws == 2:
            # The run was tested under two draws already.
            assert tests[2].metrics["accuracy"] == results[0].metrics["accuracy"]
    if name == "uncertainty":
        (table,) = tables_of(shared, name)[0]
        timed = [cell for (_, c), cell in table.cells.items() if c.metric == "milliseconds"]
        assert len(timed) == len(jobs)
        assert all(cell.mean > 0 for cell in timed)


def test_the_rotated_plan_tests_angles_it_trained_on_and_others(tmp_path: Path) -> None:
    plan = miniature(PLANS["rotated"], "rotated-digits", methods=["a"])
    (job,) = begun(tmp_path, plan, "rotated")
    assert drive(tmp_path, [job], Here(tmp_path)).failures == []
    records = read_records(job_path(tmp_path, job) / "records.jsonl")
    tested = {
        (result.domain, result.role)
        for result in records
        if isinstance(result, ResultRecord) and result.part == "test"
    }
    sources = {(str(angle), "source") for angle in (15, 30, 45, 60, 75)}
    assert tested == sources | {("0", "target"), ("90", "target")}
    # Every rule has its figures for both, whichever step it chooses; where it is the one whose
    # weights were kept, what was seen along the way is what the test at the end says.
    for rule in ("source-val", "last", "oracle", "released-code"):
        (table,), _ = tables_of(tmp_path, "rotated", rule)
        assert [c.target for c in table.columns] == ["in-distribution", "mean"]
        assert len(table.cells) == 2, table.missing
    results = [r for r in records if isinstance(r, ResultRecord) and r.role == "source"]
    (chosen,) = [r for r in records if isinstance(r, StepRecord) and r.step == results[0].step]
    assert chosen.source_test is not None
    for result in results:
        seen = chosen.source_test[result.domain]["accuracy"]
        assert seen == pytest.approx(result.metrics["accuracy"])


def test_settings_are_chosen_by_runs_that_leave_each_source_out(pacs: Path, tmp_path: Path) -> None:
    """Two learning rates, from runs to the table: the one whose inner runs are better is shown."""
    rates = {"slow": {"training.learning_rate": 1e-6}, "fast": {"training.learning_rate": 1e-2}}
    plan = replace(PLANS["pacs"], variants=rates)
    full = jobs_of(
        miniature(
            plan,
            pacs,
            [["sketch"]],
            methods=["a"],
            **{"training.steps": 4, "training.evaluate_every": 4},
        )
    )
    jobs = [*full, *inner_jobs(full)]
    write_plan(tmp_path, "rates", plan, jobs)
    assert write_plan(tmp_path, "rates", plan, jobs) == [], "an inner run took another one's place"
    assert drive(tmp_path, jobs, Here(tmp_path)).failures == []

    (choice,) = leave_one_source_out(find_runs(tmp_path)[0])
    left_out = {rate: [] for rate in rates}  # type: ignore[var-annotated]
    for job in jobs[2:]:
        records = read_records(job_path(tmp_path, job) / "records.jsonl")
        assert not any("sketch" in str(record) for record in records), "the target was seen"
        (found,) = [r for r in records if isinstance(r, ResultRecord) and r.role == "target"]
        left_out[job.variant].append(found.metrics["accuracy"])
    scores = {rate: sum(values) / 3 for rate, values in left_out.items()}
    assert choice.scores == pytest.approx(sorted(scores.values(), reverse=True))
    (table,), notes = tables_of(tmp_path, "rates", "leave-one-source-out")
    (best,) = [
        rate for rate in rates if f"chosen for a on tiny-pacs, sketch: {rate}" in table.notes
    ]
    assert scores[best] == max(scores.values())
    (shown,) = [job for job in full if job.variant == best]
    (cell,) = table.cells.values()
    (reported,) = [
        r.metrics["accuracy"]
        for r in read_records(job_path(tmp_path, shown) / "records.jsonl")
        if isinstance(r, ResultRecord) and r.role == "target"
    ]
    assert cell.mean == reported
    assert notes == []
    assert len({line.what for line in tables_of(tmp_path, "rates")[0][0].lines}) == 2

    shutil.rmtree(job_path(tmp_path, jobs[-1]))
    _, notes = tables_of(tmp_path, "rates", "leave-one-source-out")
    assert [note.partition(":")[0] for note in notes] == ["not compared"]


def test_a_damaged_file_of_one_run_stops_no_other(pacs: Path, tmp_path: Path) -> None:
    plan = replace(PLANS["pacs"], test_draws=(0,))
    jobs = begun(tmp_path, miniature(plan, pacs, [["photo"]]))
    assert drive(tmp_path, jobs[:1], Here(tmp_path)).failures == []
    (job_path(tmp_path, jobs[0]) / TESTS).write_text("{")
    outcome = drive(tmp_path, jobs, Here(tmp_path))
    (failure,) = outcome.failures
    assert (failure.job, failure.exit_code) == (jobs[0], 6)
    assert "draws.json is damaged" in failure.why
    assert outcome.done == [jobs[1].name]


def test_what_is_done_is_not_begun_again(pacs: Path, tmp_path: Path) -> None:
    jobs = begun(tmp_path, small(pacs))
    first = Here(tmp_path)
    drive(tmp_path, jobs[:1], first)
    again = Here(tmp_path)
    outcome = drive(tmp_path, jobs, again)
    assert first.begun == [jobs[0].name]
    assert again.begun == [jobs[1].name]
    assert outcome.done == [job.name for job in jobs]


class Scripted:
    """An engine that ends each job as it is told to, one code after another."""

    jobs = 2

    def __init__(
        self, codes: Mapping[str, list[int]], done: Callable[[str], None] = lambda name: None
    ) -> None:
        self.codes = {name: list(each) for name, each in codes.items()}
        self.done = done
        self.begun: list[str] = []
        self.left = False
        self._now: dict[str, int] = {}

    def start(self, name: str, log: Path) -> None:
        self.begun.append(name)
        code = self.codes[name].pop(0)
        with log.open("a") as file:
            file.write(f"bayesdg: this is {code}\n" if code > 0 else "")
        if code == 0:
            self.done(name)
        if code != -1:
            self._now[name] = code

    def ended(self) -> dict[str, int]:
        now, self._now = self._now, {}
        return now

    def leave(self) -> None:
        self.left = True
        self._now = dict.fromkeys(self.codes, 75)


@pytest.fixture
def finishes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says that a job is done, whose engine is scripted."""
    finished: set[str] = set()
    monkeypatch.setattr(driving, "is_done", lambda folder, job: job.name in finished)
    monkeypatch.setattr(driving, "PERIOD", 0.01)
    return finished.add


def test_a_failure_stops_nobody_else_and_is_told_with_its_reason(
    pacs: Path, tmp_path: Path, finishes: Callable[[str], None]
) -> None:
    one, two = jobs_of(small(pacs))
    engine = Scripted({one.name: [1, 1], two.name: [0]}, finishes)
    outcome = drive(tmp_path, [one, two], engine, retries=1)
    assert engine.begun.count(one.name) == 2
    assert outcome.done == [two.name]
    (failure,) = outcome.failures
    assert (failure.job, failure.exit_code, failure.why) == (one, 1, "this is 1")
    assert failure.log.read_text().count("bayesdg: this is 1\n") == 2


def test_a_job_that_is_killed_does_not_speak_with_the_words_of_an_earlier_start(
    pacs: Path, tmp_path: Path, finishes: Callable[[str], None]
) -> None:
    one, _ = jobs_of(small(pacs))
    engine = Scripted({one.name: [1, -9]}, finishes)
    (failure,) = drive(tmp_path, [one], engine, retries=1).failures
    assert failure.why == "killed, perhaps by the system for lack of memory"


@pytest.mark.parametrize("code", [2, 3, 4, 6, 130])
def test_what_would_fail_again_or_was_cancelled_is_not_tried_again(
    code: int, pacs: Path, tmp_path: Path, finishes: Callable[[str], None]
) -> None:
    one, _ = jobs_of(small(pacs))
    engine = Scripted({one.name: [code]}, finishes)
    assert drive(tmp_path, [one], engine, retries=5).failures[0].exit_code == code


def test_a_run_that_another_has_is_looked_at_until_it_is_done(
    pacs: Path, tmp_path: Path, finishes: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is begun again only after a while, which is when the other may have died."""
    monkeypatch.setattr(driving, "LOOK_AGAIN", 0.3)
    one, two = jobs_of(small(pacs))
    engine = Scripted({one.name: [7, 0], two.name: [7]}, finishes)
    start = time.monotonic()
    outcome = drive(tmp_path, [one, two], _finishing(engine, lambda: finishes(two.name)))
    assert time.monotonic() - start > 0.3
    assert engine.begun == [one.name, two.name, one.name]
    assert sorted(outcome.done) == sorted([one.name, two.name])


def _finishing(engine: Scripted, other: Callable[[], None]) -> Scripted:
    """Somebody else ends a job when ours has ended."""
    ended = engine.ended

    def then() -> dict[str, int]:
        codes = ended()
        if codes:
            other()
        return codes

    engine.ended = then  # type: ignore[method-assign]
    return engine


def test_a_pre_empted_run_goes_on_without_a_retry(
    pacs: Path, tmp_path: Path, finishes: Callable[[str], None]
) -> None:
    one, _ = jobs_of(small(pacs))
    engine = Scripted({one.name: [75, -15, 75, 0]}, finishes)
    outcome = drive(tmp_path, [one], engine, retries=0)
    assert outcome.done == [one.name]
    assert outcome.failures == []


def test_a_signal_makes_all_jobs_save_and_the_driver_leave(
    pacs: Path, tmp_path: Path, finishes: Callable[[str], None]
) -> None:
    jobs = jobs_of(miniature(PLANS["pacs"], pacs))
    engine = Scripted({job.name: [-1] for job in jobs[:2]}, finishes)
    signals = Signals()
    signals.requested, signals.name, signals.exit_code = True, "SIGINT", 130

    outcome = drive(tmp_path, jobs, _asked_later(engine, signals), signals=signals)
    assert engine.left
    assert outcome.failures == []
    assert outcome.stopped is not None
    assert outcome.stopped.exit_code == 130
    assert "the same command goes on" in str(outcome.stopped)


def _asked_later(engine: Scripted, signals: Signals) -> Scripted:
    """The signal comes once two jobs are running."""
    signals.requested = False
    start = engine.start

    def then(name: str, log: Path) -> None:
        start(name, log)
        signals.requested = len(engine.begun) == 2

    engine.start = then  # type: ignore[method-assign]
    return engine


def test_a_locked_run_is_left_to_who_has_it(pacs: Path, tmp_path: Path) -> None:
    """The real thing: the child ends with code 7 and says who is at work."""
    (job,) = begun(tmp_path, small(pacs, methods=["a"]))
    path = job_path(tmp_path, job)
    path.mkdir(parents=True)
    engine = Here(tmp_path)
    log = tmp_path / "log"
    with FolderLock.acquire(path, print):
        engine.start(job.name, log)
    assert engine.ended() == {job.name: 7}
    assert "is in use by host" in log.read_text()
    assert not is_done(tmp_path, job)


@pytest.mark.skipif(sys.platform != "linux", reason="ties processes to their parent")
def test_killing_the_driver_and_two_drivers_at_once_change_nothing(
    pacs: Path, tmp_path: Path
) -> None:
    """SIGKILL in mid-bench, then two drivers at the same time; jobs count instead of training.

    All that a driver has of a job is its process and its folder, and those are real here.
    tests/cli/test_bench.py kills the command itself.
    """
    jobs = begun(tmp_path, miniature(PLANS["pacs"], pacs, [["art"], ["photo"]]))
    script = [sys.executable, counting_bench.__file__, str(tmp_path)]
    held = tmp_path / f"hold-{jobs[1].name}"
    held.touch()
    drivers = [subprocess.Popen(script)]
    try:
        _until(lambda: last_step(job_path(tmp_path, jobs[1]))[0] == MIDDLE)
        drivers[0].kill()
        drivers[0].wait()
        assert [is_done(tmp_path, job) for job in jobs] == [True, False, False, False]
        log = tmp_path / "logs" / f"{jobs[1].name}.log"
        _until(lambda: "stopped by SIGTERM, everything is saved" in log.read_text())
        held.unlink()
        drivers = [subprocess.Popen(script) for _ in range(2)]
        assert [driver.wait(60) for driver in drivers] == [0, 0]
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
    undisturbed = reduce(counted, range(1, STEPS + 1), 0.0)
    for job in jobs:
        records = read_records(job_path(tmp_path, job) / "records.jsonl")
        starts = [record.step for record in records if isinstance(record, StartRecord)]
        steps = [record.step for record in records if isinstance(record, StepRecord)]
        assert starts == ([0, MIDDLE] if job is jobs[1] else [0])
        assert steps == list(range(1, STEPS + 1))
        (result,) = (record for record in records if isinstance(record, ResultRecord))
        assert result.metrics == {"accuracy": undisturbed}


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.02)
