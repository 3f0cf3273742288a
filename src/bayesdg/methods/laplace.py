"""Last-layer Laplace: a Gaussian around the trained psi, as wide as the training data leave it.

laplace-torch (Daxberger et al., NeurIPS 2021) computes the generalised Gauss-Newton matrix of psi
on the source domains' training images as a Kronecker product, which grows with K^2 + D^2 and not
with (K D)^2, and chooses the prior's precision by the marginal likelihood of those same images.
The bias is fitted as the weight of one more feature, so that it may vary together with the others.
What is kept are two small matrices: prediction needs no laplace-torch.

Axes: n images, D features, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayesdg.bayes import LaplaceLinear
from bayesdg.data import ImageSet
from bayesdg.errors import UsageError
from bayesdg.evaluate.predict import predict_images
from bayesdg.methods.learner import LastLayers

# Of the one number that is optimised.
PRIOR_STEPS = 200


def fit_laplace(learner: LastLayers, train: Mapping[str, ImageSet]) -> float:
    """Give psi its covariance; returns the precision of its prior.

    Args:
        learner: Trained, with a LaplaceLinear as psi.
        train: Training images of the source domains, taken as they are, without augmentation.
    """
    psi = learner.network.heads["psi"]
    if not isinstance(psi, LaplaceLinear):
        raise UsageError("only a psi of the method laplace can be given a covariance")
    features, labels = [], []
    for images in train.values():
        found = predict_images(learner, images.images, draws=0, keep_features=True)
        features.append(torch.from_numpy(found.features))
        labels.append(images.labels)
    output_basis, input_basis, variance, precision = kronecker_posterior(
        psi.weight.detach().cpu(), psi.bias.detach().cpu(), torch.cat(features), torch.cat(labels)
    )
    psi.output_basis.copy_(output_basis)
    psi.input_basis.copy_(input_basis)
    psi.scale.copy_(variance.sqrt())
    return precision


def kronecker_posterior(
    weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor, precision: float | None = None
) -> tuple[Tensor, Tensor, Tensor, float]:
    """The covariance of [weight, bias] in a basis where it is diagonal; see LaplaceLinear.

    Args:
        weight: (K, D).
        bias: (K,).
        features: (n, D).
        labels: (n,).
        precision: Of the prior; by marginal likelihood without.

    Returns:
        Output basis (K, K), input basis (D + 1, D + 1), variances (K, D + 1), and the precision.
    """
    ones = features.new_ones(len(features), 1)
    linear = nn.Linear(features.shape[1] + 1, len(weight), bias=False, dtype=torch.float64)
    linear.weight.data = torch.cat([weight, bias.unsqueeze(1)], dim=1).double()
    inputs = torch.cat([features, ones], dim=1).double()
    with warnings.catch_warnings():
        # Of its dependencies on import, and of one who means another way to predict than ours.
        warnings.filterwarnings("ignore", r"`torch\.jit\.", FutureWarning)
        warnings.filterwarnings("ignore", "By default `link_approx` is `probit`", UserWarning)
        from laplace import Laplace

        fitted: Any = Laplace(
            linear,
            "classification",
            subset_of_weights="all",
            hessian_structure="kron",
            prior_precision=1.0 if precision is None else precision,
        )
        # In one batch: of several, the product of sums would not be the sum of products.
        fitted.fit(DataLoader(TensorDataset(inputs, labels), batch_size=len(inputs)))
        if precision is None:
            fitted.optimize_prior_precision(method="marglik", n_steps=PRIOR_STEPS)
    posterior = fitted.posterior_precision
    output_basis, input_basis = posterior.eigenvectors[0]
    variance = 1 / (torch.outer(*posterior.eigenvalues[0]) + posterior.deltas[0])
    return output_basis, input_basis, variance, float(fitted.prior_precision)
