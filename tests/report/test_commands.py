"""`bayesdg report` and `bayesdg figure` as a person meets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ready_runs import half_finished, ready_run
from test_cli import bayesdg

WITHOUT_TORCH = (
    "import sys; from bayesdg.cli import main; code = main(sys.argv[1:]);"
    "heavy = {'torch', 'torchvision', 'timm', 'lightning_fabric'} & set(sys.modules);"
    "sys.exit(f'{heavy} imported' if heavy else code)"
)


def light(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_report_of_mixed_runs_imports_no_torch_and_prints_its_path(tmp_path: Path) -> None:
    ready_run(tmp_path / "runs", "j")
    half_finished(ready_run(tmp_path / "runs", "a"))
    ready_run(tmp_path / "runs", "d", evaluated=False)
    out = light("report", str(tmp_path / "runs"))
    assert out == f"{tmp_path / 'runs' / 'report.html'}\n"
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "not finished: step 15 of 100" in page
    assert "not tested on the unseen domains" in page
    assert light("report", str(tmp_path / "runs")) == out  # the page is no run


def test_a_figure_imports_no_torch_and_prints_its_path(tmp_path: Path) -> None:
    run = ready_run(tmp_path)
    out = tmp_path / "map.pdf"
    assert (
        light("figure", "features", str(run), "--view", "target", "--out", str(out)) == f"{out}\n"
    )
    assert out.read_bytes()[:5] == b"%PDF-"


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["report", "nowhere"], "no folder nowhere; give a run, a folder of runs or a bench", 2),
        (["report", "."], "no run in .; bayesdg train and bayesdg bench write them", 2),
        (["report", "run", "--class", "dg"], "unknown class 'dg'; did you mean 'dog'?", 2),
        (["report", "run", "--out", "run"], "--out run is a folder; give a file", 2),
        (["report", "run", "--out", "run/run.json/x"], "cannot be written to", 2),
        (["figure", "confuson", "run"], "unknown figure 'confuson'; did you mean 'confusion'?", 2),
        (["figure", "features", "run", "--view", "al"], "unknown view 'al'; did you mean", 2),
        (["figure", "terms", "run", "--out", "f.jpg"], "unknown kind of figure file '.jpg'", 2),
        (["watch", "nowhere"], "no folder nowhere", 2),
        (["watch", "run", "--port", "99999"], "Invalid value for '--port'", 2),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], says: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bayesdg.cli

    monkeypatch.chdir(tmp_path)
    if "run" in arguments:
        ready_run(tmp_path).rename(tmp_path / "run")
    shown: list[str] = []
    monkeypatch.setattr(
        bayesdg.cli.messages, "print", lambda *texts, **_: shown.extend(map(str, texts))
    )
    assert bayesdg.cli.main(arguments) == code
    assert says in shown[-1]
    assert "\n" not in shown[-1]


def test_data_that_are_gone_leave_a_page_without_pictures(tmp_path: Path) -> None:
    run = ready_run(tmp_path, with_features=False)
    code, out, err = bayesdg("report", str(run), BAYESDG_DATA=str(tmp_path / "nothing"))
    assert code == 0, err
    assert "no feature map and no pictures: " in Path(out.strip()).read_text()


@pytest.mark.slow
def test_forty_runs_take_less_than_a_minute_and_five_megabytes(tmp_path: Path) -> None:
    """Ten rows, four targets, 2,000 images in every domain, 600 of them on each of ten maps."""
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    for method in "abcdefghij":
        for target in ("art_painting", "cartoon", "photo", "sketch"):
            ready_run(
                tmp_path / "runs",
                method,
                targets=(target,),
                classes=classes,
                num_images=2000,
                on_map=150,
                steps=1000,
            )
    before = os.times()
    out = light("report", str(tmp_path))
    after = os.times()
    # What it takes on a machine that does nothing else: it computes on one core.
    spent = after.children_user - before.children_user
    assert spent + after.children_system - before.children_system < 60
    assert Path(out.strip()).stat().st_size < 5_000_000
