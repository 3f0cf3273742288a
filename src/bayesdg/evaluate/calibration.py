"""Does it happen as often as the probabilities say? Imports no torch.

Every figure here compares, within bins of similar probability, the mean probability with the share
of images on which the event came true. A value of few images is biased upwards, the more the more
bins there are: compare it between methods on the same images.

Axes: n images, K classes, b bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesdg.errors import UsageError
from bayesdg.evaluate.arrays import Booleans, Floats, Integers, answers, check_predictions

NUM_BINS = 15


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Bins of similar confidence, from low to high.

    Attributes:
        confidence: (b,) mean probability of the images in a bin; NaN where there are none.
        accuracy: (b,) share of them that came true; NaN where there are none.
        count: (b,) how many they are.
    """

    confidence: Floats
    accuracy: Floats
    count: Integers

    @property
    def gap(self) -> Floats:
        """(b,) |confidence - accuracy|; 0 in an empty bin."""
        return np.nan_to_num(np.abs(self.confidence - self.accuracy))

    @property
    def share(self) -> Floats:
        """(b,) n_b / n; sums to 1."""
        return self.count / self.count.sum()

    @property
    def error(self) -> float:
        """sum_b n_b / n |confidence_b - accuracy_b|, in 0..1."""
        return float(self.share @ self.gap)


def reliability_diagram(
    log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS
) -> ReliabilityDiagram:
    """Confidence, the largest probability, against accuracy in bins of equal width.

    Args:
        log_probabilities: (n, K).
        labels: (n,).
        num_bins: Bins of confidence, (low, high], over [0, 1].
    """
    return _equal_width(*answers(log_probabilities, labels), num_bins)


def ece(log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal width, in 0..1.

    sum_b n_b / n |confidence_b - accuracy_b|, confidence being the largest probability.
    Arguments as in `reliability_diagram`.
    """
    return reliability_diagram(log_probabilities, labels, num_bins).error


def ece_mass(log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal numbers of images, in 0..1.

    The formula of `ece`, with bins where the images are: confident classifiers have nearly all in
    the last bin of equal width. Images of the same confidence share a bin.
    """
    confidence, correct = answers(log_probabilities, labels)
    # An image's bin is b times the share of images that are less confident, rounded down.
    rank = np.searchsorted(np.sort(confidence), confidence)
    return _diagram(confidence, correct, rank * _checked(num_bins) // len(labels), num_bins).error


def mce(log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS) -> float:
    """Maximum calibration error: max_b |confidence_b - accuracy_b|, in 0..1.

    Over bins of equal width that hold an image. A bin of one image counts as much as one of
    a thousand, so this is the noisiest of the figures.
    """
    return float(reliability_diagram(log_probabilities, labels, num_bins).gap.max())


def classwise_ece(log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS) -> float:
    """Calibration error of every class's probability, not of the largest alone, in 0..1.

    1 / K sum_k sum_b n_kb / n |p_kb - y_kb|: mean probability of class k and share of images of
    class k, among the images whose probability of class k is in bin b (equal width).
    """
    check_predictions(log_probabilities, labels)
    probabilities = np.exp(log_probabilities.astype(np.float64))
    errors = [_equal_width(p, labels == k, num_bins).error for k, p in enumerate(probabilities.T)]
    return float(np.mean(errors))


@dataclass(frozen=True)
class BrierDecomposition:
    """reliability - resolution + uncertainty + within_bins = Brier score, exactly.

    Attributes:
        reliability: How far the probabilities of a bin are from what happens; 0 is best.
        resolution: How far what happens in a bin is from what happens overall; high is good.
        uncertainty: Brier score of the class frequencies: of the images, not of the classifier.
        within_bins: What is lost by taking the probabilities of a bin for equal; of either sign.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float


def brier_decomposition(
    log_probabilities: Floats, labels: Integers, num_bins: int = NUM_BINS
) -> BrierDecomposition:
    """What the Brier score is made of (Murphy 1973; Stephenson et al. 2008), summed over classes.

    With the bins b of the probability p of each class, means p_b and frequencies y_b in them, and
    the frequency y of the class:

        reliability = sum_b n_b / n (p_b - y_b)^2
        resolution  = sum_b n_b / n (y_b - y)^2
        uncertainty = y (1 - y)
        within_bins = 1 / n sum_i [(p_i - p_b)^2 - 2 (p_i - p_b) (y_i - y_b)]

    Args:
        log_probabilities: (n, K).
        labels: (n,).
        num_bins: Bins of equal width.
    """
    check_predictions(log_probabilities, labels)
    probabilities = np.exp(log_probabilities.astype(np.float64))
    parts = [_decompose(p, labels == k, num_bins) for k, p in enumerate(probabilities.T)]
    return BrierDecomposition(*np.sum(parts, axis=0).tolist())


def _decompose(
    probability: Floats, outcome: Booleans, num_bins: int
) -> tuple[float, float, float, float]:
    """The four parts for one class; both arrays are (n,)."""
    bins = _bins(probability, num_bins)
    diagram = _diagram(probability, outcome, bins, num_bins)
    share, frequency = diagram.share, float(outcome.mean())
    spread = probability - diagram.confidence[bins]
    noise = outcome - diagram.accuracy[bins]
    return (
        float(share @ diagram.gap**2),
        float(share @ np.nan_to_num(diagram.accuracy - frequency) ** 2),
        frequency * (1 - frequency),
        float((spread**2 - 2 * spread * noise).mean()),
    )


def _equal_width(probability: Floats, outcome: Booleans, num_bins: int) -> ReliabilityDiagram:
    return _diagram(probability, outcome, _bins(probability, num_bins), num_bins)


def _bins(probability: Floats, num_bins: int) -> Integers:
    """(n,) number of the bin (low, high] of equal width; a probability of 0 is in the first."""
    bins = np.ceil(probability * _checked(num_bins)).astype(int) - 1
    return np.clip(bins, 0, num_bins - 1)


def _diagram(
    probability: Floats, outcome: Booleans, bins: Integers, num_bins: int
) -> ReliabilityDiagram:
    """Means over the images of each bin; all arguments are (n,)."""
    count = np.bincount(bins, minlength=num_bins)
    sums = (np.bincount(bins, values, minlength=num_bins) for values in (probability, outcome))
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin is the NaN it should be
        confidence, accuracy = (total / count for total in sums)
    return ReliabilityDiagram(confidence, accuracy, count)


def _checked(num_bins: int) -> int:
    if num_bins < 1:
        raise UsageError(f"num_bins is {num_bins}; at least 1 is needed")
    return num_bins
