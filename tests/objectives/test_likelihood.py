import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily

from bayesdg.errors import UsageError
from bayesdg.objectives import elbo, marginal


def example() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5, 8, 4, dtype=torch.float64, generator=generator)
    return logits, torch.randint(4, (8,), generator=generator)


def test_elbo_is_the_mean_cross_entropy_over_draws() -> None:
    logits, labels = example()
    expected = torch.stack([-Categorical(logits=draw).log_prob(labels) for draw in logits]).mean()
    torch.testing.assert_close(elbo(logits, labels), expected)


def test_marginal_is_the_likelihood_of_the_mixture_of_draws() -> None:
    logits, labels = example()
    mixture = MixtureSameFamily(
        Categorical(torch.full((8, 5), 0.2, dtype=torch.float64)),
        Categorical(logits=logits.transpose(0, 1)),
    )
    torch.testing.assert_close(marginal(logits, labels), -mixture.log_prob(labels).mean())


def test_marginal_never_exceeds_elbo_and_equals_it_for_one_draw() -> None:
    logits, labels = example()
    assert marginal(logits, labels) < elbo(logits, labels)
    torch.testing.assert_close(marginal(logits[:1], labels), elbo(logits[:1], labels))


def test_draw_axes_may_have_any_shape() -> None:
    logits, labels = example()
    folded = logits.repeat(2, 1, 1).view(2, 5, 8, 4)
    torch.testing.assert_close(elbo(folded, labels), elbo(logits, labels))
    torch.testing.assert_close(marginal(folded, labels), marginal(logits, labels))


def test_certain_and_wrong_is_large_and_finite() -> None:
    logits = torch.tensor([[[1e4, 0.0]]], requires_grad=True)
    loss = marginal(logits, torch.tensor([1]))
    loss.backward()
    assert loss == 1e4
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_gradients_are_right() -> None:
    logits, labels = example()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: elbo(x, labels), logits)
    assert torch.autograd.gradcheck(lambda x: marginal(x, labels), logits)


def test_labels_that_do_not_fit_are_named() -> None:
    logits, labels = example()
    for likelihood in (elbo, marginal):
        with pytest.raises(UsageError, match=r"labels has shape \(1,\)"):
            likelihood(logits, labels[:1])
