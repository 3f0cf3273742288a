"""The command line as a person meets it, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def bayesdg(*arguments: str, timeout: float = 120, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "bayesdg", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "100", **environment},
    )
    return done.returncode, done.stdout, done.stderr


def seconds_of_children() -> float:
    """Processor time of ended processes: what they take on a machine that does nothing else."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("methods",)])
def test_light_commands_answer_within_half_a_second_and_without_torch(
    arguments: tuple[str, ...],
) -> None:
    watcher = (
        "import sys; from bayesdg.cli import main; code = main(sys.argv[1:]);"
        "heavy = {'torch', 'torchvision', 'timm', 'sklearn', 'lightning'} & set(sys.modules);"
        "sys.exit(f'{heavy} imported' if heavy else code)"
    )
    seconds = []
    for _ in range(3):  # the fastest of three: the first one may have to compile
        start = seconds_of_children()
        done = subprocess.run([sys.executable, "-c", watcher, *arguments], capture_output=True)
        seconds.append(seconds_of_children() - start)
        assert done.returncode == 0, done.stderr
    assert min(seconds) < 0.5


def test_version_and_help_say_what_this_is() -> None:
    assert bayesdg("--version")[:2] == (0, "bayesdg 0.1.0\n")
    code, out, _ = bayesdg("--help")
    assert code == 0
    assert "quickstart" in out
    assert "Bayesian domain generalization" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["it's"], 'unknown command "it\'s"; allowed: quickstart,'),
        (["quikstart"], "unknown command 'quikstart'; did you mean 'quickstart'? allowed: "),
        (
            ["quickstart", "--sed", "1"],
            "unknown option '--sed'; did you mean '--seed'? allowed: --out, --seed,",
        ),
        (
            ["quickstart", "--method", "bli"],
            "unknown method 'bli'; did you mean 'bil'? allowed: erm, bil, a, b, c,",
        ),
        (
            ["quickstart", "--preset", "papr"],
            "unknown preset 'papr'; did you mean 'paper'? allowed: default, paper, released",
        ),
        (["quickstart", "--seeds", "x"], "Invalid value for '--seeds'"),
        (["quickstart", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["quickstart", "extra"], "unexpected extra argument"),
        (["quickstart", "--out"], "requires an argument"),
        (["train"], "Missing argument 'dataset'; see bayesdg train --help"),
        (
            ["train", "pasc"],
            "unknown data set 'pasc'; did you mean 'pacs'? allowed: rotated-dig",
        ),
        (["train", "pacs"], "pacs has no target of its own; name one with --target: art_painting,"),
        (
            ["train", "pacs", "--target", "scetch"],
            "unknown domain 'scetch' in pacs; did you mean 'sketch'? allowed: art_painting,",
        ),
        (
            ["train", "rotated-digits", "--set", "training.step=3"],
            "unknown setting 'training.step'; did you mean 'training.steps'? allowed: steps,",
        ),
        (
            ["train", "rotated-digits", "--set", "training.learning_rate=nan"],
            "setting training.learning_rate: Input should be a finite number, got 'nan'",
        ),
        (
            ["train", "rotated-digits", "--set", "model.std1=2"],
            "setting model: std1 is 2.0 and std2 is 1.5, std1 must be smaller",
        ),
        (
            ["train", "rotated-digits", "--device", "cudaa"],
            "setting engine.device: should be auto, cpu, mps, cuda, or cuda:1 and so on, got",
        ),
        (
            ["train", "rotated-digits", "--preset", "papr"],
            "unknown preset 'papr'; did you mean '",
        ),
        (["quickstart", "--out", "pyproject.toml/x"], "--out pyproject.toml/x cannot be written"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").touch()
    done = subprocess.run(
        [sys.executable, "-m", "bayesdg", *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bayesdg: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


def test_no_command_prints_the_help() -> None:
    code, out, err = bayesdg()
    assert (code, err) == (2, "")
    assert "Usage" in out


def test_methods_lists_every_row() -> None:
    from bayesdg.methods import METHODS

    _, out, _ = bayesdg("methods")
    first_cells = [line.split("│")[1].strip() for line in out.splitlines() if "│" in line]
    assert [cell for cell in first_cells if cell] == list(METHODS)


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m bayesdg methods | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_32_when_nobody_listens_the_run_goes_on(tmp_path: Path) -> None:
    """Both outputs are closed after the first line, as `2>&1 | head -1` does."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "bayesdg", "train", "rotated-digits", "--backbone", "small-cnn",
            "--steps", "4", "--set", "training.evaluate_every=1", "--set", "episode.per_class=2",
            "--device", "cpu", "--out", str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stdout is not None
    assert b"4 steps on cpu, in " in process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert len(list(tmp_path.glob("*/weights.safetensors"))) == 1


def test_ctrl_c_is_one_line_and_130(tmp_path: Path) -> None:
    import signal

    process = subprocess.Popen(
        [sys.executable, "-m", "bayesdg", "quickstart", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()  # the first report of the first run
    assert "step 50 of" in line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    last = "bayesdg: stopped by SIGINT, everything is saved; the same command goes on"
    assert err.rstrip().endswith(last)


@pytest.mark.parametrize("code", [0, 1, 75, 130])
def test_several_processes_end_with_the_code_of_the_whole(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bayesdg.cli import main

    monkeypatch.setattr("bayesdg.training.launch.launch", lambda *arguments: code)
    command = ["train", "rotated-digits", "--processes", "2", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as left:
        main(command)
    assert (left.value.code or 0) == code
    assert capsys.readouterr().err == ""  # the ranks have spoken
