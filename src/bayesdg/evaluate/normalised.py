"""Asking a learner while batch norm takes the statistics of other images than training's.

Mean and variance of every layer are averaged over batches of about equal size, shuffled with a seed
of their own: the same images in the same order give the same bits. Weights and the statistics that
training kept are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor

from bayesdg.chance import stream
from bayesdg.data import Images
from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.predict import asking
from bayesdg.evaluate.statistics import STATISTICS
from bayesdg.methods.learner import Learner
from bayesdg.models.normalisation import norms_with_statistics, statistics_from
from bayesdg.names import choose
from bayesdg.records import TRAINED

# Images at a time. The same on every device, because statistics depend on it.
BATCH = 128
# What predictions on the images of a domain, by its name, are made inside of.
Around: TypeAlias = Callable[[str, Images], AbstractContextManager[None]]


def as_trained(name: str, images: Images) -> AbstractContextManager[None]:
    """With the statistics that are there."""
    return nullcontext()


def check_statistics(learner: Learner, statistics: str) -> None:
    """UsageError if there is no such choice, or nothing in the learner that it would change."""
    choose("statistics", statistics, STATISTICS)
    if statistics != TRAINED and not norms_with_statistics(learner):
        raise UsageError(
            "this run's network has no batch norm with statistics of its own, so there is nothing "
            f"that those of {statistics} would change; evaluate it as it was trained (--statistics "
            f"{TRAINED})"
        )


@contextmanager
def statistics_used(
    learner: Learner, statistics: str, sources: Sequence[Images]
) -> Iterator[Around]:
    """Inside, a learner is asked with the chosen statistics.

    Args:
        learner: With the weights to judge.
        statistics: A name in STATISTICS.
        sources: Training images of each source domain.
    """
    check_statistics(learner, statistics)
    if statistics == "sources":
        with normalised_by(learner, "the sources", sources):
            yield as_trained
    elif statistics == "own":
        yield lambda name, images: normalised_by(learner, name, [images])
    else:
        yield as_trained


@contextmanager
def normalised_by(learner: Learner, name: str, parts: Sequence[Images]) -> Iterator[None]:
    """Inside, batch norm takes the statistics of all images of some parts together."""
    if sum(part.shape[0] for part in parts) < 2:
        raise DataError(
            f"fewer than two images of {name} have no statistics of their own; give more, or "
            f"evaluate with those that training kept (--statistics {TRAINED})"
        )

    # Around it, because to begin asking puts every layer into evaluation mode.
    with asking(learner, draws=0) as ask:

        def show() -> None:
            for batch in shuffled_batches(parts):
                ask(batch)

        with statistics_from(learner, show):
            yield


def shuffled_batches(parts: Sequence[Images], size: int = BATCH) -> Iterator[Tensor]:
    """All images of some parts, mixed, in batches of at most `size` that differ by one at most."""
    lengths = torch.tensor([part.shape[0] for part in parts])
    owner = torch.arange(len(parts)).repeat_interleave(lengths)
    row = torch.cat([torch.arange(int(length)) for length in lengths])
    order = torch.randperm(len(row), generator=stream(0, "batch norm statistics"))
    # A small last batch would count as much as the others.
    for chosen in order.tensor_split(-(-len(order) // size)):
        found = [part[row[chosen[owner[chosen] == i]]] for i, part in enumerate(parts)]
        yield torch.cat([images for images in found if len(images)])
