"""From plans to runs."""

from pathlib import Path

import pytest

from bayesdg.bench.jobs import each_once, inner_jobs, jobs_of, narrowed
from bayesdg.bench.plans import PLANS, Plan
from bayesdg.data import load_dataset
from bayesdg.errors import UsageError
from bayesdg.presets import preset
from bayesdg.training.about import run_name
from bayesdg.training.train import train
from benches import DOMAINS, miniature, tiny_pacs


def test_each_domain_of_a_folder_is_unseen_in_turn(tmp_path: Path) -> None:
    plan = Plan("", methods=("a",), datasets=(str(tiny_pacs(tmp_path)),), seeds=(0,))
    assert [job.targets for job in jobs_of(plan)] == [(name,) for name in DOMAINS]


def test_a_domain_that_is_left_out_is_no_target() -> None:
    plan = narrowed(PLANS["pacs"], {"data.exclude": "photo"}, methods=["a"], seeds=[0])
    assert [job.targets for job in jobs_of(plan)] == [("art_painting",), ("cartoon",), ("sketch",)]


def test_the_same_domains_in_another_order_are_one_group() -> None:
    wanted = [("photo", "sketch"), ("sketch", "photo"), ("photo", "photo"), ("photo",)]
    plan = narrowed(PLANS["pacs"], {}, targets=wanted, methods=["a"], seeds=[0])
    assert [job.targets for job in jobs_of(plan)] == [("photo", "sketch"), ("photo",)]


def test_rotated_sets_have_two_targets_together() -> None:
    plan = Plan("", methods=("a",), datasets=("rotated-mnist",), seeds=(0,))
    assert [job.targets for job in jobs_of(plan)] == [("0", "90")]


def test_a_job_is_named_as_training_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way the folder is spelt."""
    folder = tiny_pacs(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = set()
    for spelling in (folder, folder.name, f"./{folder.name}/../{folder.name}"):
        plan = miniature(PLANS["pacs"], spelling, [["photo"]], methods=["a"])
        (job,) = jobs_of(plan)
        names.add(job.name)
    dataset = load_dataset(job.dataset, None, job.settings.data)
    run = train(dataset, job.settings, job.targets, tmp_path / "runs")
    assert run.path is not None
    assert names == {run.path.name}


def test_settings_of_the_user_come_after_the_plans_and_the_presets() -> None:
    plan = narrowed(PLANS["office-home"], {"episode.per_class": 2}, preset_name="released")
    job = jobs_of(plan)[0]
    assert job.settings.episode.per_class == 2
    assert job.settings.training.weight_decay == preset("released").training.weight_decay
    assert job.name == run_name("office-home", job.targets, job.settings)


def test_the_target_is_recorded_along_the_way_and_selects_nothing() -> None:
    looks = {j.settings.training.evaluate_target for p in PLANS.values() for j in _known(p)}
    assert looks == {"along"}


def test_the_first_seed_of_everything_comes_first() -> None:
    jobs = jobs_of(PLANS["pacs"])
    assert [job.settings.seed for job in jobs] == sorted(job.settings.seed for job in jobs)


def test_a_run_that_two_variants_share_is_listed_for_both_and_done_once() -> None:
    jobs = jobs_of(narrowed(PLANS["sensitivity"], {}, seeds=[0]))
    assert len(jobs) == 15
    shared = [job.variant for job in jobs if job.name == jobs[2].name]
    assert shared == ["lambda_phi 1", "lambda_psi 100", "pi 0.5"]
    assert len(each_once(jobs)) == 13


def test_a_method_without_draws_is_tested_once() -> None:
    plan = narrowed(PLANS["draws"], {}, methods=["a", "j"])
    tests = {job.settings.method: job.test_draws for job in jobs_of(plan)}
    assert tests == {"a": (0,), "j": PLANS["draws"].test_draws}


def test_an_inner_run_lacks_a_source_and_never_sees_the_target() -> None:
    plan = narrowed(PLANS["pacs"], {}, targets=[["sketch"]], methods=["j"], seeds=[0])
    (full,) = jobs_of(plan)
    inner = inner_jobs([full])
    assert [job.targets for job in inner] == [("art_painting",), ("cartoon",), ("photo",)]
    for job in inner:
        assert job.inner
        assert job.settings == full.settings.replace({"data.exclude": ["sketch"]})
        assert "(without sketch) unseen" in str(job)
    assert len({job.name for job in [full, *inner]}) == 4
    assert inner_jobs(jobs_of(narrowed(PLANS["cost"], {}))) == []


def test_two_folders_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    places = [tiny_pacs(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(UsageError, match="are both called 'tiny-pacs'; rename a folder"):
        jobs_of(narrowed(PLANS["pacs"], {}, datasets=[str(place) for place in places]))


def test_runs_are_timed_under_the_draws_of_their_settings() -> None:
    plan = narrowed(PLANS["uncertainty"], {"prediction.draws": 7}, methods=["a", "j", "ensemble"])
    tests = {job.settings.method: job.test_draws for job in jobs_of(plan)}
    assert tests == {"a": (0,), "j": (7,), "ensemble": (7,)}


def test_what_a_plan_varies_cannot_be_set_for_all_of_it() -> None:
    with pytest.raises(UsageError, match=r"model.pi is what this plan varies \(as in 'pi 0.1'\)"):
        narrowed(PLANS["sensitivity"], {"model.pi": 0.3})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"targets": [["phto"]]}, "unknown domain 'phto' in pacs; did you mean 'photo'?"),
        ({"methods": ["z"]}, "unknown method 'z'"),
        ({"datasets": ["pcas"]}, "unknown data set 'pcas'; did you mean 'pacs'?"),
        ({"preset_name": "papr"}, "unknown preset 'papr'; did you mean 'paper'?"),
        ({"values": {"training.step": 1}}, "did you mean 'training.steps'?"),
    ],
)
def test_a_typo_is_told_in_one_line(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as error:
        jobs_of(narrowed(PLANS["pacs"], **{"values": {}, **changes}))  # type: ignore[arg-type]
    assert says in str(error.value)


def _known(plan: Plan) -> list:  # type: ignore[type-arg]
    return jobs_of(narrowed(plan, {}, methods=["a"]))
