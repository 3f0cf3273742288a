"""What a bench folder remembers."""

import json
import threading
from pathlib import Path

import pytest

from bayesdg.bench.folder import (
    PLAN,
    from_json,
    is_done,
    job_path,
    last_step,
    read_job,
    read_plans,
    to_json,
    write_plan,
)
from bayesdg.bench.jobs import jobs_of, narrowed
from bayesdg.bench.plans import PLANS
from bayesdg.errors import StoredRunError, UsageError
from bayesdg.records import StepRecord, write_records


@pytest.mark.parametrize("name", ["pacs", "sensitivity", "cost", "draws", "office-home"])
def test_a_job_comes_back_from_json_as_it_was(name: str) -> None:
    for job in jobs_of(narrowed(PLANS[name], {}, seeds=[3])):
        assert from_json(json.loads(json.dumps(to_json(job)))) == job


def test_a_plan_that_is_widened_keeps_what_was_there(tmp_path: Path) -> None:
    narrow, wide = narrowed(PLANS["pacs"], {}, seeds=[0]), narrowed(PLANS["pacs"], {}, seeds=[0, 1])
    assert write_plan(tmp_path, "pacs", wide, jobs_of(wide)) == []
    assert write_plan(tmp_path, "pacs", narrow, jobs_of(narrow)) == []
    entries = read_plans(tmp_path)["plans"]["pacs"]["jobs"]
    assert [entry["run"] for entry in entries] == [job.name for job in jobs_of(wide)]


def test_other_settings_are_told_and_take_the_place_of_the_old(tmp_path: Path) -> None:
    before, after = (narrowed(PLANS["pacs"], {"training.steps": n}, seeds=[0]) for n in (5, 7))
    write_plan(tmp_path, "pacs", before, jobs_of(before))
    assert write_plan(tmp_path, "pacs", after, jobs_of(after)) == ["training.steps: 5 -> 7"]
    entries = read_plans(tmp_path)["plans"]["pacs"]["jobs"]
    assert [entry["run"] for entry in entries] == [job.name for job in jobs_of(after)]


def test_plans_live_side_by_side(tmp_path: Path) -> None:
    for name in ("pacs", "priors"):
        write_plan(tmp_path, name, PLANS[name], jobs_of(PLANS[name]))
    assert list(read_plans(tmp_path)["plans"]) == ["pacs", "priors"]
    job = jobs_of(PLANS["priors"])[0]
    assert read_job(tmp_path, job.name) == job


def test_plans_written_at_the_same_moment_are_all_there(tmp_path: Path) -> None:
    names = [f"plan {number}" for number in range(8)]
    plan = narrowed(PLANS["pacs"], {}, seeds=[0])
    threads = [
        threading.Thread(target=write_plan, args=(tmp_path, name, plan, jobs_of(plan)))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_plans(tmp_path)["plans"]) == names


def test_an_unknown_run_and_a_later_format_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown run 'x'"):
        read_job(tmp_path, "x")
    (tmp_path / PLAN).write_text('{"format": 99, "plans": {}}')
    with pytest.raises(StoredRunError, match=r"plan.json is of format 99, this bayesdg knows 1"):
        read_plans(tmp_path)


@pytest.mark.parametrize("plans", ['{"pacs": 3}', '{"pacs": {"jobs": [1]}}', '{"pacs": {}}'])
def test_a_damaged_plan_is_told_and_left_as_it_is(plans: str, tmp_path: Path) -> None:
    text = f'{{"format": 1, "plans": {plans}}}'
    (tmp_path / PLAN).write_text(text)
    plan = narrowed(PLANS["pacs"], {}, seeds=[0])
    with pytest.raises(StoredRunError, match=r"plan\.json is damaged: .*; bring it back"):
        write_plan(tmp_path, "pacs", plan, jobs_of(plan))
    assert (tmp_path / PLAN).read_text() == text


def test_the_last_step_is_read_from_the_end_of_any_record(tmp_path: Path) -> None:
    job = jobs_of(PLANS["pacs"])[0]
    path = job_path(tmp_path, job)
    assert last_step(path) == (0, 0.0)
    path.mkdir(parents=True)
    terms = {f"term {number}": 0.1 for number in range(300)}  # 64 KiB hold a dozen of these
    write_records(
        path / "records.jsonl",
        [StepRecord(10 * n, 1.5e-05 * n, terms, 1.0, 1e-4, 1.0) for n in range(1, 40)],
    )
    assert last_step(path) == (390, 1.5e-05 * 39)
    assert not is_done(tmp_path, job)
