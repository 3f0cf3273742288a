"""Going on after whatever ended the process before. Numbers are those of the fault scenarios."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.errors import (
    BayesdgError,
    DataError,
    FolderInUseError,
    InterruptedRunError,
    ResourceError,
    StoredRunError,
    UsageError,
)
from bayesdg.methods.learner import Answer, LastLayers
from bayesdg.records import NoteRecord, Record, StartRecord, StepRecord, to_line
from bayesdg.settings import Settings
from bayesdg.training import checkpoint
from bayesdg.training.about import start_differences
from bayesdg.training.folder import RunFolder
from bayesdg.training.resume import require_begun
from bayesdg.training.run import Run, load_run
from bayesdg.training.train import train
from stories import run_folder, state_of, steps_of, train_until

MakeSettings = Callable[..., Settings]
EVERY_STEP = {"training.checkpoint_every": 1, "training.evaluate_every": 3, "training.steps": 8}
FIXTURES = Path(__file__).parent.parent / "fixtures"


def notes_of(run: Run) -> list[str]:
    return [record.text for record in run.records if isinstance(record, NoteRecord)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_01_twenty_kills_change_nothing(tmp_path: Path) -> None:
    """SIGKILL at random moments of a run that checkpoints every step; then one left alone."""
    script = [sys.executable, str(Path(__file__).with_name("killing.py")), tmp_path / "killed"]
    done = subprocess.run(
        [*script, "--kills", "20", "--steps", "240", "--calm", tmp_path / "calm"],
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    moments = done.stdout.split()
    assert len(moments) == 20
    assert len(set(moments)) >= 6, f"too few different moments: {moments}"
    killed, calm = (run_folder(tmp_path / name) for name in ("killed", "calm"))
    assert state_of(killed) == state_of(calm)
    assert not list(killed.glob("checkpoints/.*"))


@pytest.mark.parametrize("at", [1, 3, 4, 7])
@pytest.mark.parametrize("method", ["erm", "bil"])
def test_resuming_after_any_step_gives_the_same_bits(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, method: str, at: int
) -> None:
    average = {"erm": {"training.average_from": 0.3}, "bil": {"training.average": 0.5}}
    values = {
        **EVERY_STEP, **average[method], "model.style_mixing": 0.5,
        "data.augmentation": "photo", "training.schedule": "step", "training.clip_norm": 1.0,
    }  # fmt: skip
    settings = tiny_settings(method, values)
    folder = train_until(tiny_dataset, settings, tmp_path / "a", at)
    resumed = train(tiny_dataset, settings, out=tmp_path / "a")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))
    assert [r.step for r in resumed.records if isinstance(r, StartRecord)] == [0, at]


def test_a_run_in_a_folder_is_the_run_in_memory(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    here, there = train(tiny_dataset, settings), train(tiny_dataset, settings, out=tmp_path)
    for one, other in ((there, here), (load_run(run_folder(tmp_path)), here)):
        for name, value in one.learner.state_dict().items():
            assert torch.equal(value, other.learner.state_dict()[name])


def test_the_same_command_again_says_that_it_is_done(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil")
    first = train(tiny_dataset, settings, out=tmp_path)
    before = {p: p.read_bytes() for p in run_folder(tmp_path).rglob("*") if p.is_file()}
    heard: list[Record] = []
    second = train(tiny_dataset, settings, out=tmp_path, on_record=heard.append)
    assert heard == []
    assert list(map(to_line, second.records)) == list(map(to_line, first.records))
    assert {p: p.read_bytes() for p in run_folder(tmp_path).rglob("*") if p.is_file()} == before
    # Asking for the target later trains nothing anew and is no other run.
    look = settings.replace({"training.evaluate_target": "end"})
    third = train(tiny_dataset, look, out=tmp_path, on_record=heard.append)
    assert heard == []
    assert [r.role for r in third.results] == ["source"] * 3 + ["target"]
    assert load_run(run_folder(tmp_path)).results == third.results


@pytest.mark.parametrize("method", ["bil", "ensemble"])
def test_a_run_that_was_done_before_is_loaded_to_the_device_of_the_command(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    settings = tiny_settings(method, {"model.members": 2, "engine.device": "cpu"})
    train(tiny_dataset, settings, out=tmp_path)
    devices = []

    def load(path: Path, device: str = "nowhere") -> Run:
        devices.append(device)
        return load_run(path)

    for module in ("train", "composed"):
        monkeypatch.setattr(f"bayesdg.training.{module}.load_run", load)
    train(tiny_dataset, settings, out=tmp_path)
    assert devices == ["cpu"]


@pytest.mark.parametrize("damage", ["cut", "empty", "html", "bit", "no manifest", "gone"])
def test_07_08_09_a_damaged_checkpoint_is_told_and_an_older_one_used(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, damage: str
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path / "a", 5)
    newest = folder / "checkpoints" / "step-000000005"
    file = newest / "optimiser.safetensors"
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "html":
        file.write_bytes(b"<html>disk quota exceeded</html>")
    elif damage == "bit":
        file.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    elif damage == "no manifest":
        (newest / "manifest.json").unlink()
    else:
        shutil.rmtree(newest)
    resumed = train(tiny_dataset, settings, out=tmp_path / "a")
    told = [note for note in notes_of(resumed) if note.endswith("using step 4 instead")]
    assert len(told) == (0 if damage == "gone" else 1)
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))


def test_07_without_any_whole_checkpoint_the_run_is_refused(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    folder = train_until(tiny_dataset, tiny_settings("bil", EVERY_STEP), tmp_path, 5)
    for file in folder.glob("checkpoints/*/weights.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(StoredRunError, match=r"sha256 of weights.*Remove .* to begin anew") as e:
        train(tiny_dataset, tiny_settings("bil", EVERY_STEP), out=tmp_path)
    assert e.value.exit_code == 6
    assert "\n" not in str(e.value)


def test_10_a_folder_that_cannot_be_written_is_found_before_the_first_step(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match=r"cannot be written to .*; give another folder"):
            train(tiny_dataset, tiny_settings("bil"), out=out)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="this system has no such users")
def test_10_a_folder_that_is_read_only_is_found_before_the_first_step(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """An empty one, and one with a run that was begun."""
    settings = tiny_settings("bil", EVERY_STEP)
    begun = train_until(tiny_dataset, settings, tmp_path / "begun", 4)
    (tmp_path / "empty").mkdir()
    before = {p: p.read_bytes() for p in begun.rglob("*") if p.is_file()}
    paths = [*tmp_path.rglob("*"), tmp_path]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    me = os.geteuid()
    try:
        if me == 0:  # whom nothing is forbidden
            tmp_path.parent.chmod(0o755)
            tmp_path.parent.parent.chmod(0o755)
            os.seteuid(65534)
        for name in ("empty", "begun"):
            with pytest.raises(UsageError, match=r"cannot be written to \(Permission denied\)"):
                train(tiny_dataset, settings, out=tmp_path / name)
    finally:
        os.seteuid(me)
        for path in paths:
            path.chmod(0o755)
    assert {p: p.read_bytes() for p in begun.rglob("*") if p.is_file()} == before


def test_what_cannot_be_built_leaves_no_folder(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    for values in ({"model.backbone": "smal-cnn"}, {"model.weights": "nothing.safetensors"}):
        with pytest.raises(UsageError):
            train(tiny_dataset, tiny_settings("bil", values), out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_11_a_folder_that_was_moved_goes_on(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path / "a", 4)
    (tmp_path / "c").mkdir()
    shutil.move(folder, tmp_path / "c" / folder.name)
    train(tiny_dataset, settings, out=tmp_path / "c")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(run_folder(tmp_path / "c")) == state_of(run_folder(tmp_path / "b"))


def test_11_weights_that_were_moved_are_the_same_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    from bayesdg.methods.learner import build_learner

    learner = build_learner(tiny_settings("erm"), 3, 1)
    assert isinstance(learner, LastLayers)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        weights = learner.network.backbone.state_dict()
        save_file(
            {k: w.contiguous() for k, w in weights.items()}, tmp_path / name / "w.safetensors"
        )
    folders = {
        train(
            tiny_dataset,
            tiny_settings("erm", {"model.weights": str(tmp_path / name / "w.safetensors")}),
            out=tmp_path / "runs",
        ).path
        for name in ("here", "there")
    }
    assert len(folders) == 1


def test_12_a_folder_of_a_newer_format_asks_for_an_upgrade(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    folder = train_until(tiny_dataset, tiny_settings("bil", EVERY_STEP), tmp_path, 4)
    about = json.loads((folder / "run.json").read_text())
    about |= {"format": 99, "versions": {"bayesdg": "9.9.9"}, "surprise": 1}
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(StoredRunError, match=r"written by bayesdg 9.9.9 in format 99.*upgrade"):
        train(tiny_dataset, tiny_settings("bil", EVERY_STEP), out=tmp_path)


def test_13_a_folder_of_an_older_version_is_loaded_and_resumed(
    tiny_dataset: DomainDataset, tmp_path: Path
) -> None:
    """One folder per format that was ever written; made by tests/fixtures/make.py."""
    formats = sorted(FIXTURES.glob("run-format-*"))
    assert [path.name for path in formats] == ["run-format-1"]
    for path in formats:
        stored = json.loads((path / "settings.json").read_text())
        settings = Settings().replace(
            {
                f"{stage}.{name}": value
                for stage, values in stored.items()
                if isinstance(values, dict)
                for name, value in values.items()
            }
            | {"method": stored["method"], "seed": stored["seed"]}
        )
        from bayesdg.training.about import read_settings

        assert read_settings(path).training == settings.training
        copy = tmp_path / path.name
        shutil.copytree(path, copy)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bayesdg.training.train.run_name", lambda *_, name=copy.name: name)
            run = train(tiny_dataset, read_settings(path), out=tmp_path)
        assert [r.step for r in run.records if isinstance(r, StartRecord)] == [0, 2]
        assert run.predict(tiny_dataset.domains["far"].test.images).labels.shape == (9,)


def test_14_what_a_killed_pruning_left_is_removed(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path, 5)
    for name in (".trash-1-step-000000001", ".tmp-1-step-000000006"):
        shutil.copytree(folder / "checkpoints/step-000000005", folder / "checkpoints" / name)
    run = train(tiny_dataset, settings, out=tmp_path)
    assert not list(folder.glob("checkpoints/.*"))
    assert sum("which a killed process left" in note for note in notes_of(run)) == 2


def test_checkpoints_that_are_kept_are_the_newest_and_the_best(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    values = {**EVERY_STEP, "training.steps": 12, "training.learning_rate": 1e-2}
    run = train(tiny_dataset, tiny_settings("bil", values), out=tmp_path)
    kept = {int(path.name[5:]) for path in run_folder(tmp_path).glob("checkpoints/step-*")}
    best = [r.step for r in run.records if isinstance(r, StepRecord) and r.best][-1]
    assert kept == {11, 12, best}


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 75), ("SIGUSR1", 75), ("SIGINT", 130)])
def test_15_16_17_a_signal_saves_and_leaves(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, name: str, code: int
) -> None:
    settings = tiny_settings("bil", {"training.steps": 20, "training.evaluate_every": 20})

    def shout(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step == 10:
            os.kill(os.getpid(), getattr(signal, name))

    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    with pytest.raises(InterruptedRunError, match=f"stopped by {name}, everything is saved") as e:
        train(tiny_dataset, settings, out=tmp_path / "a", on_record=shout)
    assert e.value.exit_code == code
    after = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    assert handlers == after
    folder = run_folder(tmp_path / "a")
    assert list(checkpoint.checkpoints(folder / "checkpoints")) == [10]
    train(tiny_dataset, settings, out=tmp_path / "a")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))


def test_16_a_second_ctrl_c_leaves_at_once(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    def shout(record: Record) -> None:
        if isinstance(record, StepRecord):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    settings = tiny_settings("bil", {"training.steps": 20, "training.evaluate_every": 20})
    with pytest.raises(InterruptedRunError, match="at once") as e:
        train(tiny_dataset, settings, out=tmp_path, on_record=shout)
    assert e.value.exit_code == 130
    assert checkpoint.checkpoints(run_folder(tmp_path) / "checkpoints") == {}


def test_a_signal_cuts_a_validation_short_and_it_is_taken_later(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when another signal cuts it short the second time."""
    settings = tiny_settings("bil", {"training.steps": 9, "training.evaluate_every": 3})
    original, calls = LastLayers.answer, []

    def shout(learner: LastLayers, *args: Any) -> Answer:
        calls.append(1)
        if len(calls) in (5, 7):  # the second domain of the second validation, twice
            os.kill(os.getpid(), signal.SIGTERM)
        return original(learner, *args)

    monkeypatch.setattr(LastLayers, "answer", shout)
    for num_calls in (5, 7):
        with pytest.raises(InterruptedRunError, match="everything is saved"):
            train(tiny_dataset, settings, out=tmp_path / "a")
        assert len(calls) == num_calls
        folder = run_folder(tmp_path / "a")
        assert steps_of(folder)[-1]["step"] == 6
        assert steps_of(folder)[-1]["source_val"] is None
    monkeypatch.undo()
    train(tiny_dataset, settings, out=tmp_path / "a")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))


def test_22_too_little_gpu_memory_names_the_three_settings(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path, 4)

    def too_much(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 EiB")

    monkeypatch.setattr(LastLayers, "terms", too_much)
    with pytest.raises(ResourceError) as e:
        train(tiny_dataset, settings, out=tmp_path)
    assert e.value.exit_code == 5
    for name in ("episode.batch_size (now 8)", "episode.per_class (now 2)", "model.draws (now 3)"):
        assert name in str(e.value)
    assert 4 in checkpoint.checkpoints(folder / "checkpoints")


def test_23_an_end_without_a_goodbye_is_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """A lock whose process is gone, as SIGKILL leaves it."""
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path, 4)
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from bayesdg.training.lock import FolderLock\n"
        "lock = FolderLock.acquire(Path(sys.argv[1]), print); lock.step = 4; lock._beat()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, folder], check=False)
    assert (folder / "run.lock").exists()
    run = train(tiny_dataset, settings, out=tmp_path)
    assert sum("ended without a goodbye at step 4" in note for note in notes_of(run)) == 1
    assert not (folder / "run.lock").exists()


def test_27_two_runs_in_one_folder(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil")
    inner: list[BaseException] = []

    def again(record: Record) -> None:
        if isinstance(record, StepRecord) and not inner:
            with pytest.raises(FolderInUseError, match=r"in use by host .* process") as e:
                train(tiny_dataset, settings, out=tmp_path)
            inner.append(e.value)

    train(tiny_dataset, settings, out=tmp_path, on_record=again)
    assert isinstance(inner[0], BayesdgError)
    assert inner[0].exit_code == 7


def test_30_the_newest_checkpoint_is_that_of_the_highest_step_whatever_the_clock_says(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path, 5)
    for step, path in checkpoint.checkpoints(folder / "checkpoints").items():
        os.utime(path, (10**9 - step, 10**9 - step))
    run = train(tiny_dataset, settings, out=tmp_path)
    assert [r.step for r in run.records if isinstance(r, StartRecord)] == [0, 5]


def test_33_a_run_leaves_few_files(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        settings = tiny_settings("bil", {**EVERY_STEP, "training.steps": 40})
        run = train(tiny_dataset, settings, out=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert run.path is not None
    assert sum(1 for path in run.path.rglob("*") if path.is_file()) <= 20


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("training.learning_rate", 0.5, "training.learning_rate: 0.0001 -> 0.5"),
        ("training.steps", 9, "training.steps: 8 -> 9"),
        ("model.draws", 4, "model.draws: 3 -> 4"),
        ("objective.lambda_psi", 2.0, "objective.lambda_psi: 1.0 -> 2.0"),
        ("training.average", 0.5, "training.average: 0.0 -> 0.5"),
    ],
)
def test_34_other_settings_are_refused_with_a_difference(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    name: str,
    value: object,
    says: str,
) -> None:
    """--resume finds the run that is nearest; a folder given by hand refuses, too."""
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path, 4)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    require_begun(tmp_path, tiny_dataset, None, settings)
    other = settings.replace({name: value})
    with pytest.raises(UsageError) as asked:
        require_begun(tmp_path, tiny_dataset, None, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayesdg.training.train.run_name", lambda *_: folder.name)
        with pytest.raises(UsageError) as forced:
            train(tiny_dataset, other, out=tmp_path)
    for error in (asked.value, forced.value):
        assert says in str(error)
        assert error.exit_code == 2
        assert "\n" not in str(error)
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert after == before
    with pytest.raises(UsageError, match="nothing to resume: .* has no run"):
        require_begun(tmp_path, tiny_dataset, None, settings.replace({"seed": 7}))


@pytest.mark.parametrize(
    "values",
    [
        {"engine.checkpoints": 5, "data.prefetch": 0, "data.storage": "memory"},
        {"training.evaluate_target": "end"},
    ],
)
def test_34_what_changes_no_number_may_change(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, values: dict[str, Any]
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    folder = train_until(tiny_dataset, settings, tmp_path / "a", 4)
    train(tiny_dataset, settings.replace(values), out=tmp_path / "a")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))


def test_35_other_data_is_refused(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    train_until(tiny_dataset, settings, tmp_path, 4)
    domains = dict(tiny_dataset.domains)

    def changed(**parts: object) -> DomainDataset:
        return replace(tiny_dataset, domains={**domains, "mid": replace(domains["mid"], **parts)})

    train_set = domains["mid"].train
    images = torch.as_tensor(train_set.images[torch.arange(18)])
    brighter = images.clone()
    brighter[3, 0, 0, 0] += 0.01
    cases = {
        "other classes .gone: high; new: top": replace(
            tiny_dataset, classes=("low", "mean", "top")
        ),
        "mid/train images changed": changed(train=ImageSet(brighter, train_set.labels)),
        "mid/train labels changed": changed(train=ImageSet(images, train_set.labels.flip(0))),
        "mid/train images changed; bring": changed(
            train=ImageSet(images[1:], train_set.labels[1:])
        ),
    }
    for says, dataset in cases.items():
        with pytest.raises(DataError, match=says) as e:
            train(dataset, settings, out=tmp_path)
        assert e.value.exit_code == 3
    # The target may change: nothing of it was read.
    far = replace(domains["far"], test=domains["mid"].test)
    train(replace(tiny_dataset, domains={**domains, "far": far}), settings, out=tmp_path)


def test_36_another_machine_goes_on_and_says_so(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tiny_settings("bil", EVERY_STEP)
    train_until(tiny_dataset, settings, tmp_path, 4)
    monkeypatch.setattr(torch, "__version__", "99.0")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        run = train(tiny_dataset, settings, out=tmp_path)
    finally:
        torch.set_num_threads(threads)
    (note,) = notes_of(run)
    assert note.startswith("from here on not the same bits: torch ")
    assert f"-> 99.0; threads {threads} -> {threads + 1}" in note


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("device", "H200", "device cpu -> H200"),
        ("processes", 2, "processes 1 -> 2"),
        ("threads", 9, "threads 1 -> 9"),
        ("precision", "bf16", "precision 32 -> bf16"),
        ("compile", True, "compile False -> True"),
        ("versions", {"torch": "2.15", "numpy": "2.4"}, "torch 2.11 -> 2.15; numpy None -> 2.4"),
    ],
)
def test_36_whatever_may_change_bits_is_named(name: str, value: object, says: str) -> None:
    begun = StartRecord(0, "", {"torch": "2.11"}, "cpu", 1, 1, "32", False)
    assert start_differences(begun, replace(begun, step=5, time="later")) == []
    assert "; ".join(start_differences(begun, replace(begun, **{name: value}))) == says


@pytest.mark.parametrize("refusals", [2, 4])
def test_04_a_full_disk_while_recording_stops_nothing(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
) -> None:
    """Also when it stays full until the very end."""
    original, refused, heard = RunFolder._append, [], []

    def full(folder: RunFolder, text: bytes) -> None:
        if len(refused) < refusals:
            refused.append(1)
            with (folder.path / "records.jsonl").open("ab") as file:
                file.write(text[: len(text) // 2])
            raise OSError(28, "No space left on device")
        original(folder, text)

    monkeypatch.setattr(RunFolder, "_append", full)
    settings = tiny_settings("bil", EVERY_STEP)
    run = train(tiny_dataset, settings, out=tmp_path / "a", on_record=heard.append)
    assert len(refused) == refusals
    told = [r.text for r in heard if isinstance(r, NoteRecord)]
    assert len(told) == 1
    assert "No space left on device; training goes on" in told[0]
    monkeypatch.undo()
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert run.path is not None
    assert state_of(run.path) == state_of(run_folder(tmp_path / "b"))


def test_settings_and_records_are_written_whole_beside_the_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = tiny_settings("bil", {"training.steps": 20})
    run = train(tiny_dataset, settings, out=tmp_path)
    assert run.path is not None
    assert Settings.model_validate_json((run.path / "settings.json").read_text()) == settings
    assert run.path.name.startswith("tiny_far_bil_seed0_")
    kinds = [json.loads(x)["kind"] for x in (run.path / "records.jsonl").read_text().splitlines()]
    assert kinds[0] == "start"
    assert kinds.count("step") == sum(isinstance(r, StepRecord) for r in run.records)
    assert dataclasses.asdict(run.records[0])["versions"]["torch"] == torch.__version__
    text = "".join(p.read_text() for p in run.path.glob("*.json*"))
    assert str(tmp_path) not in text
