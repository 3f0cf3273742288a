import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bayesdg.errors import StoredRunError
from bayesdg.records import (
    DetectionRecord,
    Metrics,
    ResultRecord,
    StepRecord,
    detections_of,
    from_line,
    mean_accuracy,
    read_records,
    results_of,
    to_line,
    write_records,
    write_text,
)

STEP = StepRecord(
    3, 0.5, {"nll": 1.0}, 1.0, 0.1, 2.0, source_val={"a": {"accuracy": 0.5}}, best=True
)
RESULT = ResultRecord(
    "d",
    "bil",
    "default",
    0,
    "source-val",
    3,
    "ünïcode [/dog]",
    "target",
    "test",
    9,
    0,
    50,
    {"accuracy": 0.5},
)
DETECTION = DetectionRecord(
    "d", "bil", "default", 0, "source-val", 3, "far", 50, "errors", "entropy", 4, 5, {"auroc": 0.5}
)


def test_records_survive_the_file(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl", [STEP, RESULT])
    assert read_records(tmp_path / "r.jsonl") == [STEP, RESULT]
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_every_line_is_strict_json() -> None:
    assert json.loads(to_line(RESULT))["kind"] == "result"
    broken = StepRecord(1, 0.0, {"nll": math.nan}, -math.inf, 0.1, math.inf)
    line = to_line(broken)
    assert "NaN" not in line
    assert "Infinity" not in line
    assert from_line(line) == StepRecord(1, 0.0, {"nll": None}, None, 0.1, None)


def test_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    """At every byte: what a kill or a full disk may leave."""
    path = tmp_path / "r.jsonl"
    write_records(path, [STEP, RESULT])
    whole = path.read_bytes()
    first = len(to_line(STEP)) + 1
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_records(path) == ([STEP] if length >= first else [])


@pytest.mark.parametrize(
    ("metrics", "mean"),
    [
        (None, None),
        ({}, None),
        ({"a": {"accuracy": 0.5}, "b": {"accuracy": 1.0}}, 0.75),
        ({"a": {"accuracy": 0.5}, "b": {"accuracy": math.nan}}, None),
        ({"a": {"accuracy": None}}, None),
    ],
)
def test_a_mean_of_what_is_no_number_is_none(metrics: Metrics | None, mean: float | None) -> None:
    assert mean_accuracy(metrics) == mean


@pytest.mark.parametrize(
    "line", ['{"kind": "step", "st', "null", "[1]", '{"kind": "other"}', '{"kind": "step", "x": 1}']
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(to_line(STEP) + "\n" + line + "\n")
    with pytest.raises(StoredRunError, match="line 2 is not a record"):
        read_records(path)


def test_a_result_that_names_no_statistics_is_an_ordinary_one() -> None:
    """As older versions wrote it."""
    fields = json.loads(to_line(RESULT))
    assert fields.pop("statistics") == "trained"
    assert from_line(json.dumps(fields)) == RESULT


def test_results_with_other_statistics_are_had_by_name_alone() -> None:
    own = replace(RESULT, statistics="own")
    later = replace(RESULT, statistics="of a later version")
    records = [STEP, own, RESULT, later, DETECTION, replace(DETECTION, statistics="own")]
    assert results_of(records) == [RESULT]
    assert results_of(records, "own") == [own]
    assert detections_of(records) == [DETECTION]
    assert detections_of(records, "own") == [replace(DETECTION, statistics="own")]


def test_a_step_that_an_older_version_wrote_is_read() -> None:
    fixture = Path(__file__).parent / "fixtures" / "run-format-1" / "records.jsonl"
    (step,) = (r for r in read_records(fixture) if isinstance(r, StepRecord))
    assert step.val_accuracy == pytest.approx(1 / 3)
    assert step.target_val is None


def test_what_could_not_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "plan.json"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
