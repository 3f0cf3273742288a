"""Run folders, compared; and runs that are killed at a known step."""

import json
from pathlib import Path
from typing import Any

import pytest

from bayesdg.data import DomainDataset
from bayesdg.settings import Settings
from bayesdg.training.folder import RunFolder
from bayesdg.training.state import TrainingState
from bayesdg.training.train import train

TIMES = ("seconds", "steps_per_second", "images_per_second", "memory_gb")


class Killed(BaseException):
    """Ends a run as no error does."""


def steps_of(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "records.jsonl").read_text().splitlines())
    return [{k: v for k, v in x.items() if k not in TIMES} for x in lines if x["kind"] == "step"]


def state_of(folder: Path) -> dict[str, object]:
    """All that a run is made of, in bytes; times apart."""
    newest = max((folder / "checkpoints").glob("step-*"))
    files: dict[str, object] = {p.name: p.read_bytes() for p in newest.glob("*.safetensors")}
    progress = json.loads((newest / "state.json").read_text())
    del progress["seconds"]
    selected = (folder / "weights.safetensors").read_bytes()
    return {**files, "progress": progress, "records": steps_of(folder), "selected": selected}


def run_folder(out: Path) -> Path:
    (found,) = [path for path in out.iterdir() if path.is_dir()]
    return found


def train_until(dataset: DomainDataset, settings: Settings, out: Path, step: int) -> Path:
    """A run that was killed right after its checkpoint of `step`."""
    save = RunFolder.save

    def save_and_die(folder: RunFolder, state: TrainingState) -> None:
        save(folder, state)
        if state.progress.step == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", save_and_die)
        with pytest.raises(Killed):
            train(dataset, settings, out=out)
    return run_folder(out)
