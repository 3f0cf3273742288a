"""Style mixing against the published formula, and the chance it takes."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from bayesdg.errors import UsageError
from bayesdg.methods import METHODS
from bayesdg.models import Network, build_network
from bayesdg.models.backbones import SmallCNN, build_backbone
from bayesdg.models.style import EPSILON, StyleMixing, early_layers, mixed
from bayesdg.settings import Settings, settings_from
from bayesdg.stages import ModelSettings

R, C, H, W = 6, 4, 5, 3
IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def maps(*shape: int, seed: int = 0) -> Tensor:
    """Feature maps whose channels differ in mean and deviation from image to image."""
    generator = seeded(seed)
    like = {"generator": generator, "dtype": torch.float64}
    content = torch.randn(*shape, **like)
    scale, shift = (torch.randn(*shape[:2], 1, 1, **like) for _ in range(2))
    return content * (0.3 * scale).exp() + shift


def published(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Equations 4 to 6 of Zhou et al. (2021), image by image and channel by channel.

    gamma = share sigma(x) + (1 - share) sigma(x'), beta likewise with mu, and
    gamma (x - mu(x)) / sigma(x) + beta; mu and sigma are constants of the gradient.
    """
    rows = []
    for i, other in enumerate(partner.tolist()):
        channels = []
        for c in range(x.shape[1]):
            own, theirs = x[i, c].detach(), x[other, c].detach()
            mu, mu_2 = own.sum() / own.numel(), theirs.sum() / theirs.numel()
            sigma = torch.sqrt((own - mu).square().sum() / own.numel() + EPSILON)
            sigma_2 = torch.sqrt((theirs - mu_2).square().sum() / theirs.numel() + EPSILON)
            gamma = share[i] * sigma + (1 - share[i]) * sigma_2
            beta = share[i] * mu + (1 - share[i]) * mu_2
            channels.append(gamma * (x[i, c] - mu) / sigma + beta)
        rows.append(torch.stack(channels))
    return torch.stack(rows)


# ---- the formula ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_mixing_is_the_published_formula(seed: int) -> None:
    x = maps(R, C, H, W, seed=seed).requires_grad_()
    partner = torch.randperm(R, generator=seeded(seed))
    share = torch.rand(R, generator=seeded(seed), dtype=torch.float64)
    found, wanted = mixed(x, partner, share), published(x, partner, share)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    direction = maps(R, C, H, W, seed=9)
    ours, theirs = (torch.autograd.grad((y * direction).sum(), x)[0] for y in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_share_one_changes_nothing() -> None:
    x = maps(R, C, H, W).requires_grad_()
    y = mixed(x, torch.arange(R).flip(0), torch.ones(R))
    assert torch.equal(y, x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_an_image_that_is_its_own_partner_stays_itself() -> None:
    x = maps(R, C, H, W)
    y = mixed(x, torch.arange(R), torch.full((R,), 0.3))
    torch.testing.assert_close(y, x, rtol=1e-12, atol=1e-12)


def test_share_zero_swaps_the_styles() -> None:
    """Means exactly; deviations up to the epsilon under the root: s' s / sqrt(s^2 + e)."""
    x = maps(R, C, H, W)
    partner = torch.arange(R).roll(1)
    y = mixed(x, partner, torch.zeros(R))
    torch.testing.assert_close(y.mean((2, 3)), x.mean((2, 3))[partner])
    variance = x.var((2, 3), correction=0)
    expected = ((variance[partner] + EPSILON) * variance / (variance + EPSILON)).sqrt()
    torch.testing.assert_close(y.std((2, 3), correction=0), expected)
    torch.testing.assert_close(expected, variance[partner].sqrt(), rtol=1e-3, atol=0)
    # What is left without style is the same.
    content = [(z - z.mean((2, 3), keepdim=True)) / z.std((2, 3), keepdim=True) for z in (x, y)]
    torch.testing.assert_close(*content)


def test_a_channel_that_is_constant_stays_a_number() -> None:
    x = maps(R, C, H, W)
    x[0] = 5.0
    x[1] = 0.0
    y = mixed(x, torch.arange(R).roll(1), torch.full((R,), 0.5))
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y[1], torch.full_like(y[1], 2.5))


def test_half_precision_keeps_its_type() -> None:
    x = maps(R, C, H, W)
    partner, share = torch.arange(R).roll(1), torch.full((R,), 0.4)
    y = mixed(x.bfloat16(), partner, share)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(
        y.double(), published(x, partner, share.double()), rtol=0.03, atol=0.06
    )


# ---- chance --------------------------------------------------------------------------------


class Recorder:
    """What `mixed` is handed, in place of `mixed`."""

    def __init__(self) -> None:
        self.partners: list[Tensor] = []
        self.shares: list[Tensor] = []

    def __call__(self, x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
        self.partners.append(partner)
        self.shares.append(share)
        return x


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr("bayesdg.models.style.mixed", found)
    return found


def draw(num: int, calls: int = 1, seed: int = 0, **values: object) -> None:
    """Let `num` images pass by one mixing layer, `calls` times."""
    layer = nn.Identity()
    backbone = nn.Sequential(layer)
    settings = ModelSettings(style_layers=("0",), **values)  # type: ignore[arg-type]
    style = StyleMixing(backbone, settings)
    x = torch.zeros(num, 1, 1, 1)
    with style.drawing(seeded(seed)):
        for _ in range(calls):
            backbone(x)


@pytest.mark.parametrize("probability", [0.1, 0.5, 1.0])
def test_a_pass_is_mixed_with_the_asked_probability(recorder: Recorder, probability: float) -> None:
    """Within five standard errors of 2,000 passes; a pass is mixed whole or not at all."""
    draw(4, calls=2000, style_mixing=probability, style_alpha=5.0)
    hits = torch.stack([(share < 1).any() for share in recorder.shares]).double()
    whole = torch.stack([(share < 1).all() for share in recorder.shares]).double()
    assert torch.equal(hits, whole)
    error = math.sqrt(probability * (1 - probability) / len(hits))
    assert abs(float(hits.mean()) - probability) <= 5 * error


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 3.0])
def test_the_kept_share_is_a_beta_variable(recorder: Recorder, alpha: float) -> None:
    """Four moments of 40,000 and the distribution function, each within five standard errors."""
    from scipy import stats

    draw(40_000, style_mixing=1.0, style_alpha=alpha)
    share = recorder.shares[0].double()
    theory = stats.beta(alpha, alpha)
    for order in (1, 2, 3, 4):
        moment, square = theory.moment(order), theory.moment(2 * order)
        error = math.sqrt((square - moment**2) / len(share))
        assert abs(float(share.pow(order).mean()) - moment) < 5 * error
    # Away from the ends, where shares beyond a float32 pile up.
    for point in torch.linspace(0.05, 0.95, 19).tolist():
        below = float(theory.cdf(point))
        error = math.sqrt(below * (1 - below) / len(share))
        assert abs(float((share < point).double().mean()) - below) < 5 * error


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 100.0])
def test_extreme_shares_are_numbers(recorder: Recorder, alpha: float) -> None:
    draw(10_000, style_mixing=1.0, style_alpha=alpha)
    share = recorder.shares[0]
    assert ((share >= 0) & (share <= 1)).all()
    assert float(share.mean()) == pytest.approx(0.5, abs=0.05)


def test_partners_are_a_permutation_and_every_pair_is_as_likely(recorder: Recorder) -> None:
    """Of 3,000 permutations of four; a pair is expected 750 times, deviation 24."""
    draw(4, calls=3000, style_mixing=1.0)
    partners = torch.stack(recorder.partners)
    assert torch.equal(partners.sort(1).values, torch.arange(4).expand(3000, 4))
    for image in range(4):
        counts = partners[:, image].bincount(minlength=4)
        assert ((counts - 750).abs() < 5 * 24).all()


def test_every_call_draws_anew_and_the_same_generator_the_same(recorder: Recorder) -> None:
    draw(8, calls=2, style_mixing=1.0)
    draw(8, calls=2, style_mixing=1.0)
    draw(8, calls=2, seed=1, style_mixing=1.0)
    first, second, again, again_second, other, _ = recorder.shares
    assert torch.equal(first, again)
    assert torch.equal(second, again_second)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


# ---- in a network --------------------------------------------------------------------------


def make(method: str = "bil", **values: object) -> Network:
    settings = ModelSettings(backbone="small-cnn", **values)  # type: ignore[arg-type]
    return build_network(METHODS[method], settings, num_classes=3, in_channels=1, seed=0)


def hooks(network: Network) -> int:
    return sum(len(module._forward_hooks) for module in network.modules())


def test_it_is_off_by_default_and_draws_nothing() -> None:
    assert ModelSettings().style_mixing == 0
    plain, off = make(), make(style_mixing=0.0, style_alpha=3.0, style_layers=("nowhere",))
    assert off.style is None
    assert hooks(off) == 0
    generators = seeded(), seeded()
    logits = [
        network(IMAGES, draws=3, generator=generator).logits
        for network, generator in zip((plain, off), generators, strict=True)
    ]
    assert torch.equal(*logits)
    # Nothing but the weights was drawn.
    expected = seeded()
    for head in plain.heads.values():
        head.draw(3, expected)
    for generator in generators:
        assert torch.equal(generator.get_state(), expected.get_state())


def test_it_works_while_training_only() -> None:
    plain, styled = make(), make(style_mixing=1.0)
    assert hooks(styled) == 2

    def logits(network: Network) -> Tensor:
        return network(IMAGES, draws=3, generator=seeded()).logits

    assert not torch.equal(logits(plain), logits(styled))
    plain, styled = make().eval(), make(style_mixing=1.0).eval()
    generator = seeded()
    assert torch.equal(logits(plain), styled(IMAGES, draws=3, generator=generator).logits)
    expected = seeded()
    for head in styled.heads.values():
        head.draw(3, expected)
    assert torch.equal(generator.get_state(), expected.get_state())


def test_the_backbone_by_itself_mixes_nothing_also_after_an_error() -> None:
    styled, plain = make(style_mixing=1.0), make()
    assert torch.equal(styled.backbone(IMAGES), plain.backbone(IMAGES))
    with pytest.raises(RuntimeError):
        styled(IMAGES[:, :, 0], draws=1, generator=seeded())
    assert torch.equal(styled.backbone(IMAGES), plain.backbone(IMAGES))


def test_same_generator_same_output() -> None:
    styled = make(style_mixing=0.5)
    first, again, other = (
        styled(IMAGES, draws=2, generator=seeded(seed)).logits for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("method", ["bil", "j-deep"])
def test_weights_are_drawn_as_without_it(method: str) -> None:
    """The Monte Carlo KL shows which weights were drawn."""
    with_it, without = (
        make(method, kl="monte-carlo", style_mixing=probability)(
            IMAGES, draws=3, generator=seeded()
        )
        for probability in (1.0, 0.0)
    )
    assert not torch.equal(with_it.logits, without.logits)
    for name, kl in without.weight_kl.items():
        assert torch.equal(with_it.weight_kl[name], kl)


def test_images_are_mixed_with_those_that_pass_together(recorder: Recorder) -> None:
    """Grouped: both parts apart, in each of two layers. Joint: all at once."""
    for batch_norm, expected in (("grouped", [4, 4, 2, 2]), ("joint", [6, 6])):
        recorder.shares.clear()
        make(style_mixing=1.0, batch_norm=batch_norm)(
            IMAGES, draws=1, generator=seeded(), groups=(4, 2)
        )
        assert [len(share) for share in recorder.shares] == expected


def test_the_network_is_the_formula_after_its_first_two_blocks() -> None:
    """By hand through the layers of the small network, with the draws in their order."""
    styled = make("erm", style_mixing=1.0, style_alpha=0.7)
    found = styled(IMAGES, generator=seeded()).features["phi"].mean
    generator, x = seeded(), IMAGES
    for number, layer in enumerate(styled.backbone.layers):
        x = layer(x)
        if number in (3, 7):
            order = torch.rand(7, generator=generator)[1:].argsort()
            share = torch._sample_dirichlet(torch.full((6, 2), 0.7), generator=generator)[:, 0]
            x = mixed(x, order, share)
    torch.testing.assert_close(found, torch.relu(styled.heads["phi"](x)))


def test_a_copy_has_a_style_of_its_own() -> None:
    original = make(style_mixing=1.0)
    twin = copy.deepcopy(original)
    assert twin.style is not original.style
    assert hooks(twin) == hooks(original) == 2
    for module in twin.backbone.modules():
        for hook in module._forward_hooks.values():
            assert hook.__self__ is twin.style
    assert original.style is not None
    with original.style.drawing(seeded()):  # says nothing to the copy
        assert torch.equal(twin.backbone(IMAGES), make().backbone(IMAGES))
    first, second = (
        network(IMAGES, draws=2, generator=seeded()).logits for network in (original, twin)
    )
    assert torch.equal(first, second)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    third = original(IMAGES, draws=2, generator=seeded()).logits
    assert torch.equal(first, third)


def test_it_leaves_nothing_in_what_is_stored() -> None:
    assert list(make(style_mixing=1.0).state_dict()) == list(make().state_dict())


def test_gradients_reach_every_weight() -> None:
    styled = make(style_mixing=1.0)
    output = styled(IMAGES, draws=2, generator=seeded())
    (output.logits.square().sum() + sum(output.weight_kl.values())).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in styled.parameters())


# ---- where ---------------------------------------------------------------------------------


def test_the_early_layers_are_the_first_two_stages() -> None:
    resnet, _ = build_backbone(ModelSettings(backbone="resnet18", pretrained=False), 3)
    assert early_layers(resnet) == ("layer1", "layer2")
    small = SmallCNN(1)
    assert early_layers(small) == ("layers.3", "layers.7")
    assert [type(small.get_submodule(name)) for name in early_layers(small)] == [nn.MaxPool2d] * 2


@pytest.mark.parametrize("name", ["resnet50", "convnext_atto", "efficientnet_b0", "regnety_002"])
def test_the_early_layers_of_other_networks_are_maps_of_a_quarter_and_less(name: str) -> None:
    backbone, _ = build_backbone(ModelSettings(backbone=name, pretrained=False), 3)
    settings = ModelSettings(backbone=name, style_mixing=1.0)
    style = StyleMixing(backbone, settings)
    sizes = []
    for layer in early_layers(backbone):
        backbone.get_submodule(layer).register_forward_hook(
            lambda module, args, output: sizes.append(tuple(output.shape[2:]))
        )
    with style.drawing(seeded()):
        backbone.train()(torch.rand(2, 3, 64, 64))
    assert sizes == [(16, 16), (8, 8)]


@pytest.mark.parametrize("layers", [(), ("blocks.3",)])
def test_a_network_without_feature_maps_is_refused_in_one_line(layers: tuple[str, ...]) -> None:
    name = "vit_tiny_patch16_224"
    settings = ModelSettings(backbone=name, pretrained=False, style_mixing=1.0, style_layers=layers)
    network = build_network(METHODS["erm"], settings, num_classes=3, in_channels=3, seed=0)
    with pytest.raises(UsageError, match=r"Block returns \(1, 197, 192\).*style_layers") as caught:
        network(torch.rand(1, 3, 224, 224), generator=seeded())
    assert "\n" not in str(caught.value)


def test_a_network_of_unknown_stages_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"name layers in model\.style_layers") as caught:
        early_layers(nn.Sequential(nn.Conv2d(3, 4, 3)))
    assert "\n" not in str(caught.value)


def test_an_unknown_layer_names_the_nearest_in_one_line() -> None:
    resnet, _ = build_backbone(ModelSettings(backbone="resnet18", pretrained=False), 3)
    settings = ModelSettings(style_mixing=0.5, style_layers=("layer1", "layer22"))
    with pytest.raises(
        UsageError, match="unknown layer 'layer22'; did you mean 'layer2'"
    ) as caught:
        StyleMixing(resnet, settings)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_layers_can_be_given_as_text() -> None:
    changed = Settings().replace({"model.style_layers": "layer1,layer2"})
    assert changed.model.style_layers == ("layer1", "layer2")
    assert changed.replace({"model.style_layers": "layer3"}).model.style_layers == ("layer3",)
    # And what is written beside the results is read again.
    assert settings_from(changed.model_dump(mode="json")) == changed


def test_chosen_layers_are_the_ones_that_mix(recorder: Recorder) -> None:
    network = make(style_mixing=1.0, style_layers=("layers.0",))
    network(IMAGES, draws=1, generator=seeded())
    assert len(recorder.shares) == 1
    assert len(network.backbone.layers[0]._forward_hooks) == 1
