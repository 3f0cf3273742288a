"""Folders that may only be read, by a user for whom that holds, and disks without room."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bayesdg.cli import main
from bayesdg.data.known import IDX_FILES
from benches import MINIATURE, tiny_pacs
from disks import fill, powerless, read_only, small_disk
from pictures import idx_bytes

# All in one process, which has torch to load once; RUN is the run that was trained before.
SCRIPT = """
import json, sys
from pathlib import Path
from bayesdg.cli import main
from disks import forbid
out = Path(sys.argv[1])
for words in json.loads(sys.argv[2]):
    if words == ["forbid"]:
        forbid(out)
        continue
    run = str(next(out.iterdir(), ""))
    print(f"code {main([run if word == 'RUN' else word for word in words])}", file=sys.stderr)
"""


def answers(out: Path, commands: list[list[str]], cache: Path) -> list[tuple[int, str]]:
    """Exit code of each command, and the last line it printed before."""
    done = subprocess.run(
        [*powerless(), sys.executable, "-c", SCRIPT, str(out), json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "BAYESDG_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found, last = [], ""
    for line in done.stderr.splitlines():
        if line.startswith("code "):
            found.append((int(line.removeprefix("code ")), last))
        last = line
    return found


def test_folders_that_are_read_only_serve_and_stay_as_they_are(tmp_path: Path) -> None:
    """The data folder from the start; the run folder once the run was evaluated."""
    root, out = tmp_path / "root", tmp_path / "out"
    data = tiny_pacs(root)
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in IDX_FILES:
        shape = (20,) if "labels" in name else (20, 28, 28)
        (raw / name).write_bytes(idx_bytes(np.zeros(shape)))
    (tmp_path / "empty").mkdir()
    out.mkdir()
    train = ["train", str(data), "--target", "photo", "--evaluate-target"]
    train += [f"--set={name}={value}" for name, value in {**MINIATURE, "data.cache": True}.items()]
    predict = ["predict", "RUN", str(data / "photo"), "--out"]
    works = [
        ["data", "check", str(data)],
        ["data", "show", str(data), "--out", str(tmp_path / "sheet.png")],
        ["data", "get", "rotated-mnist", "--root", str(root)],
        [*train, "--out", str(out)],
        ["evaluate", "RUN"],
        [*predict, str(tmp_path / "table.csv")],
    ]
    refused = [
        ["data", "get", "rotated-mnist", "--root", str(tmp_path / "empty")],
        ["data", "get", "pacs", "--archive", "pacs.zip", "--root", str(tmp_path / "empty")],
        [*predict, str(data / "table.csv")],
        [*train, "--out", str(data / "runs")],
    ]
    keeps = [["evaluate", "RUN"], ["calibrate", "RUN"], ["report", "RUN"],
             ["export", "RUN", "--format", "torch"]]  # fmt: skip
    asks = [["predict", "RUN", str(data / "photo")], ["verify", "RUN"], ["table", str(out)]]
    before = listing(root)
    with read_only(root, tmp_path / "empty"):
        commands = [*works, *refused, ["forbid"], *keeps, *asks]
        found = answers(out, commands, tmp_path / "cache")
    assert [code for code, _ in found] == [0] * 6 + [2] * 4 + [2] * 4 + [0] * 3, found
    for _, line in found[6:14]:
        assert "cannot be written to (Permission denied)" in line
    assert (tmp_path / "table.csv").read_text().count("\n") == 1 + 12
    assert listing(root) == before
    assert listing(tmp_path / "empty") == {}
    assert listing(tmp_path / "cache")


def test_files_of_a_data_set_that_are_damaged_are_told_where_it_would_be_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in IDX_FILES:
        (raw / name).touch()
    assert main(["data", "get", "rotated-mnist", "--root", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert f"what is in {raw} is damaged; remove it, and the same command" in error


def test_an_archive_that_the_disk_has_no_room_for_is_not_called_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_pacs(tmp_path)
    archives = [shutil.make_archive(str(tmp_path / "a"), k, tmp_path) for k in ("zip", "gztar")]
    with small_disk(tmp_path / "disk", 3) as disk:
        (disk / "data").mkdir()
        fill(disk)
        for archive in archives:
            command = ["data", "get", "pacs", "--archive", archive, "--root", str(disk / "data")]
            assert main(command) == 5
            error = capsys.readouterr().err
            assert error.startswith(f"bayesdg: No space left on device: {disk}")
            assert error.count("\n") == 1
            assert list((disk / "data").iterdir()) == []


def listing(top: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
