"""The training loop, top to bottom: draw an episode, forward, terms, backward, step; now and then
evaluate, record, checkpoint.

It is handed source domains only, and goes on from wherever the state stands. A step is work for the
device alone; what came of it is read now and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import torch

from bayesdg.chance import stream, stream_seed
from bayesdg.data import Domain
from bayesdg.data.augment import augment
from bayesdg.data.placing import placed
from bayesdg.data.prefetch import prefetched
from bayesdg.episodes import Episode, EpisodeSampler
from bayesdg.errors import NumericError
from bayesdg.ranks import ALONE, Ranks
from bayesdg.records import StepRecord
from bayesdg.settings import Settings
from bayesdg.training.engine import Engine
from bayesdg.training.judge import Judge
from bayesdg.training.keeper import Keeper
from bayesdg.training.readings import Readings
from bayesdg.training.signals import Signals
from bayesdg.training.state import TrainingState

RECORD_EVERY = 10
# So many steps in a row that are no numbers end the run.
MOST_BROKEN = 10
SAVED = "everything is saved; the same command goes on"


def fit(
    state: TrainingState,
    sources: Mapping[str, Domain],
    settings: Settings,
    engine: Engine,
    judge: Judge,
    keeper: Keeper,
    signals: Signals,
    augmentation: Literal["none", "photo"] = "none",
) -> None:
    """Train in place to the last step.

    Args:
        state: The learner in training, fresh or from a checkpoint.
        sources: Domains whose train images are trained on.
        settings: Of the run.
        engine: Computes.
        judge: Chooses weights by the sources' validation images.
        keeper: Is handed records and states to keep.
        signals: May ask to leave; then the state is kept and InterruptedRunError raised.
        augmentation: What settings.data.augmentation = 'auto' stands for.
    """
    plan, progress = settings.training, state.progress
    checkpoint_every = plan.checkpoint_every or plan.evaluate_every
    train = {name: domain.train for name, domain in sources.items()}
    weights = settings.objective.weights(num_images=sum(map(len, train.values())))
    sampler = EpisodeSampler(
        placed(train, engine.device, settings.data),
        settings.episode.batch_size,
        settings.episode.per_class,
        state.learner.batching,
    )

    def is_due(every: int) -> bool:
        return progress.step % every == 0 or progress.step == plan.steps

    # By domain, the parts of a pooled batch have any size.
    varied = settings.model.batch_norm == "by-domain"
    engine.compile(state.learner, num_sizes=math.inf if varied else len(sampler.sizes))
    if progress.cut_short:  # by a signal: the look at the last step is still to be taken
        if keeper.unjudged is not None:
            judge.look(state, keeper.unjudged)
            keeper.save(state)
        if engine.any(keeper.unjudged is not None and progress.cut_short):
            raise signals.error(SAVED)
    state.learner.train()
    clock = Clock(progress.seconds)
    readings = Readings(engine.ranks, most=RECORD_EVERY if state.updater.runs_ahead else 1)
    upcoming = episodes(
        sampler, settings, engine.device, augmentation, progress.step + 1, engine.ranks
    )
    for step, episode in upcoming:
        learning_rate = state.updater.begin(step)
        # Layers with chance of their own, such as dropout, have only torch's to draw from.
        torch.manual_seed(stream_seed(settings.seed, f"layers of rank {engine.ranks.rank}", step))
        terms = engine.terms(episode, stream(settings.seed, "weights", step, engine.device))
        loss = terms.total(weights)
        engine.backward(loss)
        broken = engine.anywhere(state.updater.is_broken(loss))
        state.finish_step(step, broken)
        gradient = state.updater.gradient
        readings.add(step, learning_rate, broken, loss, gradient, terms.values)

        evaluate, save = is_due(plan.evaluate_every), is_due(checkpoint_every)
        alone = engine.ranks.size == 1
        if not (evaluate or save or readings.are_due(step) or (alone and signals.requested)):
            continue
        found, leave = readings.read(signals.requested)
        for reading in found:
            state.count(reading.broken)
            last = reading.step == step
            if not (reading.broken or (evaluate and last) or reading.step % RECORD_EVERY == 0):
                continue
            progress.seconds = clock.seconds()
            rate = clock.rate(step) if last else None
            record = StepRecord(
                step=reading.step,
                seconds=progress.seconds,
                loss=reading.loss,
                gradient=reading.gradient,
                terms=reading.terms,
                learning_rate=reading.learning_rate,
                skipped=progress.skipped,
                steps_per_second=rate,
                images_per_second=rate and rate * (episode.total or len(episode.labels)),
                memory_gb=engine.peak_memory_gb(),
            )
            if reading.broken:
                tell_of_broken_step(keeper, sampler, settings.seed, record)
            if evaluate and last and engine.is_first:
                judge.look(state, record)
            else:
                keeper.record(record)
            if progress.skipped_in_a_row == MOST_BROKEN:
                raise NumericError(broken_too_often(record, progress.skipped))
        leave = leave or (alone and signals.requested)
        if evaluate and not alone:  # the first rank may have cut its look short
            leave = engine.any(leave or signals.requested)
        if leave or save or progress.best_step == step:
            keeper.save(state)
        if leave and step < plan.steps:
            raise signals.error(SAVED)


def episodes(
    sampler: EpisodeSampler,
    settings: Settings,
    device: torch.device,
    augmentation: Literal["none", "photo"],
    first: int = 1,
    ranks: Ranks = ALONE,
) -> Iterator[tuple[int, Episode]]:
    """Steps and their episodes in order, from `first`, on the device, augmented.

    Each is a function of (seed, step) alone, so preparing some ahead changes nothing, nor does
    beginning in the middle.
    """
    data, seed = settings.data, settings.seed
    photo = (augmentation if data.augmentation == "auto" else data.augmentation) == "photo"

    def draw(step: int) -> Episode:
        plan = sampler.plan(stream(seed, "episode", step))
        episode = sampler.fetch(plan, ranks)
        return episode.pinned() if device.type == "cuda" else episode

    numbers = range(first, settings.training.steps + 1)
    drawn = prefetched(draw, numbers, data.prefetch, data.workers)
    for step, waiting in zip(numbers, drawn, strict=True):
        episode = waiting.to(device)
        if photo:
            chance = stream(seed, "augmentation", step, device)
            images = augment(
                episode.images, settings.augmentation, chance, episode.rows, episode.total
            )
            episode = replace(episode, images=images)
        yield step, episode


def tell_of_broken_step(
    keeper: Keeper, sampler: EpisodeSampler, seed: int, record: StepRecord
) -> None:
    """Note which images made a step that was no number."""
    plan = sampler.plan(stream(seed, "episode", record.step))
    images: dict[str, list[int]] = {}
    for name, rows in plan.picks:
        images.setdefault(name, []).extend(rows.tolist())
    keeper.note(
        record.step,
        f"step {record.step} was skipped: its loss is {record.loss}, its gradient "
        f"{record.gradient}",
        {"terms": dict(record.terms), "training_images": images},
    )


def broken_too_often(record: StepRecord, skipped: int) -> str:
    """What to do after too many steps that were no numbers."""
    wrong = [name for name, value in record.terms.items() if not -1e30 < (value or 0.0) < 1e30]
    which = f" (the terms {', '.join(wrong)} are none)" if wrong else ""
    return (
        f"{MOST_BROKEN} steps in a row, up to step {record.step}, had a loss or gradient that is "
        f"no number{which}; {skipped} were skipped in all and the weights are as before; lower "
        "training.learning_rate or the weight of the largest term, or set training.clip_norm"
    )


class Clock:
    """How long, and how fast."""

    def __init__(self, before: float) -> None:
        self._before = before
        self._start = self._last = time.monotonic()
        self._step: int | None = None

    def seconds(self) -> float:
        """Of training, with those of earlier starts."""
        return self._before + time.monotonic() - self._start

    def rate(self, step: int) -> float | None:
        """Steps per second since the last call; the first call has nothing to compare with."""
        now = time.monotonic()
        since, self._last = now - self._last, now
        last, self._step = self._step, step
        return None if last is None or since <= 0 else (step - last) / since
