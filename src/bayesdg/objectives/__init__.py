"""The objective: likelihood, invariance and prior as named terms."""

from bayesdg.objectives.invariance import (
    categorical_invariance,
    euclidean_distance,
    gaussian_invariance,
    squared_distance,
)
from bayesdg.objectives.likelihood import LIKELIHOODS, elbo, marginal
from bayesdg.objectives.objective import Objective
from bayesdg.objectives.released import released_categorical_invariance
from bayesdg.objectives.terms import Terms

__all__ = [
    "LIKELIHOODS",
    "Objective",
    "Terms",
    "categorical_invariance",
    "elbo",
    "euclidean_distance",
    "gaussian_invariance",
    "marginal",
    "released_categorical_invariance",
    "squared_distance",
]
