"""What the trainer knows of a method: episodes go in, named terms come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesdg.episodes import Batching, Episode
from bayesdg.models import Network, build_network
from bayesdg.objectives import Objective, Terms
from bayesdg.settings import Settings


class Learner(nn.Module, ABC):
    """Anything that can be trained on episodes and asked about images."""

    batching: Batching

    @abstractmethod
    def terms(self, episode: Episode, generator: torch.Generator) -> Terms:
        """The named parts of the loss; chance comes from `generator`."""

    @abstractmethod
    def log_probabilities(
        self, images: Tensor, draws: int, generator: torch.Generator | None
    ) -> Tensor:
        """(S, R, K) log p(class | image, draw); S is 1 for methods or calls without draws."""


class LastLayers(Learner):
    """Every row of the ablations: a network, and an objective on its last layers."""

    def __init__(
        self, network: Network, objective: Objective, draws: int, batching: Batching
    ) -> None:
        super().__init__()
        self.network = network
        self.objective = objective
        self.draws = draws
        self.batching = batching

    def terms(self, episode: Episode, generator: torch.Generator) -> Terms:
        """One pass over target and source images together, so that both meet the same draws."""
        groups = (episode.num_target, len(episode.labels) - episode.num_target)
        output = self.network(episode.images, self.draws, generator, groups)
        return self.objective(output, episode)

    def log_probabilities(
        self, images: Tensor, draws: int, generator: torch.Generator | None
    ) -> Tensor:
        """(S, R, K) log p(class | image, draw)."""
        logits = self.network(images, draws, generator).logits
        return functional.log_softmax(logits.float(), dim=-1)


def build_learner(
    settings: Settings,
    num_classes: int,
    in_channels: int,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> Learner:
    """The learner that the settings describe, with its initial weights."""
    method = settings.row
    network = build_network(
        method, settings.model, num_classes, in_channels, settings.seed, mean, std
    )
    objective = Objective(method.invariant_layers, settings.objective)
    batching: Batching = (
        "episode" if method.invariant_layers else settings.episode.without_invariance
    )
    return LastLayers(network, objective, settings.model.draws, batching)
