"""What a run leaves behind, as JSON lines. Imports no torch.

A run folder holds settings.json, run.json (what the weights were trained on), records.jsonl and
weights.safetensors. The records are the truth from which every table is made.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bayesdg.errors import StoredRunError


@dataclass(frozen=True)
class StepRecord:
    """How training stood after a step.

    Attributes:
        step: Counted from 1.
        seconds: Since training began.
        terms: The named parts of the loss, unweighted.
        loss: Their weighted sum.
        source_val: Accuracy on the validation images of each source domain, when it was taken.
        best: Whether these are the best weights so far by source validation.
    """

    step: int
    seconds: float
    terms: Mapping[str, float]
    loss: float
    source_val: Mapping[str, float] | None = None
    best: bool = False


@dataclass(frozen=True)
class ResultRecord:
    """One part of one domain, 'test' or 'val', under the selected weights.

    Images of classes that no source domain has are counted in `num_excluded` and in no metric.
    """

    dataset: str
    method: str
    preset: str
    seed: int
    selection: str
    step: int
    domain: str
    role: Literal["source", "target"]
    part: Literal["val", "test"]
    num_images: int
    num_excluded: int
    draws: int
    metrics: Mapping[str, float]


Record: TypeAlias = StepRecord | ResultRecord
KINDS: dict[str, type[StepRecord] | type[ResultRecord]] = {
    "step": StepRecord,
    "result": ResultRecord,
}


def to_line(record: Record) -> str:
    """One JSON object; NaN and infinity are refused, they are no JSON."""
    kind = next(name for name, cls in KINDS.items() if isinstance(record, cls))
    return json.dumps({"kind": kind, **dataclasses.asdict(record)}, allow_nan=False)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """All records of a run; the file is there whole or not at all."""
    write_text(path, "".join(to_line(record) + "\n" for record in records))


def read_records(path: Path) -> list[Record]:
    """The records of a run, in order."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise StoredRunError(f"no records at {path}; is it a run folder?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoredRunError(f"{path} cannot be read: {error}") from None
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            fields: dict[str, Any] = json.loads(line)
            records.append(KINDS[fields.pop("kind")](**fields))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoredRunError(f"{path} line {number} is not a record") from None
    return records


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
