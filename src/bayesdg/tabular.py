"""Rows to a table as they come: CSV, JSON lines or Parquet; a file is there whole or not at all.

Imports no torch.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from bayesdg.data.tree import shown
from bayesdg.errors import ResourceError, UsageError

Cell = str | float | int | list[str] | None
Row = Mapping[str, Cell]
Kind = Literal["text", "number", "count", "names"]
# Hands rows over; all have the same columns.
Write = Callable[[Sequence[Row]], None]

SUFFIXES = (".csv", ".jsonl", ".parquet")
# A spreadsheet takes a cell that begins so for a formula.
FORMULA = ("=", "+", "-", "@")
# Rows that Parquet keeps together; so many are in memory.
ROW_GROUP = 4096


def check_table(path: Path) -> None:
    """Before the work, not after it: is it a table that can be written?"""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: tables are written as {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give a file")
    if path.suffix.lower() == ".parquet":
        _pyarrow()


@contextmanager
def table_file(path: Path, columns: Mapping[str, Kind]) -> Iterator[Write]:
    """What writes rows to a file, by its suffix; after an error there is no file."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            with temporary.open("wb") as binary, _parquet(binary, columns) as write:
                yield write
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                yield table_text(text, columns, "json" if suffix == ".jsonl" else "csv")
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        raise ResourceError(
            f"disk full: {shown(path)} was not written; make room, or give another place"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def table_text(file: TextIO, columns: Mapping[str, Kind], form: Literal["csv", "json"]) -> Write:
    """What writes rows to an open file, at once."""
    if form == "json":

        def write_json(rows: Sequence[Row]) -> None:
            file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)
            file.flush()

        return write_json
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)

    def write_csv(rows: Sequence[Row]) -> None:
        writer.writerows([_csv_cell(row[name]) for name in columns] for row in rows)
        file.flush()

    return write_csv


def _csv_cell(cell: Cell) -> str | float | int:
    """Names are joined by '|'; text that a spreadsheet would compute gets a quote in front.

    Control characters are escaped: programs differ in where a line ends.

    >>> _csv_cell("=1+1"), _csv_cell(["cat", "dog"]), _csv_cell(None), _csv_cell(-0.5)
    ("'=1+1", 'cat|dog', '', -0.5)
    """
    if isinstance(cell, float | int):
        return cell
    text = shown("|".join(cell) if isinstance(cell, list) else cell or "")
    return f"'{text}" if text.startswith(FORMULA) else text


@contextmanager
def _parquet(file: IO[bytes], columns: Mapping[str, Kind]) -> Iterator[Write]:
    pa, parquet = _pyarrow()
    kinds = {
        "text": pa.string(),
        "number": pa.float64(),
        "count": pa.int64(),
        "names": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    waiting: list[Row] = []

    def flush() -> None:
        if waiting:
            writer.write_table(pa.Table.from_pylist(waiting, schema))
            waiting.clear()

    def write(rows: Sequence[Row]) -> None:
        waiting.extend(rows)
        if len(waiting) >= ROW_GROUP:
            flush()

    with parquet.ParquetWriter(file, schema) as writer:
        yield write
        flush()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow: pip install 'bayesdg[parquet]'; .csv and .jsonl need nothing"
        ) from None
    return pyarrow, parquet
