"""The released code's classifier term, written out pair by pair from METHOD's description."""

import torch

from bayesdg.objectives import released_categorical_invariance


def test_it_agrees_with_the_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    source = torch.randn(3, 8, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    y_t = torch.tensor([0, 1, 2, 3, 0])
    y_i = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3])

    def probabilities(logits: torch.Tensor) -> torch.Tensor:
        spread = logits.max(-1, keepdim=True).values - logits.min(-1, keepdim=True).values
        return torch.softmax(logits / spread, -1).mean(0)

    p, q = probabilities(target), probabilities(source)
    means = []
    for t in range(5):
        pairs = [
            (p[t] * (p[t] / q[i]).log() + (1 - p[t]) * ((1 - p[t]) / (1 - q[i])).log()).sum()
            for i in range(8)
            if y_i[i] == y_t[t]
        ]
        means.append(torch.stack(pairs).mean())
    reference = torch.stack(means).mean()

    ours = released_categorical_invariance(target, y_t, source, y_i)
    torch.testing.assert_close(ours, reference, rtol=1e-10, atol=0)
    expected = torch.autograd.grad(reference, [target, source], retain_graph=True)
    for gradient, wanted in zip(torch.autograd.grad(ours, [target, source]), expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


def test_equal_logits_give_no_nan() -> None:
    logits = torch.full((1, 2, 3), 5.0, requires_grad=True)
    labels = torch.tensor([0, 1])
    loss = released_categorical_invariance(logits, labels, torch.zeros(1, 2, 3), labels)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
