"""One job, in a process of its own: train it, or go on with it, or find that it is done.

    python -m bayesdg.bench.work FOLDER NAME [ROOT]

FOLDER is that of the bench, NAME that of the run in its plan.json, ROOT where data sets lie. The
exit code says how it went (errors.py). Every engine runs this command.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path

from bayesdg.bench.folder import COST, is_done, job_path, missing_draws, read_job
from bayesdg.bench.jobs import Job
from bayesdg.errors import BayesdgError
from bayesdg.training.launch import launch
from bayesdg.training.lock import FolderLock


def work(folder: Path, job: Job, root: Path | None = None) -> None:
    """Do what is left of a job; its folder holds what came out."""
    path = job_path(folder, job)
    if is_done(folder, job):
        return
    if job.measures == "cost":
        from bayesdg.bench.cost import write_cost

        path.mkdir(parents=True, exist_ok=True)
        with FolderLock.acquire(path, _say):
            if not (path / COST).is_file():
                write_cost(path / COST, job, root)
        return
    from bayesdg.data import load_dataset
    from bayesdg.training.train import train

    dataset = load_dataset(job.dataset, root, job.settings.data)
    train(dataset, job.settings, job.targets, path.parent)
    if os.environ.get("RANK", "0") == "0" and missing_draws(path, job):
        from bayesdg.bench.draws import write_tests

        with FolderLock.acquire(path, _say):
            write_tests(path, missing_draws(path, job), dataset)


def command(folder: Path, name: str, root: Path | None) -> list[str]:
    """What to run in another process."""
    place = [] if root is None else [str(root.resolve())]
    return [sys.executable, "-m", "bayesdg.bench.work", str(folder.resolve()), name, *place]


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    if hasattr(signal, "SIGUSR2"):
        # Slurm tells all processes of a job about its limit; submitit hears it and then asks us.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    folder, name, root = Path(arguments[0]), arguments[1], [*map(Path, arguments[2:]), None][0]
    try:
        job = read_job(folder, name)
        num = job.settings.engine.processes
        if num > 1 and "RANK" not in os.environ and job.measures != "cost":
            return launch(command(folder, name, root), num, folder / "logs" / name, _say)
        work(folder, job, root)
    except BayesdgError as error:
        _say(str(error))
        return error.exit_code
    except OSError as error:
        _say(f"{error.strerror or error}: {error.filename or 'no file'}")
        return 5 if error.errno == ENOSPC else 2
    except KeyboardInterrupt:
        return 130
    return 0


def _say(text: str) -> None:
    print(f"bayesdg: {' '.join(text.split())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
