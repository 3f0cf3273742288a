"""Predictions as rows of a table: one for each picture, readable or not. Imports no torch.

Axes: n pictures, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bayesdg.evaluate.conformal import prediction_sets
from bayesdg.evaluate.recalibration import Uncertainty
from bayesdg.tabular import Cell, Kind, Row

if TYPE_CHECKING:
    from bayesdg.evaluate.predict import Predictions

UNCERTAINTIES = ("entropy", "aleatoric", "epistemic", "variation_ratio")
# More say nothing: the network computes in single precision.
DIGITS = 8


class Named(Protocol):
    """A picture, or why there is none."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def error(self) -> str:
        """Empty where there is a prediction."""
        ...


@dataclass(frozen=True)
class Form:
    """What a row holds.

    Attributes:
        classes: Their names.
        top: How many of the most probable classes.
        reject: An uncertainty, and how large it may be to be accepted.
        set_threshold: Of sets of classes, see conformal.py.
    """

    classes: Sequence[str]
    top: int = 1
    reject: tuple[Uncertainty, float] | None = None
    set_threshold: float | None = None

    @property
    def columns(self) -> dict[str, Kind]:
        """Name -> kind, in order. The columns beyond `error` are there on request."""
        found: dict[str, Kind] = {"path": "text", "class": "text", "probability": "number"}
        found |= dict.fromkeys(UNCERTAINTIES, "number")
        found |= {"decision": "text", "error": "text"}
        if self.reject is not None and self.reject[0] not in found:
            found[self.reject[0]] = "number"  # a decision that nobody can follow is none
        for rank in range(2, self.num_top + 1):
            found |= {f"class_{rank}": "text", f"probability_{rank}": "number"}
        if self.set_threshold is not None:
            found |= {"set": "names", "set_size": "count"}
        return found

    @property
    def num_top(self) -> int:
        """No more than there are classes."""
        return min(self.top, len(self.classes))

    def rows(self, pictures: Iterable[Named], found: Predictions | None) -> Iterator[Row]:
        """A row per picture; those without error have the predictions, in order."""
        cells = iter([] if found is None else self._cells(found))
        blank = dict.fromkeys(self.columns)
        for picture in pictures:
            row: dict[str, Cell] = {**blank, "path": picture.name}
            yield row | ({"error": picture.error} if picture.error else next(cells))

    def _cells(self, found: Predictions) -> Iterator[dict[str, Cell]]:
        probabilities = found.probabilities
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, : self.num_top]
        sets = None
        if self.set_threshold is not None:
            sets = prediction_sets(found.log_probabilities, self.set_threshold)
        for i, order in enumerate(best):
            cells: dict[str, Cell] = {}
            for rank, k in enumerate(order, start=1):
                end = "" if rank == 1 else f"_{rank}"
                cells[f"class{end}"] = self.classes[k]
                cells[f"probability{end}"] = _rounded(probabilities[i, k])
            for name in UNCERTAINTIES:
                cells[name] = _rounded(getattr(found, name)[i])
            if self.reject is not None:
                score, threshold = self.reject
                cells[score] = _rounded(getattr(found, score)[i])
                accepted = getattr(found, score)[i] <= threshold
                cells["decision"] = "accept" if accepted else "reject"
            if sets is not None:
                falling = np.argsort(-probabilities[i], kind="stable")
                cells["set"] = [self.classes[k] for k in falling if sets[i, k]]
                cells["set_size"] = int(sets[i].sum())
            yield cells


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
