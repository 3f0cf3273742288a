"""Which weights of a run, and which settings of a method, are reported: pure functions of records.

A rule can be applied to records at any time, without training again. Two of them look at the
target; whatever is made with them says so. Imports no torch.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bayesdg.records import Metrics, StepRecord, mean_accuracy
from bayesdg.stored_runs import StoredRun

Score: TypeAlias = Callable[[StepRecord], float | None]


@dataclass(frozen=True)
class Rule:
    """How one step of a run is chosen.

    Attributes:
        score: How good a step is; None where that was not recorded. The best one is chosen, the
            latest among equals.
        about: One line.
        peeked: What of the target was looked at; '' if nothing was.
        over_runs: Whether settings are chosen, too, by other runs.
    """

    score: Score
    about: str
    peeked: str = ""
    over_runs: bool = False


def source_val(step: StepRecord) -> float | None:
    """Mean accuracy over the source domains' validation images."""
    return step.val_accuracy


def number(step: StepRecord) -> float | None:
    """The step's own number: the last one is best."""
    return step.step


def target_test(step: StepRecord) -> float | None:
    """Mean accuracy over the targets' test images."""
    return mean_accuracy(step.target_test)


def all_val(step: StepRecord) -> float | None:
    """Accuracy on the validation images of sources and targets, thrown together."""
    if step.source_val is None or step.target_val is None:
        return None
    return pooled_accuracy({**step.source_val, **step.target_val})


def pooled_accuracy(metrics: Metrics) -> float | None:
    """Over all images, whatever their domain; None where how many there are is not known."""
    right = [(m.get("accuracy"), m.get("images")) for m in metrics.values()]
    if not right or any(a is None or n is None or not math.isfinite(a) for a, n in right):
        return None
    known = [(a, n) for a, n in right if a is not None and n is not None]
    return math.fsum(a * n for a, n in known) / math.fsum(n for _, n in known)


RULES = {
    "source-val": Rule(source_val, "best accuracy on validation images of the source domains"),
    "leave-one-source-out": Rule(
        source_val,
        "settings by accuracy on source domains left out in turn, steps as source-val",
        over_runs=True,
    ),
    "last": Rule(number, "the last step"),
    "oracle": Rule(
        target_test,
        "best accuracy on the target's test images",
        peeked="the target's test labels chose the step",
    ),
    "released-code": Rule(
        all_val,
        "best accuracy on validation images of sources and target",
        peeked="the target's validation images, which are among its test images on PACS, "
        "helped to choose the step",
    ),
}


def chosen_step(steps: Iterable[StepRecord], rule: Rule) -> StepRecord | None:
    """The step a rule chooses; None where what it goes by was not recorded."""
    # Weights are kept where there was a validation, so only those can be chosen.
    judged = [step for step in steps if step.source_val is not None]
    if rule.peeked and len(judged) == 1:
        return judged[0]  # such as of an ensemble: there is nothing to choose
    scored = [
        (score, step.step, step)
        for step in judged
        if (score := rule.score(step)) is not None and math.isfinite(score)
    ]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


@dataclass(frozen=True)
class Choice:
    """Which settings of a method are reported on a target.

    Attributes:
        runs: The full runs with the chosen settings, a seed each.
        scores: Mean accuracy on the left-out sources, by candidate, the chosen one first.
        missing: Why nothing was chosen, or what was left out of the comparison.
    """

    runs: tuple[StoredRun, ...]
    scores: tuple[float, ...] = ()
    missing: tuple[str, ...] = ()


def held_out_run_of(inner: StoredRun, full: StoredRun) -> bool:
    """Whether `inner` was trained without a source of `full` and without its target at all.

    The target is excluded there, so that nothing of it can be seen; one source is the target.
    """
    return (
        inner.task.dataset == full.task.dataset
        and _excluded(inner) == _excluded(full) | set(full.task.targets)
        and set(inner.task.targets) | set(inner.task.sources) == set(full.task.sources)
        and candidate(inner) == candidate(full)
    )


def full_runs(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Without those that only hold a source of another one out."""
    return [run for run in runs if not any(held_out_run_of(run, other) for other in runs)]


def leave_one_source_out(runs: Sequence[StoredRun]) -> list[Choice]:
    """For each data set, target, method and preset: the runs with the settings that win.

    Candidates are settings that differ in anything but the seed. Each is judged on every source
    domain by runs that were trained on the others, and the best mean, over left-out sources and
    then over seeds, wins; its full runs are reported. Candidates that were not judged on every
    source are left out. What full runs say about their target is not read.
    """
    groups: dict[tuple[Any, ...], dict[str, list[StoredRun]]] = defaultdict(dict)
    for run in full_runs(runs):
        task, settings = run.task, run.settings
        about = (task.dataset, task.targets, settings.method, settings.preset)
        groups[about].setdefault(candidate(run), []).append(run)
    return [_best(candidates, runs) for candidates in groups.values()]


def candidate(run: StoredRun) -> str:
    """The settings that are compared: all but the seed and who is left out."""
    stages = {name: value for name, value in run.identity.items() if name != "seed"}
    stages["data"] = {k: v for k, v in stages["data"].items() if k != "exclude"}
    return json.dumps(stages, sort_keys=True)


def left_out_accuracy(full: StoredRun, runs: Iterable[StoredRun]) -> float | None:
    """Mean accuracy on each source of `full`, of runs that never saw it; None if one lacks."""
    by_source: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in runs:
        if run.is_trained and held_out_run_of(run, full):
            step = chosen_step(run.steps, RULES["source-val"])
            found = None if step is None else _tested(run, step)
            if found is not None:
                by_source[run.task.targets].append(found)
    judged = {name for targets in by_source for name in targets}
    if judged != set(full.task.sources):
        return None
    means = [math.fsum(values) / len(values) for values in by_source.values()]
    return math.fsum(means) / len(means)


def _best(candidates: dict[str, list[StoredRun]], runs: Sequence[StoredRun]) -> Choice:
    scored: list[tuple[float, list[StoredRun]]] = []
    missing = []
    for full in candidates.values():
        score = left_out_accuracy(full[0], runs)
        if score is None:
            missing.append(f"{full[0].path.name}: not every source domain was left out and judged")
        else:
            scored.append((score, full))
    scored.sort(key=lambda entry: -entry[0])
    chosen = tuple(scored[0][1]) if scored else ()
    return Choice(chosen, tuple(score for score, _ in scored), tuple(missing))


def _tested(run: StoredRun, step: StepRecord) -> float | None:
    """Accuracy on the domains a run never saw, at a step."""
    found = [r for r in run.results if r.role == "target" and r.step == step.step]
    wanted = [r for r in found if r.draws == run.settings.prediction.draws] or found
    if wanted:
        return math.fsum(r.metrics["accuracy"] for r in wanted) / len(wanted)
    return mean_accuracy(step.target_test)


def _excluded(run: StoredRun) -> set[str]:
    return set(run.settings.data.exclude)
