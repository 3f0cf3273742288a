"""A trained linear layer with a Gaussian around its weights, from a Laplace approximation.

With the bias as one more column, of an input that is always 1, the weights are a matrix W of
shape (out, in + 1). Where the precision is a Kronecker product plus a multiple of the identity,
it is diagonal in the basis of two small orthogonal matrices, U for outputs and V for inputs:

    W = mean + U (scale * E) V^T,    E standard normal.

Axes: R rows of the batch, num draws.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesdg.bayes.layers import WeightDraw, standard_normal


class LaplaceLinear(nn.Linear):
    """A point layer until it is given a covariance.

    Attributes:
        output_basis: U, (out, out).
        input_basis: V, (in + 1, in + 1); the last input is the bias's.
        scale: (out, in + 1) standard deviations in that basis.
    """

    output_basis: Tensor
    input_basis: Tensor
    scale: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        # As numbers of the run and not of training: saved with the weights, never optimised.
        self.register_buffer("output_basis", torch.eye(out_features))
        self.register_buffer("input_basis", torch.eye(in_features + 1))
        self.register_buffer("scale", torch.zeros(out_features, in_features + 1))

    def draw(self, num: int, generator: torch.Generator | None = None) -> WeightDraw:
        """`num` independent draws of all weights."""
        noise = self.scale * standard_normal(num, self.scale, generator)
        around = self.output_basis @ noise @ self.input_basis.T
        return WeightDraw(self.weight + around[..., :-1], self.bias + around[..., -1])

    def forward(self, x: Tensor, draw: WeightDraw | None = None) -> Tensor:
        """(num, R, out) under each draw; the shape of x with `out` last, under the mean, else.

        Args:
            x: (R, in), or (num, R, in) with the rows of each draw.
            draw: From `draw`, or None.
        """
        if draw is None:
            return functional.linear(x, self.weight, self.bias)
        return draw.activations(x)
