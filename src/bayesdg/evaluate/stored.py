"""Predictions on disk: what every reported number can be recomputed from. Imports no torch.

One file per number of draws, `predictions/draws-50.npz`: the predictions of all evaluated parts
behind each other, in single precision, and a table of the parts. Metrics are computed from what is
stored, so that recomputing gives the same number and not nearly the same. Predictions with other
statistics of batch norm than those that training kept lie in files of their own, such as
`predictions/draws-50-own.npz`.

Axes: n images, K classes.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import StoredRunError
from bayesdg.records import TRAINED, write_bytes

FOLDER = "predictions"
# What is kept of each image beside its label; names as in Predictions.
SCORES = ("entropy", "aleatoric", "epistemic", "variation_ratio", "energy")


@dataclass(frozen=True)
class PartKey:
    """Which images: a part of a domain.

    Attributes:
        domain: Its name.
        role: What it was in the run; 'other' for images from elsewhere.
        part: 'test', 'val' or 'unknown': test images of classes that training never saw.
    """

    domain: str
    role: Literal["source", "target", "other"]
    part: Literal["test", "val", "unknown"]


@dataclass(frozen=True)
class PredictedPart:
    """What a run said about a part of a domain.

    Attributes:
        key: Which.
        labels: (n,), indices into the run's classes; -1 where none of them is right.
        log_probabilities: (n, K), float32.
        scores: Name -> (n,), float32; see SCORES. 'density' is there where it was computed.
    """

    key: PartKey
    labels: NDArray[np.int32]
    log_probabilities: NDArray[np.float32]
    scores: dict[str, NDArray[np.float32]]

    def __len__(self) -> int:
        return len(self.labels)


def predictions_path(run: Path, draws: int, statistics: str = TRAINED) -> Path:
    """Where a run keeps the predictions of so many draws; 0 for the mean weights."""
    ending = "" if statistics == TRAINED else f"-{statistics}"
    return run / FOLDER / f"draws-{draws}{ending}.npz"


def write_predictions(path: Path, parts: Sequence[PredictedPart]) -> None:
    """All parts in one file, whole or absent; parts that were there under the same key go."""
    path.parent.mkdir(exist_ok=True)
    fresh = {part.key for part in parts}
    kept = [part for part in read_predictions(path) if part.key not in fresh]
    arrays: dict[str, Any] = {}
    table = []
    for number, part in enumerate([*kept, *parts]):
        table.append({**asdict(part.key), "scores": list(part.scores)})
        arrays[f"{number}/labels"] = part.labels
        arrays[f"{number}/log_probabilities"] = part.log_probabilities
        arrays |= {f"{number}/{name}": values for name, values in part.scores.items()}
    text = json.dumps(table).encode()
    arrays["parts"] = np.frombuffer(text, np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_predictions(path: Path) -> list[PredictedPart]:
    """What was written; nothing where there is no file. Nothing in the file is ever executed."""
    if not path.exists():
        return []
    try:
        # Through memory: numpy leaves a file open that turns out to be none of its own.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            table = json.loads(arrays["parts"].tobytes())
            return [
                PredictedPart(
                    PartKey(row["domain"], row["role"], row["part"]),
                    arrays[f"{number}/labels"],
                    arrays[f"{number}/log_probabilities"],
                    {name: arrays[f"{number}/{name}"] for name in row["scores"]},
                )
                for number, row in enumerate(table)
            ]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StoredRunError(
            f"{path} is damaged ({error}); bayesdg evaluate writes it anew"
        ) from None


def stored_draws(run: Path) -> list[int]:
    """For which numbers of draws there are ordinary predictions."""
    return sorted(draws for draws, statistics in stored_kinds(run) if statistics == TRAINED)


def stored_kinds(run: Path) -> Iterator[tuple[int, str]]:
    """Numbers of draws and statistics of batch norm that there are predictions of."""
    for path in _files(run):
        draws, _, statistics = path.stem.removeprefix("draws-").partition("-")
        if draws.isdecimal():
            yield int(draws), statistics or TRAINED


def _files(run: Path) -> Iterable[Path]:
    return (run / FOLDER).glob("draws-*.npz")
