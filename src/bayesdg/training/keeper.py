"""Where a run is kept while it trains: in a folder, or in memory for who wants no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from bayesdg.errors import NumericError
from bayesdg.records import NoteRecord, Record, StartRecord, StepRecord
from bayesdg.training.state import TrainingState


class Keeper(Protocol):
    """What the loop needs of it; see RunFolder for the other one.

    Attributes:
        records: All so far.
        unjudged: The record of a step whose validation was cut short, taken out of the others.
        watch: Is told every new record.
    """

    records: list[Record]
    unjudged: StepRecord | None
    watch: Callable[[Record], None]

    def resume(self, state: TrainingState) -> None:
        """Bring the state to where an earlier process left it."""
        ...

    def start(self, record: StartRecord) -> None:
        """Keep that a process goes on."""
        ...

    def record(self, record: Record) -> None:
        """Keep a record."""
        ...

    def note(self, step: int, text: str, details: Mapping[str, Any] | None = None) -> None:
        """Keep a note for people."""
        ...

    def save(self, state: TrainingState) -> None:
        """Keep what is needed to go on from here, and the weights if they are the best."""
        ...

    def select(self, state: TrainingState) -> None:
        """Give the learner the best weights."""
        ...


class Memory:
    """Keeps records and the best weights; gone with the process."""

    def __init__(self, watch: Callable[[Record], None] = lambda record: None) -> None:
        self.records: list[Record] = []
        self.unjudged: StepRecord | None = None
        self.watch = watch
        self._best: dict[str, Tensor] = {}

    def record(self, record: Record) -> None:
        """Add to the list."""
        self.records.append(record)
        self.watch(record)

    def resume(self, state: TrainingState) -> None:
        """Nothing was kept."""

    def start(self, record: StartRecord) -> None:
        """Add to the list."""
        self.record(record)

    def note(self, step: int, text: str, details: Mapping[str, Any] | None = None) -> None:
        """Add to the list."""
        self.record(NoteRecord(step, text, details or {}))

    def save(self, state: TrainingState) -> None:
        """Only the best weights are needed."""
        if state.progress.best_step == state.progress.step:
            self._best = {name: w.clone() for name, w in state.judged.state_dict().items()}

    def select(self, state: TrainingState) -> None:
        """Load them."""
        require_best(state)
        state.learner.load_state_dict(self._best)


class Silent(Memory):
    """Of the ranks beside the first: they keep nothing and are told nothing."""

    def record(self, record: Record) -> None:
        """Nothing."""

    def save(self, state: TrainingState) -> None:
        """Nothing."""

    def select(self, state: TrainingState) -> None:
        """Nothing: only the first rank judges."""


def require_best(state: TrainingState) -> None:
    """Refuse to end without weights that were ever judged by a number."""
    if state.progress.best_step == 0:
        raise NumericError("no source validation gave a number: there are no weights to keep")
