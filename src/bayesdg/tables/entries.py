"""What a table is about: the runs that are wanted, and those that are there.

A bench writes its plan beside its runs, so what is missing is known. A folder without one is
taken for what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bayesdg.bench.folder import PLAN, RUNS, planned_jobs
from bayesdg.bench.jobs import Job
from bayesdg.data.known import KNOWN
from bayesdg.methods.rows import METHODS
from bayesdg.names import choose
from bayesdg.selection import full_runs
from bayesdg.stored_runs import StoredRun


@dataclass(frozen=True)
class Entry:
    """A run that is wanted.

    Attributes:
        dataset: Its name.
        targets: The unseen domains.
        method: Its name.
        preset: Its name.
        variant: Which of a plan's; '' where it has only one.
        seed: Of the run.
        run: If it is there.
        name: Of its folder.
        test_draws: Numbers of draws it is to be tested with.
        measures: 'accuracy', or 'cost' of a step.
        inner: Whether it is wanted for what it says about another run's settings alone.
    """

    dataset: str
    targets: tuple[str, ...]
    method: str
    preset: str
    variant: str
    seed: int
    run: StoredRun | None
    name: str
    test_draws: tuple[int, ...] = ()
    measures: str = "accuracy"
    inner: bool = False

    @property
    def key(self) -> str:
        """Tells entries apart: copies of a run have the same name."""
        return self.name if self.run is None else str(self.run.path)


def entry_of(run: StoredRun) -> Entry:
    """A run that is wanted because it is there."""
    task, settings = run.task, run.settings
    return Entry(
        task.dataset,
        task.targets,
        settings.method,
        settings.preset,
        "",
        settings.seed,
        run,
        run.path.name,
    )


def found_entries(runs: Sequence[StoredRun]) -> list[Entry]:
    """All runs but those that only hold a source of another one out, as things are listed."""
    methods, datasets = list(METHODS), list(KNOWN)

    def order(entry: Entry) -> tuple[object, ...]:
        dataset = datasets.index(entry.dataset) if entry.dataset in datasets else len(datasets)
        return dataset, entry.dataset, methods.index(entry.method), entry.preset, entry.seed

    return sorted(map(entry_of, full_runs(runs)), key=order)


def planned(folder: Path, runs: Iterable[StoredRun], plan: str | None) -> dict[str, list[Entry]]:
    """What plan.json wants, by plan; of one plan if it is named. Nothing if there is no file."""
    if not (folder / PLAN).is_file():
        return {}
    plans = planned_jobs(folder)
    if plan is not None:
        plans = {plan: choose("plan", plan, plans, str(folder / PLAN))}
    # What the bench itself has written comes last: it counts, and not a copy elsewhere.
    own = folder / RUNS
    by_name = {run.path.name: run for run in sorted(runs, key=lambda r: r.path.parent == own)}
    return {
        name: [_planned(job, by_name.get(job.name)) for job in jobs] for name, jobs in plans.items()
    }


def _planned(job: Job, run: StoredRun | None) -> Entry:
    return Entry(
        run.task.dataset if run else job.title,
        job.targets,
        job.settings.method,
        job.settings.preset,
        job.variant,
        job.settings.seed,
        run,
        job.name,
        job.test_draws,
        job.measures,
        job.inner,
    )
