"""What is gained by leaving the most uncertain images to a person? Imports no torch.

A threshold accepts the images that are no more uncertain than it. Their share is the coverage,
their error rate the risk.

Axes: n images, m distinct uncertainties.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesdg.errors import UsageError
from bayesdg.evaluate.arrays import Booleans, Floats, Integers, running_counts


@dataclass(frozen=True)
class Rejection:
    """One threshold and what it does on the images it was chosen on.

    Attributes:
        threshold: The largest uncertainty that is accepted.
        coverage: Share of images accepted, in 0..1.
        risk: Error rate among them, in 0..1.
    """

    threshold: float
    coverage: float
    risk: float


@dataclass(frozen=True)
class RiskCoverage:
    """The risk-coverage curve: one point for each threshold that makes a difference.

    Attributes:
        threshold: (m,) the distinct uncertainties, rising.
        accepted: (m,) how many images each accepts; the last accepts all n.
        errors: (m,) how many of them are wrong.
    """

    threshold: Floats
    accepted: Integers
    errors: Integers

    @property
    def coverage(self) -> Floats:
        """(m,) accepted / n, rising to 1."""
        return self.accepted / self.accepted[-1]

    @property
    def risk(self) -> Floats:
        """(m,) errors / accepted; the last is the error rate without rejection."""
        return self.errors / self.accepted

    def at_coverage(self, coverage: float) -> Rejection:
        """The lowest threshold that accepts at least this share of the images."""
        _check_share("coverage", coverage)
        return self._point(int(np.argmax(self.coverage >= coverage)))

    def at_risk(self, risk: float) -> Rejection | None:
        """The highest threshold with at most this risk; None if even the first has more."""
        _check_share("risk", risk)
        allowed = np.flatnonzero(self.risk <= risk)
        return self._point(int(allowed[-1])) if len(allowed) else None

    def _point(self, index: int) -> Rejection:
        arrays = (self.threshold, self.coverage, self.risk)
        return Rejection(*(float(values[index]) for values in arrays))


def risk_coverage(uncertainty: Floats, correct: Booleans) -> RiskCoverage:
    """The curve of (n,) uncertainties and (n,) whether the prediction is right."""
    threshold, accepted, right = running_counts(uncertainty, correct)
    return RiskCoverage(threshold, accepted, accepted - right)


def aurc(uncertainty: Floats, correct: Booleans) -> float:
    """Area under the risk-coverage curve, in 0..1: the mean risk over all coverages; low is good.

    1 / n sum_i E[errors among the i least uncertain] / i, the expectation being over the order of
    images that are equally uncertain. An uncertainty that knows nothing gives the error rate.

    Args:
        uncertainty: (n,), finite.
        correct: (n,), whether the prediction is right.

    >>> aurc(np.array([0.1, 0.2]), np.array([True, False]))
    0.25
    """
    curve = risk_coverage(uncertainty, correct)
    accepted = np.arange(1, len(correct) + 1)
    # Within equal uncertainties the expected number of errors grows evenly.
    errors = np.interp(accepted, [0, *curve.accepted], [0, *curve.errors])
    return float((errors / accepted).mean())


def coverage_at_risk(uncertainty: Floats, correct: Booleans, risk: float) -> float:
    """The largest share of images that a threshold accepts with at most this risk; 0 if none."""
    found = risk_coverage(uncertainty, correct).at_risk(risk)
    return 0.0 if found is None else found.coverage


def risk_at_coverage(uncertainty: Floats, correct: Booleans, coverage: float) -> float:
    """Error rate, in 0..1, of the lowest threshold that accepts at least this share of images."""
    return risk_coverage(uncertainty, correct).at_coverage(coverage).risk


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value}; a share from 0 to 1 is needed, such as 0.9")
