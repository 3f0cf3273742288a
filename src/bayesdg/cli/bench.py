"""`bayesdg bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesdg.cli.data import AsJson, Root
from bayesdg.cli.terminal import check_folder, messages
from bayesdg.errors import BayesdgError, UsageError

if TYPE_CHECKING:
    from bayesdg.bench.drive import Engine, Outcome
    from bayesdg.bench.jobs import Job

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
    leave_one_source_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-source-out",
            help="Each run again without each of its sources: settings by that rule of selection.",
            rich_help_panel=NARROW,
        ),
    ] = False,
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
        float, typer.Option(min=0.1, help="Slurm's limit per start.", rich_help_panel=WHERE)
    ] = 12.0,
) -> None:
    """Run an experiment of the paper, or one of yours; the same command again goes on with it."""
    from bayesdg.bench.folder import write_plan
    from bayesdg.bench.jobs import each_once, inner_jobs, jobs_of, narrowed
    from bayesdg.bench.planfile import find_plan, group, seed_numbers
    from bayesdg.cli.bench_dry_run import print_dry_run
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
        [group(text) for text in _listed("--targets", targets)],
        _listed("--methods", methods),
        () if seeds is None else seed_numbers(seeds),
        preset,
    )
    planned = jobs_of(wanted)
    if leave_one_source_out:
        planned += inner_jobs(planned)
    todo = each_once(planned)
    if dry_run:
        print_dry_run(out, name, wanted, todo, jobs or 1, as_json)
        return
    place = {"address": address, "cpus": cpus, "gpus": gpus, "partition": partition, "hours": hours}
    runner = _engine(engine, out, root, jobs, place)  # before a plan is written for nobody
    check_folder(out)
    for line in write_plan(out, name, wanted, planned):
        messages.print(
            f"note: {name} was begun here with other settings: {line}", markup=False, soft_wrap=True
        )
    outcome = _run(out, todo, runner, retries)
    rule = "leave-one-source-out" if leave_one_source_out else "source-val"
    _print_outcome(out, name, rule, outcome, len(todo), as_json)


def _listed(option: str, texts: Sequence[str] | None) -> list[str]:
    found = [part.strip() for text in texts or () for part in text.split(",") if part.strip()]
    if texts and not found:
        raise UsageError(f"{option} is empty; name some, or leave it out for those of the plan")
    return found


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


def _print_outcome(
    out: Path, name: str, rule: str, outcome: Outcome, num: int, as_json: bool
) -> None:
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
        _print_table(out, name, rule)
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


def _print_table(out: Path, name: str, rule: str) -> None:
    """The plan's table in the paper's layout, as far as there is one."""
    from bayesdg.cli.table import table

    try:
        table(out, name, rule)
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
