"""Domain invariance: how far target images are from source images of their class.

Every function returns the mean over target images t of the mean over source images i of the same
class of a divergence D(t, i). Taken literally that is one value per pair. In the divergences
here the source side enters only through averages over its class, so those averages are computed
once and no pair is formed: time and memory are linear in the number of images.

Axes: B target images, n source images, K classes, D features; leading axes are draws.

Where several processes share the images, `ranks` says so; the average of their results is then that
of one process with all images, and so is the average of the gradients.

A class without source images contributes nothing, and the mean runs over the target images that
have a counterpart; without any the result is 0, never NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from bayesdg.objectives.classes import ClassAverages, check_labels, mean_over_matched
from bayesdg.objectives.precision import at_least_float32, no_autocast
from bayesdg.ranks import ALONE, Ranks


def gaussian_invariance(
    target_mean: Tensor,
    target_var: Tensor,
    target_labels: Tensor,
    source_mean: Tensor,
    source_var: Tensor,
    source_labels: Tensor,
    num_classes: int | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Mean KL[N(g_t, v_t) || N(g_i, v_i)] between diagonal Gaussians, summed over D (eq. 9).

    With a = mean 1/v_i, b = mean g_i/v_i, c = mean g_i^2/v_i and l = mean log v_i over a class,
    the mean over its images is 1/2 sum_d [l - log v_t - 1 + (v_t + g_t^2) a - 2 g_t b + c].
    All g are first shifted by the class's precision-weighted mean b/a. That changes nothing in
    exact arithmetic and keeps the three last terms from cancelling when means are far from 0.

    Args:
        target_mean: (..., B, D).
        target_var: (..., B, D), positive.
        target_labels: (B,).
        source_mean: (..., n, D).
        source_var: (..., n, D), positive.
        source_labels: (n,).
        num_classes: K; without it the labels are searched, which waits for a GPU.
        ranks: The processes that share the images.

    Returns:
        A scalar, averaged over the leading axes as well.
    """
    classes = ClassAverages.of(
        target_labels, source_labels, num_classes, (target_mean, source_mean), ranks
    )
    g_t, v_t = at_least_float32(target_mean), at_least_float32(target_var)
    g_i, v_i = at_least_float32(source_mean), at_least_float32(source_var)
    with no_autocast(g_t):
        precision = v_i.reciprocal()
        with torch.no_grad():
            a, b = classes.means(precision, g_i * precision)
            shift = b / a.masked_fill(~classes.present, 1.0)
        g_t = g_t - classes.at_target(shift)
        g_i = g_i - classes.at_source(shift)
        weighted = g_i * precision
        averages = classes.means(precision, weighted, weighted * g_i, v_i.log())
        a, b, c, log_v = (classes.at_target(statistic) for statistic in averages)
        kl = 0.5 * (log_v - v_t.log() - 1 + (v_t + g_t.square()) * a - 2 * g_t * b + c).sum(-1)
    return classes.average(kl)


def categorical_invariance(
    target_logits: Tensor,
    target_labels: Tensor,
    source_logits: Tensor,
    source_labels: Tensor,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Mean KL[p_t || p_i] between predictions under the same draw, summed over K (eq. 7).

    The mean over a class is sum_k p_t log p_t - sum_k p_t * mean_i log p_i.

    Args:
        target_logits: (..., B, K), leading axes are draws.
        target_labels: (B,).
        source_logits: (..., n, K), the same draws.
        source_labels: (n,).
        ranks: The processes that share the images.

    Returns:
        A scalar, averaged over draws as well.
    """
    sides = (target_logits, source_logits)
    classes = ClassAverages.of(target_labels, source_labels, target_logits.shape[-1], sides, ranks)
    with no_autocast(target_logits):
        log_p_t = functional.log_softmax(at_least_float32(target_logits), dim=-1)
        log_p_i = functional.log_softmax(at_least_float32(source_logits), dim=-1)
        mean_log_p = classes.at_target(classes.mean(log_p_i))
        # A class of probability 0 (logit -inf) counts 0 log 0 = 0.
        ratio = (log_p_t - mean_log_p).masked_fill(log_p_t == -torch.inf, 0.0)
        kl = (log_p_t.exp() * ratio).sum(-1)
    return classes.average(kl)


def squared_distance(
    target: Tensor,
    target_labels: Tensor,
    source: Tensor,
    source_labels: Tensor,
    num_classes: int | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Mean 1/2 |g_t - g_i|^2: the deterministic twin of eq. 9, linear in the number of images.

    It is the Gaussian divergence with all variances 1.

    Args:
        target: (..., B, D).
        target_labels: (B,).
        source: (..., n, D).
        source_labels: (n,).
        num_classes: K; without it the labels are searched, which waits for a GPU.
        ranks: The processes that share the images.
    """
    ones = torch.ones((), dtype=target.dtype, device=target.device)
    return gaussian_invariance(
        target,
        ones.expand_as(target),
        target_labels,
        source,
        ones.expand_as(source),
        source_labels,
        num_classes,
        ranks,
    )


def euclidean_distance(
    target: Tensor,
    target_labels: Tensor,
    source: Tensor,
    source_labels: Tensor,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Mean |g_t - g_i|: the deterministic twin with the plain L2 distance.

    The root ties the two sides together, so this one needs all B x n distances (numbers, not
    vectors: D is not part of the memory), and every process all source features.

    Args:
        target: (..., B, D).
        target_labels: (B,).
        source: (..., n, D).
        source_labels: (n,).
        ranks: The processes that share the images.
    """
    target, source = at_least_float32(target), at_least_float32(source)
    check_labels("target_labels", target_labels, "target", target)
    check_labels("source_labels", source_labels, "source", source)
    source = ranks.gather(source)
    source_labels = ranks.gather(source_labels.unsqueeze(-1)).squeeze(-1)
    same = target_labels.unsqueeze(-1) == source_labels
    with no_autocast(target):
        # The matrix-product shortcut of cdist cancels when features are far from zero.
        distance = torch.cdist(target, source, compute_mode="donot_use_mm_for_euclid_dist")
        count = same.sum(-1)
        mean = (distance * same).sum(-1) / count.clamp_min(1)
    return mean_over_matched(mean, count > 0, ranks)
