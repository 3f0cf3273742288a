import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bayesdg.data import DomainDataset
from bayesdg.records import Metrics, Record, StepRecord, write_records
from bayesdg.selection import RULES, chosen_step, full_runs, leave_one_source_out, pooled_accuracy
from bayesdg.settings import Settings
from bayesdg.stored_runs import find_runs
from bayesdg.training.train import train
from run_folders import PACS, step_record, write_run

STEPS = [
    step_record(1),
    step_record(2, source_val={"a": 0.8, "b": 0.6}, target_test={"t": 0.5}, target_val={"t": 0.9}),
    step_record(4, source_val={"a": 0.5, "b": 0.9}, target_test={"t": 0.4}, target_val={"t": 0.3}),
    step_record(6, source_val={"a": 0.2, "b": 0.7}, target_test={"t": 0.7}, target_val={"t": 0.6}),
    step_record(7),
]


@pytest.mark.parametrize(
    ("rule", "step"),
    # Means over sources: 0.70, 0.70, 0.45, of equals the later; all three: 0.767, 0.567, 0.5.
    [("source-val", 4), ("last", 6), ("oracle", 6), ("released-code", 2)],
)
def test_each_rule_chooses_the_step_it_is_named_for(rule: str, step: int) -> None:
    found = chosen_step(STEPS, RULES[rule])
    assert found is not None
    assert found.step == step


def test_the_default_rule_is_that_of_training(
    tiny_dataset: DomainDataset, tiny_settings: Callable[..., Settings]
) -> None:
    records: list[Record] = []
    settings = tiny_settings("bil", {"training.steps": 12, "training.learning_rate": 1e-2})
    train(tiny_dataset, settings, on_record=records.append)
    steps = [r for r in records if isinstance(r, StepRecord)]
    found = chosen_step(steps, RULES["source-val"])
    assert found is not None
    assert found.step == [r.step for r in steps if r.best][-1]


def test_nothing_of_the_target_matters_to_rules_that_do_not_say_they_peek() -> None:
    chance = random.Random(0)
    for _ in range(50):
        worse = [
            replace(
                record,
                target_test=chance.choice([None, {"t": {"accuracy": chance.random()}}]),
                target_val=chance.choice([None, {"t": {"accuracy": chance.random()}}]),
            )
            for record in STEPS
        ]
        for name, rule in RULES.items():
            if not rule.peeked:
                found, before = chosen_step(worse, rule), chosen_step(STEPS, rule)
                assert found is not None
                assert before is not None
                assert found.step == before.step, name


def test_exactly_the_two_rules_that_look_at_the_target_say_so() -> None:
    assert {name for name, rule in RULES.items() if rule.peeked} == {"oracle", "released-code"}


@pytest.mark.parametrize("rule", ["oracle", "released-code"])
def test_a_rule_without_what_it_goes_by_chooses_nothing(rule: str) -> None:
    blind = [replace(record, target_test=None, target_val=None) for record in STEPS]
    assert chosen_step(blind, RULES[rule]) is None


@pytest.mark.parametrize("rule", ["oracle", "released-code"])
def test_where_there_is_one_step_nothing_need_be_looked_at(rule: str) -> None:
    """Of an ensemble or a Laplace approximation there are no others."""
    only = step_record(10, source_val={"a": 0.5})
    assert chosen_step([step_record(5), only], RULES[rule]) == only


def test_a_step_that_is_no_number_is_not_chosen() -> None:
    broken = step_record(8, source_val={"a": None, "b": 0.99})
    found = chosen_step([*STEPS, broken], RULES["source-val"])
    assert found is not None
    assert found.step == 4
    assert chosen_step([broken], RULES["source-val"]) is None


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [
        ({"a": {"accuracy": 0.5, "images": 30}, "b": {"accuracy": 1.0, "images": 10}}, 0.625),
        ({"a": {"accuracy": 0.5, "images": 30}, "b": {"accuracy": 1.0}}, None),
        ({"a": {"accuracy": None, "images": 30}}, None),
        ({}, None),
    ],
)
def test_images_weigh_the_same_where_domains_are_thrown_together(
    metrics: Metrics, accuracy: float | None
) -> None:
    assert pooled_accuracy(metrics) == accuracy


def held_out(out: Path, rate: float, accuracies: list[float], seed: int = 0) -> None:
    """Runs that leave out a source each of those for the target sketch."""
    sources = [name for name in PACS if name != "sketch"]
    for name, accuracy in zip(sources, accuracies, strict=False):
        write_run(
            out, seed=seed, targets=(name,), sources=[s for s in sources if s != name],
            target=accuracy,
            settings={"training.learning_rate": rate, "data.exclude": ["sketch"]},
        )  # fmt: skip


def test_settings_are_chosen_by_sources_left_out_in_turn(tmp_path: Path) -> None:
    """0.01 has 0.7 on average over the left-out sources, 0.1 has 0.6, whatever the target says."""
    held_out(tmp_path, 0.01, [0.6, 0.7, 0.8])
    held_out(tmp_path, 0.1, [0.9, 0.5, 0.4])
    held_out(tmp_path, 0.5, [1.0, 1.0])  # one source was never left out: no candidate
    full = [
        write_run(tmp_path, seed=seed, targets=("sketch",), target=accuracy,
                  settings={"training.learning_rate": rate})
        for rate, accuracy in ((0.01, 0.1), (0.1, 0.9), (0.5, 0.95))
        for seed in (0, 1)
    ]  # fmt: skip
    runs, problems = find_runs(tmp_path)
    assert problems == []
    assert {run.path for run in full_runs(runs)} == {run.path for run in full}
    (choice,) = leave_one_source_out(runs)
    assert {run.settings.training.learning_rate for run in choice.runs} == {0.01}
    assert {run.settings.seed for run in choice.runs} == {0, 1}
    assert choice.scores == pytest.approx((0.7, 0.6))
    assert len(choice.missing) == 1


def test_transductive_results_choose_no_settings(tmp_path: Path) -> None:
    """These would turn it around."""
    held_out(tmp_path, 0.01, [0.6, 0.7, 0.8])
    held_out(tmp_path, 0.1, [0.5, 0.5, 0.5])
    for rate in (0.01, 0.1):
        write_run(tmp_path, targets=("sketch",), settings={"training.learning_rate": rate})
    for run in find_runs(tmp_path)[0]:
        metrics = {"accuracy": 0.0 if run.settings.training.learning_rate == 0.01 else 1.0}
        own = [replace(r, statistics="own", metrics=metrics) for r in run.results]
        more = [replace(r, draws=999) for r in own]
        write_records(run.path / "records.jsonl", [*own, *more, *run.records])
    (choice,) = leave_one_source_out(find_runs(tmp_path)[0])
    assert {run.settings.training.learning_rate for run in choice.runs} == {0.01}
    assert choice.scores == pytest.approx((0.7, 0.5))


def test_without_runs_that_leave_sources_out_no_settings_are_chosen(tmp_path: Path) -> None:
    run = write_run(tmp_path, targets=("sketch",))
    (choice,) = leave_one_source_out([run])
    assert choice.runs == ()
    assert choice.missing
