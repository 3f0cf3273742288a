"""Ensembles and Laplace approximations: made of runs that stand on their own."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from bayesdg.data import DomainDataset
from bayesdg.errors import FolderInUseError, InterruptedRunError, UsageError
from bayesdg.evaluate.stored import stored_draws
from bayesdg.records import NoteRecord, Record, StartRecord, StepRecord
from bayesdg.settings import Settings
from bayesdg.training.composed import parts_of
from bayesdg.training.lock import FolderLock
from bayesdg.training.run import load_run
from bayesdg.training.signals import Signals
from bayesdg.training.train import train
from worlds import sealed

MakeSettings = Callable[..., Settings]
TWO = {"model.members": 2}
needs_laplace = pytest.mark.skipif(find_spec("laplace") is None, reason="needs laplace-torch")
RIVALS = ["ensemble", pytest.param("laplace", marks=needs_laplace)]


def contents(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def starts(records: list[Record]) -> int:
    return sum(isinstance(record, StartRecord) for record in records)


def test_seeds_of_ensembles_do_not_meet(tiny_settings: MakeSettings) -> None:
    seeds = [
        [part.seed for part in parts_of(tiny_settings("ensemble", {"seed": seed}))]
        for seed in range(3)
    ]
    assert seeds == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    assert [p.seed for p in parts_of(tiny_settings("laplace", {"seed": 3}))] == [3]
    assert parts_of(tiny_settings("erm")) == []


def test_members_are_the_runs_that_a_person_would_train(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """One is there before; the ensemble takes it, trains the other, and averages both."""
    by_hand = train(tiny_dataset, tiny_settings("erm", {"seed": 2}), out=tmp_path)
    heard: list[Record] = []
    settings = tiny_settings("ensemble", {"seed": 1, **TWO})
    run = train(tiny_dataset, settings, out=tmp_path, on_record=heard.append)
    assert starts(heard) == 2  # of the other member and of the ensemble
    assert len(list(tmp_path.iterdir())) == 3
    other = train(tiny_dataset, tiny_settings("erm", {"seed": 3}), out=tmp_path)
    images = tiny_dataset.domains["far"].test.images
    mean = (by_hand.predict(images).probabilities + other.predict(images).probabilities) / 2
    assert run.predict(images).probabilities == pytest.approx(mean, rel=1e-6)
    assert run.path is not None
    again = load_run(run.path)
    assert (again.predict(images).probabilities == run.predict(images).probabilities).all()
    assert list(again.records) == list(run.records)


def test_members_look_at_the_target_as_the_whole_was_told_to(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """Otherwise an erm run that is a member, too, would lack what rules of selection go by."""
    settings = tiny_settings("ensemble", {**TWO, "training.evaluate_target": "along"})
    train(tiny_dataset, settings, out=tmp_path)
    member = train(
        tiny_dataset, tiny_settings("erm", {"training.evaluate_target": "along"}), out=tmp_path
    )
    steps = [r for r in member.records if isinstance(r, StepRecord) and r.source_val is not None]
    assert steps
    assert all(step.target_test is not None for step in steps)
    assert member.results


@pytest.mark.parametrize("method", RIVALS)
def test_in_memory_it_is_the_same_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, method: str
) -> None:
    settings = tiny_settings(method, TWO)
    here, there = train(tiny_dataset, settings), train(tiny_dataset, settings, out=tmp_path)
    for name, value in here.learner.state_dict().items():
        assert torch.equal(value, there.learner.state_dict()[name])


@pytest.mark.parametrize("method", RIVALS)
def test_the_same_command_again_does_nothing(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, method: str
) -> None:
    settings = tiny_settings(method, TWO)
    train(tiny_dataset, settings, out=tmp_path)
    before, heard = contents(tmp_path), list[Record]()
    train(tiny_dataset, settings, out=tmp_path, on_record=heard.append)
    assert heard == []
    assert contents(tmp_path) == before


@pytest.mark.parametrize("after", [1, 4])
def test_an_interrupted_ensemble_goes_on_with_the_member_it_was_at(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, after: int
) -> None:
    """A signal during the first member, or during the second; then the same command."""
    values = {**TWO, "training.steps": 6, "training.evaluate_every": 2}
    settings = tiny_settings("ensemble", values)
    signals, steps = Signals(), 0

    def interrupt(record: Record) -> None:
        nonlocal steps
        steps += isinstance(record, StepRecord)
        signals.requested = steps == after

    with pytest.raises(InterruptedRunError, match="everything is saved; the same command goes on"):
        train(tiny_dataset, settings, out=tmp_path / "a", on_record=interrupt, signals=signals)
    heard: list[Record] = []
    resumed = train(tiny_dataset, settings, out=tmp_path / "a", on_record=heard.append)
    begun = [record.step for record in heard if isinstance(record, StartRecord)]
    assert begun == ([2, 0, 0] if after == 1 else [2, 0])
    calm = train(tiny_dataset, settings, out=tmp_path / "b")
    for name, value in calm.learner.state_dict().items():
        assert torch.equal(value, resumed.learner.state_dict()[name])


@pytest.mark.parametrize("method", RIVALS)
def test_the_target_is_not_looked_at(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, method: str
) -> None:
    domains = {**tiny_dataset.domains, "far": sealed(tiny_dataset.domains["far"])}
    run = train(replace(tiny_dataset, domains=domains), tiny_settings(method, TWO))
    (judged,) = [record for record in run.records if isinstance(record, StepRecord)]
    assert set(judged.source_val or {}) == {"near", "mid", "third"}


@pytest.mark.parametrize(("method", "draws"), [("ensemble", 2), ("dropout", 4)])
def test_results_tell_how_many_draws_there_were(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    method: str,
    draws: int,
) -> None:
    settings = tiny_settings(method, {**TWO, "training.evaluate_target": "end"})
    run = train(tiny_dataset, settings, out=tmp_path)
    assert {result.draws for result in run.results} == {draws}
    assert run.path is not None
    assert stored_draws(run.path) == [draws]


@needs_laplace
def test_laplace_keeps_the_weights_of_erm_and_tells_its_prior(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(tiny_dataset, tiny_settings("laplace"), out=tmp_path)
    erm = train(tiny_dataset, tiny_settings("erm"), out=tmp_path)
    images = tiny_dataset.domains["far"].test.images
    mean = run.predict(images, draws=0)
    assert (mean.log_probabilities == erm.predict(images).log_probabilities).all()
    assert (run.predict(images).epistemic > 0).all()
    (note,) = [record.text for record in run.records if isinstance(record, NoteRecord)]
    assert note.startswith("prior precision of psi by marginal likelihood: ")


@needs_laplace
def test_a_laplace_run_needs_no_laplace_torch_to_predict(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    run = train(tiny_dataset, tiny_settings("laplace"), out=tmp_path)
    images = tiny_dataset.domains["far"].test.images
    assert run.path is not None
    monkeypatch.setitem(sys.modules, "laplace", None)
    again = load_run(run.path).predict(images)
    assert (again.epistemic == run.predict(images).epistemic).all()
    with pytest.raises(UsageError, match=r"laplace.*pip install 'bayesdg\[laplace\]'") as caught:
        train(tiny_dataset, tiny_settings("laplace", {"seed": 1}), out=tmp_path)
    assert caught.value.exit_code == 2
    assert not list(tmp_path.glob("*seed1*"))


def test_two_cannot_put_one_ensemble_together(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("ensemble", TWO)
    run = train(tiny_dataset, settings, out=tmp_path)
    assert run.path is not None
    (run.path / "manifest.json").unlink()
    lock = FolderLock.acquire(run.path, lambda note: None)
    try:
        with pytest.raises(FolderInUseError):
            train(tiny_dataset, settings, out=tmp_path)
    finally:
        lock.release()


def test_several_processes_are_for_the_members(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    settings = tiny_settings("ensemble", {"engine.processes": 2})
    with pytest.raises(UsageError, match="put together by one process; runs of erm"):
        train(tiny_dataset, settings)


def test_a_folder_of_an_ensemble_holds_no_more_than_others(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(tiny_dataset, tiny_settings("ensemble", TWO), out=tmp_path)
    assert run.path is not None
    assert sorted(path.name for path in run.path.iterdir() if "lock" not in path.name) == [
        "data.json", "manifest.json", "records.jsonl", "run.json", "settings.json",
        "weights.safetensors",
    ]  # fmt: skip
    assert json.loads((run.path / "settings.json").read_text())["method"] == "ensemble"
