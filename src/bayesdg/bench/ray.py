"""Jobs as tasks of a Ray cluster, one that is there or one of this machine.

The nodes share the folder of the bench. A task whose node is lost is begun again on another, where
the run goes on from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import secrets
import warnings
from pathlib import Path
from typing import Any

from bayesdg.bench.supervise import Supervised
from bayesdg.errors import UsageError
from bayesdg.extras import need


class Ray:
    """A drive.Engine on Ray.

    Attributes:
        jobs: How many at a time; as many as the cluster has room for, which may change.
    """

    def __init__(
        self,
        folder: Path,
        root: Path | None,
        jobs: int | None,
        address: str | None,
        cpus: int,
        gpus: float,
    ) -> None:
        need("ray", "ray")
        self._folder, self._root, self._most, self._address = folder, root, jobs, address
        self._needs = {"CPU": float(cpus), "GPU": gpus}
        self._tasks: dict[Any, str] = {}

    @property
    def jobs(self) -> int:
        """See the class."""
        there = self._ray.cluster_resources()
        room = min(int(there.get(name, 0.0) / n) for name, n in self._needs.items() if n)
        return min(room, self._most or room)

    def start(self, name: str, log: Path) -> None:
        """See drive.Engine."""
        job = Supervised.of(self._folder, name, self._root, log)
        self._tasks[self._supervise.remote(job)] = name

    def ended(self) -> dict[str, int]:
        """See drive.Engine."""
        if not self._tasks:
            return {}
        ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return {self._tasks.pop(task): self._code(task) for task in ready}

    def leave(self) -> None:
        """See drive.Engine."""
        for task in self._tasks:
            self._ray.cancel(task)

    def _code(self, task: Any) -> int:
        try:
            return int(self._ray.get(task))
        except self._ray.exceptions.TaskCancelledError:
            return 75
        except self._ray.exceptions.RayError:
            return 1

    def __enter__(self) -> Ray:
        # Read when ray is imported. Nobody but us may hand work to a cluster that we begin.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if self._address is None and "RAY_AUTH_MODE" not in os.environ:
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what others deprecate is nothing a user can mend
            import ray

        self._ray: Any = ray
        own: dict[str, Any] = {"include_dashboard": False} if self._address is None else {}
        try:
            ray.init(
                self._address or "local", log_to_driver=False, logging_level=logging.ERROR, **own
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            first = str(error).partition("\n")[0]
            raise UsageError(
                f"no Ray cluster at {self._address or 'this machine'}: {first}"
            ) from None
        if self.jobs == 0:
            ray.shutdown()
            wanted = " and ".join(f"{n:g} {name}" for name, n in self._needs.items() if n)
            raise UsageError(f"the Ray cluster has no {wanted} for a run; lower --cpus or --gpus")
        # A lost node is no failure of the run.
        options = {"num_cpus": self._needs["CPU"], "num_gpus": self._needs["GPU"]}
        self._supervise = self._ray.remote(max_retries=-1, **options)(Supervised.run)
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()
