"""The methods as values one can read off a page: the rows of the paper's ablations.

psi is the classifier, the last layer; phi the last layer of the feature extractor before it.
Each is a point estimate or Bayesian, and each is made domain-invariant or not. This file knows
no network and no objective; it imports no torch.

Behind the rows stand what people would take instead: a deep ensemble, Monte Carlo dropout and a
Laplace approximation, each made of the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bayesdg.names import choose

PriorKind = Literal["mixture", "standard"]
# What is drawn for a prediction: the weights of the layers with a tick, masks over the inputs of
# the last layers, whole networks, or a psi from a Gaussian that was fitted after training.
Uncertainty = Literal["layers", "dropout", "ensemble", "laplace"]


@dataclass(frozen=True)
class Layer:
    """What one of the last layers is: the two ticks of the paper's Table 1."""

    bayes: bool = False
    invariant: bool = False


@dataclass(frozen=True)
class Method:
    """One row.

    Attributes:
        psi: The classifier.
        phi: The last layer of the feature extractor.
        phi_prime: One more layer before phi (Table 3), or None.
        prior: Of all Bayesian weights: the scale mixture of eq. 12, or N(0, 1) (Table 2).
        uncertainty: What is drawn for a prediction.
        made_of: The method of the trained runs that it is put together from; None for a method
            that is trained itself.
        about: One line for people.
    """

    psi: Layer
    phi: Layer
    phi_prime: Layer | None = None
    prior: PriorKind = "mixture"
    uncertainty: Uncertainty = "layers"
    made_of: str | None = None
    about: str = ""

    @property
    def layers(self) -> dict[str, Layer]:
        """The last layers by name, in the order in which images pass through them."""
        first = {} if self.phi_prime is None else {"phi_prime": self.phi_prime}
        return {**first, "phi": self.phi, "psi": self.psi}

    @property
    def invariant_layers(self) -> tuple[str, ...]:
        """The layers whose outputs are compared across domains."""
        return tuple(name for name, layer in self.layers.items() if layer.invariant)

    @property
    def is_bayesian(self) -> bool:
        """Whether an answer is an average over draws."""
        return self.uncertainty != "layers" or any(layer.bayes for layer in self.layers.values())


POINT = Layer()
BAYES = Layer(bayes=True)
POINT_INV = Layer(invariant=True)
BAYES_INV = Layer(bayes=True, invariant=True)

# Table 1 (a-j) and Table D.1 (k-n), then Tables 2 and 3.
ROWS = {
    "a": Method(psi=POINT, phi=POINT, about="the baseline"),
    "b": Method(psi=BAYES, phi=POINT, about="Bayesian classifier"),
    "c": Method(psi=POINT_INV, phi=POINT, about="deterministic invariant classifier"),
    "d": Method(psi=BAYES_INV, phi=POINT, about="Bayesian invariant classifier"),
    "e": Method(psi=POINT, phi=BAYES, about="Bayesian features"),
    "f": Method(psi=POINT, phi=POINT_INV, about="deterministic invariant features"),
    "g": Method(psi=POINT, phi=BAYES_INV, about="Bayesian invariant features"),
    "h": Method(psi=BAYES, phi=BAYES, about="both Bayesian"),
    "i": Method(psi=POINT_INV, phi=POINT_INV, about="both deterministic invariant"),
    "j": Method(psi=BAYES_INV, phi=BAYES_INV, about="both Bayesian invariant: the paper's method"),
    "k": Method(psi=BAYES_INV, phi=BAYES, about="d with Bayesian features"),
    "l": Method(psi=BAYES_INV, phi=POINT_INV, about="d with deterministic invariant features"),
    "m": Method(psi=BAYES, phi=BAYES_INV, about="g with a Bayesian classifier"),
    "n": Method(psi=POINT_INV, phi=BAYES_INV, about="g with a deterministic invariant classifier"),
}
J = ROWS["j"]
ERM = replace(ROWS["a"], about="empirical risk minimisation, row a")
METHODS = {
    "erm": ERM,
    "bil": replace(J, about="Bayesian invariant learning, row j"),
    **ROWS,
    "j-standard-prior": replace(J, prior="standard", about="row j with the prior N(0, 1)"),
    "j-deep": replace(J, phi_prime=BAYES, about="row j after a Bayesian phi'"),
    "j-deep-invariant": replace(
        J, phi_prime=BAYES_INV, about="row j after a Bayesian invariant phi'"
    ),
    "ensemble": replace(
        ERM, uncertainty="ensemble", made_of="erm", about="deep ensemble: 5 runs of erm"
    ),
    "dropout": replace(ERM, uncertainty="dropout", about="erm with Monte Carlo dropout"),
    "laplace": replace(
        ERM, uncertainty="laplace", made_of="erm", about="erm, then a Gaussian around its psi"
    ),
}


def get_method(name: str) -> Method:
    """The method called `name`."""
    return choose("method", name, METHODS)
