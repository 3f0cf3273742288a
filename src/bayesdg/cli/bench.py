"""`bayesdg bench`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.data import AsJson, Root
from bayesdg.cli.terminal import check_folder, console, messages
from bayesdg.errors import BayesdgError, UsageError

if TYPE_CHECKING:
    from bayesdg.bench.drive import Engine, Outcome
    from bayesdg.bench.estimate import Estimate
    from bayesdg.bench.jobs import Job
    from bayesdg.bench.plans import Plan

NARROW, WHERE = "Narrow or change the plan", "Where it runs"
ENGINES = ("local", "ray", "slurm")


def bench(
    plan: Annotated[
        str | None, typer.Argument(help="A plan's name, or a file of your own; lists without.")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Instead of the plan's; repeatable.", rich_help_panel=NARROW),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            help="Unseen domains, one run each: photo,sketch; unseen together: 0+90.",
            rich_help_panel=NARROW,
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Instead of the plan's: a,j.", rich_help_panel=NARROW),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="How many (5), or which (0,2 or 3-7).", rich_help_panel=NARROW),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Per run.", rich_help_panel=NARROW)] = None,
    preset: Annotated[
        str | None, typer.Option(help="default, paper or released.", rich_help_panel=NARROW)
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A timm name or small-cnn.", rich_help_panel=NARROW)
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the backbone.", rich_help_panel=NARROW)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=NARROW)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting; repeatable.", rich_help_panel=NARROW
        ),
    ] = None,
    root: Root = None,
    out: Annotated[Path, typer.Option(help="Folder of the bench.")] = Path("runs/bench"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and how long they take.")
    ] = False,
    as_json: AsJson = False,
    engine: Annotated[
        str, typer.Option(help="local, ray or slurm.", rich_help_panel=WHERE)
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="At a time; 1, or all on a cluster.", rich_help_panel=WHERE),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="For a run that failed.", rich_help_panel=WHERE)
    ] = 1,
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster; begins one without.", rich_help_panel=WHERE),
    ] = None,
    cpus: Annotated[
        int, typer.Option(min=1, help="Per run, on a cluster.", rich_help_panel=WHERE)
    ] = 1,
    gpus: Annotated[
        float,
        typer.Option(min=0, help="Per run, on a cluster; 0.25 with Ray.", rich_help_panel=WHERE),
    ] = 0.0,
    partition: Annotated[str | None, typer.Option(help="Of Slurm.", rich_help_panel=WHERE)] = None,
    hours: Annotated[
        float, typer.Option(min=0.01, help="Slurm's limit per start.", rich_help_panel=WHERE)
    ] = 12.0,
) -> None:
    """Run an experiment of the paper, or one of yours; the same command again goes on with it."""
    from bayesdg.bench.folder import write_plan
    from bayesdg.bench.jobs import each_once, jobs_of, narrowed
    from bayesdg.bench.planfile import find_plan, group, seed_numbers
    from bayesdg.cli.train import given_settings

    if plan is None:
        _print_plans(as_json)
        return
    if engine not in ENGINES:
        from bayesdg.names import unknown

        raise UsageError(unknown("engine", engine, ENGINES))
    name, whole = find_plan(plan)
    values = given_settings(
        None,
        {
            "training.steps": steps, "model.backbone": backbone, "model.weights": weights,
            "engine.device": device,
        },
        set_ or [],
    )  # fmt: skip
    wanted = narrowed(
        whole,
        values,
        dataset or (),
        [group(text) for text in _listed(targets)],
        _listed(methods),
        seed_numbers(seeds) if seeds else (),
        preset,
    )
    planned = jobs_of(wanted)
    todo = each_once(planned)
    if dry_run:
        _print_dry_run(out, name, wanted, todo, jobs or 1, as_json)
        return
    check_folder(out)
    for line in write_plan(out, name, wanted, planned):
        messages.print(
            f"note: {name} was begun here with other settings: {line}", markup=False, soft_wrap=True
        )
    place = {"address": address, "cpus": cpus, "gpus": gpus, "partition": partition, "hours": hours}
    outcome = _run(out, todo, _engine(engine, out, root, jobs, place), retries)
    _print_outcome(out, name, outcome, len(todo), as_json)


def _listed(texts: Iterable[str] | None) -> list[str]:
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def _engine(
    name: str, out: Path, root: Path | None, jobs: int | None, place: dict[str, Any]
) -> AbstractContextManager[Engine]:
    if name == "ray":
        from bayesdg.bench.ray import Ray

        return Ray(out, root, jobs, place["address"], place["cpus"], place["gpus"])
    if name == "slurm":
        from bayesdg.bench.slurm import Slurm

        return Slurm(
            out, root, jobs, place["cpus"], place["gpus"], place["partition"], place["hours"]
        )
    from bayesdg.bench.local import Local

    return Local(out, root, jobs or 1)


def _run(
    out: Path, jobs: Sequence[Job], engine: AbstractContextManager[Engine], retries: int
) -> Outcome:
    from bayesdg.bench.drive import drive
    from bayesdg.cli.bench_progress import BenchProgress
    from bayesdg.training.signals import Signals

    with Signals().heard() as signals, engine as place, BenchProgress(len(jobs)) as progress:
        signals.can_wait = True  # whatever is done is in the run folders
        return drive(out, jobs, place, retries, progress, signals)


def _print_outcome(out: Path, name: str, outcome: Outcome, num: int, as_json: bool) -> None:
    """The table, what failed and why; raises if not all is done."""
    if outcome.stopped is not None:
        messages.print(f"{len(outcome.done)} of {num} runs are done", markup=False)
        raise outcome.stopped
    if as_json:
        failed = [
            {"run": f.job.name, "exit_code": f.exit_code, "why": f.why, "log": str(f.log)}
            for f in outcome.failures
        ]
        typer.echo(json.dumps({"plan": name, "done": outcome.done, "failed": failed}, indent=1))
    else:
        _print_table(out, name)
    for failure in outcome.failures:
        messages.print(
            f"failed: {failure.job}: {failure.why} (exit code {failure.exit_code}; all it said is "
            f"in {failure.log})",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if outcome.failures:
        raise BayesdgError(
            f"{len(outcome.failures)} of {num} runs failed; the same command tries them again"
        )
    messages.print(f"all {num} runs are in {out}", markup=False, soft_wrap=True)


def _print_table(out: Path, name: str) -> None:
    """The plan's table in the paper's layout, as far as there is one."""
    from bayesdg.cli.table import table

    try:
        table(out, name)
    except BayesdgError as error:
        messages.print(f"no table: {error}", markup=False, highlight=False, soft_wrap=True)


def _print_plans(as_json: bool) -> None:
    from bayesdg.bench.planfile import to_plain
    from bayesdg.bench.plans import PLANS

    if as_json:
        typer.echo(json.dumps({name: to_plain(plan) for name, plan in PLANS.items()}, indent=1))
        return
    for name, plan in PLANS.items():
        typer.echo(f"{name:16}{plan.paper:11}{plan.about}")
    typer.echo("\nbayesdg bench NAME --dry-run lists the runs of a plan")


def _print_dry_run(
    out: Path, name: str, plan: Plan, jobs: Sequence[Job], at_a_time: int, as_json: bool
) -> None:
    from bayesdg.bench.estimate import Estimate
    from bayesdg.bench.folder import is_done, job_path, last_step, to_json
    from bayesdg.bench.planfile import to_plain

    estimate = Estimate(out)
    rows: list[dict[str, Any]] = []
    for job in jobs:
        step = last_step(job_path(out, job))[0]
        state = "done" if is_done(out, job) else f"at step {step}" if step else "to do"
        seconds = 0.0 if state == "done" else estimate.seconds(job)
        rows.append({**to_json(job), "state": state, "seconds": seconds})
    left = [job for job, row in zip(jobs, rows, strict=True) if row["state"] != "done"]
    total = estimate.total(left)
    if as_json:
        content = {"name": name, "plan": to_plain(plan), "runs": rows, "seconds": total}
        typer.echo(json.dumps(content, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("data set", "unseen", "method", "variant", "seed", "state", "time"):
        table.add_column(column, justify="right" if column in ("seed", "time") else "left")
    for job, row in zip(jobs, rows, strict=True):
        cells = (job.title, "+".join(job.targets), job.settings.method, job.variant)
        table.add_row(
            *map(escape, cells), str(job.settings.seed), row["state"], duration(row["seconds"])
        )
    console.print(table)
    typer.echo(f"\n{len(jobs)} runs, {len(jobs) - len(left)} of them done in {out}")
    typer.echo(_time_left(total, estimate, at_a_time))


def _time_left(total: float | None, estimate: Estimate, at_a_time: int) -> str:
    if total is not None:
        return f"training that is left: {duration(total)}, {duration(total / at_a_time)} with " + (
            f"{at_a_time} at a time if they do not slow each other" if at_a_time > 1 else "1 job"
        )
    return (
        "time unknown: it is told from runs that are done in this folder, with the same data set, "
        "backbone, image size and device"
    )


def duration(seconds: float | None) -> str:
    """For people.

    >>> duration(7380), duration(42), duration(None)
    ('2 h 03 min', '42 s', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
