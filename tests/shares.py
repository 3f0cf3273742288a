"""What each rank computes in test_ranks.py, and one process likewise; importable by every rank."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bayesdg.chance import stream
from bayesdg.data import ImageSet
from bayesdg.episodes import Episode, EpisodeSampler, Plan
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.objectives import (
    categorical_invariance,
    euclidean_distance,
    gaussian_invariance,
    squared_distance,
)
from bayesdg.objectives.released import released_categorical_invariance
from bayesdg.presets import preset
from bayesdg.ranks import ALONE, Ranks
from bayesdg.settings import Settings
from worlds import TINY, image_set

B, N, K, D = 10, 17, 4, 5


@dataclass(frozen=True)
class Found:
    """Values and gradients by name, as one process knows them; `state` is the same on all."""

    values: dict[str, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]


# ---- the invariance terms ------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """Whole sides of a loss, all of them leaves of the graph."""

    target: Tensor
    source: Tensor
    target_labels: Tensor
    source_labels: Tensor


def _gaussian(sides: Sides, t: Tensor, s: Tensor, ranks: Ranks) -> Tensor:
    """One tensor holds means and log variances, so that both have a gradient."""
    (g_t, log_v_t), (g_i, log_v_i) = (
        sides.target[..., t, :].chunk(2, -1),
        sides.source[..., s, :].chunk(2, -1),
    )
    return gaussian_invariance(
        g_t, log_v_t.exp(), sides.target_labels[t],
        g_i, log_v_i.exp(), sides.source_labels[s], K, ranks,
    )  # fmt: skip


def _on(loss: Callable[..., Tensor], *extra: int) -> Callable[..., Tensor]:
    def computed(sides: Sides, t: Tensor, s: Tensor, ranks: Ranks) -> Tensor:
        target, source = sides.target[..., t, :], sides.source[..., s, :]
        labels = sides.target_labels[t], sides.source_labels[s]
        return loss(target, labels[0], source, labels[1], *extra, ranks)

    return computed


# Name -> the loss of rows t and s, and the size of the last axis.
LOSSES: dict[str, tuple[Callable[..., Tensor], int]] = {
    "gaussian": (_gaussian, 2 * D),
    "categorical": (_on(categorical_invariance), K),
    "released": (_on(released_categorical_invariance), K),
    "squared": (_on(squared_distance, K), D),
    "euclidean": (_on(euclidean_distance), D),
}

# Who holds which rows of (target labels, source labels); every row is somewhere.
Split = Callable[[Tensor, Ranks], Tensor]
SPLITS: dict[str, tuple[Split, Split]] = {
    "in a row": (
        lambda y, ranks: torch.arange(len(y))[ranks.share(len(y))],
        lambda y, ranks: torch.arange(len(y))[ranks.share(len(y))],
    ),
    "dealt unevenly": (
        lambda y, ranks: _dealt(y, ranks, seed=1),
        lambda y, ranks: _dealt(y, ranks, seed=2),
    ),
    # A rank's targets meet no source of their class on the same rank.
    "by class, crosswise": (
        lambda y, ranks: (y % ranks.size == ranks.rank).nonzero().squeeze(1),
        lambda y, ranks: ((y + 1) % ranks.size == ranks.rank).nonzero().squeeze(1),
    ),
    "all targets on the first rank, all sources on the last": (
        lambda y, ranks: torch.arange(len(y) if ranks.rank == 0 else 0),
        lambda y, ranks: torch.arange(len(y) if ranks.rank == ranks.size - 1 else 0),
    ),
}


def _dealt(labels: Tensor, ranks: Ranks, seed: int) -> Tensor:
    """Each row to a rank by chance, with a preference for the last ranks."""
    u = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed))
    return ((u.sqrt() * ranks.size).long() == ranks.rank).nonzero().squeeze(1)


# Which classes the source side has.
CLASSES = {"all classes": (0, 1, 2, 3), "class 2 without source": (0, 1, 3)}
DRAWS = {"no draws": (), "draws": (2, 3)}


def sides(width: int, classes: tuple[int, ...], draws: tuple[int, ...]) -> Sides:
    generator = torch.Generator().manual_seed(0)
    target, source = (
        torch.randn(*draws, num, width, generator=generator, dtype=torch.float64) + 0.5
        for num in (B, N)
    )
    pick = torch.randint(len(classes), (N,), generator=generator)
    return Sides(
        target.requires_grad_(),
        source.requires_grad_(),
        torch.arange(B) % K,
        torch.tensor(classes)[pick],
    )


def loss_of(ranks: Ranks, loss: str, split: str, classes: str, draws: str) -> Found:
    compute, width = LOSSES[loss]
    whole = sides(width, CLASSES[classes], DRAWS[draws])
    if ranks.size == 1:
        rows = torch.arange(B), torch.arange(N)
    else:
        target, source = SPLITS[split]
        rows = target(whole.target_labels, ranks), source(whole.source_labels, ranks)
    value = compute(whole, *rows, ranks)
    by_target, by_source = torch.autograd.grad(value, [whole.target, whole.source])
    gradients = {"target": by_target, "source": by_source}
    return Found({"loss": value.detach()}, gradients, {})


LOSS_CASES = [
    (loss, split, classes, draws)
    for loss in LOSSES
    for split in SPLITS
    for classes in CLASSES
    for draws in DRAWS
]


def without_counterparts(ranks: Ranks, loss: str) -> Found:
    """No target image has a source image of its class."""
    compute, width = LOSSES[loss]
    whole = sides(width, (3,), ())
    whole.target_labels.remainder_(3)
    t, s = (torch.arange(num)[ranks.share(num)] for num in (B, N))
    value = compute(whole, t, s, ranks)
    gradients = torch.autograd.grad(value, [whole.target, whole.source])
    return Found(
        {"loss": value.detach()}, dict(zip(("target", "source"), gradients, strict=True)), {}
    )


# ---- Ranks itself --------------------------------------------------------------------------


def gathered(ranks: Ranks) -> Found:
    """Rows of uneven shares, the first one empty, weighted differently on every rank."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(3, N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 3, N, D, generator=generator, dtype=torch.float64)
    if ranks.size == 1:
        return Found({"gathered": whole.detach()}, {}, {"weights": weights})
    ends = [0, *(N * (r + 1) ** 2 // ranks.size**2 for r in range(ranks.size))]
    ends[1] = 0
    own = slice(ends[ranks.rank], ends[ranks.rank + 1])
    found = ranks.gather(whole[:, own])
    (gradient,) = torch.autograd.grad((found * weights[ranks.rank]).sum(), whole)
    return Found({"gathered": found.detach()}, {"whole": gradient}, {"own": torch.arange(N)[own]})


def summed(ranks: Ranks) -> Found:
    """Whole numbers; a transposed tensor that is used for two things; one that is expanded."""
    factor = torch.tensor(ranks.rank + 1.0, dtype=torch.float64, requires_grad=True)
    x = torch.arange(6, dtype=torch.float64).view(2, 3).T * factor
    total, spread = ranks.sum(x), ranks.sum(factor.expand(4))
    # Rank r's loss is (r + 1) * everything.
    loss = (ranks.rank + 1) * (total.square().sum() + spread.sum())
    (gradient,) = torch.autograd.grad(loss, factor)
    numbers = ranks.sum(torch.tensor([1, ranks.rank]))
    return Found({"total": total.detach(), "numbers": numbers}, {"factor": gradient}, {})


# ---- the whole learner ---------------------------------------------------------------------

METHODS = ("erm", "bil", "d", "n", "i", "j-deep-invariant")
LEARNERS = [
    *(("default", method, batch_norm) for method in METHODS for batch_norm in ("joint", "grouped")),
    ("default", "bil", "by-domain"),
    ("default", "erm", "by-domain"),
    ("default", "bil", "frozen"),
    # Other forms of the terms: products of draws, Monte Carlo KL, plain L2 distance, sums, elbo;
    # the released code's; batches of a single domain.
    *(("paper", method, "joint") for method in ("bil", "i")),
    *(("released", method, "grouped") for method in ("bil", "f", "erm")),
    ("default", "dropout", "joint"),
]


def learner_settings(preset_name: str, method: str, batch_norm: str) -> Settings:
    values = {**TINY, "model.batch_norm": batch_norm, "episode.per_class": 3}
    return preset(preset_name, method).replace(values)


def domains() -> Mapping[str, ImageSet]:
    """Three domains; one lacks a class, so that 15 or 18 source images are shared."""
    near, mid, third = (image_set(24, 3, seed=seed, shift=0.5 * seed) for seed in range(3))
    kept = near.labels < 2
    assert isinstance(near.images, Tensor)
    return {"near": ImageSet(near.images[kept], near.labels[kept]), "mid": mid, "third": third}


def fresh_learner(settings: Settings, ranks: Ranks) -> Learner:
    learner = build_learner(settings, 3, 1, mean=(0.3,), std=(1.2,), num_sources=3).double()
    learner.share_among(ranks)
    return learner.train()


def share_of_an_episode(settings: Settings, learner: Learner, ranks: Ranks) -> Episode:
    episode = settings.episode
    sampler = EpisodeSampler(
        domains(), episode.batch_size, episode.per_class, batching=learner.batching
    )
    return sampler.fetch(sampler.plan(stream(settings.seed, "episode", 1)), ranks)


def learner_of(ranks: Ranks, preset_name: str, method: str, batch_norm: str) -> Found:
    settings = learner_settings(preset_name, method, batch_norm)
    learner = fresh_learner(settings, ranks)
    episode = share_of_an_episode(settings, learner, ranks)
    terms = learner.terms(episode, stream(settings.seed, "weights", 1))
    return _found(learner, dict(terms.values), settings)


class Forward(nn.Module):
    """What DistributedDataParallel wraps, as the engine does it."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, episode: Episode, generator: torch.Generator) -> dict[str, Tensor]:
        return dict(self.learner.terms(episode, generator).values)


def wrapped_learner_of(ranks: Ranks, preset_name: str, method: str, batch_norm: str) -> Found:
    """Gradients are averaged by torch itself while the sums of batch norm travel back."""
    settings = learner_settings(preset_name, method, batch_norm)
    learner = fresh_learner(settings, ranks)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # of broadcast_buffers, which the engine uses
        # A bucket for every few weights, so that some travel early.
        wrapped = DistributedDataParallel(
            Forward(learner), broadcast_buffers=False, bucket_cap_mb=0.05
        )
    episode = share_of_an_episode(settings, learner, ranks)
    return _found(learner, wrapped(episode, stream(settings.seed, "weights", 1)), settings)


def _found(learner: Learner, terms: dict[str, Tensor], settings: Settings) -> Found:
    weights = settings.objective.weights(num_images=64)
    loss = sum((weights[name] * value for name, value in terms.items()), torch.zeros(()))
    loss.backward()
    return Found(
        {name: value.detach() for name, value in {**terms, "loss": loss}.items()},
        {name: p.grad for name, p in learner.named_parameters() if p.grad is not None},
        dict(learner.named_buffers()),
    )


# ---- all of it at once ---------------------------------------------------------------------

Case = tuple[str, ...]
CASES: dict[Case, Callable[..., Found]] = {
    **{("loss", *case): loss_of for case in LOSS_CASES},
    **{("alone", loss): without_counterparts for loss in LOSSES},
    ("gathered",): gathered,
    ("summed",): summed,
    **{("learner", *case): learner_of for case in LEARNERS},
}
WRAPPED = [("default", "bil", "joint"), ("default", "j-deep-invariant", "grouped")]


def compute_all(ranks: Ranks = ALONE) -> dict[Case, Found]:
    """Every case in turn: starting processes is what takes time."""
    found = {}
    for case, compute in CASES.items():
        try:
            found[case] = compute(ranks, *case[1:])
        except Exception as error:
            error.add_note(f"in the case {case}")
            raise
    return found


def compute_wrapped(ranks: Ranks) -> dict[Case, Found]:
    """Apart, because torch imports its compiler for the wrapper, for ten seconds."""
    return {case: wrapped_learner_of(ranks, *case) for case in WRAPPED}


# ---- for the tests of `run_ranks` ----------------------------------------------------------


def fails_on_the_last_rank(ranks: Ranks) -> int:
    if ranks.rank == ranks.size - 1:
        raise ValueError("this rank has had enough")
    return int(ranks.sum(torch.tensor(1)))


def hangs_on_the_last_rank(ranks: Ranks) -> int:
    if ranks.rank == ranks.size - 1:
        time.sleep(600)
    return int(ranks.sum(torch.tensor(1)))


def plan_of(settings: Settings, batching: str) -> tuple[EpisodeSampler, Plan]:
    sampler = EpisodeSampler(domains(), 8, 3, batching)  # type: ignore[arg-type]
    return sampler, sampler.plan(stream(settings.seed, "episode", 1))
