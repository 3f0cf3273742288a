"""A device that decides over broken steps alone: the way of a GPU, forced upon the CPU."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesdg.training.update as update
from bayesdg.data import DomainDataset
from bayesdg.data.augment import augment
from bayesdg.errors import InterruptedRunError, NumericError
from bayesdg.records import NoteRecord, Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.stages import AugmentationSettings, TrainingSettings
from bayesdg.training.readings import Readings
from bayesdg.training.signals import Signals
from bayesdg.training.state import TrainingState
from bayesdg.training.train import train
from bayesdg.training.update import Updater
from stories import run_folder, state_of

MakeSettings = Callable[..., Settings]


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "can_run_ahead", lambda parameters: True)


def poison(dataset: DomainDataset, name: str, row: int | slice) -> None:
    dataset.domains[name].train.images[row] = math.nan  # type: ignore[index]


def steps_of(records: list[Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]


def notes_of(records: list[Record]) -> list[NoteRecord]:
    return [record for record in records if isinstance(record, NoteRecord)]


# ---- one step ------------------------------------------------------------------------------


class Net(nn.Module):
    """What a TrainingState needs of a learner."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


def batch(step: int, value: float | None = None) -> Tensor:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    if value is not None:
        x[3, 2] = value
    return x


def state_of_net(state: TrainingState) -> dict[str, Tensor]:
    """Copies of weights, running statistics, average and optimiser, zeros left out: an optimiser
    that was never stepped has nothing where one that was taken back has zeros."""
    found = {f"learner {k}": v for k, v in state.learner.state_dict().items()}
    assert state.average is not None
    found |= {f"average {k}": v for k, v in state.average.state_dict().items()}
    for number, parameter in enumerate(state.updater.parameters):
        for key, value in state.updater.optimiser.state[parameter].items():
            if (value != 0).any():
                found[f"{number} {key}"] = value
    return {name: value.detach().clone() for name, value in found.items()}


def fresh() -> TrainingState:
    settings = TrainingSettings(learning_rate=0.1, weight_decay=0.1, clip_norm=0.5, average=0.9)
    return TrainingState(Net(), settings)  # type: ignore[arg-type]


def take_step(state: TrainingState, step: int, value: float | None = None) -> None:
    state.updater.begin(step)
    loss = state.learner(batch(step, value))
    loss.backward()
    state.finish_step(step, state.updater.is_broken(loss))


def assert_same_bits(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_step_leaves_everything_bit_for_bit(before: int, value: float) -> None:
    state = fresh()
    assert state.updater.runs_ahead
    for step in range(1, before + 1):
        take_step(state, step)
    expected = state_of_net(state)
    take_step(state, 77, value)
    assert_same_bits(state_of_net(state), expected)
    take_step(state, 78)
    assert not torch.equal(state_of_net(state)["learner layers.0.weight"],
                           expected["learner layers.0.weight"])  # fmt: skip


@pytest.mark.usefixtures("ahead")
def test_steps_around_broken_ones_are_as_if_those_had_not_been() -> None:
    """Their number too: Adam's correction for its first steps goes by it."""
    ends = []
    for broken in ((), (2, 3, 5)):
        state = fresh()
        for step in range(1, 7):
            if step in broken:
                take_step(state, step, math.nan)
            take_step(state, step)
        ends.append(state_of_net(state))
    assert_same_bits(*ends)


def test_it_is_the_step_that_the_host_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding: a fused Adam adds in another order; the average is another formula."""
    ends = []
    for forced in (False, True):
        monkeypatch.setattr(update, "can_run_ahead", lambda parameters, forced=forced: forced)
        state = fresh()
        for step in range(1, 9):
            take_step(state, step, math.nan if step in (1, 4, 5) else None)
        ends.append(state_of_net(state))
    plain, ahead = ends
    assert plain.keys() == ahead.keys()
    for name, value in plain.items():
        torch.testing.assert_close(ahead[name], value, rtol=1e-4, atol=1e-6, msg=name)


# ---- a run ---------------------------------------------------------------------------------


def losses(records: list[Record]) -> list[float]:
    return [record.loss or 0.0 for record in steps_of(records)]


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("bil", 50),
        pytest.param("bil", 200, marks=pytest.mark.slow),
        pytest.param("erm", 200, marks=pytest.mark.slow),
    ],
)
def test_loss_curves_are_those_of_the_plain_way(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    steps: int,
) -> None:
    """At a usual learning rate, to 0.1%."""
    values = {"training.steps": steps, "training.evaluate_every": steps, "model.draws": 2}
    curves = []
    for forced in (False, True):
        monkeypatch.setattr(update, "can_run_ahead", lambda parameters, forced=forced: forced)
        curves.append(losses(list(train(tiny_dataset, tiny_settings(method, values)).records)))
    plain, ahead = curves
    assert len(plain) == steps // 10
    assert plain[-1] < plain[0]
    assert ahead == pytest.approx(plain, rel=1e-3)


def test_the_same_steps_are_skipped_and_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same images; up to ten steps later, when somebody looks."""
    poison(tiny_dataset, "near", 0)
    values = {"training.steps": 30, "training.evaluate_every": 15}
    plain = list(train(tiny_dataset, tiny_settings("bil", values)).records)
    monkeypatch.setattr(update, "can_run_ahead", lambda parameters: True)
    run = train(tiny_dataset, tiny_settings("bil", values))
    ahead = list(run.records)
    assert len(notes_of(plain)) > 3
    assert [(n.step, n.details["training_images"]) for n in notes_of(ahead)] == [
        (n.step, n.details["training_images"]) for n in notes_of(plain)
    ]
    assert all("its loss is nan" in note.text for note in notes_of(ahead))
    assert [(r.step, r.skipped) for r in steps_of(ahead)] == [
        (r.step, r.skipped) for r in steps_of(plain)
    ]
    assert all(torch.isfinite(value).all() for value in run.learner.state_dict().values())


@pytest.mark.usefixtures("ahead")
def test_ten_broken_steps_in_a_row_stop_the_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    for name in ("near", "mid", "third"):
        poison(tiny_dataset, name, slice(None))
    records: list[Record] = []
    values = {"training.steps": 50, "training.evaluate_every": 50}
    with pytest.raises(NumericError, match=r"10 steps in a row, up to step 10") as caught:
        train(tiny_dataset, tiny_settings("bil", values), on_record=records.append)
    assert caught.value.exit_code == 4
    assert [note.step for note in notes_of(records)] == list(range(1, 11))


@pytest.mark.usefixtures("ahead")
def test_a_signal_between_readings_saves_and_leaves_at_once(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At step 13, and the run goes on to the bits of one that was left alone."""
    values = {"training.steps": 30, "training.evaluate_every": 30}
    signals = Signals()
    begin = Updater.begin

    def begin_and_hear(updater: Updater, step: int) -> float:
        signals.requested = signals.requested or step == 13
        return begin(updater, step)

    monkeypatch.setattr(Updater, "begin", begin_and_hear)
    settings = tiny_settings("bil", values)
    with pytest.raises(InterruptedRunError, match="everything is saved"):
        train(tiny_dataset, settings, out=tmp_path / "a", signals=signals)
    (checkpoint,) = (run_folder(tmp_path / "a") / "checkpoints").glob("step-*")
    assert checkpoint.name.endswith("13")
    monkeypatch.setattr(Updater, "begin", begin)
    for name in ("a", "b"):
        train(tiny_dataset, settings, out=tmp_path / name)
    assert state_of(run_folder(tmp_path / "a")) == state_of(run_folder(tmp_path / "b"))


# ---- nobody waits --------------------------------------------------------------------------

# On a GPU: numbers asked for, shapes that depend on numbers, plain numbers sent as tensors.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "scalar_tensor",
           "lift_fresh", "bincount", "repeat_interleave")  # fmt: skip


class Watched(TorchDispatchMode):
    """Notes operations that would make the host wait for a GPU, or a GPU for the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        name = func.__name__.split(".")[0]
        # Derivatives make their plain zeros on the device of the gradient.
        derivative = torch._C._current_graph_task_id() != -1 and name == "scalar_tensor"
        masked = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        waiting = any(name == word or name.startswith(word + "_") for word in WAITING)
        if masked or (waiting and not derivative):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def watched_steps() -> Iterator[list[str]]:
    """Inside, each step from `begin` until its scalars are kept."""
    watch, begin, add = Watched(), Updater.begin, Readings.add

    def begin_watched(updater: Updater, step: int) -> float:
        watch.__enter__()
        return begin(updater, step)

    def add_watched(readings: Readings, *args: Any) -> None:
        add(readings, *args)
        watch.__exit__(None, None, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updater, "begin", begin_watched)
        patch.setattr(Readings, "add", add_watched)
        yield watch.found


EVERYTHING: dict[str, object] = {
    "training.steps": 4,
    "training.average": 0.9,
    "training.clip_norm": 1.0,
    "model.style_mixing": 0.5,
}


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("preset", ["default", "paper", "released"])
@pytest.mark.parametrize("method", ["erm", "i", "j-deep-invariant", "j-standard-prior"])
def test_no_step_asks_the_device_for_a_number(
    tiny_dataset: DomainDataset, method: str, preset: str
) -> None:
    from bayesdg.presets import preset as make
    from worlds import TINY

    settings = make(preset, method).replace({**TINY, **EVERYTHING})
    with watched_steps() as found:
        train(tiny_dataset, settings)
    assert found == []


def test_a_host_that_decides_does_ask(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """So the watch sees what it is to see."""
    with watched_steps() as found:
        train(tiny_dataset, tiny_settings("bil", EVERYTHING))
    assert found.count("_local_scalar_dense") >= 4


def test_the_watch_sees_plain_numbers_that_travel_as_tensors() -> None:
    x = torch.randn(5)
    with Watched() as watch:
        torch.where(x > 0, x, 1.0)
        x[x > 0]
        torch.tensor(3.0)
    assert len(watch.found) >= 3


def test_augmentation_asks_for_no_number() -> None:
    images = torch.randint(256, (6, 3, 32, 32), dtype=torch.uint8)
    changes = AugmentationSettings(grey=0.5)
    with Watched() as watch:
        augment(images, changes, torch.Generator().manual_seed(0), torch.arange(6), 6)
    assert watch.found == []
