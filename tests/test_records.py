import json
import math
from pathlib import Path

import pytest

from bayesdg.errors import StoredRunError
from bayesdg.records import ResultRecord, StepRecord, read_records, to_line, write_records

STEP = StepRecord(3, 0.5, {"nll": 1.0}, 1.0, {"a": 0.5}, True)
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


def test_records_survive_the_file(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl", [STEP, RESULT])
    assert read_records(tmp_path / "r.jsonl") == [STEP, RESULT]
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_every_line_is_strict_json() -> None:
    assert json.loads(to_line(RESULT))["kind"] == "result"
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_line(StepRecord(1, 0.0, {"nll": math.nan}, 1.0))


@pytest.mark.parametrize(
    "line", ['{"kind": "step", "st', "null", "[1]", '{"kind": "other"}', '{"kind": "step", "x": 1}']
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(to_line(STEP) + "\n" + line + "\n")
    with pytest.raises(StoredRunError, match="line 2 is not a record"):
        read_records(path)
