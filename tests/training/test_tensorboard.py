"""Curves, read back by TensorBoard."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.data import DomainDataset
from bayesdg.errors import UsageError
from bayesdg.records import StepRecord
from bayesdg.settings import Settings
from bayesdg.training.tensorboard import scalars
from bayesdg.training.train import train
from stories import run_folder, train_until

MakeSettings = Callable[..., Settings]
VALUES = {
    "training.steps": 30, "training.evaluate_every": 10, "training.evaluate_target": "along",
    "engine.tensorboard": True,
}  # fmt: skip


def test_curves_are_the_records_once_each_also_after_a_kill(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra viz")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = tiny_settings("bil", VALUES)
    train_until(tiny_dataset, settings, tmp_path, 20)
    run = train(tiny_dataset, settings, out=tmp_path)
    expected: dict[str, list[tuple[int, float]]] = {}
    for record in run.records:
        if isinstance(record, StepRecord):
            for name, value in scalars(record).items():
                expected.setdefault(name, []).append((record.step, pytest.approx(value)))
    curves = EventAccumulator(str(run_folder(tmp_path) / "tensorboard")).Reload()
    found = {
        name: [(event.step, event.value) for event in curves.Scalars(name)]
        for name in curves.Tags()["scalars"]
    }
    assert found == expected
    assert {"loss", "terms/nll", "val_accuracy/near", "target_accuracy/far"} <= found.keys()


def test_without_tensorboard_there_is_one_line_and_no_folder(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError, match=r"needs tensorboard.*pip install 'bayesdg\[viz\]'"):
        train(tiny_dataset, tiny_settings("bil", VALUES), out=tmp_path)
    assert list(tmp_path.iterdir()) == []
