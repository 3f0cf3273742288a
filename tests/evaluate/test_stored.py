"""What is stored comes back; what is damaged is refused."""

from pathlib import Path

import numpy as np
import pytest

from bayesdg.errors import StoredRunError
from bayesdg.evaluate.stored import (
    PartKey,
    PredictedPart,
    predictions_path,
    read_predictions,
    stored_draws,
    write_predictions,
)


def part(domain: str, num: int, value: float) -> PredictedPart:
    log_p = np.full((num, 2), np.log(0.5), np.float32)
    scores = {"entropy": np.full(num, value, np.float32)}
    return PredictedPart(PartKey(domain, "source", "val"), np.zeros(num, np.int32), log_p, scores)


def test_parts_come_back_and_new_ones_replace_those_of_the_same_key(tmp_path: Path) -> None:
    path = predictions_path(tmp_path, 50)
    assert read_predictions(path) == []
    odd = "[/dog] <b>é\n"  # a name is data, whatever it holds
    write_predictions(path, [part("near", 3, 0.1), part(odd, 2, 0.2)])
    write_predictions(path, [part("near", 4, 0.3)])
    parts = {p.key.domain: p for p in read_predictions(path)}
    assert {name: len(p) for name, p in parts.items()} == {odd: 2, "near": 4}
    assert parts["near"].scores["entropy"].tolist() == [np.float32(0.3)] * 4
    assert parts[odd].log_probabilities.dtype == np.float32
    assert stored_draws(tmp_path) == [50]


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "pickle"])
def test_a_damaged_file_is_refused_and_never_run(tmp_path: Path, damage: str) -> None:
    path = predictions_path(tmp_path, 0)
    write_predictions(path, [part("near", 3, 0.1)])
    content = path.read_bytes()
    if damage == "pickle":
        np.savez(path, parts=np.array([{"a": 1}], dtype=object))
    else:
        path.write_bytes({"cut": content[:-40], "text": b"<html>", "empty": b""}[damage])
    with pytest.raises(StoredRunError, match=r"draws-0.npz is damaged .* bayesdg evaluate"):
        read_predictions(path)
