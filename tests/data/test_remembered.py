"""Folders with any name are found again by the text that a run keeps of it."""

import json
import os
from pathlib import Path

import pytest

from bayesdg.cli import main
from bayesdg.data.remembered import as_text, from_text
from bayesdg.errors import UsageError
from benches import MINIATURE, tiny_pacs

NAMES = [
    b"plain",
    b"d\xe9t\xff",
    "déjà vu/ \u200e🐘".encode(),
    b"two\nlines",
    rb"C:\xe9",  # a name that looks like an escape
    rb"\x00\xe9",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_folder_is_found_again(name: bytes, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir(parents=True)
    text = json.loads(json.dumps(as_text(str(folder)), ensure_ascii=False).encode())
    assert from_text(text) == str(folder)


def test_a_folder_that_was_moved_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not to be found \(.*gone\); say where it lies now"):
        from_text(str(tmp_path / "gone"))


def test_known_names_are_themselves() -> None:
    assert from_text("pacs") == "pacs"


def test_a_run_on_a_folder_that_is_no_utf8_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Relative, as a person would name it, and moved before the last evaluation."""
    place = os.fsdecode(b"d\xe9t")
    data = tiny_pacs(tmp_path / place)
    monkeypatch.chdir(tmp_path)
    values = [f"--set={name}={value}" for name, value in MINIATURE.items()]
    assert main(["train", f"{place}/{data.name}", "--target", "photo", *values]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert main(["evaluate", str(run)]) == 0
    data.rename(tmp_path / "moved")
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 2
    assert rf"(d\xe9t/{data.name}); say where it lies now (--data)" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--data", str(tmp_path / "moved")]) == 0
