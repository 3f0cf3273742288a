"""Processes that share an episode do together what one does alone: the same losses and gradients.

Real processes, connected by gloo, in float64. They are started once per number of processes and
compute every case there is; the tests look at what came back.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import shares
from bayesdg.data.augment import augment
from bayesdg.errors import UsageError
from bayesdg.methods.learner import Learner
from bayesdg.objectives import gaussian_invariance
from bayesdg.ranks import ALONE, Ranks
from bayesdg.settings import Settings
from bayesdg.stages import AugmentationSettings
from gloo import run_ranks
from shares import LEARNERS, LOSS_CASES, LOSSES, WRAPPED, Case, Found, compute_all, compute_wrapped

RELATIVE = 1e-9
All = dict[Case, Found]


@pytest.fixture(scope="session")
def alone() -> All:
    return compute_all()


@pytest.fixture(scope="session", params=[2, 4])
def together(request: pytest.FixtureRequest) -> list[All]:
    """By rank."""
    return run_ranks(request.param, compute_all)


def assert_close(found: Tensor, expected: Tensor, what: str) -> None:
    """To a relative 1e-9 of the largest entry: an entry near zero is a difference of others."""
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        found, expected, rtol=RELATIVE, atol=RELATIVE * scale, msg=lambda text: f"{what}: {text}"
    )


def assert_average_is(expected: Found, found: list[Found]) -> None:
    """Of values and gradients; what is not averaged is the same on every rank."""
    for name, value in expected.values.items():
        average = torch.stack([rank.values[name] for rank in found]).mean(0)
        assert_close(average, value, name)
    for name, gradient in expected.gradients.items():
        average = torch.stack([rank.gradients[name] for rank in found]).mean(0)
        assert_close(average, gradient, f"gradient of {name}")
    for rank in found:
        assert rank.values.keys() == expected.values.keys()
        assert rank.gradients.keys() == expected.gradients.keys()
        assert rank.state.keys() == expected.state.keys()
        for name, value in expected.state.items():
            assert_close(rank.state[name], value, name)
            assert torch.equal(rank.state[name], found[0].state[name])


@pytest.mark.parametrize("case", LOSS_CASES, ids="; ".join)
def test_losses_average_to_that_of_one_process(
    alone: All, together: list[All], case: tuple[str, ...]
) -> None:
    expected = alone["loss", *case]
    assert all(gradient.abs().sum() > 0 for gradient in expected.gradients.values())
    assert_average_is(expected, [rank["loss", *case] for rank in together])


@pytest.mark.parametrize("loss", LOSSES)
def test_without_any_counterpart_the_loss_is_zero_on_every_rank(
    alone: All, together: list[All], loss: str
) -> None:
    for found in (alone, *together):
        case = found["alone", loss]
        assert case.values["loss"] == 0
        assert all((gradient == 0).all() for gradient in case.gradients.values())


@pytest.mark.parametrize("case", LEARNERS, ids="-".join)
def test_a_learner_in_parts_is_the_whole_learner(
    alone: All, together: list[All], case: tuple[str, ...]
) -> None:
    """Every term, the gradient of every parameter, and the running statistics."""
    expected = alone["learner", *case]
    assert any(name.endswith("running_var") for name in expected.state)
    assert_average_is(expected, [rank["learner", *case] for rank in together])


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 4])
def test_gradients_that_torch_averages_are_those_of_one_process(alone: All, num: int) -> None:
    """DistributedDataParallel sends them while the sums of batch norm travel back."""
    together = run_ranks(num, compute_wrapped)
    for case in WRAPPED:
        expected = alone["learner", *case]
        for rank in together:
            assert rank[case].gradients.keys() == expected.gradients.keys()
            for name, gradient in expected.gradients.items():
                assert_close(rank[case].gradients[name], gradient, f"gradient of {name}")
            for name, value in expected.state.items():
                assert_close(rank[case].state[name], value, name)


def test_gather_keeps_the_order_of_the_ranks_and_passes_gradients_back(
    alone: All, together: list[All]
) -> None:
    """Rank r's loss weights every row by weights[r]; the gradient of the average is their mean."""
    whole = alone["gathered",].values["gathered"]
    weights = alone["gathered",].state["weights"][: len(together)]
    found = [rank["gathered",] for rank in together]
    owned = [len(rank.state["own"]) for rank in found]
    assert 0 in owned
    assert len(set(owned)) == len(owned)
    assert torch.equal(torch.cat([rank.state["own"] for rank in found]), torch.arange(shares.N))
    for rank in found:
        assert torch.equal(rank.values["gathered"], whole)
    average = torch.stack([rank.gradients["whole"] for rank in found]).mean(0)
    assert_close(average, weights.mean(0), "gradient")
    # And each rank's own is zero but for its rows.
    for rank in found:
        elsewhere = torch.ones(shares.N, dtype=torch.bool)
        elsewhere[rank.state["own"]] = False
        assert (rank.gradients["whole"][:, elsewhere] == 0).all()


def test_sum_is_that_of_all_ranks_and_so_is_its_gradient(together: list[All]) -> None:
    """By hand, with F = 1 + ... + P, P ranks of factors r and losses r (F^2 |x|^2 + 4 F).

    Loss L_q has the derivative q (2 F |x|^2 + 4) by any factor, and F is the sum of the q.
    """
    num = len(together)
    total = num * (num + 1) / 2
    x = torch.arange(6, dtype=torch.float64).view(2, 3).T
    gradient = total * (2 * total * float(x.square().sum()) + 4)
    for rank in together:
        found = rank["summed",]
        assert torch.equal(found.values["total"], total * x)
        assert found.values["numbers"].tolist() == [num, num * (num - 1) // 2]
        assert float(found.gradients["factor"]) == pytest.approx(gradient, rel=RELATIVE)


def test_a_rank_that_fails_is_shown_with_its_traceback() -> None:
    with pytest.raises(AssertionError) as caught:
        run_ranks(2, shares.fails_on_the_last_rank)
    assert "rank 1 of 2: Traceback" in str(caught.value)
    assert "ValueError: this rank has had enough" in str(caught.value)


def test_a_rank_that_hangs_ends_the_test_and_says_where_it_was() -> None:
    with pytest.raises(AssertionError) as caught:
        run_ranks(2, shares.hangs_on_the_last_rank, timeout=3)
    told = str(caught.value).partition("rank 1 of 2: Timeout (0:00:03)!")[2]
    assert "in hangs_on_the_last_rank" in told


# ---- without processes: who gets which images ------------------------------------------------


@pytest.mark.parametrize("size", range(1, 8))
def test_shares_cover_everything_once_and_differ_by_one_at_most(size: int) -> None:
    for total in range(40):
        parts = [Ranks(rank, size).share(total) for rank in range(size)]
        assert [i for part in parts for i in range(total)[part]] == list(range(total))
        lengths = [part.stop - part.start for part in parts]
        assert max(lengths) - min(lengths) <= 1
        assert all(left.stop == right.start for left, right in pairwise(parts))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("batching", ["episode", "single-domain", "pooled"])
def test_shares_of_an_episode_are_its_images_each_once(size: int, batching: str) -> None:
    sampler, plan = shares.plan_of(Settings(), batching)
    whole = sampler.fetch(plan)
    assert whole.rows is None
    assert whole.total is None
    seen = []
    for rank in range(size):
        part = sampler.fetch(plan, Ranks(rank, size))
        assert part.rows is not None
        assert part.total == len(whole.labels)
        assert torch.equal(part.images, whole.images[part.rows])
        assert torch.equal(part.labels, whole.labels[part.rows])
        assert (part.rows[: part.num_target] < whole.num_target).all()
        assert (part.rows[part.num_target :] >= whole.num_target).all()
        seen.append(part.rows)
    assert torch.cat(seen).sort().values.tolist() == list(range(len(whole.labels)))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("pixels", [32, 96])  # 96: the processor takes fewer at a time
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_a_share_are_changed_as_in_the_whole_batch(
    size: int, pixels: int, channels: int
) -> None:
    settings = AugmentationSettings(grey=0.3)
    _, plan = shares.plan_of(Settings(), "episode")
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(
        256, (plan.total, channels, pixels, pixels), dtype=torch.uint8, generator=generator
    )
    whole = augment(pictures, settings, torch.Generator().manual_seed(5))
    assert not torch.equal(whole, pictures / 255)
    for rank in range(size):
        rows = plan.rows(Ranks(rank, size))
        chance = torch.Generator().manual_seed(5)
        part = augment(pictures[rows], settings, chance, rows, plan.total)
        assert torch.equal(part, whole[rows])
    # All of them, which is what one process sees.
    rows = plan.rows(ALONE)
    again = augment(pictures, settings, torch.Generator().manual_seed(5), rows, plan.total)
    assert torch.equal(again, whole)


# ---- without processes: what is refused ------------------------------------------------------


def test_the_number_of_classes_is_needed_where_no_rank_sees_all_labels() -> None:
    x, y = torch.ones(2, 3), torch.tensor([0, 1])
    with pytest.raises(UsageError, match="num_classes is needed"):
        gaussian_invariance(x, x, y, x, x, y, ranks=Ranks(0, 2))


def test_a_learner_that_cannot_share_says_so() -> None:
    class Plain(Learner):
        def terms(self, episode, generator):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def draw(self, num, generator):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def answer(self, images, draw):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    Plain().share_among(ALONE)
    with pytest.raises(UsageError, match="Plain cannot be trained by several processes"):
        Plain().share_among(replace(ALONE, size=2))
