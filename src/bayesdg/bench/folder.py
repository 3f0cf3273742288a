"""The folder of a bench: what was planned, the runs, what was measured. Imports no torch.

    plan.json         every plan that was asked for here, with all its jobs
    runs/NAME/        run folders, see training/folder.py; where a plan asks for it, with
                      draws.json: the run tested under several numbers of draws
    costs/NAME/       cost.json: what one training step takes
    logs/NAME.log     what a job printed

A run is done when its folder says so; nothing else is remembered.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bayesdg.bench.jobs import Job
from bayesdg.bench.planfile import to_plain
from bayesdg.bench.plans import Plan
from bayesdg.config import difference
from bayesdg.errors import FolderInUseError, StoredRunError, UsageError
from bayesdg.names import choose
from bayesdg.records import from_line, results_of, write_text
from bayesdg.settings import settings_from
from bayesdg.stored_runs import read_tests
from bayesdg.training.about import RECORDS, is_finished, read_json
from bayesdg.training.lock import FolderLock

FORMAT = 1
PLAN, COST = "plan.json", "cost.json"
RUNS, COSTS = "runs", "costs"
# A record is a line that begins like this; the last one of a run is near its end.
STEP = re.compile(rb'^\{"kind": "step", "step": (\d+), "seconds": ([\d.e+-]+)', re.MULTILINE)
RESULT = '{"kind": "result"'
TAIL_BYTES = 64 * 1024
PATIENCE = 10.0  # seconds


def job_path(folder: Path, job: Job) -> Path:
    """The folder in which a job works and leaves what it found."""
    return folder / (COSTS if job.measures == "cost" else RUNS) / job.name


def log_path(folder: Path, job: Job) -> Path:
    """Where its output goes."""
    return folder / "logs" / f"{job.name}.log"


def is_done(folder: Path, job: Job) -> bool:
    """Whether nothing of the job is left to do."""
    path = job_path(folder, job)
    if job.measures == "cost":
        return (path / COST).is_file()
    try:
        return is_tested(path) and not missing_draws(path, job)
    except StoredRunError:
        return False  # the job will say what is damaged, and no other one suffers


def is_tested(run: Path) -> bool:
    """Whether a run was trained to its end and tested on its targets.

    Of the records only results are parsed. A test with other statistics of batch norm is none.
    """
    if not is_finished(run):
        return False
    lines = (run / RECORDS).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    try:
        return bool(results_of(from_line(line) for line in lines if line.startswith(RESULT)))
    except ValueError:
        return False  # the job will say what is damaged


def missing_draws(run: Path, job: Job) -> list[int]:
    """The numbers of draws under which the run was not tested yet."""
    found = {test.draws for test in read_tests(run)}
    return [num for num in job.test_draws if num not in found]


def last_step(run: Path) -> tuple[int, float]:
    """How far the run has come, and in how many seconds of training."""
    try:
        with (run / RECORDS).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            found = STEP.findall(file.read())
    except OSError:
        return 0, 0.0
    return (int(found[-1][0]), float(found[-1][1])) if found else (0, 0.0)


def write_plan(folder: Path, name: str, plan: Plan, jobs: Sequence[Job]) -> list[str]:
    """Add a plan to plan.json; returns what is other than it was here before, a line each.

    A job takes the place of one that differs in settings alone; the others stay, so that a plan
    can be begun narrow and widened later.
    """
    with _alone(folder):
        return _added(folder, name, plan, jobs)


def _added(folder: Path, name: str, plan: Plan, jobs: Sequence[Job]) -> list[str]:
    planned_jobs(folder)  # what is damaged is told, and stays as it is
    content = read_plans(folder)
    before = content["plans"].get(name, {}).get("jobs", [])
    now = [to_json(job) for job in jobs]
    place = {_cell(entry): entry for entry in before}
    changes: dict[str, None] = {}
    for entry in now:
        old = place.get(_cell(entry))
        if old is not None and old["run"] != entry["run"]:
            changes.update(dict.fromkeys(difference(old["settings"], entry["settings"])))
    place.update((_cell(entry), entry) for entry in now)
    content["plans"][name] = {"plan": to_plain(plan), "jobs": list(place.values())}
    write_text(folder / PLAN, json.dumps(content, indent=1) + "\n")
    return list(changes)


def read_plans(folder: Path) -> dict[str, Any]:
    """plan.json; one without plans if there is none."""
    if not (folder / PLAN).is_file():
        return {"format": FORMAT, "plans": {}}
    content = read_json(folder / PLAN)
    if content.get("format") != FORMAT or not isinstance(content.get("plans"), dict):
        raise StoredRunError(
            f"{folder / PLAN} is of format {content.get('format')!r}, this bayesdg knows {FORMAT}; "
            "upgrade bayesdg, or give another folder (--out)"
        )
    return content


def read_job(folder: Path, name: str) -> Job:
    """The job whose run folder is called `name`."""
    jobs = {job.name: job for plan in planned_jobs(folder).values() for job in plan}
    return choose("run", name, jobs, str(folder))


def planned_jobs(folder: Path) -> dict[str, list[Job]]:
    """The jobs of each plan in plan.json."""
    plans = read_plans(folder)["plans"]
    try:
        return {name: [from_json(job) for job in plan["jobs"]] for name, plan in plans.items()}
    except (AttributeError, KeyError, TypeError, UsageError) as error:
        raise StoredRunError(
            f"{folder / PLAN} is damaged: {error}; bring it back, or begin anew in another folder"
        ) from None


def to_json(job: Job) -> dict[str, Any]:
    """Plain values; of the settings those that are not at their default."""
    return {
        "run": job.name,
        "dataset": job.dataset,
        "targets": list(job.targets),
        "method": job.settings.method,
        "variant": job.variant,
        "seed": job.settings.seed,
        "measures": job.measures,
        "inner": job.inner,
        "test_draws": list(job.test_draws),
        "settings": job.settings.model_dump(mode="json", exclude_defaults=True),
    }


def from_json(entry: Mapping[str, Any]) -> Job:
    """What `to_json` was given."""
    return Job(
        entry["run"],
        entry["dataset"],
        tuple(entry["targets"]),
        entry["variant"],
        settings_from(entry["settings"]),
        tuple(entry["test_draws"]),
        entry["measures"],
        entry.get("inner", False),
    )


def _cell(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a job is about, whatever its settings."""
    names = ("dataset", "method", "variant", "seed")
    gone = entry["settings"]["data"]["exclude"] if entry.get("inner") else ()
    return (*(entry[name] for name in names), tuple(entry["targets"]), tuple(gone))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While another process writes plan.json, wait: it takes a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            lock = FolderLock.acquire(folder, lambda note: None)
            break
        except FolderInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    with lock:
        yield
