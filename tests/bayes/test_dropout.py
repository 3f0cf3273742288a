"""Dropout as draws of weights, against torch's own dropout."""

import pytest
import torch
from torch import nn

from bayesdg.bayes import DropoutLinear
from bayesdg.ranks import Ranks


def layer(rate: float = 0.3) -> DropoutLinear:
    torch.manual_seed(0)
    return DropoutLinear(6, 3, rate).double()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X = torch.randn(5, 6, dtype=torch.float64, generator=seeded(1))


def test_a_draw_drops_the_same_inputs_of_every_image() -> None:
    drop = layer()
    draw = drop.draw(20, seeded())
    for s in range(20):
        kept = draw.weight[s] != 0
        assert (kept == kept[0]).all()  # whole inputs are dropped
        expected = nn.functional.linear(X * kept[0] / 0.7, drop.weight, drop.bias)
        torch.testing.assert_close(drop(X, draw)[s], expected)


def test_the_generator_decides_and_nothing_else() -> None:
    drop = layer()
    first = drop.draw(4, seeded()).weight
    torch.rand(1)
    assert torch.equal(first, drop.draw(4, seeded()).weight)
    assert not torch.equal(first, drop.draw(4, seeded(1)).weight)
    assert torch.equal(drop.dropped(X, seeded()), drop.dropped(X, seeded()))


def test_without_a_draw_it_is_the_linear_layer_and_the_mean_of_all_draws() -> None:
    drop = layer()
    assert torch.equal(drop(X), nn.functional.linear(X, drop.weight, drop.bias))
    many = drop(X, drop.draw(40_000, seeded())).mean(0)
    torch.testing.assert_close(many, drop(X), atol=0.02, rtol=0)


def test_its_mean_and_variance_are_those_of_torch() -> None:
    """Both by 40,000 masks; the standard error of either is below 0.01."""
    drop, repeats = layer(), 40_000
    dropped = nn.functional.dropout(X[:1].expand(repeats, -1), 0.3)
    torchs = nn.functional.linear(dropped, drop.weight, drop.bias)
    for ours in (
        drop(X[:1], drop.draw(repeats, seeded()))[:, 0],
        drop.dropped(X[:1].expand(repeats, -1), seeded()),
    ):
        torch.testing.assert_close(ours.mean(0), torchs.mean(0), atol=0.03, rtol=0)
        torch.testing.assert_close(ours.var(0), torchs.var(0), atol=0.03, rtol=0.05)


def test_images_in_training_have_masks_of_their_own() -> None:
    same = X[:1].expand(50, -1)
    assert len(layer().dropped(same, seeded()).detach().unique(dim=0)) > 10


def test_ranks_together_drop_what_one_drops() -> None:
    drop, whole = layer(), torch.cat([X, -X])
    expected = drop.dropped(whole, seeded())
    shares = [drop.dropped(x, seeded(), Ranks(r, 2)) for r, x in enumerate(whole.split(5))]
    assert torch.equal(torch.cat(shares), expected)


@pytest.mark.parametrize("rows", [(5, 6), (4, 5, 6)])
def test_activations_are_a_loop_over_draws(rows: tuple[int, ...]) -> None:
    drop = layer()
    draw = drop.draw(4, seeded())
    x = torch.randn(rows, dtype=torch.float64, generator=seeded(2))
    each = x.expand(4, 5, 6)
    assert draw.bias is not None
    for s in range(4):
        expected = each[s] @ draw.weight[s].T + draw.bias[s]
        torch.testing.assert_close(drop(x, draw)[s], expected)
