"""How well drawn classifiers explain the labels.

Axes: S draws (any number of leading axes is allowed), B target images, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from bayesdg.objectives.classes import check_labels
from bayesdg.objectives.precision import at_least_float32


def elbo(logits: Tensor, labels: Tensor) -> Tensor:
    """-1/S sum_s log p(y | x, draw s), averaged over images: eq. 11 as printed.

    Args:
        logits: (..., B, K), one leading index per draw.
        labels: (B,).
    """
    return -_log_likelihood(logits, labels).mean()


def marginal(logits: Tensor, labels: Tensor) -> Tensor:
    """-log 1/S sum_s p(y | x, draw s), averaged over images: what the released code minimises.

    By Jensen's inequality never above `elbo`; equal to it for a single draw.

    Args:
        logits: (..., B, K), one leading index per draw.
        labels: (B,).
    """
    log_p = _log_likelihood(logits, labels).reshape(-1, labels.shape[0])
    return (math.log(log_p.shape[0]) - log_p.logsumexp(0)).mean()


def _log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """log p(y | x, draw), (..., B), in float32 or better."""
    check_labels("labels", labels, "logits", logits)
    log_p = functional.log_softmax(at_least_float32(logits), dim=-1)
    index = labels.expand(log_p.shape[:-1]).unsqueeze(-1)
    return log_p.gather(-1, index).squeeze(-1)


LIKELIHOODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"elbo": elbo, "marginal": marginal}
