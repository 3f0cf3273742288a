"""Every script in examples/ runs."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pictures import make_tree

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """An example as it stands, but for the number of steps."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    quick = re.sub(r'"training.steps": \d+', '"training.steps": 20', text)
    script = tmp_path / name
    script.write_text(quick, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(script), run_name="__main__")


def test_all_examples_are_tested() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.name}"' in tested for path in EXAMPLES.iterdir())


def test_a_loop_of_your_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("own_loop.py", tmp_path, monkeypatch)
    assert float(capsys.readouterr().out.split()[-1]) > 0.8


def test_a_folder_of_your_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAYESDG_CACHE", str(tmp_path / "cache"))
    domains = {name: {"cat": 12, "dog": 12} for name in ("photo", "sketch", "toy")}
    make_tree(tmp_path / "pictures", domains)
    run("own_folder.py", tmp_path, monkeypatch, "pictures", "sketch")
    told = capsys.readouterr().out
    assert re.search(r"target +sketch +accuracy", told)
    assert len(re.findall(r"nats of uncertainty", told)) == 5


def test_when_not_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("when_not_to_answer.py", tmp_path, monkeypatch)
    assert "90 degrees" in capsys.readouterr().out


def test_a_plan_of_your_own() -> None:
    command = [sys.executable, "-m", "bayesdg", "bench", str(EXAMPLES / "plan.toml"), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("weak") == 6
