"""What the steps found out: scalars that wait on the device until somebody reads them.

Reading waits for the device, and a GPU that is waited for at every step stands idle while the next
one is prepared. So its scalars are read some steps at a time; a CPU's at every step, where they
cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdg.ranks import Ranks

# A signal to one of several processes is heard at the next reading: no longer than this apart.
APART_SECONDS = 5.0


@dataclass(frozen=True)
class Reading:
    """One step in plain numbers, averaged over ranks.

    Attributes:
        step: Which.
        learning_rate: Of it.
        broken: Whether it was taken back.
        loss: See StepRecord, as for the others.
        gradient: Its length.
        terms: By name.
    """

    step: int
    learning_rate: float
    broken: bool
    loss: float
    gradient: float
    terms: Mapping[str, float]


class Readings:
    """Keeps the scalars of steps until they are read; all ranks read at the same steps.

    Attributes:
        every: So many steps there are between readings, if nothing else asks for one.
    """

    def __init__(self, ranks: Ranks, most: int) -> None:
        self.ranks = ranks
        self.every = 1
        self._most = most
        self._waiting: list[tuple[int, float, tuple[str, ...], Tensor]] = []
        self._last = time.monotonic()

    def add(
        self,
        step: int,
        learning_rate: float,
        broken: Tensor,
        loss: Tensor,
        gradient: Tensor,
        terms: Mapping[str, Tensor],
    ) -> None:
        """Keep a step's scalars; waits for nothing."""
        scalars = [broken.float(), loss, gradient, *terms.values()]
        row = torch.stack([scalar.detach() for scalar in scalars])
        self._waiting.append((step, learning_rate, tuple(terms), row))

    def are_due(self, step: int) -> bool:
        """Whether it is time to read, for the sake of broken steps and of signals."""
        return step % self.every == 0

    def read(self, leave: bool = False) -> tuple[list[Reading], bool]:
        """The steps since the last time, in order, and whether any rank wants to leave.

        Waits for the device, and for the other ranks.
        """
        rows = torch.stack([row for *_, row in self._waiting])
        now = time.monotonic()
        seconds, self._last = (now - self._last) / len(rows), now
        own = rows.new_full((2,), float(leave))
        own[1].fill_(seconds)
        total = self.ranks.sum(torch.cat([own, rows.flatten()])) / self.ranks.size
        wanted, seconds, *values = total.tolist()
        self.every = self._most if seconds * self._most < APART_SECONDS else 1
        width = rows.shape[1]
        found = []
        for place, (step, learning_rate, names, _) in enumerate(self._waiting):
            broken, loss, gradient, *numbers = values[place * width : (place + 1) * width]
            terms = dict(zip(names, numbers, strict=True))
            found.append(Reading(step, learning_rate, broken > 0, loss, gradient, terms))
        self._waiting.clear()
        return found, wanted > 0
