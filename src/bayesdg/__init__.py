"""Bayesian domain generalization: classifiers for unseen domains that say how sure they are.

Names are imported when they are first used, because torch takes seconds to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesdg.lazy import lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bayesdg.bayes import BayesLinear, GaussianPrior, ScaleMixturePrior
    from bayesdg.data import Domain, DomainDataset, ImageSet, load_dataset
    from bayesdg.methods import METHODS
    from bayesdg.objectives import categorical_invariance, gaussian_invariance
    from bayesdg.presets import preset
    from bayesdg.settings import Settings
    from bayesdg.training.run import Run, load_run
    from bayesdg.training.train import train

_HOME = {
    "BayesLinear": "bayesdg.bayes",
    "GaussianPrior": "bayesdg.bayes",
    "ScaleMixturePrior": "bayesdg.bayes",
    "Domain": "bayesdg.data",
    "DomainDataset": "bayesdg.data",
    "ImageSet": "bayesdg.data",
    "load_dataset": "bayesdg.data",
    "METHODS": "bayesdg.methods",
    "categorical_invariance": "bayesdg.objectives",
    "gaussian_invariance": "bayesdg.objectives",
    "Settings": "bayesdg.settings",
    "preset": "bayesdg.presets",
    "Run": "bayesdg.training.run",
    "load_run": "bayesdg.training.run",
    "train": "bayesdg.training.train",
}

__all__ = [
    "METHODS",
    "BayesLinear",
    "Domain",
    "DomainDataset",
    "GaussianPrior",
    "ImageSet",
    "Run",
    "ScaleMixturePrior",
    "Settings",
    "__version__",
    "categorical_invariance",
    "gaussian_invariance",
    "load_dataset",
    "load_run",
    "preset",
    "train",
]


__getattr__ = lazy(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
