"""Gaussian weights, their priors and the layers that are made of them."""

from bayesdg.bayes.distributions import (
    KL_ESTIMATORS,
    GaussianPrior,
    Prior,
    ScaleMixturePrior,
    closed_form_kl,
    monte_carlo_kl,
    quadrature_kl,
)
from bayesdg.bayes.layers import BayesLinear, WeightDraw

__all__ = [
    "KL_ESTIMATORS",
    "BayesLinear",
    "GaussianPrior",
    "Prior",
    "ScaleMixturePrior",
    "WeightDraw",
    "closed_form_kl",
    "monte_carlo_kl",
    "quadrature_kl",
]
