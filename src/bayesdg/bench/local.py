"""Jobs as processes of this machine. Imports no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bayesdg.bench.work import command
from bayesdg.training.launch import tied

GPUS = Path("/proc/driver/nvidia/gpus")


class Local:
    """Some processes at a time; they share the cores and take turns at the GPUs.

    Attributes:
        jobs: How many at a time.
    """

    def __init__(self, folder: Path, root: Path | None, jobs: int) -> None:
        self.jobs = jobs
        self._folder, self._root = folder, root
        self._gpus = visible_gpus()
        self._running: dict[str, tuple[subprocess.Popen[bytes], int]] = {}

    def start(self, name: str, log: Path) -> None:
        """See drive.Engine."""
        taken = {slot for _, slot in self._running.values()}
        slot = next(number for number in range(self.jobs) if number not in taken)
        # A job outlives nobody: where the driver is killed, it saves and leaves.
        what = tied(command(self._folder, name, self._root), signal.SIGTERM)
        with log.open("ab") as output:
            process = subprocess.Popen(
                what, env=self._environment(slot), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        self._running[name] = process, slot

    def ended(self) -> dict[str, int]:
        """See drive.Engine."""
        polled = {name: process.poll() for name, (process, _) in self._running.items()}
        codes = {name: code for name, code in polled.items() if code is not None}
        for name in codes:
            del self._running[name]
        return codes

    def leave(self) -> None:
        """See drive.Engine."""
        for process, _ in self._running.values():
            process.send_signal(signal.SIGTERM)

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self._running.values():
            process.kill()
            process.wait()

    def _environment(self, slot: int) -> dict[str, str]:
        environment = dict(os.environ)
        if self.jobs > 1:
            cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
            # Otherwise each takes all cores, and they wait for one another.
            environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // self.jobs)))
        if len(self._gpus) > 1 and self.jobs > 1:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        return environment


def visible_gpus() -> list[str]:
    """The GPUs that processes started from here would see."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [part.strip() for part in told.split(",") if part.strip()]
    return [str(number) for number in range(len(list(GPUS.iterdir())))] if GPUS.is_dir() else []
