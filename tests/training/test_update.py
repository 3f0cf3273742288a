"""One step of the optimiser against torch's own schedules, clipping and averages."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler, MultiStepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bayesdg.errors import UsageError
from bayesdg.settings import Settings
from bayesdg.stages import TrainingSettings
from bayesdg.training.update import Updater, averaging_decay, follow, learning_rate

SCHEDULES: dict[str, Callable[[torch.optim.Optimizer, int], LRScheduler]] = {
    "constant": lambda optimiser, steps: ConstantLR(optimiser, factor=1.0),
    "step": lambda optimiser, steps: MultiStepLR(optimiser, [math.ceil(0.6 * steps)], gamma=0.1),
    "cosine": lambda optimiser, steps: CosineAnnealingLR(optimiser, T_max=steps),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 5, 7, 10, 35, 1000])
def test_learning_rates_are_those_of_torchs_schedulers(schedule: str, steps: int) -> None:
    settings = TrainingSettings(steps=steps, schedule=schedule, learning_rate=3e-3)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-3)
    scheduler = SCHEDULES[schedule](optimiser, steps)
    for step in range(1, steps + 1):
        expected = optimiser.param_groups[0]["lr"]
        assert learning_rate(settings, step) == pytest.approx(expected, rel=1e-9, abs=1e-15)
        optimiser.step()
        scheduler.step()


# ---- a step --------------------------------------------------------------------------------


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def batch(step: int) -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def loss_of(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().mean()


def everything(updater: Updater, module: nn.Module) -> dict[str, Tensor]:
    """Copies of weights, running statistics and the state of the optimiser."""
    found = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    for number, parameter in enumerate(updater.parameters):
        for key, value in updater.optimiser.state[parameter].items():
            found[f"{number} {key}"] = torch.as_tensor(value).clone()
    return found


def assert_same_bits(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def take_step(
    updater: Updater, module: nn.Module, step: int, spoil: Callable[[Tensor], Tensor] | None = None
) -> bool:
    """As the loop does it; `spoil` changes the loss. Whether the step was broken."""
    updater.begin(step)
    loss = loss_of(module, batch(step))
    loss = loss if spoil is None else spoil(loss)
    loss.backward()
    broken = bool(updater.is_broken(loss))
    if broken:
        updater.take_back()
    else:
        updater.step()
    return broken


def spoilt_input(step: int, value: float) -> Tensor:
    x = batch(step)
    x[3, 2] = value
    return x


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_step_on_bad_images_leaves_everything_bit_for_bit(before: int, value: float) -> None:
    """Running statistics are poisoned by the forward pass and come back."""
    module = network()
    updater = Updater(module, TrainingSettings(learning_rate=0.1))
    for step in range(1, before + 1):
        assert not take_step(updater, module, step)
    expected = everything(updater, module)
    updater.begin(before + 1)
    loss = loss_of(module, spoilt_input(before + 1, value))
    loss.backward()
    assert not torch.isfinite(module[1].running_mean).all()
    assert module[1].num_batches_tracked == before + 1
    assert bool(updater.is_broken(loss))
    updater.take_back()
    assert_same_bits(everything(updater, module), expected)


def infinite_gradient(loss: Tensor) -> Tensor:
    """The loss is a number, its slope is not."""
    loss = loss * 1
    loss.register_hook(lambda gradient: gradient * math.inf)
    return loss


@pytest.mark.parametrize(
    "spoil",
    [lambda loss: loss * math.nan, lambda loss: loss + math.inf, infinite_gradient],
    ids=["nan loss", "inf loss", "gradient"],
)  # fmt: skip
def test_a_broken_step_is_as_if_it_had_not_been(spoil: Callable[[Tensor], Tensor]) -> None:
    """Steps 1, 2, broken, 3 end where steps 1, 2, 3 end."""
    settings = TrainingSettings(learning_rate=0.1, weight_decay=0.1, clip_norm=0.5)
    ends = []
    for with_it in (True, False):
        module = network()
        updater = Updater(module, settings)
        assert not take_step(updater, module, 1)
        assert not take_step(updater, module, 2)
        if with_it:
            before = everything(updater, module)
            assert take_step(updater, module, 77, spoil)
            assert_same_bits(everything(updater, module), before)
        assert not take_step(updater, module, 3)
        ends.append(everything(updater, module))
    assert_same_bits(*ends)


def test_the_spoilt_losses_are_what_their_names_say() -> None:
    module = network()
    loss = infinite_gradient(loss_of(module, batch(1)))
    assert torch.isfinite(loss)
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    assert not all(torch.isfinite(g).all() for g in gradients)


def test_only_steps_that_are_no_numbers_are_broken() -> None:
    module = network()
    updater = Updater(module, TrainingSettings())
    updater.begin(1)
    loss = 1e6 * loss_of(module, batch(1))
    loss.backward()
    assert not bool(updater.is_broken(loss))
    assert bool(updater.is_broken(torch.tensor(math.nan)))
    assert bool(updater.is_broken(torch.tensor(-math.inf)))
    module[3].weight.grad[0, 0] = -math.inf
    assert bool(updater.is_broken(loss))


def test_the_flag_stays_on_the_device() -> None:
    module = network()
    updater = Updater(module, TrainingSettings())
    updater.begin(1)
    loss = loss_of(module, batch(1))
    loss.backward()
    flag = updater.is_broken(loss)
    assert isinstance(flag, Tensor)
    assert flag.dtype == torch.bool
    assert flag.shape == ()


@pytest.mark.parametrize("clip_norm", [1e-3, 0.3, 1e3])
def test_clipping_is_torchs(clip_norm: float) -> None:
    """Gradients, the norm that is recorded, and the weights after four steps."""
    ours, theirs = network(), network()
    updater = Updater(ours, TrainingSettings(learning_rate=0.1, clip_norm=clip_norm))
    optimiser = torch.optim.Adam(theirs.parameters(), lr=0.1)
    for step in range(1, 5):
        take_step(updater, ours, step)
        optimiser.zero_grad()
        loss_of(theirs, batch(step)).backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip_norm)
        optimiser.step()
        assert torch.equal(updater.gradient, norm)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(mine.grad, other.grad)
            assert torch.equal(mine, other)


def test_without_clipping_gradients_are_as_they_are() -> None:
    module = network()
    updater = Updater(module, TrainingSettings())
    updater.begin(1)
    loss = loss_of(module, batch(1))
    loss.backward()
    before = [p.grad.clone() for p in module.parameters()]
    updater.is_broken(loss)
    updater.step()
    for parameter, gradient in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, gradient)
    expected = math.sqrt(sum(float(g.double().square().sum()) for g in before))
    assert float(updater.gradient) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_takes_the_learning_rate_of_its_number(schedule: str) -> None:
    """Plain Adam under torch's scheduler ends at the same weights."""
    ours, theirs = network(), network()
    settings = TrainingSettings(steps=6, learning_rate=0.05, schedule=schedule)
    updater = Updater(ours, settings)
    optimiser = torch.optim.Adam(theirs.parameters(), lr=0.05)
    scheduler = SCHEDULES[schedule](optimiser, 6)
    for step in range(1, 7):
        take_step(updater, ours, step)
        optimiser.zero_grad()
        loss_of(theirs, batch(step)).backward()
        optimiser.step()
        scheduler.step()
        assert updater.begin(step) == learning_rate(settings, step)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


def test_begin_forgets_the_last_gradient() -> None:
    module = network()
    updater = Updater(module, TrainingSettings())
    take_step(updater, module, 1)
    updater.begin(2)
    assert all(p.grad is None or (p.grad == 0).all() for p in module.parameters())


def test_a_weight_without_gradient_is_left_alone() -> None:
    module = network()
    module.register_parameter("idle", nn.Parameter(torch.ones(3)))
    updater = Updater(module, TrainingSettings(learning_rate=0.1, clip_norm=0.1, weight_decay=0.1))

    updater.begin(1)
    loss = loss_of(module, batch(1))
    loss.backward()
    assert not bool(updater.is_broken(loss))
    updater.step()
    assert torch.equal(module.idle, torch.ones(3))


# ---- averages --------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_the_average_is_torchs_and_the_closed_form(decay: float) -> None:
    """decay^n w_0 + (1 - decay) sum_k decay^(n-k) w_k, of weights and running statistics."""
    module = network().double()
    average = copy.deepcopy(module)
    theirs = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    theirs.update_parameters(module)  # its first call copies
    updater = Updater(module, TrainingSettings(learning_rate=0.1))
    names = [name for name, t in module.state_dict().items() if t.is_floating_point()]
    history = [{name: module.state_dict()[name].clone() for name in names}]
    for step in range(1, 7):
        updater.begin(step)
        loss = loss_of(module, batch(step).double())
        loss.backward()
        updater.step()
        follow(average, module, decay)
        theirs.update_parameters(module)
        history.append({name: module.state_dict()[name].clone() for name in names})
    assert {"1.running_mean", "1.running_var", "0.weight"} <= set(names)
    for name in names:
        expected = decay**6 * history[0][name] + (1 - decay) * sum(
            decay ** (6 - k) * history[k][name] for k in range(1, 7)
        )
        assert not torch.equal(expected, history[-1][name])
        found = average.state_dict()[name]
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(found, theirs.module.state_dict()[name], rtol=1e-12, atol=1e-14)


def test_the_dense_average_is_the_mean_over_the_steps_of_its_share() -> None:
    module = network().double()
    average = copy.deepcopy(module)
    settings = TrainingSettings(steps=9, average_from=0.3, learning_rate=0.1)
    updater = Updater(module, settings)
    weights, statistics = [], []
    for step in range(1, 10):
        updater.begin(step)
        loss_of(module, batch(step).double()).backward()
        updater.step()
        follow(average, module, averaging_decay(settings, step))
        weights.append(module.state_dict()["0.weight"].clone())
        statistics.append(module.state_dict()["1.running_mean"].clone())
        found, first = average.state_dict(), min(step, 4) - 1  # 0.3 of 9 steps are over after 3
        for name, history in (("0.weight", weights), ("1.running_mean", statistics)):
            expected = torch.stack(history[first if step > 3 else -1 :]).mean(0)
            torch.testing.assert_close(found[name], expected, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(weights[3], weights[8])


def test_an_average_is_of_one_kind() -> None:
    with pytest.raises(UsageError, match="average and average_from are both set"):
        Settings().replace({"training.average": 0.9, "training.average_from": 0.5})


def test_the_average_leaves_the_learner_and_whole_numbers_alone() -> None:
    module = network()
    average = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    module(batch(1))
    before = {name: t.clone() for name, t in module.state_dict().items()}
    follow(average, module, 0.0)
    assert_same_bits({name: t.clone() for name, t in module.state_dict().items()}, before)
    for name, value in average.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, before[name], rtol=1e-6, atol=0)
    assert average[1].num_batches_tracked == 0
    assert all(not p.requires_grad or p.grad is None for p in average.parameters())
