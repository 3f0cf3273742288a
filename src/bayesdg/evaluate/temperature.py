"""One number that makes a method as sure as it should be. Imports no torch.

Scaled are the log probabilities after averaging over draws, not the logits of each draw:

    log p_T(k) = log p(k) / T - log sum_j p(j)^(1/T)

Then no answer changes, only how sure it is; the loss has one minimum; a method that is too cautious
because its draws disagree can be made surer, which scaling each draw cannot do beyond the share of
votes; and whatever was stored can be scaled later. Without draws it is the temperature scaling that
everybody means (Guo et al., ICML 2017). Entropy, aleatoric and epistemic uncertainty stay what the
draws say, so that they add up.

Axes: n images, K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesdg.errors import DataError, NumericError, UsageError
from bayesdg.evaluate.arrays import Floats, Integers, answers

# Between these an optimum is looked for; what lies beyond is no calibration any more.
LOWEST, HIGHEST = 1e-3, 1e3


def tempered(log_probabilities: Floats, temperature: float) -> NDArray[np.float64]:
    """(n, K) log probabilities at a temperature: above 1 less sure, below 1 surer.

    >>> np.exp(tempered(np.log([[0.8, 0.2]]), 0.5)).round(4).tolist()
    [[0.9412, 0.0588]]
    """
    if not temperature > 0:
        raise UsageError(f"temperature is {temperature}; a number above 0 is needed")
    scaled = log_probabilities.astype(np.float64) / temperature
    scaled -= scaled.max(-1, keepdims=True)
    result: NDArray[np.float64] = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
    return result


def best_temperature(log_probabilities: Floats, labels: Integers) -> float:
    """The temperature with the lowest NLL on these images.

    The NLL is convex in 1 / T: looked for is where its slope changes sign.

    Args:
        log_probabilities: (n, K), finite.
        labels: (n,).
    """
    from scipy.optimize import brentq

    _, correct = answers(log_probabilities, labels)
    if not np.isfinite(log_probabilities).all():
        raise NumericError("a probability of zero has no temperature; are all logits finite?")
    if correct.all():
        raise DataError(
            f"all {len(labels)} images are classified right: the lower the temperature, the better "
            "it looks. More or harder validation images are needed; the rest can be fitted without"
        )
    log_p = log_probabilities.astype(np.float64)
    right = log_p[np.arange(len(labels)), labels].mean()

    def slope(log_temperature: float) -> float:
        """d NLL / d (1 / T): mean of E_{p_T}[log p] - log p(label)."""
        weights = np.exp(tempered(log_p, np.exp(log_temperature)))
        return float(np.einsum("ik,ik", weights, log_p) / len(log_p) - right)

    low, high = np.log(LOWEST), np.log(HIGHEST)
    if slope(high) >= 0:
        raise DataError(
            f"on {len(labels)} images the probabilities are no better than guessing, which no "
            "temperature mends"
        )
    if slope(low) <= 0:  # all mistakes are as good as ties, which no temperature decides
        return LOWEST
    return float(np.exp(brentq(slope, low, high, xtol=1e-12)))
