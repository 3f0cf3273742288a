"""Layers with a distribution over their weights, and priors of Gaussian ones."""

from bayesdg.bayes.distributions import (
    KL_ESTIMATORS,
    GaussianPrior,
    Prior,
    ScaleMixturePrior,
    closed_form_kl,
    monte_carlo_kl,
    quadrature_kl,
)
from bayesdg.bayes.dropout import DropoutLinear
from bayesdg.bayes.laplace import LaplaceLinear
from bayesdg.bayes.layers import BayesLinear, WeightDraw

__all__ = [
    "KL_ESTIMATORS",
    "BayesLinear",
    "DropoutLinear",
    "GaussianPrior",
    "LaplaceLinear",
    "Prior",
    "ScaleMixturePrior",
    "WeightDraw",
    "closed_form_kl",
    "monte_carlo_kl",
    "quadrature_kl",
]
