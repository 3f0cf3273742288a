"""What a training step of a method takes: parameters, multiply-adds, memory, time (appendix F).

Pixels are random: a step takes the same whatever is on them.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from bayesdg.bench.jobs import Job, domains_of
from bayesdg.chance import stream
from bayesdg.data.known import KNOWN
from bayesdg.data.placing import free_bytes
from bayesdg.episodes import Episode
from bayesdg.methods.learner import LastLayers, Learner, build_learner
from bayesdg.records import write_text
from bayesdg.settings import Settings
from bayesdg.training.about import now, versions
from bayesdg.training.engine import Engine, device_name
from bayesdg.training.state import TrainingState

WARM_UP, TIMED = 2, 5  # steps; the first ones allocate


@dataclass(frozen=True)
class Shape:
    """Of a data set, as far as a step feels it."""

    channels: int
    image_size: int
    num_classes: int
    num_sources: int


@dataclass(frozen=True)
class Cost:
    """Of one training step.

    Attributes:
        layers: How many are Bayesian.
        parameters: Numbers that are learnt.
        multiply_adds: Of one image on its way forward, under the draws of training.
        num_images: In the step.
        saved_bytes: What the forward pass keeps for the backward pass, weights not counted; None
            if the step did not fit.
        peak_bytes: The most that was allocated on a GPU during the step, everything counted; None
            elsewhere, and if the step did not fit.
        seconds: Median; None likewise.
        problem: Why there is no number.
    """

    layers: int
    parameters: int
    multiply_adds: int | None
    num_images: int
    saved_bytes: int | None = None
    peak_bytes: int | None = None
    seconds: float | None = None
    problem: str = ""


def write_cost(path: Path, job: Job, root: Path | None) -> None:
    """Measure, and write it down with where and when."""
    settings = job.settings.replace({"model.pretrained": False, "model.weights": None})
    with Engine(settings) as engine:
        cost = measured(settings, shape_of(job, root), engine)
        where = {"device": device_name(engine.device), "time": now(), "versions": versions()}
    write_text(path, json.dumps({**dataclasses.asdict(cost), **where}, indent=1) + "\n")


def shape_of(job: Job, root: Path | None) -> Shape:
    """From what is published, so that nothing has to be there; a folder of the user's is read."""
    data, known = job.settings.data, KNOWN.get(job.dataset)
    num_sources = len(domains_of(job.dataset)) - len(job.targets)
    if known is None:
        from bayesdg.data import load_dataset

        dataset = load_dataset(job.dataset, root, data)
        channels, size, _ = dataset.image_shape
        return Shape(channels, size, len(dataset.classes), num_sources)
    channels, size = {"digits": (1, 16), "idx": (1, 28), "folder": (3, 224)}[known.kind]
    return Shape(data.channels or channels, data.image_size or size, known.num_classes, num_sources)


def measured(settings: Settings, shape: Shape, engine: Engine) -> Cost:
    """Build the method, count, and take a few steps."""
    learner = build_learner(
        settings, shape.num_classes, shape.channels, num_sources=shape.num_sources
    ).to(engine.device)
    state = TrainingState(learner, settings.training)
    engine.prepare(learner)
    learner.train()
    episode = _episode(settings, shape, learner.batching != "episode").to(engine.device)
    cost = Cost(
        layers=sum(layer.bayes for layer in settings.row.layers.values()),
        parameters=sum(parameter.numel() for parameter in learner.parameters()),
        multiply_adds=multiply_adds(learner, episode.images[:1]),
        num_images=len(episode.labels),
    )
    on_gpu = engine.device.type == "cuda"
    if not on_gpu:
        # A step that does not fit would take the machine down: look at a small one first.
        small = _episode(settings, shape, True, batch_size=4).to(engine.device)
        needed = _saved_bytes(state, engine, small, settings) / 4 * cost.num_images
        if needed > free_bytes(engine.device) / 2:
            gib = needed / 2**30
            return dataclasses.replace(cost, problem=f"needs about {gib:.0f} GiB; not tried")
    try:
        saved = _saved_bytes(state, engine, episode, settings)
        seconds = []
        for number in range(WARM_UP + TIMED):
            if on_gpu and number == WARM_UP:
                torch.cuda.reset_peak_memory_stats(engine.device)
            start = time.perf_counter()
            _step(state, engine, episode, settings)
            engine.any(False)  # waits for the device
            seconds.append(time.perf_counter() - start)
    except torch.OutOfMemoryError:
        total = torch.cuda.get_device_properties(engine.device).total_memory / 2**30
        return dataclasses.replace(cost, problem=f"needs more than {total:.1f} GiB")
    return dataclasses.replace(
        cost,
        saved_bytes=saved,
        peak_bytes=torch.cuda.max_memory_allocated(engine.device) if on_gpu else None,
        seconds=sorted(seconds[WARM_UP:])[TIMED // 2],
    )


def multiply_adds(learner: Learner, image: Tensor) -> int | None:
    """Of one (1, C, H, W) image; None for a learner that is no backbone with last layers."""
    if not isinstance(learner, LastLayers):
        return None
    network = learner.network
    network.backbone.eval()  # a single image has no statistics
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(image, learner.draws, stream(0, "cost", device=image.device))
    network.train()
    return counter.get_total_flops() // 2  # it counts a multiplication and an addition as two


def _episode(
    settings: Settings, shape: Shape, target_only: bool, batch_size: int | None = None
) -> Episode:
    """B images, and N of each class from all source domains but one; random pixels."""
    num = batch_size or settings.episode.batch_size
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(shape.num_classes, (num,), generator=chance)
    if not target_only:
        per_class = settings.episode.per_class * (shape.num_sources - 1)
        source = torch.arange(shape.num_classes).repeat_interleave(per_class)
        labels = torch.cat([labels, source])
    size = (len(labels), shape.channels, shape.image_size, shape.image_size)
    images = torch.randint(256, size, generator=chance, dtype=torch.uint8)
    return Episode(images, labels, num, "target")


def _step(state: TrainingState, engine: Engine, episode: Episode, settings: Settings) -> None:
    state.updater.begin(1)
    loss = _loss(engine, episode, settings)
    engine.backward(loss)
    state.finish_step(1, state.updater.is_broken(loss))


def _loss(engine: Engine, episode: Episode, settings: Settings) -> Tensor:
    terms = engine.terms(episode, stream(0, "weights", 1, engine.device))
    return terms.total(settings.objective.weights(num_images=1000))


def _saved_bytes(state: TrainingState, engine: Engine, episode: Episode, settings: Settings) -> int:
    """What autograd holds between the passes; memory that several tensors share counts once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in state.learner.parameters()}
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    state.updater.begin(1)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        engine.backward(_loss(engine, episode, settings))
    return sum(held.values())
