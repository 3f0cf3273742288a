import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayesdg.cli import main
from run_folders import write_run


def test_figures_are_on_stdout_and_notes_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    (write_run(tmp_path, "bil").path / "settings.json").unlink()
    assert main(["table", str(tmp_path), "--format", "json"]) == 0
    output, errors = capsys.readouterr()
    (cell,) = json.loads(output)
    assert (cell["method"], cell["mean"], cell["n"]) == ("erm", 0.5, 1)
    assert "no settings.json in" in errors


def test_a_table_goes_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs")
    page = tmp_path / "page.md"
    assert main(["table", str(tmp_path), "--format", "md", "--out", str(page)]) == 0
    assert capsys.readouterr().out == ""
    assert "| erm | 50.00 |" in page.read_text()
    assert main(["table", str(tmp_path), "--out", str(tmp_path / "no" / "page.md")]) == 2


def test_runs_are_chosen_by_their_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, target=0.6)
    write_run(tmp_path, settings={"training.learning_rate": 0.5}, target=0.7)
    assert main(["table", str(tmp_path)]) == 2
    assert "--where NAME=VALUE" in capsys.readouterr().err
    where = ["--where", "training.learning_rate=0.5"]
    assert main(["table", str(tmp_path), *where, "--format", "csv"]) == 0
    assert ",0.7," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "marksdown"], "unknown format 'marksdown'; "),
        (["--metric", "acuracy"], "unknown metric 'acuracy'; did you mean 'accuracy'"),
        (["--selection", "orcale"], "unknown selection 'orcale'; did you mean 'oracle'"),
        (["--plan", "ablatoin"], "unknown plan 'ablatoin'; did you mean 'ablation'"),
        (["--where", "steps"], "--where takes NAME=VALUE"),
        (["--where", "training.step=5"], "did you mean 'training.steps'"),
    ],
)
def test_a_typo_has_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    write_run(tmp_path)
    assert main(["table", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


PLACES = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    "an old Windows": {"PYTHONIOENCODING": "cp1252", "TERM": "dumb"},
    "narrow, without colours": {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "20"},
}


@pytest.mark.parametrize("place", PLACES)
def test_77_output_fits_what_listens(tmp_path: Path, place: str) -> None:
    """A table and a mistake, on names that no old code page has; no terminal listens."""
    write_run(
        tmp_path, dataset="d\u00e9j\u00e0 \U0001f415", targets=("\u0632\u0631\u0627\u0641\u0629",)
    )
    command = [sys.executable, "-m", "bayesdg", "table"]
    environment = {**os.environ, **PLACES[place]}
    for folder, code in ((tmp_path, 0), (tmp_path / "\U0001f415", 6)):
        done = subprocess.run([*command, str(folder)], env=environment, capture_output=True)
        assert done.returncode == code, done.stderr
        shown, said = done.stdout, done.stderr
        assert b"\x1b" not in shown + said
        assert b"Traceback" not in said
        if code == 0:
            assert b"50.00" in shown
            # Where all there is is ASCII, typer takes it for a mistake and writes UTF-8.
            assert (b"?" in shown) == (place == "an old Windows")
        else:
            assert (shown, said.count(b"\n")) == (b"", 1)
