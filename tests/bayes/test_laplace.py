"""The layer with a Kronecker Gaussian, against the covariance written out."""

import torch

from bayesdg.bayes import LaplaceLinear


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer() -> LaplaceLinear:
    """Orthogonal bases and scales of a random posterior; 3 outputs, 4 inputs."""
    torch.manual_seed(0)
    made = LaplaceLinear(4, 3).double()
    for name, size in (("output_basis", 3), ("input_basis", 5)):
        basis, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
        getattr(made, name).copy_(basis)
    made.scale.copy_(torch.rand(3, 5) + 0.1)
    return made


def test_a_fresh_layer_has_no_doubt() -> None:
    fresh = LaplaceLinear(4, 3)
    x = torch.randn(5, 4, generator=seeded())
    torch.testing.assert_close(fresh(x, fresh.draw(2, seeded()))[1], fresh(x))
    torch.testing.assert_close(fresh(x), torch.nn.functional.linear(x, fresh.weight, fresh.bias))


def test_draws_have_the_covariance_that_is_written_out() -> None:
    """(U kron V) diag(scale^2) (U kron V)^T of the flattened [W, b], by 200,000 draws."""
    posterior = layer()
    basis = torch.kron(posterior.output_basis, posterior.input_basis)
    expected = basis @ posterior.scale.square().flatten().diag() @ basis.T
    draw = posterior.draw(200_000, seeded())
    assert draw.bias is not None
    together = torch.cat([draw.weight, draw.bias.unsqueeze(-1)], dim=-1).flatten(1)
    torch.testing.assert_close(together.T.cov(), expected, atol=0.02, rtol=0)
    mean = torch.cat([posterior.weight, posterior.bias.unsqueeze(1)], dim=1).flatten()
    torch.testing.assert_close(together.mean(0), mean, atol=0.02, rtol=0)


def test_the_covariance_is_stored_and_the_generator_decides() -> None:
    posterior, again = layer(), LaplaceLinear(4, 3).double()
    again.load_state_dict(posterior.state_dict())
    assert torch.equal(posterior.draw(3, seeded()).weight, again.draw(3, seeded()).weight)
    assert not torch.equal(posterior.draw(3, seeded()).weight, again.draw(3, seeded(1)).weight)
    assert {name for name, _ in posterior.named_parameters()} == {"weight", "bias"}
