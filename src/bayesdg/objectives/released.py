"""The invariance terms as the released code computes them, where they differ from the paper.

Kept beside the exact ones so that its numbers can be reproduced (preset `released`).
Axes as in invariance.py: B target images, n source images, K classes, leading axes are draws.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdg.objectives.classes import ClassAverages
from bayesdg.objectives.precision import at_least_float32, no_autocast
from bayesdg.ranks import ALONE, Ranks


def released_categorical_invariance(
    target_logits: Tensor,
    target_labels: Tensor,
    source_logits: Tensor,
    source_labels: Tensor,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Sum over classes of Bernoulli KLs between range-normalised, draw-averaged predictions.

    Logits are divided by their range (max - min) first, which bounds the odds by e; softmax is
    averaged over draws; then every class is compared as a coin of its own. Still linear: a
    class enters through its mean log p and mean log (1 - p).

    Args:
        target_logits: (..., B, K), leading axes are draws.
        target_labels: (B,).
        source_logits: (..., n, K).
        source_labels: (n,).
        ranks: The processes that share the images.
    """
    sides = (target_logits, source_logits)
    classes = ClassAverages.of(target_labels, source_labels, target_logits.shape[-1], sides, ranks)
    with no_autocast(target_logits):
        p_t, p_i = _flattened(target_logits), _flattened(source_logits)
        log_p, log_q = p_i.log(), torch.log1p(-p_i)
        mean_log_p, mean_log_q = map(classes.at_target, classes.means(log_p, log_q))
        heads = p_t * (p_t.log() - mean_log_p)
        tails = (1 - p_t) * (torch.log1p(-p_t) - mean_log_q)
    return classes.average((heads + tails).sum(-1))


def _flattened(logits: Tensor) -> Tensor:
    """(..., R, K) logits -> (R, K) mean probabilities of the range-normalised logits."""
    logits = at_least_float32(logits)
    # Softmax knows differences only, so the largest may be 0: equal logits, whose range is 0,
    # then stay 0 and mean the uniform distribution.
    logits = logits - logits.amax(-1, keepdim=True)
    spread = -logits.amin(-1, keepdim=True)
    p = (logits / spread.clamp_min(torch.finfo(logits.dtype).tiny)).softmax(-1)
    return p.mean(tuple(range(p.dim() - 2))) if p.dim() > 2 else p
