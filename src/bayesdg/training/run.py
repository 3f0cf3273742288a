"""A trained run: predictions, results on every domain, and its about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from bayesdg.data import DomainDataset, Images
from bayesdg.data.known import expanded
from bayesdg.data.pictures import Frame
from bayesdg.errors import DataError, StoredRunError, UsageError
from bayesdg.evaluate.pictures import Pictures, batches_of, rows_of
from bayesdg.evaluate.predict import (
    Predictions,
    asking,
    chosen_batch_size,
    predict_batches,
    whole_number,
)
from bayesdg.evaluate.recalibration import (
    Recalibration,
    Uncertainty,
    read_recalibration,
    wanted_from,
    write_recalibration,
)
from bayesdg.evaluate.rows import Form
from bayesdg.evaluate.stored import predictions_path, write_predictions
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.records import (
    TRAINED,
    DetectionRecord,
    Record,
    ResultRecord,
    StepRecord,
    detections_of,
    read_records,
    results_of,
    write_records,
    write_text,
)
from bayesdg.settings import Settings
from bayesdg.tabular import Row
from bayesdg.training import about, checkpoint
from bayesdg.training.about import WEIGHTS, Task, is_finished
from bayesdg.training.calibrate import recalibrated
from bayesdg.training.engine import chosen_device
from bayesdg.training.folder import write_weights
from bayesdg.training.results import check_shape, judged, predicted_parts, renewed
from bayesdg.training.state import to_bytes


@dataclass
class Run:
    """A trained method and everything that is known about its training.

    Attributes:
        settings: All of them.
        task: What it was trained on.
        learner: With the selected weights.
        records: How it went, and results if anything was evaluated.
        path: Its folder, if it has one.
        recalibration: Temperature, sets and rejection, if they were fitted.
    """

    settings: Settings
    task: Task
    learner: Learner
    records: Sequence[Record] = field(repr=False)
    path: Path | None = None
    recalibration: Recalibration | None = None

    @property
    def results(self) -> list[ResultRecord]:
        """One per evaluated domain, sources first; with the statistics that training kept."""
        return results_of(self.records)

    @property
    def detections(self) -> list[DetectionRecord]:
        """How well each score detects errors, unseen domains and unknown classes; likewise."""
        return detections_of(self.records)

    def predict(
        self,
        images: Pictures,
        draws: int | None = None,
        *,
        keep_draws: bool = False,
        batch_size: int | None = None,
        raw: bool = False,
    ) -> Predictions:
        """Predictions for pictures, each through the backbone once, whatever the number of draws.

        Probabilities are after the temperature, if the run has one.

        Args:
            images: (n, C, H, W) tensor or array of the size and channels trained on; a file, a
                folder, a PIL image or a sequence of such, which are fitted to them; or a
                DataLoader of tensors or arrays, alone or with labels and more behind them. uint8,
                or float in the range 0..1; the network normalises.
            draws: Weight draws, 0 for the mean weights; as in the recalibration or, without one,
                in the settings by default.
            keep_draws: Fill `Predictions.per_draw`.
            batch_size: Pictures at a time; it changes no prediction.
            raw: Without the recalibration.
        """
        recalibration = None if raw else self.recalibration
        batches = batches_of(
            images,
            lambda: self.frame,
            lambda shape: check_shape(shape, self.task),
            chosen_batch_size(self.learner, batch_size),
            self.learner.takes_unit_pixels(),
        )
        used = self.used_draws(draws, recalibration)
        parts = list(predict_batches(self.learner, batches, used, keep_draws=keep_draws))
        if not parts:
            raise DataError("no images to predict")
        found = Predictions.joined(parts)
        return found.tempered(recalibration.temperature if recalibration else None)

    def used_draws(self, draws: int | None, recalibration: Recalibration | None = None) -> int:
        """The number of draws that a question comes down to; of a recalibration only its own."""
        if recalibration is not None and draws is None:
            return recalibration.draws
        used = self.settings.prediction.draws if draws is None else whole_number("draws", draws, 0)
        used = self.learner.num_draws(used)
        if recalibration is not None and used != recalibration.draws:
            raise UsageError(
                f"this run is recalibrated for {recalibration.draws} draws, not for {used}; ask "
                "without that (--raw), or fit it anew (bayesdg calibrate RUN --draws)"
            )
        return used

    def is_recalibrated(self, draws: int, statistics: str = TRAINED) -> bool:
        """Whether the recalibration is of such predictions."""
        fit = self.recalibration
        return fit is not None and (fit.draws, TRAINED) == (draws, statistics)

    def rows(
        self,
        files: Iterable[Path],
        form: Form,
        draws: int | None = None,
        batch_size: int | None = None,
    ) -> Iterator[list[Row]]:
        """Predictions for any number of files, as rows of a table, some at a time.

        A file that cannot be read is a row with an error.

        Args:
            files: Are asked for as they are needed.
            form: What a row holds.
            draws: As in `predict`.
            batch_size: Rows at a time.
        """
        size = chosen_batch_size(self.learner, batch_size)
        temperature = self.recalibration.temperature if self.recalibration else None
        with asking(self.learner, self.used_draws(draws, self.recalibration)) as ask:
            yield from rows_of(
                files, self.frame, lambda batch: ask(batch).tempered(temperature), form, size
            )

    @property
    def frame(self) -> Frame:
        """What files and PIL images are fitted to."""
        return Frame.of(self.task.image_shape, self.settings.data.resize)

    def evaluate(
        self,
        dataset: DomainDataset,
        draws: int | None = None,
        others: Mapping[str, Images] | None = None,
        statistics: str = TRAINED,
    ) -> list[ResultRecord]:
        """Every metric on every domain, and how well uncertainty detects what to mistrust.

        Predictions and records are kept in the run's folder, if it has one. Targets are evaluated
        on their test images; sources too, where those are held out, and on their validation images
        where the protocol tests on everything (PACS).

        Args:
            dataset: The one trained on.
            draws: Weight draws, 0 for the mean weights; as in the settings by default.
            others: Name -> images of no class that was trained on, to be detected.
            statistics: Of batch norm: 'trained'; 'sources', of their training images anew; 'own',
                of each domain's own judged images, which is transductive. What is found with
                others than the trained is kept apart, and no recalibration is applied to it.
        """
        used = self.used_draws(draws)
        parts = predicted_parts(self.learner, self.task, dataset, used, others or {}, statistics)
        recalibration = self.recalibration if self.is_recalibrated(used, statistics) else None
        found = judged(parts, self._subject, used, recalibration, statistics)
        if self.path is not None:
            write_predictions(predictions_path(self.path, used, statistics), parts)
            stored = read_records(self.path / about.RECORDS)
            write_records(self.path / about.RECORDS, renewed(stored, found))
        self.records = renewed(self.records, found)
        return [record for record in found if isinstance(record, ResultRecord)]

    def calibrate(
        self,
        dataset: DomainDataset,
        draws: int | None = None,
        *,
        temperature: bool = True,
        conformal: float | None = None,
        coverage: float | None = None,
        risk: float | None = None,
        reject_by: Uncertainty = "entropy",
    ) -> Recalibration:
        """Fit a temperature, sets or a rejection to the sources' validation images, and keep them.

        What was fitted before is replaced; it is kept in the run's folder, if it has one.

        Args:
            dataset: The one trained on; its targets are not looked at.
            draws: Weight draws, 0 for the mean weights; as in the settings by default.
            temperature: Whether to scale the probabilities.
            conformal: How often a set of classes should hold the right one, such as 0.9.
            coverage: Share of pictures to accept, at least; or
            risk: Error rate among the accepted ones, at most.
            reject_by: The uncertainty that coverage or risk choose a threshold on.
        """
        used = self.used_draws(draws)
        wanted = wanted_from(
            {
                "temperature": temperature, "conformal": conformal, "coverage": coverage,
                "risk": risk, "reject_by": reject_by,
            }
        )  # fmt: skip
        found = recalibrated(self.learner, self.task, dataset, used, wanted)
        if self.path is not None:
            write_recalibration(self.path, found)
        self.recalibration = found
        return found

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
        if self.recalibration is not None:
            write_recalibration(path, self.recalibration)
        return path


def empty_learner(settings: Settings, task: Task) -> Learner:
    """To be filled with trained weights; the pretrained ones they began with are not needed."""
    bare = settings.replace({"model.pretrained": False, "model.weights": None})
    return build_learner(
        bare, len(task.classes), task.image_shape[0], num_sources=len(task.sources)
    )


def load_run(path: Path | str, device: str = "cpu", raw: bool = False) -> Run:
    """A run that is done, ready to predict; `raw` leaves its recalibration where it is."""
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
    kind, index = chosen_device(settings.replace({"engine.device": device}).engine)
    learner.to(torch.device(kind if index is None else f"{kind}:{index}"))
    recalibration = None if raw else read_recalibration(path, sha256(weights).hexdigest())
    records = read_records(path / about.RECORDS)
    return Run(settings, task, learner, records, path, recalibration)
