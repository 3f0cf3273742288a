"""Where a run fails: its most confident mistakes and the images it is least sure of.

A pure function of stored predictions, like every reported number. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bayesdg.evaluate.arrays import Floats, Integers
from bayesdg.evaluate.stored import PartKey, PredictedPart

Kind = Literal["mistake", "unsure"]


@dataclass(frozen=True)
class Failure:
    """One image.

    Attributes:
        key: The part of a domain that it is in.
        kind: 'mistake': the most probable class is not its own; 'unsure': the entropy is high.
        row: Its position in the part.
        label: Its class; -1 where training has never seen it.
        classes: The most probable class, and the next.
        probabilities: Of those two.
        entropy: Total uncertainty, in nats.
        epistemic: What of it comes from the weights.
    """

    key: PartKey
    kind: Kind
    row: int
    label: int
    classes: tuple[int, int]
    probabilities: tuple[float, float]
    entropy: float
    epistemic: float

    @property
    def is_right(self) -> bool:
        """Whether the most probable class is its own; an unsure answer may well be right."""
        return self.classes[0] == self.label


def failures(parts: Iterable[PredictedPart], num: int = 8) -> list[Failure]:
    """Of each part, the `num` most confident mistakes, then the `num` images of highest entropy.

    The worst first; images that are equally bad in their order. A part with fewer mistakes has
    fewer.
    """
    found: list[Failure] = []
    for part in parts:
        wrong = np.flatnonzero(part.log_probabilities.argmax(-1) != part.labels)
        confidence = part.log_probabilities.max(-1)
        found += _worst(part, "mistake", wrong, confidence, num)
        found += _worst(part, "unsure", np.arange(len(part)), part.scores["entropy"], num)
    return found


def _worst(
    part: PredictedPart, kind: Kind, rows: Integers, badness: Floats, num: int
) -> list[Failure]:
    """Of some rows, the `num` of the largest badness (n,)."""
    worst = rows[np.argsort(-badness[rows], kind="stable")][:num]
    return [_failure(part, kind, int(row)) for row in worst]


def _failure(part: PredictedPart, kind: Kind, row: int) -> Failure:
    log_p = part.log_probabilities[row]
    first, second = (int(label) for label in np.argsort(-log_p, kind="stable")[:2])
    return Failure(
        key=part.key,
        kind=kind,
        row=row,
        label=int(part.labels[row]),
        classes=(first, second),
        probabilities=(float(np.exp(log_p[first])), float(np.exp(log_p[second]))),
        entropy=float(part.scores["entropy"][row]),
        epistemic=float(part.scores["epistemic"][row]),
    )
