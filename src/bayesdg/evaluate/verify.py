"""Are reported figures what the stored predictions give? Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bayesdg.errors import BayesdgError, StoredRunError
from bayesdg.evaluate.recalibration import FILE, Recalibration, read_recalibration
from bayesdg.evaluate.scoring import detections, part_metrics
from bayesdg.evaluate.stored import PredictedPart, predictions_path, read_predictions, stored_kinds
from bayesdg.records import TRAINED, DetectionRecord, ResultRecord
from bayesdg.stored_runs import StoredRun

# A figure of single-precision predictions may be off by so much of itself on another processor.
ROUNDING = float(np.finfo(np.float32).eps) * 8
# Before the names of figures after a recalibration.
RECALIBRATED = "recalibrated "
Reported: TypeAlias = ResultRecord | DetectionRecord


@dataclass(frozen=True)
class Verdict:
    """On one run.

    Attributes:
        num_exact: Figures that are the same to the last bit.
        num_rounded: Figures that differ by no more than rounding in single precision.
        problems: Figures that differ or were left out, records that are of another run, and
            predictions that are not there or damaged, a line each.
    """

    num_exact: int
    num_rounded: int
    problems: tuple[str, ...]


def verify(run: StoredRun) -> Verdict:
    """Compute every figure that was reported anew, from the predictions beside it.

    Those after a recalibration by what the run has now: of an earlier one they are not confirmed.
    """
    reported = [r for r in run.records if isinstance(r, ResultRecord | DetectionRecord)]
    num_exact = num_rounded = 0
    problems = _of_another_run(run, reported)
    fit = None
    try:
        if any(isinstance(record, ResultRecord) and record.recalibrated for record in reported):
            fit = read_recalibration(run.path)
    except BayesdgError as error:
        problems.append(str(error))
    kinds = {(record.draws, record.statistics) for record in reported}
    for draws, statistics in sorted(kinds | set(stored_kinds(run.path))):
        records = [r for r in reported if (r.draws, r.statistics) == (draws, statistics)]
        path = predictions_path(run.path, draws, statistics)
        how = f"{draws} draws" + (f", {statistics} statistics" if statistics != TRAINED else "")
        if not path.exists():
            problems.append(f"no {path.relative_to(run.path)}: {_count(records)} not verified")
            continue
        try:
            fits = fit is not None and (fit.draws, TRAINED) == (draws, statistics)
            found = recomputed(read_predictions(path), fit if fits else None)
        except BayesdgError as error:
            problems.append(f"{error}: {_count(records)} not verified")
            continue
        problems += [f"{text}, {how}" for text in _left_out(records, found)]
        after: list[str] = []
        for name, was, now in _pairs(records, found):
            if now is not None and was == now:
                num_exact += 1
            elif now is not None and abs(was - now) <= ROUNDING * max(abs(was), abs(now)):
                num_rounded += 1
            else:
                problem = f"{name}, {how}: recorded {was!r}, " + (
                    "the predictions do not have it" if now is None else f"recomputed {now!r}"
                )
                (after if name.startswith(RECALIBRATED) else problems).append(problem)
        if after:  # all at once, where it was fitted anew since
            problems.append(
                f"{len(after):,} figures are not what {FILE} gives, such as {after[0]}; after "
                "another bayesdg calibrate, bayesdg evaluate renews them"
            )
    return Verdict(num_exact, num_rounded, tuple(problems))


def recomputed(
    parts: Sequence[PredictedPart], recalibration: Recalibration | None = None
) -> dict[tuple[str, ...], dict[str, float]]:
    """All figures that the predictions of one number of draws give, by what they are about."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    unknown = {part.key.domain: len(part) for part in parts if part.key.part == "unknown"}
    for part in parts:
        key = part.key
        if key.role != "other" and key.part != "unknown":
            counts = {"images": len(part), "excluded images": unknown.get(key.domain, 0)}
            after = recalibration.metrics(part) if recalibration else {}
            found[key.domain, key.role, key.part] = {
                **counts, **part_metrics(part), **_renamed(after)
            }  # fmt: skip
    for each in detections(parts):
        counts = {"positive images": each.num_positive, "negative images": each.num_negative}
        found[each.domain, each.task, each.score] = {**counts, **each.metrics}
    return found


def _pairs(
    records: Sequence[Reported], found: Mapping[tuple[str, ...], Mapping[str, float]]
) -> Iterator[tuple[str, float, float | None]]:
    """What each reported figure is called, as it was, and as it is now."""
    for record in records:
        about = _about(record)
        for name, value in _figures(record).items():
            yield f"{name} of {', '.join(about)}", value, found.get(about, {}).get(name)


def _of_another_run(run: StoredRun, records: Sequence[Reported]) -> list[str]:
    """What records say of the run itself and the run does not."""
    kept = [step.step for step in run.steps if step.best]
    ours: dict[str, object] = {
        "dataset": run.task.dataset,
        "method": run.settings.method,
        "preset": run.settings.preset,
        "seed": run.settings.seed,
    }
    if kept:
        ours["step"] = kept[-1]
    told: dict[str, None] = {}
    for record in records:
        for name, value in ours.items():
            if getattr(record, name) != value:
                where = ", ".join(_about(record))
                told[
                    f"{name} of {where}: recorded {getattr(record, name)!r}, the run's {value!r}"
                ] = None
    return list(told)


def _left_out(
    records: Sequence[Reported], found: Mapping[tuple[str, ...], Mapping[str, float]]
) -> Iterator[str]:
    """What predictions give and nobody reported: without its worst domain a run looks better.

    A score or a metric that no record has is of a later version than the run.
    """
    there = {_about(record) for record in records}
    scores = {record.score for record in records if isinstance(record, DetectionRecord)}
    for about in found:
        is_result = about[1] in ("source", "target")
        if about not in there and (is_result or about[2] in scores):
            yield f"{', '.join(about)}: the predictions have it, and no record"
    for kind in (ResultRecord, DetectionRecord):
        alike = [record for record in records if isinstance(record, kind)]
        names = {name for record in alike for name in record.metrics}
        for record in alike:
            for name in sorted(names - record.metrics.keys()):
                if name in found.get(_about(record), {}):
                    yield f"{name} of {', '.join(_about(record))}: no record, as others have"


def _about(record: Reported) -> tuple[str, ...]:
    if isinstance(record, ResultRecord):
        return record.domain, record.role, record.part
    return record.domain, record.task, record.score


def _figures(record: Reported) -> dict[str, float]:
    if isinstance(record, ResultRecord):
        counts = {"images": record.num_images, "excluded images": record.num_excluded}
        return {**counts, **record.metrics, **_renamed(record.recalibrated or {})}
    counts = {"positive images": record.num_positive, "negative images": record.num_negative}
    return {**counts, **record.metrics}


def _renamed(recalibrated: Mapping[str, float]) -> dict[str, float]:
    return {RECALIBRATED + name: value for name, value in recalibrated.items()}


def _count(records: Sequence[Reported]) -> str:
    return f"{sum(len(_figures(record)) for record in records):,} figures"


def require_agreement(verdicts: Mapping[str, Verdict], unread: Sequence[str]) -> None:
    """StoredRunError if anything could not be confirmed."""
    bad = [name for name, verdict in verdicts.items() if verdict.problems]
    if bad or unread:
        num = len(verdicts) + len(unread)
        raise StoredRunError(f"{len(bad) + len(unread)} of {num} runs could not be confirmed")
