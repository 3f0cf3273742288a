"""Jobs handed to Slurm through submitit.

Slurm tells a job some time before its limit, or when it takes the machine away: the run saves and
leaves, and its job is queued again.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from bayesdg.bench.supervise import Supervised
from bayesdg.errors import ResourceError
from bayesdg.extras import need

MANY = 1000  # Slurm has a queue of its own


@dataclasses.dataclass
class Requeued(Supervised):
    """What submitit calls, and asks for what is left when the time is up."""

    def __call__(self) -> int:
        """See Supervised.run."""
        return self.run()

    def checkpoint(self) -> Any:
        """The same again, once the run has saved."""
        from submitit.helpers import DelayedSubmission

        self.leave()
        return DelayedSubmission(dataclasses.replace(self, pid=None))


class Slurm:
    """A drive.Engine on Slurm.

    Attributes:
        jobs: How many are handed over at a time.
    """

    def __init__(
        self,
        folder: Path,
        root: Path | None,
        jobs: int | None,
        cpus: int,
        gpus: float,
        partition: str | None,
        hours: float,
        cluster: str = "slurm",
    ) -> None:
        need("slurm", "submitit")
        import submitit

        self.jobs = jobs or MANY
        self._folder, self._root = folder, root
        try:
            self._executor = submitit.AutoExecutor(folder / "slurm", cluster=cluster)
        except RuntimeError as error:
            raise ResourceError(f"no Slurm here ({error}); --engine local needs none") from None
        self._executor.update_parameters(
            name="bayesdg",
            timeout_min=math.ceil(60 * hours),
            cpus_per_task=cpus,
            gpus_per_node=math.ceil(gpus),
            **({} if partition is None else {"slurm_partition": partition}),
        )
        self._running: dict[str, Any] = {}

    def start(self, name: str, log: Path) -> None:
        """See drive.Engine."""
        job = Requeued.of(self._folder, name, self._root, log)
        self._running[name] = self._executor.submit(job)

    def ended(self) -> dict[str, int]:
        """See drive.Engine."""
        done = {name: job for name, job in self._running.items() if job.done()}
        for name in done:
            del self._running[name]
        return {name: _code(job) for name, job in done.items()}

    def leave(self) -> None:
        """See drive.Engine."""
        for job in self._running.values():
            job.cancel()

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()


def _code(job: Any) -> int:
    """What the job's process ended with; 1 where Slurm lost it."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return int(job.result())
    except (FailedJobError, UncompletedJobError):
        return 1
