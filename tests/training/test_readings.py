"""Scalars of steps, read some at a time."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesdg.training.readings as module
from bayesdg.ranks import ALONE, Ranks
from bayesdg.training.readings import Readings


def add(readings: Readings, step: int, loss: float, broken: bool = False) -> None:
    terms = {"nll": torch.tensor(loss / 2), "kl": torch.tensor(3.0)}
    readings.add(
        step, 0.1 * step, torch.tensor(broken), torch.tensor(loss), torch.tensor(7.0), terms
    )


def test_steps_come_back_in_order_with_the_numbers_they_had() -> None:
    readings = Readings(ALONE, most=10)
    add(readings, 4, 1.25)
    add(readings, 5, math.nan, broken=True)
    found, leave = readings.read()
    assert not leave
    first, second = found
    assert (first.step, first.learning_rate, first.broken) == (4, 0.4, False)
    assert (first.loss, first.gradient, first.terms) == (1.25, 7.0, {"nll": 0.625, "kl": 3.0})
    assert second.broken
    assert math.isnan(second.loss)
    assert second.terms["kl"] == 3.0
    add(readings, 6, 2.0)
    assert [reading.step for reading in readings.read()[0]] == [6]


class Twice(Ranks):
    """Stands for two ranks that hold the same; the other one wants to leave."""

    def sum(self, x: Tensor) -> Tensor:
        total = 2 * x
        total[0] += 1
        return total


def test_numbers_are_averaged_over_ranks_and_any_rank_may_ask_to_leave() -> None:
    readings = Readings(Twice(0, 2), most=1)
    add(readings, 1, 1.5)
    found, leave = readings.read(leave=False)
    assert leave
    assert found[0].loss == 1.5
    assert not found[0].broken


@pytest.mark.parametrize(("seconds", "every"), [(0.02, 10), (0.4, 10), (0.6, 1), (30.0, 1)])
def test_slow_steps_are_read_one_at_a_time_so_that_signals_are_heard(
    monkeypatch: pytest.MonkeyPatch, seconds: float, every: int
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    readings = Readings(ALONE, most=10)
    assert readings.are_due(1)
    for step in range(1, 5):
        add(readings, step, 1.0)
        now[0] += seconds
    readings.read()
    assert readings.every == every
    assert readings.are_due(10)
    assert readings.are_due(11) == (every == 1)


def test_a_device_that_does_not_run_ahead_is_read_at_every_step() -> None:
    readings = Readings(ALONE, most=1)
    add(readings, 1, 1.0)
    readings.read()
    assert all(readings.are_due(step) for step in range(1, 20))


def test_keeping_a_step_keeps_no_graph() -> None:
    readings: Any = Readings(ALONE, most=10)
    loss = torch.ones((), requires_grad=True) * 2
    readings.add(1, 0.1, torch.tensor(False), loss, loss, {"nll": loss})
    ((*_, row),) = readings._waiting
    assert not row.requires_grad
