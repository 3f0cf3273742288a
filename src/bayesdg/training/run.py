"""One run from data to results, and the folder it is kept in."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save as to_safetensors

from bayesdg import __version__
from bayesdg.data import Domain, DomainDataset, Images, ImageSet
from bayesdg.data.domains import Rows
from bayesdg.errors import BayesdgError, DataError, StoredRunError, UsageError
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.predict import Predictions, predict_images
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.models.backbones import read_tensors
from bayesdg.records import (
    Record,
    ResultRecord,
    StepRecord,
    read_records,
    write_bytes,
    write_records,
    write_text,
)
from bayesdg.settings import Settings, settings_from
from bayesdg.training.loop import fit


class Task(BaseModel):
    """What the weights of a run were trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class About(BaseModel):
    """What run.json says: the task, and what its numbers depend on beside the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task
    versions: dict[str, str]
    threads: int


@dataclass(frozen=True)
class Run:
    """A trained method and everything that is known about its training."""

    settings: Settings
    task: Task
    learner: Learner
    records: Sequence[Record]

    @property
    def results(self) -> list[ResultRecord]:
        """One per domain, sources first."""
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

    def save(self, folder: Path | str) -> Path:
        """Write settings, task, weights and, last, the records: a run with records is whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "records.jsonl").unlink(missing_ok=True)
        write_text(folder / "settings.json", self.settings.model_dump_json(indent=2) + "\n")
        about = About(task=self.task, versions=versions(), threads=torch.get_num_threads())
        write_text(folder / "run.json", about.model_dump_json(indent=2) + "\n")
        weights = {name: w.contiguous() for name, w in self.learner.state_dict().items()}
        write_bytes(folder / "weights.safetensors", to_safetensors(weights))
        write_records(folder / "records.jsonl", self.records)
        return folder


def train(
    dataset: DomainDataset,
    settings: Settings,
    targets: Iterable[str] | None = None,
    on_step: Callable[[StepRecord], None] = lambda record: None,
    device: str = "cpu",
) -> Run:
    """Train on the source domains, then evaluate every domain once.

    Targets are evaluated on their test images; sources too, where those are held out, and on
    their validation images where the protocol tests on everything (PACS).

    Args:
        dataset: Where images come from.
        settings: From `preset`, perhaps changed.
        targets: Unseen domains; the data set's own by default. They are not touched before the
            weights are chosen.
        on_step: Is handed each record of the loop, for a progress bar.
        device: Where to train, such as 'cuda'.
    """
    split = dataset.split(targets)
    task = Task(
        dataset=dataset.name,
        classes=dataset.classes,
        image_shape=dataset.image_shape,
        sources=tuple(split.sources),
        targets=tuple(split.targets),
        skipped=dataset.skipped,
        notes=dataset.notes,
    )
    learner = build_learner(
        settings,
        len(dataset.classes),
        dataset.image_shape[0],
        dataset.mean,
        dataset.std,
        num_sources=len(split.sources),
    ).to(device)
    records: list[Record] = []
    selected = 0
    for record in fit(learner, split.sources, settings, dataset.augmentation):
        records.append(record)
        selected = record.step if record.best else selected
        on_step(record)
    run = Run(settings, task, learner, records)
    known = torch.cat([domain.train.labels for domain in split.sources.values()]).unique()
    results = [
        evaluate_domain(run, d, "source", selected, "test" if d.held_out_test else "val", known)
        for d in split.sources.values()
    ] + [evaluate_domain(run, d, "target", selected, "test", known) for d in split.targets.values()]
    return Run(settings, task, learner, [*records, *results])


def evaluate_domain(
    run: Run,
    domain: Domain,
    role: Literal["source", "target"],
    step: int,
    part: Literal["val", "test"],
    known_classes: torch.Tensor,
) -> ResultRecord:
    """Every metric on those images of one part of one domain that are of known classes."""
    images: ImageSet = getattr(domain, part)
    known = torch.isin(images.labels, known_classes)
    if not known.any():
        raise DataError(f"no {part} image of {domain.name} is of a class that was trained on")
    pixels = images.images if known.all() else Rows(images.images, known.nonzero().squeeze(1))
    predictions = run.predict(pixels)
    labels = images.labels[known].numpy()
    settings = run.settings
    return ResultRecord(
        dataset=run.task.dataset,
        method=settings.method,
        preset=settings.preset,
        seed=settings.seed,
        selection="source-val",
        step=step,
        domain=domain.name,
        role=role,
        part=part,
        num_images=len(labels),
        num_excluded=int((~known).sum()),
        draws=settings.prediction.draws if settings.row.is_bayesian else 0,
        metrics={name: f(predictions.log_probabilities, labels) for name, f in METRICS.items()},
    )


def load_run(folder: Path | str) -> Run:
    """A saved run, ready to predict."""
    folder = Path(folder)
    try:
        settings = settings_from(read_json(folder / "settings.json"))
    except UsageError as error:
        raise StoredRunError(f"{folder / 'settings.json'}: {error}") from None
    try:
        task = About.model_validate(read_json(folder / "run.json")).task
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoredRunError(f"{folder / 'run.json'}: {where}: {first['msg']}") from None
    # The weights are in the folder: the pretrained ones they began with are not needed again.
    bare = settings.replace({"model.pretrained": False, "model.weights": None})
    learner = build_learner(
        bare, len(task.classes), task.image_shape[0], num_sources=len(task.sources)
    )
    path = folder / "weights.safetensors"
    try:
        learner.load_state_dict(read_tensors(path))
    except (RuntimeError, UsageError) as error:
        raise StoredRunError(f"{path} is missing or not of this run: {error}") from None
    return Run(settings, task, learner, read_records(folder / "records.jsonl"))


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file of a run folder."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoredRunError(f"no {path.name} in {path.parent}; is it a run folder?") from None
    except (OSError, ValueError) as error:
        raise StoredRunError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise StoredRunError(f"{path} is damaged: it holds no object")
    return content


def run_name(dataset: str, targets: Iterable[str], settings: Settings) -> str:
    """A folder name that only the same settings have: data, targets, method, seed, hash."""
    code = sha256(settings.model_dump_json().encode()).hexdigest()[:8]
    return f"{dataset}_{'+'.join(targets)}_{settings.method}_seed{settings.seed}_{code}"


def is_finished(folder: Path) -> bool:
    """Whether a run of these very versions was saved here, whole."""
    try:
        about = About.model_validate(read_json(folder / "run.json"))
        records = read_records(folder / "records.jsonl")
    except (BayesdgError, ValidationError):
        return False
    whole = any(isinstance(record, ResultRecord) for record in records)
    return whole and about.versions == versions() and (folder / "weights.safetensors").is_file()


def versions() -> dict[str, str]:
    """What the numbers of a run depend on."""
    return {
        "bayesdg": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
