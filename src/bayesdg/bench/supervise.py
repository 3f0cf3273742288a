"""What a cluster runs for a job: the job's process, watched over on the machine where it is.

Imports no torch, and nothing of a cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bayesdg.bench.work import command
from bayesdg.training.launch import tied
from bayesdg.training.signals import PRE_EMPTED

PERIOD = 0.2
# What asks the job to leave; before it can listen, it is ended by that. SIGUSR2 is submitit's.
ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass
class Supervised:
    """A job for a machine that sees the folder under the same path.

    Attributes:
        folder: Of the bench.
        name: Of the run.
        root: Where data sets lie.
        log: What the job prints goes to its end.
        place: Where the driver was started: relative paths in settings begin there.
        environment: Of the driver, as far as it matters.
        pid: Of the process, while it runs.
    """

    folder: Path
    name: str
    root: Path | None
    log: Path
    place: str
    environment: dict[str, str]
    pid: int | None = None

    @classmethod
    def of(cls, folder: Path, name: str, root: Path | None, log: Path) -> Self:
        """As this process would run it."""
        ours = {k: v for k, v in os.environ.items() if k.startswith(("BAYESDG_", "PYTHONPATH"))}
        whole = None if root is None else root.resolve()
        return cls(folder.resolve(), name, whole, log.resolve(), os.getcwd(), ours)

    def run(self) -> int:
        """Until the job ends; its exit code. Whoever interrupts it makes the job save and leave."""
        # Where this process is killed, as with its node, the job saves and leaves by itself.
        what = tied(command(self.folder, self.name, self.root), signal.SIGTERM)
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                what, cwd=self.place, env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self.pid = process.pid
        while process.poll() is None:
            try:
                time.sleep(PERIOD)
            except KeyboardInterrupt:
                self.leave()
        self.pid = None
        return PRE_EMPTED if -process.returncode in ASKING else process.returncode

    def leave(self) -> None:
        """Ask the job to save and leave, and wait until it has; also from a signal handler."""
        if self.pid is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                # A cluster may have sent SIGTERM to all there is, and twice would be at once.
                os.kill(self.pid, signal.SIGUSR1)
                # Not through Popen, whose lock the code that was interrupted may hold.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
