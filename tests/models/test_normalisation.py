"""Batch norm of all processes, seen from one; test_ranks.py sees it from several."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bayesdg.errors import UsageError
from bayesdg.models.backbones import SmallCNN, build_backbone
from bayesdg.models.normalisation import SharedBatchNorm, share_batch_norm, statistics_from
from bayesdg.ranks import ALONE
from bayesdg.stages import ModelSettings

EXACT = {"rtol": 1e-12, "atol": 1e-12}
SHAPES = {
    nn.BatchNorm1d: (7, 3),
    nn.BatchNorm2d: (6, 3, 5, 4),
    nn.BatchNorm3d: (4, 3, 2, 3, 2),
}


def images(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64) + 3


def trained(kind: type[nn.Module] = nn.BatchNorm2d, **values: object) -> nn.Module:
    """A batch norm in float64 that is at its beginning no longer."""
    layer = kind(3, **values).double()
    with torch.no_grad():
        for number, tensor in enumerate([*layer.parameters(), *layer.buffers()]):
            if tensor.is_floating_point():
                tensor.copy_(images(3, seed=number).abs())
    return layer


def both(layer: nn.Module) -> tuple[nn.Module, SharedBatchNorm]:
    return layer, SharedBatchNorm(copy.deepcopy(layer), ALONE)


def compare(
    plain: nn.Module, shared: nn.Module, shape: tuple[int, ...], equal: Callable[..., None]
) -> None:
    """Outputs, gradients by images and weights, and running statistics, of two steps."""
    for step in range(2):
        x = images(*shape, seed=10 + step).requires_grad_()
        wanted, found = plain(x), shared(x)
        equal(found, wanted)
        direction = images(*shape, seed=20 + step)
        by = torch.autograd.grad((wanted * direction).sum(), [x, *plain.parameters()])
        ours = torch.autograd.grad((found * direction).sum(), [x, *shared.parameters()])
        for gradient, expected in zip(ours, by, strict=True):
            equal(gradient, expected)
        assert list(shared.state_dict()) == list(plain.state_dict())
        for name, value in plain.state_dict().items():
            equal(shared.state_dict()[name], value)


def exactly(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, **EXACT)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "values", [{}, {"affine": False}, {"momentum": 0.3, "eps": 0.1}, {"track_running_stats": False}]
)
def test_alone_it_is_torchs_batch_norm(
    kind: type[nn.Module], training: bool, values: dict[str, object]
) -> None:
    plain, shared = both(trained(kind, **values).train(training))
    assert shared.training == training
    compare(plain, shared, SHAPES[kind], exactly)


def test_a_cumulative_average_of_the_statistics_is_torchs() -> None:
    plain, shared = both(trained(momentum=None))
    compare(plain, shared, SHAPES[nn.BatchNorm2d], exactly)


def test_far_from_zero_the_variance_keeps_its_digits() -> None:
    """E[x^2] - E[x]^2 would have none left in float32."""
    x = images(64, 3, 8, 8).float() + 1e4
    plain, shared = both(nn.BatchNorm2d(3))
    expected = plain.double()(x.double())
    torch.testing.assert_close(shared(x).double(), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(
        shared.running_var.double(), plain.running_var.double(), rtol=1e-3, atol=0
    )


def test_running_statistics_follow_by_hand() -> None:
    """Two channels of two images of one pixel: means 2 and 20, unbiased variances 2 and 200."""
    shared = SharedBatchNorm(nn.BatchNorm2d(2, momentum=0.5).double(), ALONE)
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]], dtype=torch.float64).view(2, 2, 1, 1)
    y = shared(x)
    exactly(shared.running_mean, torch.tensor([1.0, 10.0], dtype=torch.float64))
    exactly(shared.running_var, torch.tensor([1.5, 100.5], dtype=torch.float64))
    assert shared.num_batches_tracked == 1
    # Normalised by the biased variances 1 and 100.
    by_one, by_hundred = (1 + 1e-5) ** -0.5, (1 + 1e-7) ** -0.5
    expected = torch.tensor([[-by_one, -by_hundred], [by_one, by_hundred]], dtype=torch.float64)
    exactly(y.flatten(1), expected)


def test_what_an_optimiser_and_a_checkpoint_know_stays() -> None:
    network = nn.Sequential(SmallCNN(1), nn.Sequential(nn.Linear(128, 4), nn.BatchNorm1d(4)))
    parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
    names = list(network.state_dict())
    network.eval()
    share_batch_norm(network, ALONE)
    shared = [module for module in network.modules() if isinstance(module, SharedBatchNorm)]
    assert len(shared) == 4
    assert not any(module.training for module in shared)
    assert not any(type(module) in SHAPES for module in network.modules())
    assert list(network.state_dict()) == names
    for name, parameter in network.named_parameters():
        assert parameter is parameters[name]
    for name, buffer in network.named_buffers():
        assert buffer is buffers[name]
    # A second time changes nothing.
    share_batch_norm(network, ALONE)
    again = [module for module in network.modules() if isinstance(module, SharedBatchNorm)]
    assert all(a is b for a, b in zip(again, shared, strict=True))


def test_it_can_be_moved_copied_and_loaded() -> None:
    network = SmallCNN(1)
    share_batch_norm(network, ALONE)
    twin = copy.deepcopy(network).double()
    twin(images(4, 1, 8, 8))
    assert network.layers[1].num_batches_tracked == 0
    assert network.layers[1].weight.dtype == torch.float32
    assert twin.layers[1].running_mean.dtype == torch.float64
    network.load_state_dict(twin.state_dict())
    exactly(network.layers[1].running_var, twin.layers[1].running_var.float())
    SmallCNN(1).load_state_dict(network.state_dict())


def test_hooks_on_a_layer_are_kept() -> None:
    """Style mixing may be one of them."""
    network = nn.Sequential(nn.BatchNorm2d(3))
    seen: list[str] = []
    network[0].register_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    share_batch_norm(network, ALONE)
    network(images(2, 3, 4, 4).float())
    assert seen == ["SharedBatchNorm"]


def test_a_whole_network_of_timm_is_as_before() -> None:
    backbone, _ = build_backbone(ModelSettings(backbone="resnet18", pretrained=False), 3)
    plain = backbone.double()
    shared = copy.deepcopy(plain)
    share_batch_norm(shared, ALONE)
    x = images(3, 3, 64, 64)
    torch.testing.assert_close(shared(x), plain(x), rtol=1e-9, atol=1e-9)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(shared.state_dict()[name], value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(shared.eval()(x), plain.eval()(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenetv3_small_050"])
def test_layers_that_are_more_than_batch_norm_are_refused_in_one_line(name: str) -> None:
    backbone, _ = build_backbone(ModelSettings(backbone=name, pretrained=False), 3)
    with pytest.raises(UsageError, match="BatchNormAct2d layers.*use one process") as caught:
        share_batch_norm(backbone, ALONE)
    assert "\n" not in str(caught.value)


def test_half_precision_keeps_its_type_and_statistics_are_in_float32() -> None:
    """Against float32 on the same rounded input: only the output is rounded."""
    x = images(32, 3, 6, 6).bfloat16()
    plain, shared = both(nn.BatchNorm2d(3))
    expected = plain(x.float())
    for found in (shared(x), _under_autocast(SharedBatchNorm(nn.BatchNorm2d(3), ALONE), x)):
        assert found.dtype == torch.bfloat16
        assert (
            torch.equal(found, expected.bfloat16())
            or ((found.float() - expected).abs() <= 2**-7 * expected.abs() + 1e-6).all()
        )
    assert shared.running_mean.dtype == torch.float32
    torch.testing.assert_close(shared.running_mean, plain.running_mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(shared.running_var, plain.running_var, rtol=1e-5, atol=0)


def _under_autocast(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return layer(x)


def test_gradients_flow_through_half_precision() -> None:
    x = images(8, 3, 4, 4).bfloat16().requires_grad_()
    shared = SharedBatchNorm(nn.BatchNorm2d(3), ALONE)
    shared(x).float().square().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    assert shared.weight.grad.dtype == torch.float32


def test_statistics_of_other_images_are_used_inside_and_forgotten_afterwards() -> None:
    network = SmallCNN(1).double()
    network(images(8, 1, 8, 8))
    network.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    others = images(64, 1, 8, 8, seed=1) * 3
    # The same by hand: training mode normalises by the batch; running variances are unbiased.
    reference = copy.deepcopy(network).train()
    for module in reference.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    reference(others)
    with statistics_from(network, lambda: network(others)):
        torch.testing.assert_close(network(others[:5]), reference.eval()(others[:5]), **EXACT)
        assert not network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert all(not module.training for module in network.modules())


def test_statistics_are_put_back_after_an_error() -> None:
    layer = trained()
    before = [buffer.clone() for buffer in layer.buffers()]
    with pytest.raises(ZeroDivisionError), statistics_from(layer, lambda: 1 / 0):
        pass
    assert all(map(torch.equal, before, layer.buffers()))
    assert layer.training
    assert layer.momentum == 0.1
