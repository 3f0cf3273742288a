"""Jobs handed to Slurm through submitit.

Slurm tells a job some time before its limit, or when it takes the machine away: the run saves and
leaves, and its job is queued again. A job outlives the driver; the next one finds it in the queue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesdg.bench.supervise import Supervised
from bayesdg.errors import ResourceError, UsageError
from bayesdg.extras import need
from bayesdg.training.signals import CTRL_C, PRE_EMPTED

MANY = 1000  # Slurm has a queue of its own
STARTS = 1_000_000  # as often as it takes: each goes on from where the one before has saved
LOOK = 10.0  # seconds between two looks at the queue, which all users of a cluster share
SETTLE = 20.0  # seconds in which a shared folder may still hide what an ended job has written
PATIENCE = 60  # seconds for an answer of Slurm's
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
THREADS = "OMP_NUM_THREADS"
GONE = "GONE"  # of a job that is listed no more; an ended one still is for some minutes
# Why a job waits that will wait for ever, and how long that is believed to be no passing state.
HOPELESS = {
    "AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionConfig",
    "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed",
}  # fmt: skip
PATIENT = 60.0  # seconds
ASKED = "--partition, --cpus, --gpus and --hours say what a job asks for"


@dataclasses.dataclass(frozen=True)
class Listed:
    """A job as Slurm lists it: its state, why it waits, and its name."""

    state: str
    reason: str
    name: str


UNKNOWN = Listed(GONE, "", "")


@dataclasses.dataclass
class Requeued(Supervised):
    """What submitit calls, and asks for what is left when the time is up."""

    def __call__(self) -> int:
        """See Supervised.run. Who was asked to leave has no result: Slurm may begin it again."""
        code = self.run()
        if code == PRE_EMPTED:
            raise SystemExit(0)
        return code

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
        self._folder, self._root, self._cpus = folder, root, cpus
        self._place = folder.resolve() / "slurm"
        try:
            self._executor = submitit.AutoExecutor(
                self._place, cluster=cluster, slurm_max_num_timeout=STARTS
            )
        except RuntimeError as error:
            raise ResourceError(f"no Slurm here ({error}); --engine local needs none") from None
        self._executor.update_parameters(
            timeout_min=math.ceil(60 * hours),
            cpus_per_task=cpus,
            gpus_per_node=math.ceil(gpus),
            slurm_additional_parameters={"requeue": True},  # not every cluster allows it unasked
            **({} if partition is None else {"slurm_partition": partition}),
        )
        self._held: dict[str, Path] = {}  # what Slurm does not take yet, and its log
        self._running: dict[str, tuple[Any, Path]] = {}
        self._ended_at: dict[str, float] = {}
        self._queue: Mapping[str, Listed] | None = None
        self._stuck_since = math.inf
        self._looked = -math.inf
        self._is_leaving = False

    def start(self, name: str, log: Path) -> None:
        """See drive.Engine."""
        if not self._running:
            self._look()
        self._held[name] = log
        self._hand_over()

    def ended(self) -> dict[str, int]:
        """See drive.Engine."""
        codes: dict[str, int] = {}
        if self._is_leaving:
            codes = dict.fromkeys(self._held, PRE_EMPTED)
            self._held.clear()
        if time.monotonic() - self._looked > (1.0 if self._is_leaving else LOOK):
            self._look()
            self._hand_over()
        for name, (job, log) in list(self._running.items()):
            code = self._code(name, job, log)
            if code is not None:
                codes[name] = code
                del self._running[name]
                self._ended_at.pop(name, None)
        return codes

    def leave(self) -> None:
        """See drive.Engine. Slurm gives a run its KillWait, 30 seconds as a rule, to save."""
        self._is_leaving = True
        self._looked = -math.inf
        for job, _ in self._running.values():
            # Says that a driver cancelled it and no person, and that nobody shall wait for it.
            job.paths.submitted_pickle.unlink(missing_ok=True)
            job.cancel(check=False)

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def _look(self) -> None:
        """At the queue; UsageError where it holds only jobs that Slurm will never begin."""
        self._queue, self._looked = queue(), time.monotonic()
        ours = [(self._queue or {}).get(job.job_id, UNKNOWN) for job, _ in self._running.values()]
        reasons = {listed.reason for listed in ours if listed.state == "PENDING"}
        if not ours or not reasons <= HOPELESS or any(one.state != "PENDING" for one in ours):
            self._stuck_since = math.inf
            return
        self._stuck_since = min(self._stuck_since, self._looked)
        if self._looked - self._stuck_since > PATIENT and not self._is_leaving:
            why = ", ".join(sorted(reasons))
            raise UsageError(f"Slurm will not begin any of these jobs ({why}); {ASKED}")

    def _hand_over(self) -> None:
        """What is held, as far as Slurm takes it; UsageError where it takes nothing at all."""
        for name, log in list(self._held.items()):
            try:
                job = self._earlier(name) or self._submitted(name, log)
            except UsageError:
                if self._running:
                    return  # so many are allowed: again when one has ended
                raise
            self._running[name] = job, log
            del self._held[name]

    def _earlier(self, name: str) -> Any:
        """The job that another driver handed over for this run and that has not ended."""
        from submitit import SlurmJob

        for number, listed in (self._queue or {}).items():
            if listed.name == name and listed.state not in {*ENDED, "COMPLETING"}:
                job: Any = SlurmJob(self._place, number)
                if job.paths.submitted_pickle.exists():  # else it is of another folder
                    return job
        return None

    def _submitted(self, name: str, log: Path) -> Any:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        job = Requeued.of(self._folder, name, self._root, log)
        # Not every cluster keeps a job to the cores that it asked for.
        job.environment.setdefault(THREADS, os.environ.get(THREADS, str(self._cpus)))
        self._executor.update_parameters(name=name)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                return self._executor.submit(job)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            last = str(error).strip().rpartition("\n")[2].removeprefix("sbatch: error: ")
            raise UsageError(f"Slurm takes no job: {last}; {ASKED}") from None

    def _code(self, name: str, job: Any, log: Path) -> int | None:
        """What the job's process ended with; None while it waits or runs."""
        with contextlib.suppress(OSError):  # makes a shared folder show what is new in it
            self._place.chmod(self._place.stat().st_mode)
        if job.paths.result_pickle.exists():
            return _result(job, log)
        if self._queue is None:  # no answer is no news
            return None
        state = self._queue.get(job.job_id, UNKNOWN).state
        if state != GONE and state not in ENDED:
            self._ended_at.pop(name, None)  # queued again
            return None
        since = self._ended_at.setdefault(name, time.monotonic())
        if not self._is_leaving and time.monotonic() - since < SETTLE:
            return None
        if state == "COMPLETED":
            return PRE_EMPTED
        if state == "CANCELLED":
            return CTRL_C if job.paths.submitted_pickle.exists() else PRE_EMPTED
        _tell(log, f"Slurm ended job {job.job_id} ({state}); more may be in {job.paths.stderr}")
        return 1


def queue() -> dict[str, Listed] | None:
    """This user's jobs by number; None where Slurm does not answer."""
    what = ("--noheader", "--states=all", f"--user={os.getuid()}", "--format=%i|%T|%r|%j")
    command = ["squeue", *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    rows = (line.split("|", 3) for line in done.stdout.splitlines())
    return {number: Listed(*rest) for number, *rest in rows}


def _result(job: Any, log: Path) -> int:
    """What submitit wrote down: the exit code of the job's process, or why there was none."""
    from submitit.core.utils import FailedJobError

    try:
        return int(job.result())
    except FailedJobError as error:
        # A traceback between two rules, and then where more is.
        _, *parts = re.split(r"^-+$", str(error), flags=re.MULTILINE)
        _tell(log, "".join(parts[:1]).strip().rpartition("\n")[2] or str(error))
        return 1


def _tell(log: Path, words: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(f"bayesdg: {words}\n")
