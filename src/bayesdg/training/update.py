"""One step of the optimiser: learning rate, gradients, an average of the weights.

A step whose loss or gradient is no number is taken back whole, running statistics included. On a
GPU the device decides that by itself, and nobody waits to hear of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bayesdg.bayes import BayesLinear
from bayesdg.stages import TrainingSettings


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Of a step, counted from 1: a function of the step alone, so nothing has to be resumed.

    >>> learning_rate(TrainingSettings(steps=10, learning_rate=1.0, schedule="step"), 7)
    0.1
    """
    if settings.schedule == "cosine":
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - 1) / settings.steps))
    if settings.schedule == "step" and step > math.ceil(0.6 * settings.steps):
        return settings.learning_rate * 0.1
    return settings.learning_rate


def averaging_decay(settings: TrainingSettings, step: int) -> float:
    """How much of the average stays at a step, counted from 1: a function of the step, likewise.

    Before a mean over steps begins, the average is the weights themselves (the dense averaging of
    SWAD, Cha et al., NeurIPS 2021, from a share of training on).

    >>> dense = TrainingSettings(steps=10, average_from=0.5)
    >>> [averaging_decay(dense, step) for step in (1, 5, 6, 7, 8)]
    [0.0, 0.0, 0.0, 0.5, 0.6666666666666667]
    """
    if settings.average_from is None:
        return settings.average
    num = step - math.ceil(settings.average_from * settings.steps)
    return max(0.0, 1 - 1 / num) if num > 0 else 0.0


def make_optimiser(learner: nn.Module, settings: TrainingSettings) -> torch.optim.Adam:
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
    return torch.optim.Adam(
        [g for g in groups if g["params"]],
        lr=settings.learning_rate,
        fused=can_run_ahead(decayed + spared),
    )


def can_run_ahead(parameters: Iterable[Tensor]) -> bool:
    """Whether the host may give a device its next step before it knows how this one ended."""
    return any(p.is_cuda for p in parameters)


class Updater:
    """The optimiser of a learner, and what has to be put back when a step goes wrong.

    Attributes:
        optimiser: Adam.
        runs_ahead: Whether the device decides over a step: `step`, `take_back` and `follow` are
            handed its flag then.
        gradient: Length of the last gradient, before it was shortened.
    """

    def __init__(self, learner: nn.Module, settings: TrainingSettings) -> None:
        self.settings = settings
        self.optimiser = make_optimiser(learner, settings)
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        self.runs_ahead = can_run_ahead(self.parameters)
        self.gradient = torch.zeros(())
        # Running statistics change in the forward pass, before anybody knows how it ends.
        self._buffers = _by_type(learner.buffers())
        self._kept = [torch.cat([b.flatten() for b in buffers]) for buffers in self._buffers]
        self._slots = [
            _slots(kept, buffers) for kept, buffers in zip(self._kept, self._buffers, strict=True)
        ]

    def begin(self, step: int) -> float:
        """Before the forward pass of a step; returns its learning rate."""
        rate = learning_rate(self.settings, step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        for slots, buffers in zip(self._slots, self._buffers, strict=True):
            torch._foreach_copy_(slots, buffers)
        return rate

    def is_broken(self, loss: Tensor) -> Tensor:
        """After the backward pass: whether loss or gradient are no numbers, on the device."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.gradient = nn.utils.get_total_norm(gradients)
        return ~(torch.isfinite(loss.detach()) & torch.isfinite(self.gradient))

    def step(self, unless: Tensor | None = None) -> None:
        """Change the weights, and where the flag `unless` is up not a bit of anything."""
        if self.settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.settings.clip_norm, self.gradient)
        if unless is not None:
            # What torch.amp.GradScaler tells a fused optimiser.
            self.optimiser.found_inf = unless.float()  # type: ignore[attr-defined]
        self.optimiser.step()

    def take_back(self, where: Tensor | None = None) -> None:
        """Put the running statistics back; with a flag `where`, only if it is up."""
        for kept, slots, buffers in zip(self._kept, self._slots, self._buffers, strict=True):
            if where is not None:
                now = torch.cat([buffer.flatten() for buffer in buffers])
                slots = _slots(torch.where(where, kept, now), buffers)
            torch._foreach_copy_(buffers, slots)


def follow(
    average: nn.Module, learner: nn.Module, decay: float, unless: Tensor | None = None
) -> None:
    """Move an average of the weights and running statistics towards the learner's.

    Where the flag `unless` is up it stays where it is.
    """
    with torch.no_grad():
        old, new = _floats(average), _floats(learner)
        if unless is None:
            torch._foreach_lerp_(old, new, 1 - decay)
            return
        way = torch._foreach_sub(new, old)
        torch._foreach_mul_(way, (1 - decay) * (~unless).to(way[0].dtype))
        torch._foreach_add_(old, way)


def _floats(module: nn.Module) -> list[Tensor]:
    return [t for t in module.state_dict().values() if t.is_floating_point()]


def _by_type(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Lists of one type each, as torch's many-at-once functions like them."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def _slots(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Views into parts of a flat tensor, a shape each."""
    parts = flat.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
