"""A run whose folder gives trouble while it trains. Numbers are those of the fault scenarios."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from bayesdg.data import DomainDataset
from bayesdg.errors import FolderInUseError, ResourceError
from bayesdg.records import NoteRecord, Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.training import checkpoint
from bayesdg.training.train import train
from disks import fill, mounted, small_disk
from stories import run_folder, state_of, steps_of, train_until

MakeSettings = Callable[..., Settings]
EVERY_STEP = {"training.checkpoint_every": 1, "training.evaluate_every": 3, "training.steps": 8}


@pytest.fixture
def calm(tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path) -> Path:
    """The folder of a run that nothing disturbed."""
    train(tiny_dataset, tiny_settings("bil", EVERY_STEP), out=tmp_path / "calm")
    return run_folder(tmp_path / "calm")


def failing_at(steps: set[int], error: int) -> Callable[..., Path]:
    """A disk that takes no checkpoint of these steps."""
    write = checkpoint._write

    def refuse(target: Path, files: dict[str, bytes]) -> Path:
        if int(target.name.removeprefix("step-")) in steps:
            raise OSError(error, os.strerror(error))
        return write(target, files)

    return refuse


def test_03_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calm: Path,
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_write", failing_at({5}, ENOSPC))
        with pytest.raises(ResourceError, match=r"disk full: .* start the same command again") as e:
            train(tiny_dataset, settings, out=tmp_path / "full")
    assert e.value.exit_code == 5
    folder = run_folder(tmp_path / "full")
    left = {path.name for path in (folder / "checkpoints").iterdir()}
    assert "step-000000004" in left
    assert "step-000000005" not in left
    assert not any(name.startswith(".") for name in left)
    train(tiny_dataset, settings, out=tmp_path / "full")
    assert state_of(folder) == state_of(calm)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """3 MB: room for one checkpoint and not for two."""
    with small_disk(tmp_path / "disk", 3) as place:
        yield place


def test_03_a_disk_that_is_really_full_ends_a_run_that_goes_on_when_there_is_room(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    disk: Path,
    calm: Path,
) -> None:
    """Full while saving, and full before anything could be begun."""
    settings = tiny_settings("bil", EVERY_STEP)
    with pytest.raises(ResourceError, match=r"disk full: .* needs 1\.\d MB and has [01]\.\d; make"):
        train(tiny_dataset, settings, out=disk)
    folder = run_folder(disk)
    assert list(checkpoint.checkpoints(folder / "checkpoints")) == [1]
    fill(disk)
    with pytest.raises(ResourceError, match=r"disk full: .* has 0\.0; make room"):
        train(tiny_dataset, settings.replace({"seed": 1}), out=disk)
    (disk / "filling").unlink()
    assert mounted(disk, "-o", "remount,size=50m")
    train(tiny_dataset, settings, out=disk)
    assert state_of(folder) == state_of(calm)


def test_05_a_disk_that_does_not_answer_costs_a_checkpoint_and_not_the_run(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calm: Path,
) -> None:
    monkeypatch.setattr(checkpoint, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(checkpoint, "_write", failing_at({4, 5}, EIO))
    run = train(tiny_dataset, tiny_settings("bil", EVERY_STEP), out=tmp_path / "nfs")
    told = [r for r in run.records if isinstance(r, NoteRecord)]
    assert [note.step for note in told] == [4, 5]
    assert {note.text for note in told} == {
        "checkpoint not written (Input/output error); the next one is tried"
    }
    assert state_of(run_folder(tmp_path / "nfs")) == state_of(calm)


def test_a_run_whose_checkpoints_are_cleared_away_writes_new_ones(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, calm: Path
) -> None:
    def clear_away(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step == 3:
            shutil.rmtree(run_folder(tmp_path / "cleared") / "checkpoints")

    settings = tiny_settings("bil", EVERY_STEP)
    run = train(tiny_dataset, settings, out=tmp_path / "cleared", on_record=clear_away)
    assert not [r for r in run.records if isinstance(r, NoteRecord) and "checkpoint" in r.text]
    assert state_of(run_folder(tmp_path / "cleared")) == state_of(calm)


def test_a_run_without_any_checkpoint_says_that_it_begins_anew(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, calm: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path / "lost", 5)
    shutil.rmtree(folder / "checkpoints")
    run = train(tiny_dataset, settings, out=tmp_path / "lost")
    notes = [record.text for record in run.records if isinstance(record, NoteRecord)]
    assert "there is no checkpoint: training begins anew, step 3 was recorded" in notes
    assert state_of(folder) == state_of(calm)


def test_06_steps_beyond_the_checkpoint_appear_once(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, calm: Path
) -> None:
    """Records that were written after the last checkpoint, and half of one more."""
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path / "cut", 5)
    records = folder / "records.jsonl"
    last = json.loads(records.read_text().splitlines()[-1])
    with records.open("a") as file:
        for step in (6, 7):
            file.write(json.dumps({**last, "step": step, "loss": 99.0}) + "\n")
        file.write(json.dumps({**last, "step": 8})[:40])
    train(tiny_dataset, settings, out=tmp_path / "cut")
    assert steps_of(folder) == steps_of(calm)
    assert state_of(folder) == state_of(calm)


def test_27_a_run_that_lost_its_folder_stops_at_its_next_checkpoint(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """As after a long sleep, when another machine took the run over."""

    def taken_over(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step == 3:
            lock = run_folder(tmp_path) / "run.lock"
            lock.write_text(json.dumps({**json.loads(lock.read_text()), "token": "another"}))

    with pytest.raises(FolderInUseError, match=r"was taken over by host .*; this run stops here"):
        train(tiny_dataset, tiny_settings("bil", EVERY_STEP), out=tmp_path, on_record=taken_over)
    folder = run_folder(tmp_path)
    assert max(checkpoint.checkpoints(folder / "checkpoints")) == 2
    assert json.loads((folder / "run.lock").read_text())["token"] == "another"
