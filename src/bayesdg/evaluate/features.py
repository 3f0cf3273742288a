"""Features of some images on disk, with their pictures: what a feature map shows. No torch.

One file per run, `features.npz`. The images are a sample: as many of each evaluated part, drawn
with a seed that knows the part alone, so that runs on the same data show the same images.

Axes: n images, D features.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import StoredRunError
from bayesdg.evaluate.stored import PartKey
from bayesdg.records import write_bytes

NAME = "features.npz"
# Images on the map of a run: enough to see clusters, few enough to point at one.
MOST_IMAGES = 600


@dataclass(frozen=True)
class FeatureSample:
    """Some images of a run, what it sees in them, and what they look like.

    Attributes:
        keys: The parts that were evaluated.
        part: (n,) which of `keys` an image is from.
        row: (n,) its position among the stored predictions of that part.
        labels: (n,) indices into the run's classes; -1 where none of them is right.
        features: (n, D), of the layer before the classifier.
        pictures: n small image files (WebP).
        on_map: (n,) whether it is of the random sample; the others are there for their picture.
        totals: How many images each part has.
        extra: What is computed from these once and kept with them, by name.
    """

    keys: tuple[PartKey, ...]
    part: NDArray[np.int32]
    row: NDArray[np.int32]
    labels: NDArray[np.int32]
    features: NDArray[np.float32]
    pictures: tuple[bytes, ...]
    on_map: NDArray[np.bool_]
    totals: tuple[int, ...]
    extra: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def domains(self) -> NDArray[np.str_]:
        """(n,) names."""
        return np.array([key.domain for key in self.keys])[self.part]

    @property
    def is_target(self) -> NDArray[np.bool_]:
        """(n,) whether the domain is one that training never saw."""
        return np.array([key.role == "target" for key in self.keys])[self.part]

    def picture(self, domain: str, part: str, row: int) -> bytes | None:
        """The picture of an image; None if it is not among these."""
        for index, key in enumerate(self.keys):
            if (key.domain, key.part) == (domain, part):
                found = np.flatnonzero((self.part == index) & (self.row == row))
                return self.pictures[int(found[0])] if len(found) else None
        return None


def sample_rows(key: PartKey, total: int, wanted: int) -> NDArray[np.int64]:
    """Positions of `wanted` of a part's images, rising; the same for every run on the same data."""
    digest = sha256(f"features/{key.domain}/{key.part}".encode("utf-8", "backslashreplace"))
    chance = np.random.default_rng(int.from_bytes(digest.digest()[:8], "little"))
    return np.sort(chance.permutation(total)[:wanted])


def write_features(path: Path, sample: FeatureSample) -> None:
    """One file, whole or absent."""
    lengths = np.array([len(picture) for picture in sample.pictures], np.int64)
    table = {"keys": [asdict(key) for key in sample.keys], "totals": sample.totals}
    arrays: dict[str, Any] = {
        "table": np.frombuffer(json.dumps(table).encode(), np.uint8),
        "part": sample.part,
        "row": sample.row,
        "labels": sample.labels,
        "features": sample.features,
        "pictures": np.frombuffer(b"".join(sample.pictures), np.uint8),
        "picture_ends": lengths.cumsum(),
        "on_map": sample.on_map,
        **{f"extra/{name}": values for name, values in sample.extra.items()},
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_features(path: Path) -> FeatureSample | None:
    """What was written; None where there is no file. Nothing in the file is ever executed."""
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            table = json.loads(arrays["table"].tobytes())
            extra = {name for name in arrays.files if name.startswith("extra/")}
            return FeatureSample(
                tuple(PartKey(**key) for key in table["keys"]),
                arrays["part"],
                arrays["row"],
                arrays["labels"],
                arrays["features"],
                _split(arrays["pictures"].tobytes(), arrays["picture_ends"].tolist()),
                arrays["on_map"],
                tuple(table["totals"]),
                {name.removeprefix("extra/"): arrays[name] for name in sorted(extra)},
            )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StoredRunError(
            f"{path} is damaged ({error}); remove it, and bayesdg report writes it anew"
        ) from None


def _split(content: bytes, ends: Sequence[int]) -> tuple[bytes, ...]:
    starts = [0, *ends]
    return tuple(content[start:end] for start, end in zip(starts, ends, strict=False))
