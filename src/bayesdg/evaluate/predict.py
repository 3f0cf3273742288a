"""From draws to predictions that say how sure they are.

Axes: T draws, n images, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdg.chance import stream_seed
from bayesdg.data import Images
from bayesdg.errors import DataError, NumericError
from bayesdg.methods.learner import Learner

Floats = NDArray[np.float64]

# The draws of a prediction are the same for every image and for every call.
PREDICTION_SEED = 0


@dataclass(frozen=True)
class Predictions:
    """What a method says about each image, averaged over T draws of its weights.

    Attributes:
        log_probabilities: (n, K), log of the mean over draws of p(class | image, draw).
        entropy: (n,), total uncertainty: entropy of the mean, in nats.
        aleatoric: (n,), expected entropy: what would remain if the weights were known.
        epistemic: (n,), mutual information of class and weights: entropy - aleatoric.
    """

    log_probabilities: Floats
    entropy: Floats
    aleatoric: Floats
    epistemic: Floats

    @property
    def probabilities(self) -> Floats:
        """(n, K); rows sum to 1."""
        return np.exp(self.log_probabilities)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,), the most probable class."""
        return self.log_probabilities.argmax(-1)


def summarise(log_p: Tensor) -> Predictions:
    """(T, n, K) log p(class | image, draw) -> Predictions."""
    log_p = log_p.double()
    mean = log_p.logsumexp(0) - math.log(log_p.shape[0])
    total = _entropy(mean)
    aleatoric = _entropy(log_p).mean(0)
    # Never negative in exact arithmetic; a single draw gives 0.
    epistemic = (total - aleatoric).clamp_min(0)
    arrays = (part.cpu().numpy() for part in (mean, total, aleatoric, epistemic))
    return Predictions(*arrays)


@overload
def predict_images(
    learner: Learner, images: Images, draws: int, batch_size: int | None = None
) -> Predictions: ...


@overload
def predict_images(
    learner: Learner,
    images: Images,
    draws: int,
    batch_size: int | None = None,
    *,
    leave: Callable[[], bool],
) -> Predictions | None: ...


def predict_images(
    learner: Learner,
    images: Images,
    draws: int,
    batch_size: int | None = None,
    *,
    leave: Callable[[], bool] = lambda: False,
) -> Predictions | None:
    """Predictions for (n, C, H, W) images, each through the backbone once.

    The same `draws` weight draws serve all images, so a prediction depends neither on the batch
    size nor on its neighbours; with draws = 0 the mean weights answer. None if `leave`, which is
    asked before every batch, says so.
    """
    if images.shape[0] == 0:
        raise DataError("no images to predict")
    device = next(learner.parameters()).device
    if batch_size is None:
        batch_size = 64 if device.type == "cpu" else 512
    generator = torch.Generator(device)
    seed = stream_seed(PREDICTION_SEED, "prediction")
    was_training = learner.training
    learner.eval()
    try:
        with torch.no_grad():
            parts = []
            for index in torch.arange(images.shape[0]).split(batch_size):
                if leave():
                    return None
                batch = images[index].to(device)
                generator.manual_seed(seed)
                parts.append(learner.log_probabilities(batch, draws, generator).cpu())
    finally:
        learner.train(was_training)
    log_p = torch.cat(parts, dim=1)
    if torch.isnan(log_p).any():
        raise NumericError("predictions are not numbers; are the images and the weights finite?")
    return summarise(log_p)


def _entropy(log_p: Tensor) -> Tensor:
    """-sum_k p log p over the last axis, with 0 log 0 = 0."""
    p = log_p.exp()
    return -(p * log_p.where(p > 0, 0.0)).sum(-1)
