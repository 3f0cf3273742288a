"""The runs a plan asks for, each with whole settings and the name of its folder. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bayesdg.bench.plans import PROTOCOL, TOLD, Plan, Values
from bayesdg.data.known import KNOWN, SOURCE_ANGLES, TARGET_ANGLES, expanded
from bayesdg.data.tree import read_tree, shown
from bayesdg.errors import UsageError
from bayesdg.methods.rows import get_method
from bayesdg.names import choose, unknown
from bayesdg.presets import preset, small_images
from bayesdg.settings import Settings
from bayesdg.training.about import run_name

# Settings that a plan has in an entry of its own: set beside it, they would be taken for another's.
ENTRIES = {"method": "methods", "seed": "seeds", "preset": "preset"}


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        name: Of its folder; only the same settings have it.
        dataset: A name, or the whole path of a folder.
        targets: The domains that are unseen.
        variant: Which of the plan's; '' where it has only one.
        settings: All of them.
        test_draws: See Plan.
        measures: See Plan.
        inner: Whether it is not reported: it holds a source of another run out to judge settings.
    """

    name: str
    dataset: str
    targets: tuple[str, ...]
    variant: str
    settings: Settings
    test_draws: tuple[int, ...] = ()
    measures: str = "accuracy"
    inner: bool = False

    @property
    def unseen(self) -> str:
        """Its targets, for people; and what was left out with them."""
        gone = self.settings.data.exclude if self.inner else ()
        return " and ".join(self.targets) + f" (without {' and '.join(gone)})" * bool(gone)

    @property
    def title(self) -> str:
        """What the data set calls itself."""
        return _title(self.dataset)

    def __str__(self) -> str:
        """For people, such as 'pacs, photo unseen, j, seed 0'."""
        parts = [self.title, f"{self.unseen} unseen", self.settings.method]
        return ", ".join([*parts, *filter(None, [self.variant]), f"seed {self.settings.seed}"])


def jobs_of(plan: Plan) -> list[Job]:
    """The runs of a plan, seed by seed, so that a first whole table is there early.

    A run that is wanted twice, as where two variants meet, is listed under both variants.
    """
    for values in (plan.settings, *plan.variants.values()):
        for name, entry in ENTRIES.items():
            if name in values:
                raise UsageError(
                    f"{name} is set to {values[name]!r}, but a plan has it in its {entry}; say it "
                    f"there, or with --{entry}"
                )
    told = {name: value for name, value in plan.settings.items() if name == "data.exclude"}
    gone = Settings().replace(told).data.exclude
    groups = {name: _targets_of(name, plan.targets, gone) for name in plan.datasets}
    _refuse_namesakes(plan.datasets)
    return [
        _job(plan, dataset, targets, method, variant, values, seed)
        for seed in plan.seeds
        for dataset in plan.datasets
        for targets in groups[dataset]
        for method in plan.methods
        for variant, values in _variants(plan, method)
    ]


def inner_jobs(jobs: Iterable[Job]) -> list[Job]:
    """What selection by leave-one-source-out asks for: each run again without each of its sources.

    Its own targets are excluded there, so that nothing of them can be seen.
    """
    return [
        _held_out(job, source)
        for job in jobs
        if job.measures == "accuracy"
        for source in domains_of(job.dataset)
        if source not in (*job.targets, *job.settings.data.exclude)
    ]


def _held_out(job: Job, source: str) -> Job:
    exclude = (*job.settings.data.exclude, *job.targets)
    settings = job.settings.replace({"data.exclude": exclude})
    name = run_name(job.title, (source,), settings)
    return replace(job, name=name, targets=(source,), settings=settings, test_draws=(), inner=True)


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """Without those that are another one's run."""
    first: dict[str, Job] = {}
    for job in jobs:
        first.setdefault(job.name, job)
    return list(first.values())


def narrowed(
    plan: Plan,
    values: Values,
    datasets: Sequence[str] = (),
    targets: Sequence[Sequence[str]] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset_name: str | None = None,
) -> Plan:
    """The plan with other settings for all runs, and with only what is named, if anything is."""
    for variant, own in plan.variants.items():
        for name in values:
            if name in own:
                raise UsageError(
                    f"{name} is what this plan varies (as in {variant!r}); leave it out, or write "
                    "a plan of your own"
                )
    return replace(
        plan,
        settings={**plan.settings, **values},
        datasets=tuple(datasets) or plan.datasets,
        # Domains belong to their data set: another one has others.
        targets=tuple(map(tuple, targets)) or (() if datasets else plan.targets),
        methods=tuple(methods) or plan.methods,
        seeds=tuple(seeds) or plan.seeds,
        preset=preset_name or plan.preset,
    )


def _variants(plan: Plan, method: str) -> list[tuple[str, Values]]:
    variants = list(plan.variants.items())
    # What a step costs depends on draws only where there are any.
    return variants if plan.measures == "accuracy" or get_method(method).is_bayesian else [("", {})]


def _job(
    plan: Plan,
    dataset: str,
    targets: tuple[str, ...],
    method: str,
    variant: str,
    values: Mapping[str, Any],
    seed: int,
) -> Job:
    # Digits of 16 pixels are no photographs, whatever the plan.
    base = small_images if dataset == "rotated-digits" else preset
    settings = base(plan.preset, method, seed).replace(
        {
            **PROTOCOL.get(dataset, {}),
            # Recorded so that every rule of selection can be applied later; it decides nothing.
            "training.evaluate_target": "along",
            **plan.settings,
            **values,
        }
    )
    name = run_name(_title(dataset), targets, settings)
    told = settings.prediction.draws
    tests = tuple(dict.fromkeys(told if num == TOLD else num for num in plan.test_draws))
    if not settings.row.is_bayesian:
        tests = tests and (0,)  # nothing is drawn: there is one answer
    return Job(name, _place(dataset), targets, variant, settings, tests, plan.measures)


def _refuse_namesakes(datasets: Sequence[str]) -> None:
    """Runs are named by their data set, so two of one name would be taken for one."""
    places: dict[str, str] = {}
    for dataset in datasets:
        other = places.setdefault(_title(dataset), dataset)
        if _place(other) != _place(dataset):
            raise UsageError(
                f"{other} and {dataset} are both called {_title(dataset)!r}; rename a folder, or "
                "give each an --out of its own"
            )


def _place(dataset: str) -> str:
    return dataset if dataset in KNOWN else str(expanded(dataset).resolve())


def _title(dataset: str) -> str:
    return dataset if dataset in KNOWN else shown(expanded(dataset).resolve().name)


def domains_of(dataset: str) -> tuple[str, ...]:
    """The names of a data set's domains, as far as its files are not needed for that."""
    known = KNOWN.get(dataset)
    if known is None and not (dataset and expanded(dataset).is_dir()):
        summary = f"{', '.join(KNOWN)}, or the path of a folder DOMAIN/CLASS/IMAGE"
        raise UsageError(unknown("data set", dataset, KNOWN, summary=summary))
    if known is None:
        return tuple(map(shown, read_tree(expanded(dataset)).domains))
    return known.domains or tuple(str(angle) for angle in sorted(SOURCE_ANGLES + TARGET_ANGLES))


def _targets_of(
    dataset: str, wanted: tuple[tuple[str, ...], ...], gone: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Groups of domains that are unseen together; where none is named, each that is not `gone`.

    The same domains in another order are the same group.
    """
    domains = domains_of(dataset)
    groups: dict[frozenset[str], tuple[str, ...]] = {}
    for group in wanted:
        for name in group:
            choose("domain", name, dict.fromkeys(domains), where=dataset)
            if name in gone:
                raise UsageError(f"{name} of {dataset} is a target and in data.exclude as well")
        if set(domains) <= {*group, *gone}:
            raise UsageError(
                f"all domains of {dataset} are targets or excluded; leave at least one to train on"
            )
        groups.setdefault(frozenset(group), tuple(dict.fromkeys(group)))
    if wanted:
        return tuple(groups.values())
    if dataset in KNOWN and not KNOWN[dataset].domains:
        return (tuple(map(str, TARGET_ANGLES)),)
    return tuple((name,) for name in domains if name not in gone)
