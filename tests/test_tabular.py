"""Tables that other programs read back, whole or not at all."""

import builtins
import contextlib
import csv
import io
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bayesdg.errors import UsageError
from bayesdg.tabular import Kind, Row, check_table, table_file, table_text

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs the extra parquet")
PARQUET = pytest.param(".parquet", marks=needs_pyarrow)
COLUMNS: dict[str, Kind] = {"path": "text", "p": "number", "set": "names", "n": "count"}
ROWS: list[Row] = [
    {"path": "a,b \"c\".png", "p": 0.25, "set": ["cat", "dog"], "n": 2},
    {"path": "ü.png", "p": None, "set": None, "n": None},
]  # fmt: skip


def test_csv_and_json_lines_are_read_back_by_python() -> None:
    text = io.StringIO()
    table_text(text, COLUMNS, "csv")(ROWS)
    first, second = csv.DictReader(io.StringIO(text.getvalue()))
    assert first == {"path": 'a,b "c".png', "p": "0.25", "set": "cat|dog", "n": "2"}
    assert second == {"path": "ü.png", "p": "", "set": "", "n": ""}
    text = io.StringIO()
    table_text(text, COLUMNS, "json")(ROWS)
    assert [json.loads(line) for line in text.getvalue().splitlines()] == ROWS
    assert text.getvalue().isascii()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", PARQUET, ".CSV"])
def test_a_file_is_there_when_all_is_written_and_not_before(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    path.write_text("before")
    with table_file(path, COLUMNS) as write:
        for _ in range(3000):
            write(ROWS)
        assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if suffix == ".parquet":
        from pyarrow import parquet

        read = parquet.read_table(path)
        assert read.column_names == list(COLUMNS)
        assert read.slice(5998).to_pylist() == ROWS
    else:
        assert len(path.read_text().splitlines()) == 6000 + (suffix != ".jsonl")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", PARQUET])
def test_after_an_error_there_is_what_was_before(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    for before in (None, "before"):
        if before:
            path.write_text(before)
        with contextlib.suppress(KeyboardInterrupt), table_file(path, COLUMNS) as write:
            write(ROWS)
            raise KeyboardInterrupt
        assert [p.read_text() for p in tmp_path.iterdir()] == ([before] if before else [])


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1", "@SUM(A1)"])
def test_no_spreadsheet_takes_a_name_for_a_formula(text: str) -> None:
    for cell in (text, [text, "b"]):
        file = io.StringIO()
        table_text(file, {"x": "text"}, "csv")([{"x": cell}])
        (row,) = csv.DictReader(io.StringIO(file.getvalue(), newline=""))
        assert row["x"] == "'" + ("|".join(cell) if isinstance(cell, list) else cell)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\t=1", "a\0b", "a\x1b[2Jb", "a\u202eb"])
def test_control_characters_reach_no_table_that_is_plain_text(text: str) -> None:
    file = io.StringIO()
    table_text(file, {"x": "text"}, "csv")([{"x": text}])
    assert all(c.isprintable() for c in file.getvalue().replace("\n", ""))
    assert len(file.getvalue().splitlines()) == 2


def test_json_has_no_number_that_is_none() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        table_text(io.StringIO(), {"p": "number"}, "json")([{"p": float("nan")}])


def test_what_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"x.xlsx: tables are written as .csv, .jsonl, .parquet"):
        check_table(tmp_path / "x.xlsx")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check_table(tmp_path / "folder.csv")
    real = builtins.__import__

    def without_pyarrow(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(UsageError, match=r"pip install 'bayesdg\[parquet\]'"):
        check_table(tmp_path / "x.parquet")
    check_table(tmp_path / "x.csv")


def test_litter_is_named_by_its_process(tmp_path: Path) -> None:
    with table_file(tmp_path / "x.csv", COLUMNS):
        assert [p.name for p in tmp_path.iterdir()] == [f"x.csv.tmp-{os.getpid()}"]
