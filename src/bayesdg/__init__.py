"""Bayesian domain generalization: classifiers for unseen domains that say how sure they are."""

__version__ = "0.1.0"
