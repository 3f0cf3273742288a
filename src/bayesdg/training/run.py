"""A trained run: predictions, results on every domain, and its about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load

from bayesdg.data import DomainDataset, Images
from bayesdg.data.known import expanded
from bayesdg.errors import StoredRunError
from bayesdg.evaluate.predict import Predictions, predict_images
from bayesdg.evaluate.stored import predictions_path, write_predictions
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.records import (
    DetectionRecord,
    Record,
    ResultRecord,
    StepRecord,
    read_records,
    write_records,
    write_text,
)
from bayesdg.settings import Settings
from bayesdg.training import about, checkpoint
from bayesdg.training.about import Task
from bayesdg.training.engine import chosen_device
from bayesdg.training.folder import is_finished, write_weights
from bayesdg.training.results import check_shape, judged, predicted_parts, renewed
from bayesdg.training.state import WEIGHTS, to_bytes


@dataclass
class Run:
    """A trained method and everything that is known about its training.

    Attributes:
        settings: All of them.
        task: What it was trained on.
        learner: With the selected weights.
        records: How it went, and results if anything was evaluated.
        path: Its folder, if it has one.
    """

    settings: Settings
    task: Task
    learner: Learner
    records: Sequence[Record] = field(repr=False)
    path: Path | None = None

    @property
    def results(self) -> list[ResultRecord]:
        """One per evaluated domain, sources first."""
        return [record for record in self.records if isinstance(record, ResultRecord)]

    @property
    def detections(self) -> list[DetectionRecord]:
        """How well each score detects errors, unseen domains and unknown classes."""
        return [record for record in self.records if isinstance(record, DetectionRecord)]

    def predict(
        self, images: Images | NDArray[np.floating[Any] | np.uint8], draws: int | None = None
    ) -> Predictions:
        """Predictions for (n, C, H, W) pictures of the size and channels trained on.

        Args:
            images: Tensor or array, uint8 or float in the range 0..1; the network normalises.
            draws: Weight draws, 0 for the mean weights; as in the settings by default.
        """
        if isinstance(images, np.ndarray):
            images = torch.as_tensor(images)
        check_shape(tuple(images.shape[1:]), self.task)
        if draws is None:
            draws = self.settings.prediction.draws
        return predict_images(self.learner, images, draws)

    def evaluate(
        self,
        dataset: DomainDataset,
        draws: int | None = None,
        others: Mapping[str, Images] | None = None,
    ) -> list[ResultRecord]:
        """Every metric on every domain, and how well uncertainty detects what to mistrust.

        Predictions and records are kept in the run's folder, if it has one. Targets are evaluated
        on their test images; sources too, where those are held out, and on their validation images
        where the protocol tests on everything (PACS).

        Args:
            dataset: The one trained on.
            draws: Weight draws, 0 for the mean weights; as in the settings by default.
            others: Name -> images of no class that was trained on, to be detected.
        """
        used = self._used(draws)
        parts = predicted_parts(self.learner, self.task, dataset, used, others or {})
        found = judged(parts, self._subject, used)
        if self.path is not None:
            write_predictions(predictions_path(self.path, used), parts)
            stored = read_records(self.path / about.RECORDS)
            write_records(self.path / about.RECORDS, renewed(stored, found))
        self.records = renewed(self.records, found)
        return [record for record in found if isinstance(record, ResultRecord)]

    def _used(self, draws: int | None) -> int:
        """The number of draws that a question comes down to."""
        used = self.settings.prediction.draws if draws is None else draws
        return self.learner.num_draws(used)

    @property
    def _subject(self) -> dict[str, Any]:
        """What all results of this run say of it."""
        best = [r.step for r in self.records if isinstance(r, StepRecord) and r.best]
        return {
            "dataset": self.task.dataset,
            "method": self.settings.method,
            "preset": self.settings.preset,
            "seed": self.settings.seed,
            "selection": "source-val",
            "step": best[-1] if best else 0,
        }

    def save(self, path: Path | str) -> Path:
        """Write settings, task, records and weights: a run folder that is done."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / checkpoint.MANIFEST).unlink(missing_ok=True)
        write_text(path / about.SETTINGS, self.settings.model_dump_json(indent=2) + "\n")
        about.write_about(path, self.settings, self.task)
        write_records(path / about.RECORDS, self.records)
        write_weights(path, to_bytes(self.learner.state_dict()))
        return path


def empty_learner(settings: Settings, task: Task) -> Learner:
    """To be filled with trained weights; the pretrained ones they began with are not needed."""
    bare = settings.replace({"model.pretrained": False, "model.weights": None})
    return build_learner(
        bare, len(task.classes), task.image_shape[0], num_sources=len(task.sources)
    )


def load_run(path: Path | str, device: str = "cpu") -> Run:
    """A run that is done, ready to predict."""
    path = expanded(path)
    settings = about.read_settings(path)
    task = about.read_about(path).task
    learner = empty_learner(settings, task)
    begun = (path / about.CHECKPOINTS).exists() or settings.row.made_of is not None
    if begun and not is_finished(path):
        raise StoredRunError(f"{path} is not done yet; the command that began it goes on with it")
    weights = checkpoint.read_checkpoint(path).get(WEIGHTS, b"")
    try:
        learner.load_state_dict(load(weights))
    except (RuntimeError, SafetensorError) as error:
        raise StoredRunError(f"{path / WEIGHTS} is not of this run: {error}") from None
    kind, index = chosen_device(settings.engine.model_copy(update={"device": device}))
    learner.to(torch.device(kind if index is None else f"{kind}:{index}"))
    return Run(settings, task, learner, read_records(path / about.RECORDS), path)
