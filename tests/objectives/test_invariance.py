"""The linear losses against the plain double loop over pairs, and the inequalities of the paper."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from bayesdg.errors import UsageError
from bayesdg.methods import METHODS
from bayesdg.models import build_network
from bayesdg.objectives import (
    categorical_invariance,
    euclidean_distance,
    gaussian_invariance,
    squared_distance,
)
from bayesdg.stages import ModelSettings

B, N, K, D = 9, 14, 4, 6


def pairwise(
    divergence: Callable[[int, int], Tensor], target_labels: Tensor, source_labels: Tensor
) -> Tensor:
    """Mean over target images of the mean over source images of their class, pair by pair."""
    means = []
    for t, label in enumerate(target_labels.tolist()):
        pairs = [
            divergence(t, i) for i, other in enumerate(source_labels.tolist()) if other == label
        ]
        if pairs:
            means.append(torch.stack(pairs).mean(0))
    return torch.stack(means).mean()


def labels(num: int, seed: int, num_classes: int = K) -> Tensor:
    return torch.randint(num_classes, (num,), generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def assert_same_value_and_gradients(ours: Tensor, reference: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(ours, reference, rtol=1e-10, atol=0)
    expected = torch.autograd.grad(reference, leaves, retain_graph=True)
    for gradient, wanted in zip(torch.autograd.grad(ours, leaves), expected, strict=True):
        scale = wanted.abs().max().item()
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10 * scale)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("draws", [(), (3,), (2, 3)])
def test_gaussian_agrees_with_the_pairs(draws: tuple[int, ...], offset: float) -> None:
    g_t = (normal(*draws, B, D, seed=0) + offset).requires_grad_()
    v_t = normal(*draws, B, D, seed=1).exp().requires_grad_()
    g_i = (normal(*draws, N, D, seed=2) + offset).requires_grad_()
    v_i = normal(*draws, N, D, seed=3).exp().requires_grad_()
    y_t, y_i = labels(B, 4), labels(N, 5)

    def divergence(t: int, i: int) -> Tensor:
        q = Normal(g_t[..., t, :], v_t[..., t, :].sqrt())
        p = Normal(g_i[..., i, :], v_i[..., i, :].sqrt())
        return kl_divergence(q, p).sum(-1)

    ours = gaussian_invariance(g_t, v_t, y_t, g_i, v_i, y_i)
    assert_same_value_and_gradients(ours, pairwise(divergence, y_t, y_i), [g_t, v_t, g_i, v_i])


@pytest.mark.parametrize("draws", [(), (3,), (2, 3)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_categorical_agrees_with_the_pairs(draws: tuple[int, ...], scale: float) -> None:
    target = (scale * normal(*draws, B, K, seed=0)).requires_grad_()
    source = (scale * normal(*draws, N, K, seed=1)).requires_grad_()
    y_t, y_i = labels(B, 4), labels(N, 5)

    def divergence(t: int, i: int) -> Tensor:
        return kl_divergence(
            Categorical(logits=target[..., t, :]), Categorical(logits=source[..., i, :])
        )

    ours = categorical_invariance(target, y_t, source, y_i)
    assert_same_value_and_gradients(ours, pairwise(divergence, y_t, y_i), [target, source])


def test_squared_distance_agrees_with_the_pairs() -> None:
    target, source = normal(B, D, seed=0).requires_grad_(), normal(N, D, seed=1).requires_grad_()
    y_t, y_i = labels(B, 4), labels(N, 5)
    reference = pairwise(lambda t, i: 0.5 * (target[t] - source[i]).square().sum(-1), y_t, y_i)
    ours = squared_distance(target, y_t, source, y_i)
    assert_same_value_and_gradients(ours, reference, [target, source])


def test_euclidean_distance_agrees_with_the_pairs() -> None:
    target, source = normal(B, D, seed=0).requires_grad_(), normal(N, D, seed=1).requires_grad_()
    y_t, y_i = labels(B, 4), labels(N, 5)
    reference = pairwise(lambda t, i: (target[t] - source[i]).square().sum(-1).sqrt(), y_t, y_i)
    ours = euclidean_distance(target, y_t, source, y_i)
    assert_same_value_and_gradients(ours, reference, [target, source])


def test_euclidean_distance_of_equal_images_has_a_finite_gradient() -> None:
    target = torch.ones(2, 3, requires_grad=True)
    euclidean_distance(
        target, torch.zeros(2).long(), torch.ones(2, 3), torch.zeros(2).long()
    ).backward()
    assert target.grad is not None
    assert torch.isfinite(target.grad).all()


def test_gradients_are_right() -> None:
    y_t, y_i = labels(4, 4), labels(7, 5)
    g_t, g_i = normal(4, K, seed=0).requires_grad_(), normal(7, K, seed=1).requires_grad_()
    v_t = normal(4, K, seed=2).exp().requires_grad_()
    v_i = normal(7, K, seed=3).exp().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *x: gaussian_invariance(x[0], x[1], y_t, x[2], x[3], y_i), (g_t, v_t, g_i, v_i)
    )
    assert torch.autograd.gradcheck(
        lambda *x: categorical_invariance(x[0], y_t, x[1], y_i), (g_t, g_i)
    )


@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_float32_stays_close_to_float64_far_from_zero(spread: float) -> None:
    """Features of magnitude 1e3: the naive expansion loses everything, ours 1e-4 at most.

    Both sides see the same float32 inputs, so that only the arithmetic is compared.
    """
    centre = 1e3 * normal(K, D, seed=9)
    y_t, y_i = labels(64, 4), labels(200, 5)
    g_t = (centre[y_t] + spread * normal(64, D, seed=0)).float()
    g_i = (centre[y_i] + spread * normal(200, D, seed=1)).float()
    v_t, v_i = normal(64, D, seed=2).exp().float(), normal(200, D, seed=3).exp().float()
    single = gaussian_invariance(g_t, v_t, y_t, g_i, v_i, y_i)
    double = gaussian_invariance(g_t.double(), v_t.double(), y_t, g_i.double(), v_i.double(), y_i)
    assert single.dtype == torch.float32
    assert abs(single.double() / double - 1) < 1e-4


def test_kl_is_zero_when_domains_agree() -> None:
    """Every source image of a class equals the target image of that class."""
    mean, variance = normal(K, D, seed=0), normal(K, D, seed=1).exp()
    y_t, y_i = torch.arange(K), torch.arange(K).repeat(5)
    kl = gaussian_invariance(mean, variance, y_t, mean[y_i], variance[y_i], y_i)
    assert abs(kl) < 1e-12
    assert abs(categorical_invariance(mean, y_t, mean[y_i], y_i)) < 1e-12
    assert abs(squared_distance(mean, y_t, mean[y_i], y_i)) < 1e-12


def test_only_images_of_the_same_class_matter() -> None:
    target, source = normal(2, D, seed=0), normal(4, D, seed=1)
    y_t, y_i = torch.tensor([0, 0]), torch.tensor([0, 0, 1, 1])
    moved = source.clone()
    moved[2:] += 100
    ones_t, ones = torch.ones_like(target), torch.ones_like(source)
    assert gaussian_invariance(target, ones_t, y_t, source, ones, y_i) == gaussian_invariance(
        target, ones_t, y_t, moved, ones, y_i
    )


def test_a_class_without_sources_contributes_nothing() -> None:
    """The result is that of the target images which have a counterpart, gradients included."""
    target, source = normal(4, D, seed=0).requires_grad_(), normal(6, D, seed=1)
    y_t, y_i = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 0, 2, 2, 2])
    kept = torch.tensor([0, 2])
    for loss in (
        lambda t, y: gaussian_invariance(t, t.exp(), y, source, source.exp(), y_i),
        lambda t, y: categorical_invariance(t, y, source, y_i),
        lambda t, y: squared_distance(t, y, source, y_i),
        lambda t, y: euclidean_distance(t, y, source, y_i),
    ):
        value = loss(target, y_t)
        torch.testing.assert_close(value, loss(target[kept], y_t[kept]), rtol=1e-12, atol=0)
        (gradient,) = torch.autograd.grad(value, target)
        assert torch.isfinite(gradient).all()
        assert (gradient[[1, 3]] == 0).all()
        assert (gradient[kept] != 0).any()


def test_no_common_class_gives_zero_and_not_nan() -> None:
    target, source = torch.randn(3, D, requires_grad=True), torch.randn(2, D)
    y_t, y_i = torch.tensor([0, 1, 1]), torch.tensor([2, 3])
    for value in (
        gaussian_invariance(target, target.exp(), y_t, source, source.exp(), y_i),
        categorical_invariance(target, y_t, source, y_i),
        squared_distance(target, y_t, source, y_i),
        euclidean_distance(target, y_t, source, y_i),
    ):
        assert value == 0
        (gradient,) = torch.autograd.grad(value, target)
        assert (gradient == 0).all()


def test_a_class_of_probability_zero_counts_nothing() -> None:
    """Logit -inf on both sides: 0 log 0 / 0 = 0."""
    target = torch.tensor([[0.3, -torch.inf, 0.1]], requires_grad=True)
    source = torch.tensor([[0.0, -torch.inf, 0.5]])
    zero = torch.zeros(1, dtype=torch.long)
    value = categorical_invariance(target, zero, source, zero)
    expected = kl_divergence(
        Categorical(logits=target[:, [0, 2]]), Categorical(logits=source[:, [0, 2]])
    )
    torch.testing.assert_close(value, expected[0])


def test_no_source_image_at_all_gives_zero() -> None:
    target, source = torch.randn(3, D), torch.empty(0, D)
    y_t, y_i = torch.tensor([0, 1, 1]), torch.empty(0, dtype=torch.long)
    assert gaussian_invariance(target, target.exp(), y_t, source, source, y_i) == 0
    assert categorical_invariance(target, y_t, source, y_i) == 0
    assert euclidean_distance(target, y_t, source, y_i) == 0
    assert gaussian_invariance(source, source, y_i, source, source, y_i) == 0


def test_half_precision_is_computed_in_float32() -> None:
    target, source = normal(B, D, seed=0).bfloat16(), normal(N, D, seed=1).bfloat16()
    y_t, y_i = labels(B, 4), labels(N, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = gaussian_invariance(target, target.exp(), y_t, source, source.exp(), y_i)
    assert value.dtype == torch.float32
    expected = gaussian_invariance(
        target.float(), target.exp().float(), y_t, source.float(), source.exp().float(), y_i
    )
    assert value == expected


def largest_tensor(function: Callable[[], object]) -> int:
    """The largest number of elements of any tensor that is made, by watching every operator."""
    sizes = [0]

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                sizes[0] = max(sizes[0], out.numel())
            return out

    with Watch():
        function()
    return sizes[0]


def test_no_pair_is_formed() -> None:
    """The largest tensor on the way is one of the inputs, for any number of images."""
    y_t, y_i = labels(300, 0), labels(500, 1)
    target, source = normal(300, D, seed=2), normal(500, D, seed=3)
    for function in (
        lambda: gaussian_invariance(target, target.exp(), y_t, source, source.exp(), y_i, K),
        lambda: categorical_invariance(target, y_t % K, source, y_i % K),
        lambda: squared_distance(target, y_t, source, y_i, K),
    ):
        assert largest_tensor(function) <= 500 * D


sizes = st.integers(1, 6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), num=sizes, num_classes=st.integers(2, 7), draws=sizes)
def test_jensen_on_random_models(seed: int, num: int, num_classes: int, draws: int) -> None:
    """Eqs. 5 and 6: KL to the mean prediction <= mean KL <= mean KL under the same draw (eq. 7).

    Predictions come from a random Bayesian network on random images; the middle is our term on
    draw-averaged predictions.
    """
    model = ModelSettings(backbone="small-cnn")
    network = build_network(METHODS["bil"], model, num_classes, 1, seed).double().eval()
    for name, parameter in network.named_parameters():
        if "rho" in name:
            torch.nn.init.constant_(parameter, 0.0)  # weights that differ between draws
    generator = torch.Generator().manual_seed(seed)
    images = 3 * torch.randn(1 + num, 1, 8, 8, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        logits = network(images, draws, generator).logits
    zeros = torch.zeros(num, dtype=torch.long)
    averaged = logits.softmax(-1).mean(0).log()
    of_means = categorical_invariance(averaged[:1], zeros[:1], averaged[1:], zeros)
    per_draw = categorical_invariance(logits[:, :1], zeros[:1], logits[:, 1:], zeros)
    to_mean = kl_divergence(
        Categorical(logits=averaged[0]), Categorical(probs=averaged[1:].exp().mean(0))
    )
    assert to_mean <= of_means + 1e-12
    assert of_means <= per_draw + 1e-12


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), num=sizes)
def test_jensen_for_gaussian_features(seed: int, num: int) -> None:
    """Eq. 5 for features: KL[q || mixture of sources] <= the feature term (eq. 9), integrated."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    g_t, v_t = draw(1, 1), draw(1, 1).mul(0.5).exp()
    g_i, v_i = draw(num, 1), draw(num, 1).mul(0.5).exp()
    zeros = torch.zeros(num, dtype=torch.long)
    bound = gaussian_invariance(g_t, v_t, zeros[:1], g_i, v_i, zeros)
    x = torch.linspace(-40, 40, 40_001, dtype=torch.float64)
    log_q = Normal(g_t[0], v_t[0].sqrt()).log_prob(x)
    log_p = Normal(g_i, v_i.sqrt()).log_prob(x).logsumexp(0) - math.log(num)
    to_mixture = torch.trapezoid(log_q.exp() * (log_q - log_p), x)
    assert to_mixture <= bound + 1e-9


def test_labels_that_do_not_fit_are_named() -> None:
    target, source = torch.randn(3, D), torch.randn(4, D)
    with pytest.raises(UsageError, match=r"source_labels has shape \(3,\).*\(4, 6\)"):
        categorical_invariance(target, labels(3, 0), source, labels(3, 0))
    with pytest.raises(UsageError, match=r"target_labels has shape \(1,\)"):
        euclidean_distance(target, labels(1, 0), source, labels(4, 0))
