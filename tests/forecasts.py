"""Log probabilities and labels to judge; numpy alone."""

import numpy as np


def guesses(num: int = 500, num_classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """(n, K) log probabilities, quite sure, and (n,) labels that they know nothing of."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(num, num_classes))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p, rng.integers(num_classes, size=num)


def calibrated(num: int, num_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """(n, K) log probabilities, and (n,) labels drawn from just these."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(num_classes), size=num)
    return np.log(p), (p.cumsum(-1) > rng.random((num, 1))).argmax(-1)
