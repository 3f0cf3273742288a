"""A trained run: predictions, results on every domain, and its about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load

from bayesdg.data import Domain, DomainDataset, Images, ImageSet
from bayesdg.data.domains import Rows
from bayesdg.errors import DataError, StoredRunError, UsageError
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.predict import Predictions, predict_images
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.names import choose
from bayesdg.records import (
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
from bayesdg.training.state import WEIGHTS, to_bytes


@dataclass(frozen=True)
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
        if tuple(images.shape[1:]) != self.task.image_shape:
            raise UsageError(
                f"images have shape {tuple(images.shape)}, this run was trained on "
                f"(n, {', '.join(map(str, self.task.image_shape))})"
            )
        if draws is None:
            draws = self.settings.prediction.draws
        return predict_images(self.learner, images, draws)

    def evaluate(self, dataset: DomainDataset, draws: int | None = None) -> list[ResultRecord]:
        """Every metric on every domain; kept in the run's folder, if it has one.

        Targets are evaluated on their test images; sources too, where those are held out, and on
        their validation images where the protocol tests on everything (PACS).
        """
        if dataset.classes != self.task.classes:
            raise DataError(
                f"{dataset.name} has other classes than this run was trained on: "
                f"{', '.join(self.task.classes)}"
            )
        found = {
            name: choose("domain", name, dataset.domains, where=dataset.name)
            for name in (*self.task.sources, *self.task.targets)
        }
        results = [_result(self, found[name], "source", draws) for name in self.task.sources]
        results += [_result(self, found[name], "target", draws) for name in self.task.targets]
        if self.path is not None:
            others = [r for r in read_records(self.path / about.RECORDS) if not _same(r, results)]
            write_records(self.path / about.RECORDS, [*others, *results])
        return results

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


def _result(
    run: Run, domain: Domain, role: Literal["source", "target"], draws: int | None
) -> ResultRecord:
    """Every metric on those images of a domain that are of known classes."""
    part: Literal["test", "val"]
    part = "test" if role == "target" or domain.held_out_test else "val"
    images: ImageSet = getattr(domain, part)
    known = torch.isin(images.labels, torch.tensor(run.task.known_classes))
    if not known.any():
        raise DataError(f"no {part} image of {domain.name} is of a class that was trained on")
    pixels = images.images if known.all() else Rows(images.images, known.nonzero().squeeze(1))
    settings = run.settings
    used = settings.prediction.draws if draws is None else draws
    predictions = run.predict(pixels, used)
    labels = images.labels[known].numpy()
    best = [r.step for r in run.records if isinstance(r, StepRecord) and r.best]
    return ResultRecord(
        dataset=run.task.dataset,
        method=settings.method,
        preset=settings.preset,
        seed=settings.seed,
        selection="source-val",
        step=best[-1] if best else 0,
        domain=domain.name,
        role=role,
        part=part,
        num_images=len(labels),
        num_excluded=int((~known).sum()),
        draws=used if settings.row.is_bayesian else 0,
        metrics={name: f(predictions.log_probabilities, labels) for name, f in METRICS.items()},
    )


def _same(record: Record, results: Sequence[ResultRecord]) -> bool:
    """Whether a record is an earlier version of one of the results."""
    return isinstance(record, ResultRecord) and any(
        (record.domain, record.part, record.draws) == (new.domain, new.part, new.draws)
        for new in results
    )


def load_run(path: Path | str, device: str = "cpu") -> Run:
    """A run that is done, ready to predict."""
    path = Path(path)
    settings = about.read_settings(path)
    task = about.read_about(path).task
    # The weights are in the folder: the pretrained ones they began with are not needed again.
    bare = settings.replace({"model.pretrained": False, "model.weights": None})
    learner = build_learner(
        bare, len(task.classes), task.image_shape[0], num_sources=len(task.sources)
    )
    if not is_finished(path) and checkpoint.checkpoints(path / about.CHECKPOINTS):
        raise StoredRunError(f"{path} is not done yet; the command that began it goes on with it")
    weights = checkpoint.read_checkpoint(path).get(WEIGHTS, b"")
    try:
        learner.load_state_dict(load(weights))
    except (RuntimeError, SafetensorError) as error:
        raise StoredRunError(f"{path / WEIGHTS} is not of this run: {error}") from None
    kind, index = chosen_device(settings.engine.model_copy(update={"device": device}))
    learner.to(torch.device(kind if index is None else f"{kind}:{index}"))
    return Run(settings, task, learner, read_records(path / about.RECORDS), path)
