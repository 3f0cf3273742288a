"""What is fitted after training, on validation images of the sources: one small file of a run.

A temperature, a threshold for sets of classes, a threshold beyond which a picture is left to a
person. Each is there or not. They hold for the weights and the number of draws they were fitted
for. Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bayesdg.errors import DataError, StoredRunError, UsageError
from bayesdg.evaluate.arrays import Booleans, Floats, Integers, answers
from bayesdg.evaluate.conformal import conformal_threshold, prediction_sets, set_metrics
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.rejection import Rejection, risk_coverage
from bayesdg.evaluate.stored import PredictedPart
from bayesdg.evaluate.temperature import best_temperature, tempered
from bayesdg.records import write_text

FILE = "recalibration.json"
# What a picture may be rejected by; names as in Predictions.
Uncertainty = Literal[
    "entropy", "aleatoric", "epistemic", "variation_ratio", "energy", "error_probability"
]
Share = Annotated[float, Field(ge=0, le=1)]


class Checked(BaseModel):
    """Frozen, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Wanted(Checked):
    """What is to be fitted.

    Attributes:
        temperature: Whether.
        conformal: How often a set should hold the right class.
        coverage: Share of pictures to accept, at least; or
        risk: Error rate among the accepted ones, at most.
        reject_by: An uncertainty.
    """

    temperature: bool = True
    conformal: Annotated[float, Field(gt=0, lt=1)] | None = None
    coverage: Share | None = None
    risk: Share | None = None
    reject_by: Uncertainty = "entropy"


def wanted_from(values: Mapping[str, object]) -> Wanted:
    """What is to be fitted, from plain values; one line if they are wrong."""
    try:
        wanted = Wanted.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"{name} is {first['input']!r}: {first['msg']}") from None
    if wanted.coverage is not None and wanted.risk is not None:
        raise UsageError("coverage and risk decide each other; give one of them")
    if wanted.reject_by != "entropy" and wanted.coverage is None and wanted.risk is None:
        raise UsageError(f"reject-by {wanted.reject_by} decides nothing without coverage or risk")
    return wanted


class Sets(Checked):
    """See conformal.py."""

    level: Annotated[float, Field(gt=0, lt=1)]
    threshold: Annotated[float, Field(ge=0)]


class Rejecting(Checked):
    """A picture whose `score` is above the threshold is rejected; what that gave in the fit."""

    score: Uncertainty
    threshold: float
    wanted: str
    coverage: Share
    risk: Share


class Recalibration(Checked):
    """What was fitted, and for what.

    Attributes:
        weights: Their sha256.
        draws: Weight draws; 0 for the mean weights.
        domains: Whose validation images were used.
        num_images: How many they were.
        temperature: See temperature.py.
        sets: See conformal.py; of the probabilities after the temperature.
        rejection: By an uncertainty; a temperature changes 'error_probability' and no other.
    """

    format: Literal[1] = 1
    weights: str
    draws: Annotated[int, Field(ge=0)]
    domains: tuple[str, ...]
    num_images: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(gt=0)] | None = None
    sets: Sets | None = None
    rejection: Rejecting | None = None

    def log_probabilities(self, raw: Floats) -> Floats:
        """(n, K) after the temperature, if there is one."""
        return raw if self.temperature is None else tempered(raw, self.temperature)

    def in_sets(self, log_probabilities: Floats) -> Booleans:
        """(n, K): which classes are in the set of each image, after the temperature."""
        if self.sets is None:
            raise UsageError("no sets were fitted; bayesdg calibrate RUN --conformal 0.9 does it")
        return prediction_sets(log_probabilities, self.sets.threshold)

    def metrics(self, part: PredictedPart) -> dict[str, float]:
        """What comes of it on a part with labels: every metric after the temperature, how often
        sets hold the right class and how large they are, how much is accepted at which risk."""
        found: dict[str, float] = {}
        log_p = self.log_probabilities(part.log_probabilities)
        if self.temperature is not None:
            found |= {name: f(log_p, part.labels) for name, f in METRICS.items()}
        if self.sets is not None:
            found |= set_metrics(self.in_sets(log_p), part.labels)
        if self.rejection is not None:
            score = uncertainty_of(self.rejection.score, log_p, part.scores)
            accepted = score <= self.rejection.threshold
            _, correct = answers(part.log_probabilities, part.labels)
            found["accepted"] = float(accepted.mean())
            if accepted.any():
                found["accepted_risk"] = float(1 - correct[accepted].mean())
        return found


def uncertainty_of(
    name: Uncertainty, log_probabilities: Floats, scores: Mapping[str, Floats]
) -> Floats:
    """(n,) by which to reject, from (n, K) after the temperature and what the draws gave."""
    return 1 - np.exp(log_probabilities.max(-1)) if name == "error_probability" else scores[name]


def fitted(
    log_probabilities: Floats, scores: Mapping[str, Floats], labels: Integers, wanted: Wanted
) -> tuple[float | None, Sets | None, Rejecting | None]:
    """Temperature, sets and rejection, each if it is wanted.

    All are fitted to the same images, which have chosen the step of training, too. For few numbers
    on hundreds of images that matters little, but the promise of the sets is exact only for images
    that decided nothing before.

    Args:
        log_probabilities: (n, K).
        scores: Uncertainties by name, (n,) each.
        labels: (n,).
        wanted: What.
    """
    temperature = best_temperature(log_probabilities, labels) if wanted.temperature else None
    log_p = log_probabilities if temperature is None else tempered(log_probabilities, temperature)
    sets = None
    if wanted.conformal is not None:
        threshold = conformal_threshold(log_p, labels, wanted.conformal)
        sets = Sets(level=wanted.conformal, threshold=threshold)
    return temperature, sets, _rejection(log_p, scores, labels, wanted)


def _rejection(
    log_probabilities: Floats, scores: Mapping[str, Floats], labels: Integers, wanted: Wanted
) -> Rejecting | None:
    if wanted.coverage is None and wanted.risk is None:
        return None
    _, correct = answers(log_probabilities, labels)
    curve = risk_coverage(uncertainty_of(wanted.reject_by, log_probabilities, scores), correct)
    found: Rejection | None
    if wanted.coverage is not None:
        name, found = f"coverage {wanted.coverage:g}", curve.at_coverage(wanted.coverage)
    else:
        assert wanted.risk is not None
        name, found = f"risk {wanted.risk:g}", curve.at_risk(wanted.risk)
    if found is None:
        raise DataError(
            f"no threshold on {wanted.reject_by} has a risk of {wanted.risk:g} on source "
            f"validation; the lowest is {float(np.min(curve.risk)):.3g}"
        )
    return Rejecting(score=wanted.reject_by, wanted=name, **dataclasses.asdict(found))


def write_recalibration(run: Path, found: Recalibration) -> None:
    """Into the run's folder, in place of an earlier one."""
    write_text(run / FILE, found.model_dump_json(indent=2) + "\n")


def read_recalibration(run: Path, weights: str | None = None) -> Recalibration | None:
    """What a run's folder has, None if nothing; of weights with this sha256, if it is given."""
    path = run / FILE
    remedy = f"bayesdg calibrate {run} fits it anew, or remove it"
    try:
        found = Recalibration.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoredRunError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "as a whole"
        raise StoredRunError(f"{path} is damaged: {where}: {first['msg']}; {remedy}") from None
    if weights is not None and found.weights != weights:
        raise StoredRunError(f"{path} was fitted for other weights; {remedy}")
    return found
