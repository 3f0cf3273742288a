"""What `bayesdg bench --dry-run` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.terminal import console

if TYPE_CHECKING:
    from bayesdg.bench.estimate import Estimate
    from bayesdg.bench.jobs import Job
    from bayesdg.bench.plans import Plan


def print_dry_run(
    out: Path, name: str, plan: Plan, jobs: Sequence[Job], at_a_time: int, as_json: bool
) -> None:
    """The runs of a plan, what is done, and how long the rest takes; JSON alone if asked for."""
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
        cells = (job.title, job.unseen, job.settings.method, job.variant)
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
