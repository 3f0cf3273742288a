"""Shapes, draws, batch norm and the seed of the network."""

import pytest
import torch

from bayesdg.bayes import BayesLinear, GaussianPrior, ScaleMixturePrior
from bayesdg.errors import UsageError
from bayesdg.methods import METHODS, Method
from bayesdg.methods.rows import BAYES_INV, POINT
from bayesdg.models import Network, build_network
from bayesdg.stages import ModelSettings

IMAGES = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def make(method: str | Method = "bil", seed: int = 0, **values: object) -> Network:
    settings = ModelSettings(backbone="small-cnn", **values)  # type: ignore[arg-type]
    row = METHODS[method] if isinstance(method, str) else method
    return build_network(row, settings, num_classes=3, in_channels=1, seed=seed)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", METHODS)
def test_layers_are_what_the_row_says(name: str) -> None:
    network, row = make(name), METHODS[name]
    assert list(network.heads) == list(row.layers)
    for layer, head in network.heads.items():
        assert isinstance(head, BayesLinear) == row.layers[layer].bayes
    output = network(IMAGES, draws=2, generator=seeded())
    assert set(output.weight_kl) == {n for n, layer in row.layers.items() if layer.bayes}
    assert list(output.features) == ["backbone", *(name for name in row.layers if name != "psi")]
    for layer, features in output.features.items():
        is_bayesian = layer != "backbone" and row.layers[layer].bayes
        assert (features.variance is not None) == is_bayesian


@pytest.mark.parametrize(
    ("method", "combine", "draws"),
    [("a", "paired", 1), ("b", "paired", 4), ("e", "product", 4), ("j", "paired", 4),
     ("j", "product", 16), ("j-deep", "paired", 4), ("j-deep", "product", 64)],
)  # fmt: skip
def test_number_of_joint_draws(method: str, combine: str, draws: int) -> None:
    output = make(method, combine=combine)(IMAGES, draws=4, generator=seeded())
    assert output.logits.shape == (draws, 6, 3)


def test_product_is_every_pair_of_draws() -> None:
    """Against two explicit loops over the draws of phi and psi."""
    network = make("j", combine="product")
    phi, psi = network.heads["phi"], network.heads["psi"]
    assert isinstance(phi, BayesLinear)
    assert isinstance(psi, BayesLinear)
    logits = network(IMAGES, draws=3, generator=seeded()).logits
    generator = seeded()
    phi_draw, psi_draw = phi.draw(3, generator), psi.draw(3, generator)
    x = network.backbone(IMAGES)
    expected = {
        (length, m): torch.relu(x @ phi_draw.weight[m].T + phi_draw.bias[m])
        @ psi_draw.weight[length].T
        + psi_draw.bias[length]
        for length in range(3)
        for m in range(3)
    }
    for index, pair in enumerate(sorted(expected)):
        torch.testing.assert_close(logits[index], expected[pair], rtol=1e-4, atol=1e-5)


def test_paired_is_one_joint_draw_at_a_time() -> None:
    network = make("j", combine="paired")
    phi, psi = network.heads["phi"], network.heads["psi"]
    assert isinstance(phi, BayesLinear)
    assert isinstance(psi, BayesLinear)
    logits = network(IMAGES, draws=3, generator=seeded()).logits
    generator = seeded()
    phi_draw, psi_draw = phi.draw(3, generator), psi.draw(3, generator)
    x = network.backbone(IMAGES)
    for s in range(3):
        z = torch.relu(x @ phi_draw.weight[s].T + phi_draw.bias[s])
        expected = z @ psi_draw.weight[s].T + psi_draw.bias[s]
        torch.testing.assert_close(logits[s], expected, rtol=1e-4, atol=1e-5)


def test_product_and_paired_have_the_same_expectation() -> None:
    """Mean softmax of many draws; the gap is a few standard errors (0.5 / sqrt(2000) at most)."""
    means = []
    for combine, draws in (("product", 45), ("paired", 2000)):
        network = make("j", combine=combine)
        with torch.no_grad():
            means.append(network(IMAGES, draws, seeded(1)).logits.softmax(-1).mean(0))
    assert (means[0] - means[1]).abs().max() < 0.05


def test_mean_weights_need_no_generator_and_do_not_vary() -> None:
    network = make("j").eval()
    assert torch.equal(network(IMAGES).logits, network(IMAGES).logits)
    assert network(IMAGES).logits.shape == (1, 6, 3)


def test_features_are_compared_before_the_relu_and_passed_on_behind_it() -> None:
    """Eq. 8 is about activations that are Gaussian; of a point layer its output is compared."""
    network = make("j").eval()
    output = network(IMAGES, 2, seeded())
    phi, psi = network.heads["phi"], network.heads["psi"]
    assert isinstance(phi, BayesLinear)
    assert isinstance(psi, BayesLinear)
    mean, variance = phi.moments(output.features["backbone"].mean)
    assert (mean < 0).any()
    assert torch.equal(output.features["phi"].mean, mean)
    assert output.features["phi"].variance is not None
    assert torch.equal(output.features["phi"].variance, variance)
    mean_weights = network(IMAGES)
    torch.testing.assert_close(mean_weights.logits[0], psi(mean.relu()))
    point = make("i").eval()(IMAGES).features["phi"].mean
    assert (point == 0).any()
    assert (point >= 0).all()


def test_a_forward_pass_leaves_nothing_behind() -> None:
    network = make("j")
    before = {id(module): set(vars(module)) for module in network.modules()}
    network(IMAGES, 2, seeded())
    assert {id(module): set(vars(module)) for module in network.modules()} == before


def test_evaluation_has_no_kl_and_depends_on_no_neighbour() -> None:
    network = make("j")
    network(IMAGES, 2, seeded())  # move the running statistics
    network.eval()
    together = network(IMAGES, 2, seeded())
    alone = network(IMAGES[:1], 2, seeded())
    assert together.weight_kl == {}
    torch.testing.assert_close(together.logits[:, :1], alone.logits)


def test_grouped_batch_norm_normalises_each_part_by_itself() -> None:
    joint, grouped = make("a", batch_norm="joint"), make("a", batch_norm="grouped")
    parts = [joint.backbone(part) for part in IMAGES.split([2, 4])]
    torch.testing.assert_close(
        grouped._backbone_features(IMAGES, (2, 4)), torch.cat(parts), rtol=1e-6, atol=1e-6
    )
    together = joint._backbone_features(IMAGES, (2, 4))
    torch.testing.assert_close(together, joint.backbone(IMAGES), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(together, torch.cat(parts), atol=1e-3)


def test_frozen_batch_norm_learns_weights_and_no_statistics() -> None:
    network = make("a", batch_norm="frozen").train()
    with torch.no_grad():
        for buffer in network.backbone.buffers():
            buffer.add_(1)
    before = [buffer.clone() for buffer in network.backbone.buffers()]
    trained = network(IMAGES, groups=(2, 4)).logits
    assert all(map(torch.equal, before, network.backbone.buffers()))
    assert network.training
    trained.sum().backward()
    assert all(parameter.grad is not None for parameter in network.backbone.parameters())
    torch.testing.assert_close(trained, network.eval()(IMAGES).logits)


def test_an_empty_group_is_skipped() -> None:
    assert make("a", batch_norm="grouped")(IMAGES, groups=(6, 0)).logits.shape == (1, 6, 3)


def test_prior_is_the_methods() -> None:
    assert make("j", pi=0.3).prior == ScaleMixturePrior(0.3, 0.1, 1.5)
    assert make("j-standard-prior").prior == GaussianPrior(1.0)


def test_depth_is_equal_or_not_as_asked() -> None:
    assert list(make("a").heads) == ["phi", "psi"]
    assert list(make("a", equal_depth=False).heads) == ["psi"]
    assert list(make("f", equal_depth=False).heads) == ["phi", "psi"]
    assert list(make("j", equal_depth=False).heads) == ["phi", "psi"]


def test_seed_decides_the_initial_weights_and_nothing_else() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second, other = make(seed=0), make(seed=0), make(seed=1)
    assert torch.equal(torch.rand(3), expected)
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.heads["psi"].weight_mu, other.heads["psi"].weight_mu)


def test_kl_estimators_agree_in_expectation() -> None:
    exact = make("j")(IMAGES, 1, seeded()).weight_kl["psi"]
    noisy = make("j", kl="monte-carlo")(IMAGES, 1000, seeded()).weight_kl["psi"]
    assert abs(noisy / exact - 1) < 0.02


def test_monte_carlo_kl_is_for_the_weights_that_were_used() -> None:
    """One draw of a tiny classifier: the KL is that of the weights which made the logits."""
    network = make(Method(psi=BAYES_INV, phi=POINT), kl="monte-carlo", equal_depth=False)
    psi = network.heads["psi"]
    assert isinstance(psi, BayesLinear)
    output = network(IMAGES, 1, seeded())
    draw = psi.draw(1, seeded())
    expected = psi.kl(network.prior, "monte-carlo", draw)
    torch.testing.assert_close(output.weight_kl["psi"], expected)


def test_network_moves_between_types() -> None:
    """nn.Module's own machinery (`.to`, `.double`) is intact."""
    assert make("j").double()(IMAGES.double(), 2, seeded()).logits.dtype == torch.float64


def test_pixels_are_normalised_inside() -> None:
    settings = ModelSettings(backbone="small-cnn")
    network = build_network(METHODS["a"], settings, 3, 1, 0, mean=(0.4,), std=(0.2,)).eval()
    plain = make("a").eval()
    levels = torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8)
    expected = plain((levels / 255 - 0.4) / 0.2).logits
    torch.testing.assert_close(network(levels).logits, expected)
    torch.testing.assert_close(network(levels / 255).logits, expected)


def test_floats_of_double_precision_are_pixels_too() -> None:
    network = make("a").eval()
    images = torch.rand(3, 1, 8, 8, generator=seeded())
    assert torch.equal(network(images.double()).logits, network(images).logits)


def test_one_class_is_refused() -> None:
    with pytest.raises(UsageError, match="1 class is nothing to classify"):
        build_network(METHODS["bil"], ModelSettings(backbone="small-cnn"), 1, 1, 0)
