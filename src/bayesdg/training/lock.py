"""One process at a time trains in a run folder. Imports no torch.

Whoever creates run.lock holds the folder, and rewrites the file every few seconds as a sign of
life. A holder on this machine is looked up by its process; one elsewhere, or on a system that
cannot tell, counts as gone when it has not been heard of for ten minutes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from bayesdg.errors import FolderInUseError

BEAT_SECONDS = 10.0  # between two signs of life
ASLEEP_SECONDS = 60.0  # a beat as late as this means that nothing ran here
SILENT_SECONDS = 600.0  # a holder that cannot be looked up is gone after this
NEWBORN_SECONDS = 10.0  # a lock that says nothing may be one that is being written
SETTLE_SECONDS = 0.5  # for others who took the same lock over at the same time


@dataclass(frozen=True)
class Holder:
    """What run.lock says. Times are UTC; step and memory are those of the last beat."""

    host: str
    machine: str  # where the pid means something, see `_machine`
    pid: int
    start: int | None  # of the process; tells it from a later one of the same number
    token: str  # of this lock and no other
    started: str
    beat: str
    step: int
    memory_used: int | None  # bytes
    memory_total: int | None

    def __str__(self) -> str:
        return f"host {self.host}, process {self.pid}, since {self.started}"


class FolderLock:
    """A run folder that this process alone writes to; `step` is told with every sign of life."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.step = 0
        self._folder = folder
        self._path = folder / "run.lock"
        self._note = note
        self._pid = os.getpid()
        self._token = secrets.token_hex(8)
        self._started = _utc()
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._live, name="run.lock", daemon=True)

    @classmethod
    def acquire(cls, folder: Path, note: Callable[[str], None]) -> FolderLock:
        """The lock on a folder that exists, or FolderInUseError.

        `note` is told what the user should know, in one line; later from another thread.
        """
        lock = cls(folder, note)
        with _guarded(folder) as guarded:
            news = lock._take(guarded)
            for litter in folder.glob("run.lock.tmp-*"):
                litter.unlink(missing_ok=True)
        lock._heart.start()
        if news:
            note(news)
        return lock

    def check(self) -> None:
        """Raise FolderInUseError when this process holds the folder no more."""
        holder = None
        try:
            holder = _read(self._path)
        except FileNotFoundError:
            pass  # not harmless: whoever took over may have finished the run and left
        except OSError:
            return
        if holder is None or holder.token != self._token:
            other = holder or "somebody who is gone, or run.lock was deleted"
            raise FolderInUseError(f"{self._folder} was taken over by {other}; this run stops here")

    def release(self) -> None:
        """Let others in; a second call does nothing.

        run.lock.guard stays: a process that has just opened it would otherwise lock a deleted
        file while the next one locks a new file, and both would be alone.
        """
        # A forked worker has a copy of this object, and the folder is not its own to give.
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        self._heart.join(BEAT_SECONDS)
        with suppress(OSError), _guarded(self._folder):
            if self._is_ours():
                self._path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _take(self, guarded: bool) -> str:
        """Take the lock; returns what is to be said about one that was left behind."""
        for _ in range(3):
            with suppress(FileExistsError):
                self._path.touch(exist_ok=False)
                self._replace()
                return ""
            try:
                holder = _read(self._path)
                if not self._is_stale(holder):
                    raise FolderInUseError(_in_use(self._folder, holder))
                self._replace()
            except FileNotFoundError:
                continue  # somebody let go, or was faster, just now
            if not guarded or holder is None or holder.machine != _machine():
                # Others may have done the same; the last one to write has won.
                time.sleep(SETTLE_SECONDS)
                self.check()
            return _goodbye(holder)
        raise FolderInUseError(f"{self._path} comes and goes; try again or give another --out")

    def _replace(self) -> None:
        holder = Holder(
            *(platform.node(), _machine(), self._pid, _process(self._pid)[1], self._token),
            *(self._started, _utc(), self.step, *_memory()),
        )
        temporary = self._folder / f"run.lock.tmp-{self._token}"
        try:
            temporary.write_text(json.dumps(dataclasses.asdict(holder)) + "\n", encoding="utf-8")
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        holder = _read(self._path)
        return holder is not None and holder.token == self._token

    def _is_stale(self, holder: Holder | None) -> bool:
        alive = None if holder is None else _is_alive(holder)
        if alive is not None:
            return not alive
        # A new file has the time of the file server, as the lock has; ours may differ.
        probe = self._folder / f"run.lock.tmp-{self._token}"
        probe.touch()
        age = probe.stat().st_mtime - self._path.stat().st_mtime
        probe.unlink()
        # A time far in the future was written before the clock was set back.
        return abs(age) > (NEWBORN_SECONDS if holder is None else SILENT_SECONDS)

    def _live(self) -> None:
        before = _seconds()
        while not self._ended.wait(BEAT_SECONDS):
            gap = _seconds() - before
            # A full disk is no reason to stop training, nor is a closed terminal.
            with suppress(OSError, ValueError):
                if gap > ASLEEP_SECONDS:
                    cause = "the machine was asleep or this process was stopped"
                    self._note(f"{cause} for {gap:.0f} s")
                self._beat()
            # Only the wait is measured: a file server that hangs is no sleep.
            before = _seconds()

    def _beat(self) -> None:
        with _guarded(self._folder):
            if self._is_ours():
                self._replace()


@contextmanager
def _guarded(folder: Path) -> Iterator[bool]:
    """Alone with run.lock for a moment; False where the file system cannot promise it."""
    try:
        import fcntl

        file = (folder / "run.lock.guard").open("a")
    except (ImportError, OSError):  # ImportError on Windows
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            guarded = True
        except OSError:  # some network drives know no locks
            guarded = False
        try:
            yield guarded
        finally:
            # Closing is not enough: a worker forked meanwhile has the file open too.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)


def _read(path: Path) -> Holder | None:
    """Who holds the lock; None if the file does not say."""
    try:
        fields = json.loads(path.read_bytes())
        return Holder(**{field.name: fields[field.name] for field in dataclasses.fields(Holder)})
    except (ValueError, KeyError, TypeError):
        return None


def _is_alive(holder: Holder) -> bool | None:
    """Whether the holder's process is there; None if it cannot be known here."""
    # On Windows os.kill would end the process.
    if holder.machine != _machine() or os.name == "nt":
        return None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, so it is there
    state, start = _process(holder.pid)
    if state in ("Z", "X"):  # dead; in many containers nobody clears such processes away
        return False
    return None if start is None or holder.start is None else start == holder.start


def _process(pid: int) -> tuple[str | None, int | None]:
    """State and start of a process, where there is /proc; see proc(5), fields 3 and 22."""
    try:
        # Field 2, the name of the program, may have blanks and brackets in it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None, None


def _machine() -> str:
    """The same for processes that see each other's pid: one machine, one container."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return sha256("\n".join(parts).encode()).hexdigest()[:12]


def _memory() -> tuple[int | None, int | None]:
    """Bytes this process has in memory, and the most there is for it."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        used = page * int(Path("/proc/self/statm").read_text().split()[1])
        total = page * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # AttributeError on Windows
        return None, None
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container
        with suppress(OSError, ValueError):
            total = min(total, int((Path("/sys/fs/cgroup") / limit).read_text()))
    return used, total


def _seconds() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps."""
    # On Linux and macOS time.monotonic stands still in sleep; these, one for each, do not.
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _in_use(folder: Path, holder: Holder | None) -> str:
    if holder is None:
        return f"{folder} is in use by an unknown process that has just begun; try again"
    text = f"{folder} is in use by {holder} (step {holder.step}); "
    text += "wait for it, stop it, or give another --out"
    if _is_alive(holder) is None:
        text += f"; if it died, wait until {SILENT_SECONDS / 60:.0f} minutes after {holder.beat}"
    return text


def _goodbye(holder: Holder | None) -> str:
    if holder is None:
        return "run.lock here was empty or damaged, and nobody's; it was replaced"
    where = "" if holder.machine == _machine() else f" on {holder.host}"
    text = f"the previous run here (process {holder.pid}{where}) ended without a goodbye"
    text += f" at step {holder.step}"
    cause = "it was killed"
    if (used := holder.memory_used) is not None and (total := holder.memory_total) is not None:
        text += f", using {used / 2**30:.1f} of {total / 2**30:.1f} GiB of memory"
        if used > 0.8 * total:
            cause = "the system killed it for lack of memory"
    return f"{text}; perhaps {cause}"
