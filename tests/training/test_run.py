"""Runs and their folders."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bayesdg.data import DomainDataset
from bayesdg.errors import StoredRunError, UsageError
from bayesdg.evaluate.metrics import accuracy, nll
from bayesdg.records import read_records
from bayesdg.settings import Settings
from bayesdg.training.about import is_finished, run_name
from bayesdg.training.run import Run, load_run
from bayesdg.training.train import train

MakeSettings = Callable[..., Settings]
FILES = ["manifest.json", "records.jsonl", "run.json", "settings.json", "weights.safetensors"]


@pytest.fixture
def run(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> Run:
    return train(tiny_dataset, tiny_settings("bil", {"training.evaluate_target": "end"}))


def test_every_domain_is_evaluated_once_on_its_test_images(
    run: Run, tiny_dataset: DomainDataset
) -> None:
    roles = {result.domain: result.role for result in run.results}
    assert roles == {"near": "source", "mid": "source", "third": "source", "far": "target"}
    for result in run.results:
        test = tiny_dataset.domains[result.domain].test
        log_p = run.predict(test.images).log_probabilities
        # From what is stored, in single precision.
        assert result.metrics["accuracy"] == accuracy(log_p, test.labels.numpy())
        assert result.metrics["nll"] == pytest.approx(nll(log_p, test.labels.numpy()), rel=1e-6)
        assert result.num_images == 9
        assert result.draws == 4
        assert result.selection == "source-val"


def test_a_saved_run_is_the_same_run(run: Run, tiny_dataset: DomainDataset, tmp_path: Path) -> None:
    again = load_run(run.save(tmp_path / "run"))
    images = tiny_dataset.domains["far"].test.images
    first, second = run.predict(images), again.predict(images)
    assert (first.log_probabilities == second.log_probabilities).all()
    assert again.settings == run.settings
    assert again.task == run.task
    assert list(again.records) == list(run.records)


def test_a_saved_run_holds_five_plain_files(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert json.loads((tmp_path / "settings.json").read_text())["method"] == "bil"
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"start", "step", "result", "detection"}


def test_tilde_is_the_home_folder(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = train(tiny_dataset, tiny_settings("erm"), out="~/runs")
    assert run.path is not None
    assert run.path.parent == tmp_path / "runs"
    assert load_run(f"~/runs/{run.path.name}").path == run.path


def test_predict_takes_arrays_and_names_a_wrong_shape(run: Run) -> None:
    images = np.zeros((2, 1, 8, 8), dtype=np.float32)
    assert run.predict(images, draws=0).probabilities.shape == (2, 3)
    with pytest.raises(UsageError, match=r"images have shape \(1, 9, 9\).*\(1, 8, 8\)"):
        run.predict(np.zeros((2, 1, 9, 9), dtype=np.float32))


def test_unknown_target_is_refused(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    with pytest.raises(UsageError, match="unknown domain 'fra' in tiny; did you mean 'far'"):
        train(tiny_dataset, tiny_settings("erm"), targets=["fra"])


def test_folder_names_tell_settings_apart(tiny_settings: MakeSettings) -> None:
    names = {
        run_name("tiny", ["far"], settings)
        for settings in (
            tiny_settings("bil"),
            tiny_settings("erm"),
            tiny_settings("bil", {"seed": 1}),
            tiny_settings("bil", {"training.learning_rate": 0.5}),
        )
    }
    assert len(names) == 4
    assert run_name("tiny", ["far"], tiny_settings("bil")) in names


@pytest.mark.parametrize("name", FILES)
def test_missing_and_damaged_files_are_named(run: Run, tmp_path: Path, name: str) -> None:
    path = run.save(tmp_path) / name
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"[]\n", b'{"a": 1}\n', b"\xff\xfe\n"):
        if name == "records.jsonl" and b"\n" not in content[-1:]:
            continue  # a last line that was cut is no damage: test_records.py
        path.write_bytes(content)
        with pytest.raises(StoredRunError, match=name.split(".")[0]) as caught:
            load_run(tmp_path)
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(StoredRunError, match=name.split(".")[0]):
        load_run(tmp_path)


def test_a_flipped_bit_in_the_weights_is_found(run: Run, tmp_path: Path) -> None:
    path = run.save(tmp_path) / "weights.safetensors"
    whole = bytearray(path.read_bytes())
    for place in (9, len(whole) // 2, len(whole) - 1):
        whole[place] ^= 4
        path.write_bytes(whole)
        with pytest.raises(StoredRunError, match="sha256 of weights.safetensors differs"):
            load_run(tmp_path)
        whole[place] ^= 4


def test_a_run_is_finished_when_weights_and_manifest_are_there(run: Run, tmp_path: Path) -> None:
    assert not is_finished(tmp_path)
    run.save(tmp_path)
    assert is_finished(tmp_path)
    for name in ("weights.safetensors", "manifest.json"):
        (tmp_path / name).rename(tmp_path / "elsewhere")
        assert not is_finished(tmp_path)
        (tmp_path / "elsewhere").rename(tmp_path / name)


def test_results_are_recomputable_from_the_saved_weights(
    run: Run, tiny_dataset: DomainDataset, tmp_path: Path
) -> None:
    again = load_run(run.save(tmp_path))
    stored = [r for r in read_records(tmp_path / "records.jsonl") if r in run.results]
    assert len(stored) == 4
    for result in stored:
        test = tiny_dataset.domains[result.domain].test
        log_p = again.predict(test.images).log_probabilities
        assert accuracy(log_p, test.labels.numpy()) == result.metrics["accuracy"]


def test_settings_that_speak_of_another_size_are_refused(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    with pytest.raises(UsageError, match="image_size is 32, but tiny was loaded with 8 pixels"):
        train(tiny_dataset, tiny_settings("erm", {"data.image_size": 32}))
