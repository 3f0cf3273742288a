"""The first run, whole; and README's Python, run as printed."""

import json
import re
from pathlib import Path

import pytest

from bayesdg.presets import SMALL_IMAGES, small_images
from bayesdg.records import ResultRecord, read_records
from test_cli import bayesdg, seconds_of_children

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, float]:
    out = tmp_path_factory.mktemp("first run")  # with a space
    start = seconds_of_children()
    code, stdout, stderr = bayesdg("quickstart", "--out", str(out), timeout=900)
    assert code == 0, stderr
    return out, stdout, seconds_of_children() - start


def test_it_takes_less_than_90_seconds(first_run: tuple[Path, str, float]) -> None:
    assert first_run[2] < 90


def test_it_prints_the_table_that_its_records_make(first_run: tuple[Path, str, float]) -> None:
    out, stdout, _ = first_run
    assert "seed 0" in stdout
    folders = {path.name.split("_")[2]: path for path in out.iterdir() if path.is_dir()}
    assert set(folders) == {"erm", "bil"}
    for method, folder in folders.items():
        results = [r for r in read_records(folder / "records.jsonl") if isinstance(r, ResultRecord)]
        assert [r.domain for r in results] == ["15", "30", "45", "60", "75", "0", "90"]
        line = next(line for line in stdout.splitlines() if f" {method} " in line)
        printed = [float(number) for number in re.findall(r"[\d.]+", line)]
        expected = []
        for metric, scale in (("accuracy", 100), ("nll", 1), ("ece", 100)):
            for role in ("source", "target"):
                values = [r.metrics[metric] for r in results if r.role == role]
                expected.append(scale * sum(values) / len(values))
        assert printed == pytest.approx(expected, abs=0.051)


def test_the_bayesian_method_is_better_at_unseen_angles(first_run: tuple[Path, str, float]) -> None:
    """One seed; docs/results.md has five. The margin there is several times this one."""
    accuracy = {}
    for folder in filter(Path.is_dir, first_run[0].iterdir()):
        results = [r for r in read_records(folder / "records.jsonl") if isinstance(r, ResultRecord)]
        target = [r.metrics["accuracy"] for r in results if r.role == "target"]
        accuracy[results[0].method] = sum(target) / len(target)
    assert accuracy["bil"] > accuracy["erm"] + 0.03


def test_the_same_command_again_shows_what_is_there(first_run: tuple[Path, str, float]) -> None:
    out, stdout, seconds = first_run
    start = seconds_of_children()
    code, again, stderr = bayesdg("quickstart", "--out", str(out))
    assert code == 0
    assert again == stdout
    assert "2 of 2 runs were done before" in stderr
    assert seconds_of_children() - start < seconds / 2


def test_settings_are_written_as_used(first_run: tuple[Path, str, float]) -> None:
    for folder in filter(Path.is_dir, first_run[0].iterdir()):
        stored = json.loads((folder / "settings.json").read_text())
        assert stored == json.loads(small_images("default", stored["method"]).model_dump_json())


def test_both_methods_get_the_same_treatment() -> None:
    erm, bil = small_images("default", "erm"), small_images("default", "bil")
    assert erm.model_copy(update={"method": "bil"}) == bil
    assert SMALL_IMAGES["model.backbone"] == "small-cnn"


def test_readmes_python_runs_as_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 1
    assert len(blocks[0].strip().splitlines()) <= 14
    # Fewer steps than a reader would take; the rest is as printed.
    for block in blocks:
        quick = re.sub(r'"training.steps": \d+', '"training.steps": 20', block)
        exec(compile(quick, "README", "exec"), {})  # noqa: S102
    assert "accuracy" in capsys.readouterr().out
