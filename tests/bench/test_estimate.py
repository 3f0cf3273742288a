"""How long it will take."""

import json
from pathlib import Path

import pytest

from bayesdg.bench.estimate import Estimate
from bayesdg.bench.folder import job_path
from bayesdg.bench.jobs import Job, jobs_of, narrowed
from bayesdg.bench.plans import PLANS
from bayesdg.cli.bench_dry_run import duration
from bayesdg.records import StepRecord, write_records
from bayesdg.training.about import Task, write_about


def planned(method: str, seed: int, **values: object) -> Job:
    plan = narrowed(PLANS["pacs"], values, targets=[["photo"]], methods=[method], seeds=[seed])
    return jobs_of(plan)[0]


def took(folder: Path, job: Job, step: int, seconds: float, done: bool = True) -> None:
    path = job_path(folder, job)
    path.mkdir(parents=True)
    (path / "settings.json").write_text(job.settings.model_dump_json())
    task = Task(
        dataset="pacs", classes=("a", "b"), image_shape=(3, 8, 8), sources=("art",), targets=("p",)
    )
    write_about(path, job.settings, task)
    write_records(path / "records.jsonl", [StepRecord(step, seconds, {}, 0.0, 0.1, 0.0)])
    if done:
        for name in ("manifest.json", "weights.safetensors"):
            (path / name).write_text(json.dumps({}))


def test_nothing_is_known_of_an_empty_folder(tmp_path: Path) -> None:
    assert Estimate(tmp_path).seconds(planned("a", 0)) is None
    assert Estimate(tmp_path).total([planned("a", 0)]) is None


def test_a_method_takes_as_long_as_it_took_and_another_as_the_mean(tmp_path: Path) -> None:
    """0.1 and 0.3 seconds per step of 10,000."""
    took(tmp_path, planned("a", 0), 10_000, 1000.0)
    took(tmp_path, planned("j", 0), 10_000, 3000.0)
    estimate = Estimate(tmp_path)
    assert estimate.seconds(planned("a", 1)) == pytest.approx(1000)
    assert estimate.seconds(planned("j", 1)) == pytest.approx(3000)
    assert estimate.seconds(planned("d", 1)) == pytest.approx(2000)
    assert estimate.total([planned("a", 1), planned("j", 1)]) == pytest.approx(4000)


def test_an_ensemble_takes_as_long_as_its_members_and_tells_nothing_of_others(
    tmp_path: Path,
) -> None:
    took(tmp_path, planned("erm", 0), 10_000, 1000.0)
    assert Estimate(tmp_path).seconds(planned("ensemble", 0)) == pytest.approx(5000)
    assert Estimate(tmp_path).seconds(planned("laplace", 0)) == pytest.approx(1000)
    took(tmp_path, planned("ensemble", 1), 10_000, 6000.0)
    assert Estimate(tmp_path).seconds(planned("ensemble", 0)) == pytest.approx(6000)
    assert Estimate(tmp_path).seconds(planned("j", 0)) == pytest.approx(1000)


def test_what_is_left_of_a_begun_run_is_estimated(tmp_path: Path) -> None:
    took(tmp_path, planned("a", 0), 10_000, 1000.0)
    took(tmp_path, planned("a", 1), 7_500, 1.0, done=False)
    assert Estimate(tmp_path).seconds(planned("a", 1)) == pytest.approx(250)


def test_other_pictures_networks_and_devices_tell_nothing(tmp_path: Path) -> None:
    took(tmp_path, planned("a", 0), 10_000, 1000.0)
    estimate = Estimate(tmp_path)
    for values in (
        {"data.image_size": 64}, {"model.backbone": "resnet50"}, {"engine.device": "cpu"},
    ):  # fmt: skip
        assert estimate.seconds(planned("a", 1, **values)) is None


def test_a_duration_is_rounded_once() -> None:
    assert duration(2 * 3600 - 1) == "2 h 00 min"
    assert duration(89.4) == "89 s"
