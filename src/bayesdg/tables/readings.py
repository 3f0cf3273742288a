"""What a run reports under a rule of selection, or why it reports nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bayesdg.records import (
    TRAINED,
    DetectionRecord,
    Metrics,
    ResultRecord,
    StepRecord,
    detections_of,
    results_of,
)
from bayesdg.selection import Rule, chosen_step
from bayesdg.stored_runs import StoredRun
from bayesdg.tables.measures import detection

Role = Literal["target", "source", "val"]


@dataclass(frozen=True)
class Reading:
    """The numbers of a run at the chosen step.

    Attributes:
        step: The chosen one.
        draws: Weight draws that made them.
        asked: Weight draws that were asked for: members of an ensemble answer whatever it is.
        domains: Role -> metrics by domain: 'target' and 'source' on test images, 'val' on the
            sources' validation images.
        detections: What tells errors, new domains and unknown classes apart.
        tests: Number of draws -> metrics by domain, where that was asked for.
        statistics: Of batch norm, that made them.
        problem: Why there is nothing.
    """

    step: int = 0
    draws: int = 0
    asked: int = 0
    domains: Mapping[Role, Metrics] = field(default_factory=dict)
    detections: tuple[DetectionRecord, ...] = ()
    tests: Mapping[int, Metrics] = field(default_factory=dict)
    statistics: str = TRAINED
    problem: str = ""

    def mean(self, metric: str, role: Role = "target") -> float | str:
        """Over the domains of a role, which weigh the same; or why there is no number."""
        if self.problem:
            return self.problem
        wanted = detection(metric)
        if wanted is not None:
            task, kind, score = wanted
            found = [
                record.metrics.get(kind)
                for record in self.detections
                if (record.task, record.score) == (task, score)
            ]
            return _mean(found, f"{metric} was not computed")
        if metric == "milliseconds":
            return self.under(self.asked, metric)
        metrics = self.domains.get(role, {}).values()
        lacks = f"{metric} was not computed" if metrics else self.lacking(role)
        return _mean([domain.get(metric) for domain in metrics], lacks)

    def lacking(self, role: Role) -> str:
        """Why nothing is known of a role at the chosen step."""
        if self.statistics != TRAINED:
            return f"not evaluated with {self.statistics} statistics at step {self.step:,}"
        if role == "target":
            return f"nothing of the target is recorded at step {self.step:,}"
        return f"test images of the sources were not evaluated at step {self.step:,}"

    def under(self, draws: int, metric: str) -> float | str:
        """The mean over targets under a number of draws; or why there is none."""
        metrics = self.tests.get(draws, {}).values()
        lacks = "not timed" if metric == "milliseconds" else f"not tested with {draws} draws"
        return self.problem or _mean([domain.get(metric) for domain in metrics], lacks)


def read_under(run: StoredRun, rule: Rule, statistics: str = TRAINED) -> Reading:
    """What the run reports under the rule, with these statistics of batch norm and no others.

    What was recorded along the way and under several numbers of draws is ordinary.
    """
    if not run.is_trained:
        return Reading(problem=f"at step {run.last_step:,} of {run.settings.training.steps:,}")
    step = chosen_step(run.steps, rule)
    if step is None:
        lacks = "the target was not watched along the way (training.evaluate_target = along)"
        return Reading(problem=lacks if rule.peeked else "no validation was a number")
    tested = results_of(run.records, statistics)
    draws = _reported_draws(run, tested)
    results = [r for r in tested if (r.step, r.draws) == (step.step, draws)]
    detections = [
        record
        for record in detections_of(run.records, statistics)
        if (record.step, record.draws) == (step.step, draws)
    ]
    domains: dict[Role, Metrics] = {
        "target": _by_domain(results, "target", "test"),
        "source": _by_domain(results, "source", "test"),
        "val": _by_domain(results, "source", "val"),
    }
    if statistics == TRAINED:
        domains["target"] = domains["target"] or step.target_test or {}
        domains["source"] = domains["source"] or step.source_test or {}
        domains["val"] = step.source_val or {}
    asked = run.settings.prediction.draws if run.settings.row.is_bayesian else 0
    tests = _tests(run, step, tested, with_times=statistics == TRAINED)
    return Reading(step.step, draws, asked, domains, tuple(detections), tests, statistics)


def _reported_draws(run: StoredRun, tested: Iterable[ResultRecord]) -> int:
    """Those of the settings, or none where no weight has a distribution."""
    found = {record.draws for record in tested}
    wanted = run.settings.prediction.draws
    return wanted if wanted in found or not found else max(found)


def _by_domain(results: Iterable[ResultRecord], role: str, part: str) -> Metrics:
    return {r.domain: r.metrics for r in results if (r.role, r.part) == (role, part)}


def _tests(
    run: StoredRun, step: StepRecord, tested: Iterable[ResultRecord], with_times: bool
) -> dict[int, dict[str, dict[str, float | None]]]:
    """By number of draws: what was tested with each, if the step is the one whose weights are kept.

    Times are in milliseconds an image; who was timed was asked as it was trained.
    """
    tests: dict[int, dict[str, dict[str, float | None]]] = {}
    for result in tested:
        if (result.role, result.step) == ("target", step.step):
            tests.setdefault(result.draws, {})[result.domain] = dict(result.metrics)
    kept = [record.step for record in run.steps if record.best][-1:]
    for test in run.tests if with_times and kept == [step.step] else ():
        metrics = {**test.metrics, "milliseconds": 1000 * test.seconds / test.num_images}
        tests.setdefault(test.draws, {})[test.domain] = metrics
    return tests


def _mean(values: Iterable[float | None], why: str) -> float | str:
    found = list(values)
    if not found or any(value is None for value in found):
        return why
    numbers = [value for value in found if value is not None]
    if not all(map(math.isfinite, numbers)):
        return "no number"
    return math.fsum(numbers) / len(numbers)
