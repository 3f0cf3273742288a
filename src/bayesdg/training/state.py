"""Everything that changes while training, and how it is put into files and taken from them.

Chance is no part of it: every draw follows from (seed, step). Neither is the learning rate, which
follows from the step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bayesdg.errors import StoredRunError
from bayesdg.methods.learner import Learner
from bayesdg.stages import TrainingSettings
from bayesdg.training.about import WEIGHTS
from bayesdg.training.update import Updater, averaging_decay, follow

AVERAGE, OPTIMISER, PROGRESS = "average.safetensors", "optimiser.safetensors", "state.json"


class Progress(BaseModel):
    """How far training is.

    Attributes:
        step: The last one that was done.
        cut_short: Whether the source validation of this step is still to be taken.
        best_step: The one whose weights were best by source validation; 0 before there is one.
        best_accuracy: Of that.
        skipped: Steps that were taken back.
        skipped_in_a_row: The last ones of them.
        mute: Validations in a row that look like a collapse.
        seconds: Spent on training.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int = 0
    cut_short: bool = False
    best_step: int = 0
    best_accuracy: float | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0
    mute: int = 0
    seconds: float = 0.0


class TrainingState:
    """A learner in training.

    Attributes:
        learner: What learns.
        updater: Changes its weights.
        average: An average of the learner over steps; None if there is none.
        progress: How far it is.
    """

    def __init__(self, learner: Learner, settings: TrainingSettings) -> None:
        self.learner = learner
        # Copied before anything is wrapped or compiled.
        self.average = copy.deepcopy(learner) if settings.is_averaged else None
        self.updater = Updater(learner, settings)
        self.progress = Progress()

    @property
    def judged(self) -> Learner:
        """Whose predictions count: the average if there is one."""
        return self.learner if self.average is None else self.average

    def finish_step(self, step: int, broken: Tensor) -> None:
        """Apply the gradients, or take the step back; a device that runs ahead decides alone."""
        self.progress.step = step
        flag = broken if self.updater.runs_ahead else None
        if flag is None and broken:
            self.updater.take_back()
            return
        self.updater.step(unless=flag)
        if flag is not None:
            self.updater.take_back(where=flag)
        if self.average is not None:
            decay = averaging_decay(self.updater.settings, step)
            follow(self.average, self.learner, decay, unless=flag)

    def count(self, broken: bool) -> None:
        """Note how the next step ended, once that is known."""
        self.progress.skipped += broken
        self.progress.skipped_in_a_row = self.progress.skipped_in_a_row + 1 if broken else 0

    def consider(self, accuracy: float | None) -> bool:
        """Note a source validation; whether these are the best weights, the latest among equals."""
        progress = self.progress
        if accuracy is None or not math.isfinite(accuracy):
            return False  # no number is never the best
        if progress.best_accuracy is not None and accuracy < progress.best_accuracy:
            return False
        progress.best_step, progress.best_accuracy = progress.step, accuracy
        return True

    def files(self) -> dict[str, bytes]:
        """Content by file name."""
        found = {
            WEIGHTS: to_bytes(self.learner.state_dict()),
            OPTIMISER: to_bytes(self._optimiser_tensors()),
            PROGRESS: (self.progress.model_dump_json(indent=1) + "\n").encode(),
        }
        if self.average is not None:
            found[AVERAGE] = to_bytes(self.average.state_dict())
        return found

    def load(self, files: Mapping[str, bytes], where: str) -> None:
        """Be as it was when the files were made."""
        try:
            self.progress = Progress.model_validate_json(files[PROGRESS])
            self.learner.load_state_dict(load(files[WEIGHTS]))
            self._load_optimiser(load(files[OPTIMISER]))
            if self.average is not None:
                self.average.load_state_dict(load(files[AVERAGE]))
        except (KeyError, ValidationError, RuntimeError, SafetensorError) as error:
            first = str(error).splitlines()[0]
            raise StoredRunError(f"checkpoint {where} is not of this run: {first}") from None

    def load_selected(self, files: Mapping[str, bytes]) -> None:
        """Give the learner the weights that are judged, from the files of a checkpoint."""
        self.learner.load_state_dict(load(files[AVERAGE if self.average is not None else WEIGHTS]))

    def _optimiser_tensors(self) -> dict[str, Tensor]:
        names: dict[Tensor, str] = {p: name for name, p in self.learner.named_parameters()}
        return {
            f"{key}/{names[parameter]}": value
            for parameter, entries in self.updater.optimiser.state.items()
            for key, value in entries.items()
        }

    @torch.no_grad()
    def _load_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        index = {parameter: number for number, parameter in enumerate(self.updater.parameters)}
        named = dict(self.learner.named_parameters())
        entries: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            key, _, owner = name.partition("/")
            parameter = named[owner]
            if value.shape == parameter.shape:
                # In the order in memory that the weight has: a fused optimiser relies on it.
                value = torch.empty_like(parameter).copy_(value)
            entries.setdefault(index[parameter], {})[key] = value
        stored = self.updater.optimiser.state_dict()
        self.updater.optimiser.load_state_dict({**stored, "state": entries})


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file."""
    with torch.no_grad():
        return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
