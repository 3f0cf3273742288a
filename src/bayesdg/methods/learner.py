"""What the trainer knows of a method: episodes go in, named terms come out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bayesdg.bayes import BayesLinear
from bayesdg.episodes import Batching, Episode
from bayesdg.errors import UsageError
from bayesdg.models import Draws, Network, build_network
from bayesdg.models.normalisation import share_batch_norm
from bayesdg.objectives import Objective, Terms
from bayesdg.ranks import Ranks
from bayesdg.settings import Settings


@dataclass(frozen=True)
class Answer:
    """What a learner says about images.

    Attributes:
        logits: (S, R, K), a draw each; S is 1 for the mean weights.
        features: (R, D), of the layer before the classifier; the mean, where it is Bayesian.
    """

    logits: Tensor
    features: Tensor


class Learner(nn.Module, ABC):
    """Anything that can be trained on episodes and asked about images."""

    batching: Batching

    @abstractmethod
    def terms(self, episode: Episode, generator: torch.Generator) -> Terms:
        """The named parts of the loss; chance comes from `generator`."""

    @abstractmethod
    def draw(self, num: int, generator: torch.Generator) -> Any:
        """`num` draws of whatever is uncertain; for `answer` alone to look into."""

    @abstractmethod
    def answer(self, images: Tensor, draw: Any) -> Answer:
        """About (R, C, H, W) images under one draw, which may serve many calls."""

    def num_draws(self, asked: int) -> int:
        """How many draws an answer is made of when so many are asked for; 0 for a single one."""
        return asked

    def takes_unit_pixels(self) -> bool:
        """Whether floats outside of 0..1 are no pixels for it; True where it normalises them."""
        return False

    def share_among(self, ranks: Ranks) -> None:
        """From now on episodes are shares, and terms average over ranks to those of the whole."""
        if ranks.size > 1:
            raise UsageError(f"{type(self).__name__} cannot be trained by several processes")

    def heavy_parts(self) -> Sequence[nn.Module]:
        """What is worth compiling."""
        return ()

    def health(self) -> Mapping[str, float]:
        """Numbers that tell trouble early, by name, for the records."""
        return {}


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
        groups = self._normalised_apart(episode)
        output = self.network(episode.images, self.draws, generator, groups)
        return self.objective(output, episode)

    def _normalised_apart(self, episode: Episode) -> tuple[int, ...] | None:
        """Sizes of the parts of an episode that have batch norm statistics of their own."""
        num_source = len(episode.labels) - episode.num_target
        match self.network.settings.batch_norm:
            case "grouped" if num_source:
                return episode.num_target, num_source
            case "by-domain":
                return episode.domain_sizes
        return None

    def draw(self, num: int, generator: torch.Generator) -> Draws:
        """Of the weights of the Bayesian layers."""
        return self.network.draw(num, generator)

    def answer(self, images: Tensor, draw: Draws) -> Answer:
        """Through the backbone once, whatever the number of draws."""
        output = self.network(images, draw)
        features = list(output.features.values())[-1].mean
        return Answer(output.logits, features.mean(0) if features.dim() == 3 else features)

    def num_draws(self, asked: int) -> int:
        """None where no layer has any."""
        return asked if self.network.is_drawn else 0

    def takes_unit_pixels(self) -> bool:
        """Where the data set has a mean and a standard deviation."""
        return self.network.normalises

    def share_among(self, ranks: Ranks) -> None:
        """Batch norm and invariance look at the images of all ranks."""
        if ranks.size > 1:
            share_batch_norm(self.network, ranks)
            self.network.ranks = ranks
            self.objective = replace(self.objective, ranks=ranks)

    def heavy_parts(self) -> Sequence[nn.Module]:
        """The backbone."""
        return (self.network.backbone,)

    def health(self) -> Mapping[str, float]:
        """Smallest and largest sigma of each Bayesian layer: a collapse or an explosion shows."""
        found = {}
        for name, head in self.network.heads.items():
            if isinstance(head, BayesLinear):
                sigma = head.weight_sigma.detach()
                found[f"sigma_{name}_min"] = float(sigma.min())
                found[f"sigma_{name}_max"] = float(sigma.max())
        return found


class Ensemble(Learner):
    """Networks that were trained apart and answer together; each of them is a draw."""

    def __init__(self, members: Sequence[LastLayers]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.batching = members[0].batching

    def terms(self, episode: Episode, generator: torch.Generator) -> Terms:
        """None: the members are trained by themselves."""
        raise UsageError("an ensemble is not trained but put together from trained members")

    def draw(self, num: int, generator: torch.Generator) -> None:
        """There is nothing to draw: all members answer, always."""

    def answer(self, images: Tensor, draw: None) -> Answer:
        """The members' logits above, and their features beside each other."""
        answers = [member.answer(images, {}) for member in self.parts()]
        return Answer(
            torch.cat([answer.logits for answer in answers]),
            torch.cat([answer.features for answer in answers], dim=-1),
        )

    def num_draws(self, asked: int) -> int:
        """The members."""
        return len(self.members)

    def takes_unit_pixels(self) -> bool:
        """As its members, which are all alike."""
        return self.parts()[0].takes_unit_pixels()

    def parts(self) -> list[LastLayers]:
        """The members, as what they are."""
        return [member for member in self.members if isinstance(member, LastLayers)]


def build_learner(
    settings: Settings,
    num_classes: int,
    in_channels: int,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    num_sources: int = 2,
) -> Learner:
    """The learner that the settings describe, with its initial weights.

    With a single source domain there is nothing to compare: a method with invariance is refused,
    or trained without it where the settings allow that.
    """
    method = settings.row
    invariant = method.invariant_layers
    if num_sources < 2 and invariant:
        if not settings.episode.single_source:
            raise UsageError(
                f"{settings.method} compares domains, but there is only one source domain; add "
                "one, take a method without invariance (erm, b, e, h), or train without that "
                "part (episode.single_source = true)"
            )
        warnings.warn(
            f"one source domain: {settings.method} is trained without its invariance terms",
            stacklevel=2,
        )
        invariant = ()
    batching: Batching = "episode" if invariant else settings.episode.without_invariance

    def last_layers() -> LastLayers:
        network = build_network(
            method, settings.model, num_classes, in_channels, settings.seed, mean, std
        )
        objective = Objective(invariant, settings.objective)
        return LastLayers(network, objective, settings.model.draws, batching)

    if method.uncertainty == "ensemble":
        return Ensemble([last_layers() for _ in range(settings.model.members)])
    return last_layers()
