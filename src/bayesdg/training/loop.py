"""The training loop, top to bottom: draw an episode, terms, backward, step; now and then look.

It is handed source domains only. Selection is by source validation: the weights with the best
mean accuracy on the sources' validation images, the latest among equals, are the ones kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from bayesdg.bayes import BayesLinear
from bayesdg.chance import stream
from bayesdg.data import Domain
from bayesdg.data.augment import augment
from bayesdg.data.placing import placed
from bayesdg.data.prefetch import prefetched
from bayesdg.episodes import Episode, EpisodeSampler
from bayesdg.errors import NumericError
from bayesdg.evaluate.metrics import accuracy
from bayesdg.evaluate.predict import predict_images
from bayesdg.methods.learner import Learner
from bayesdg.records import StepRecord
from bayesdg.settings import Settings, TrainingSettings

RECORD_EVERY = 10


def fit(
    learner: Learner,
    sources: Mapping[str, Domain],
    settings: Settings,
    augmentation: Literal["none", "photo"] = "none",
) -> Iterator[StepRecord]:
    """Train in place, yielding a record every few steps; ends on the selected weights.

    Args:
        learner: What to train.
        sources: Domains; train images are trained on, val images choose the weights.
        settings: Of the run.
        augmentation: What settings.data.augmentation = 'auto' stands for.
    """
    device = next(learner.parameters()).device
    train = {name: domain.train for name, domain in sources.items()}
    weights = settings.objective.weights(num_images=sum(len(images) for images in train.values()))
    sampler = EpisodeSampler(
        placed(train, device, settings.data),
        settings.episode.batch_size,
        settings.episode.per_class,
        learner.batching,
    )
    steps = settings.training.steps
    optimiser = make_optimiser(learner, settings.training)
    schedule = make_schedule(optimiser, settings.training)
    best_accuracy, best_weights = -math.inf, dict[str, torch.Tensor]()
    start = time.monotonic()

    learner.train()
    for step, episode in enumerate(episodes(sampler, settings, device, augmentation), start=1):
        terms = learner.terms(episode, stream(settings.seed, "weights", step, device))
        loss = terms.total(weights)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()

        evaluate = step % settings.training.evaluate_every == 0 or step == steps
        if not evaluate and step % RECORD_EVERY != 0:
            continue
        if not math.isfinite(loss.item()):
            raise NumericError(
                f"the loss is {loss.item()} at step {step} ({terms.numbers()}); "
                "lower training.learning_rate or the weight of the largest term"
            )
        source_val, best = None, False
        if evaluate:
            source_val = validate(learner, sources, settings.prediction.draws)
            mean = sum(source_val.values()) / len(source_val)
            best = mean >= best_accuracy
            if best:
                best_accuracy = mean
                best_weights = {name: w.clone() for name, w in learner.state_dict().items()}
        seconds = time.monotonic() - start
        yield StepRecord(step, seconds, terms.numbers(), loss.item(), source_val, best)
    learner.load_state_dict(best_weights)


def episodes(
    sampler: EpisodeSampler,
    settings: Settings,
    device: torch.device,
    augmentation: Literal["none", "photo"],
) -> Iterator[Episode]:
    """The episodes of a run, in order, on the device, augmented.

    Each is a function of (seed, step) alone, so preparing some ahead changes nothing.
    """
    data, seed = settings.data, settings.seed
    photo = (augmentation if data.augmentation == "auto" else data.augmentation) == "photo"

    def draw(step: int) -> Episode:
        episode = sampler.draw(stream(seed, "episode", step))
        return episode.pinned() if device.type == "cuda" else episode

    numbers = range(1, settings.training.steps + 1)
    drawn = prefetched(draw, numbers, data.prefetch, data.workers)
    for step, waiting in zip(numbers, drawn, strict=True):
        episode = waiting.to(device)
        if photo:
            chance = stream(seed, "augmentation", step, device)
            images = augment(episode.images, settings.augmentation, chance)
            episode = replace(episode, images=images)
        yield episode


def validate(learner: Learner, sources: Mapping[str, Domain], draws: int) -> dict[str, float]:
    """Accuracy on the validation images of each source domain."""
    return {
        name: accuracy(
            predict_images(learner, domain.val.images, draws).log_probabilities,
            domain.val.labels.numpy(),
        )
        for name, domain in sources.items()
    }


def make_optimiser(learner: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam; weight decay leaves mu and rho alone by default, because they have a prior."""
    bayesian = {
        parameter
        for module in learner.modules()
        if isinstance(module, BayesLinear)
        for parameter in module.parameters()
    }
    decayed = [p for p in learner.parameters() if settings.decay_bayesian or p not in bayesian]
    spared = [p for p in learner.parameters() if not settings.decay_bayesian and p in bayesian]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    return torch.optim.Adam([g for g in groups if g["params"]], lr=settings.learning_rate)


def make_schedule(
    optimiser: torch.optim.Optimizer, settings: TrainingSettings
) -> torch.optim.lr_scheduler.LRScheduler:
    """Constant, or a tenth from 60% of the steps on, as the released code does."""
    milestones = [math.ceil(0.6 * settings.steps)] if settings.schedule == "step" else []
    return torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=0.1)
