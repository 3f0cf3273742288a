"""From draws to predictions that say how sure they are.

Axes: S draws, n images, K classes, D features.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdg.chance import stream_seed
from bayesdg.data import Images
from bayesdg.errors import DataError, NumericError, ResourceError, UsageError
from bayesdg.evaluate.temperature import tempered
from bayesdg.methods.learner import Learner

Floats = NDArray[np.float64]

# The draws of a prediction are the same for every image and for every call.
PREDICTION_SEED = 0


@dataclass(frozen=True)
class Predictions:
    """What a method says about each image, averaged over S draws of its weights.

    Attributes:
        log_probabilities: (n, K), log of the mean over draws of p(class | image, draw).
        entropy: (n,), total uncertainty: entropy of the mean, in nats.
        aleatoric: (n,), expected entropy: what would remain if the weights were known.
        epistemic: (n,), mutual information of class and weights: entropy - aleatoric.
        variation_ratio: (n,), share of the draws that vote for another class than most do.
        energy: (n,), -log sum exp of the logits, mean over draws; high far from the training data.
        per_draw: (S, n, K) log p(class | image, draw), if it was asked for.
        features: (n, D), see `Answer`; if they were asked for.
    """

    log_probabilities: Floats
    entropy: Floats
    aleatoric: Floats
    epistemic: Floats
    variation_ratio: Floats
    energy: Floats
    per_draw: Floats | None = None
    features: Floats | None = None

    def __len__(self) -> int:
        return len(self.log_probabilities)

    @property
    def probabilities(self) -> Floats:
        """(n, K); rows sum to 1."""
        return np.exp(self.log_probabilities)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,), the most probable class."""
        return self.log_probabilities.argmax(-1)

    @property
    def error_probability(self) -> Floats:
        """(n,), what the largest probability leaves to the other classes."""
        return 1 - np.exp(self.log_probabilities.max(-1))

    def tempered(self, temperature: float | None) -> Predictions:
        """The same answers, less or more sure; uncertainties stay those of the draws."""
        if temperature is None:
            return self
        scaled = tempered(self.log_probabilities, temperature)
        return dataclasses.replace(self, log_probabilities=scaled)

    @staticmethod
    def joined(parts: Sequence[Predictions]) -> Predictions:
        """Predictions of several batches as one, in order."""
        joined: dict[str, Any] = {}
        for field in dataclasses.fields(Predictions):
            arrays = [getattr(part, field.name) for part in parts]
            axis = 1 if field.name == "per_draw" else 0
            joined[field.name] = None if arrays[0] is None else np.concatenate(arrays, axis)
        return Predictions(**joined)


def summarise(logits: Tensor, keep_draws: bool = False) -> Predictions:
    """(S, n, K) logits under each draw -> Predictions; any log probabilities are logits."""
    # In double precision, which some devices lack.
    logits = (logits if logits.device.type == "cuda" else logits.cpu()).double()
    log_p = logits.log_softmax(-1)
    summary = (*moments_over_draws(log_p), energy_over_draws(logits))
    found = Predictions(*(part.cpu().numpy() for part in summary))
    return dataclasses.replace(found, per_draw=log_p.cpu().numpy()) if keep_draws else found


def moments_over_draws(log_p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(S, n, K) log p(class | image, draw) -> what `Predictions` has of it, in its order.

    Returns:
        Log of the mean probabilities, (n, K); total, aleatoric and epistemic uncertainty and the
        variation ratio, (n,) each.
    """
    mean = log_p.logsumexp(0) - math.log(len(log_p))
    total = _entropy(mean)
    aleatoric = _entropy(log_p).mean(0)
    # Never negative in exact arithmetic; a single draw gives 0.
    epistemic = (total - aleatoric).clamp_min(0)
    votes = torch.nn.functional.one_hot(log_p.argmax(-1), log_p.shape[-1]).sum(0)
    variation_ratio = 1 - votes.amax(-1).to(log_p.dtype) / len(log_p)
    return mean, total, aleatoric, epistemic, variation_ratio


def energy_over_draws(logits: Tensor) -> Tensor:
    """(S, n, K) logits under each draw -> (n,), the `energy` of `Predictions`."""
    return -logits.logsumexp(-1).mean(0)


def prediction_generator(device: torch.device | str) -> torch.Generator:
    """Of the draws that every prediction uses."""
    return torch.Generator(device).manual_seed(stream_seed(PREDICTION_SEED, "prediction"))


def predict_batches(
    learner: Learner,
    batches: Iterable[Tensor],
    draws: int,
    *,
    keep_draws: bool = False,
    keep_features: bool = False,
) -> Iterator[Predictions]:
    """Predictions for each of some (n, C, H, W) batches; see `asking`."""
    with asking(learner, draws, keep_draws=keep_draws, keep_features=keep_features) as ask:
        yield from map(ask, batches)


@contextmanager
def asking(
    learner: Learner, draws: int, *, keep_draws: bool = False, keep_features: bool = False
) -> Iterator[Callable[[Tensor], Predictions]]:
    """What to ask about (n, C, H, W) batches, every image through the backbone once.

    The same `draws` weight draws serve all images, so a prediction depends neither on the batch
    size nor on its neighbours; with draws = 0 the mean weights answer.

    Args:
        learner: Is asked in evaluation mode, about batches on any device.
        draws: How many.
        keep_draws: Fill `per_draw`.
        keep_features: Fill `features`.
    """
    device = next(learner.parameters()).device
    generator = prediction_generator(device)
    was_training = learner.training
    learner.eval()

    @torch.no_grad()
    def ask(batch: Tensor) -> Predictions:
        with _uncompiled():
            answer = learner.answer(batch.to(device), draw)
        found = summarise(answer.logits, keep_draws)
        if np.isnan(found.log_probabilities).any():
            raise NumericError(
                "predictions are not numbers; are the images and the weights finite?"
            )
        if keep_features:
            features = answer.features.double().cpu().numpy()
            found = dataclasses.replace(found, features=features)
        return found

    try:
        with torch.no_grad():
            draw = learner.draw(draws, generator)
        yield ask
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        raise ResourceError(
            f"too little memory on {device} for {draws} draws; ask for fewer (--draws), or about "
            "fewer pictures at a time (--batch-size)"
        ) from None
    finally:
        learner.train(was_training)


def _is_lack_of_memory(error: Exception) -> bool:
    """Whether the device, or this machine, has too little; on a CPU torch has no class for it."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _uncompiled() -> AbstractContextManager[None]:
    """Batches come in many sizes here: compiling for each would take longer than it saves."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()  # nothing is compiled
    return torch.compiler.set_stance("force_eager")


@overload
def predict_images(
    learner: Learner,
    images: Images,
    draws: int,
    batch_size: int | None = None,
    *,
    keep_draws: bool = False,
    keep_features: bool = False,
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
    keep_draws: bool = False,
    keep_features: bool = False,
    leave: Callable[[], bool] = lambda: False,
) -> Predictions | None:
    """Predictions for (n, C, H, W) images; see `predict_batches`.

    None if `leave`, which is asked before every batch, says so.
    """
    if images.shape[0] == 0:
        raise DataError("no images to predict")
    size = batch_size or default_batch_size(learner)
    left = False

    def batches() -> Iterator[Tensor]:
        nonlocal left
        for index in torch.arange(images.shape[0]).split(size):
            left = leave()
            if left:
                return
            yield images[index]

    options = {"keep_draws": keep_draws, "keep_features": keep_features}
    parts = list(predict_batches(learner, batches(), draws, **options))
    return None if left else Predictions.joined(parts)


def default_batch_size(learner: Learner) -> int:
    """Images at a time: what a GPU wants, or what a CPU's memory likes."""
    return 64 if next(learner.parameters()).device.type == "cpu" else 512


def chosen_batch_size(learner: Learner, asked: int | None) -> int:
    """Images at a time: as somebody has asked, or the default."""
    return default_batch_size(learner) if asked is None else whole_number("batch_size", asked, 1)


def whole_number(name: str, value: int, least: int) -> int:
    """What somebody has given, if it is one; UsageError otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageError(f"{name} is {value!r}; a whole number from {least} up is needed")
    return number


def _entropy(log_p: Tensor) -> Tensor:
    """-sum_k p log p over the last axis, with 0 log 0 = 0."""
    p = log_p.exp()
    return -(p * log_p.where(p > 0, 0.0)).sum(-1)
