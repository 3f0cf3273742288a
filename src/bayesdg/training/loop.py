"""The training loop, top to bottom: draw an episode, terms, backward, step; now and then look.

It is handed source domains only. Selection is by source validation: the weights with the best
mean accuracy on the sources' validation images, the latest among equals, are the ones kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from bayesdg.bayes import BayesLinear
from bayesdg.chance import stream
from bayesdg.data import Domain
from bayesdg.episodes import EpisodeSampler
from bayesdg.errors import NumericError
from bayesdg.evaluate.metrics import accuracy
from bayesdg.evaluate.predict import predict_images
from bayesdg.methods.learner import Learner
from bayesdg.records import StepRecord
from bayesdg.settings import Settings, TrainingSettings

RECORD_EVERY = 10


def fit(
    learner: Learner, sources: Mapping[str, Domain], settings: Settings
) -> Iterator[StepRecord]:
    """Train in place, yielding a record every few steps; ends on the selected weights."""
    train = {name: domain.train for name, domain in sources.items()}
    weights = settings.objective.weights(num_images=sum(len(images) for images in train.values()))
    sampler = EpisodeSampler(
        train, settings.episode.batch_size, settings.episode.per_class, learner.batching
    )
    device = next(learner.parameters()).device
    steps = settings.training.steps
    optimiser = make_optimiser(learner, settings.training)
    schedule = make_schedule(optimiser, settings.training)
    best_accuracy, best_weights = -math.inf, dict[str, torch.Tensor]()
    start = time.monotonic()

    learner.train()
    for step in range(1, steps + 1):
        episode = sampler.draw(stream(settings.seed, "episode", step)).to(device)
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
