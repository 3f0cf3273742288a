"""Several processes that train together: started, watched over and ended as one.

Each copy of the command is a rank of torch.distributed and finds the others through its
environment. A rank that is missing leaves the others waiting for up to half an hour, so the
supervisor here ends them soon and names the rank to blame.
"""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD = 0.05  # seconds between two looks at the ranks
SETTLE = 5.0  # seconds in which the others may end by themselves after one broke

# What asks us to leave, and the exit code that says so; the other codes are in errors.py.
LEAVES: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 75, signal.SIGUSR1: 75}
CODES = {0, 1, 2, 3, 4, 5, 6, 7, *LEAVES.values()}

# Ties a child's life to ours: a supervisor that is SIGKILLed can clean up nothing, so the kernel
# must (1 is PR_SET_PDEATHSIG, which survives exec; Linux only). A pipe that closes would need a
# thread in the child that listens; preexec_fn may deadlock where a library has started threads.
BOND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[3], sys.argv[3:])
"""


def launch(
    command: Sequence[str],
    num: int,
    logs: Path,
    say: Callable[[str], None],
    grace: float = 20.0,
) -> int:
    """Run `command` in `num` processes and return the exit code of the whole.

    The first SIGINT, SIGTERM or SIGUSR1 is passed on to every rank, which then save and leave
    together, however long that takes; a second SIGINT or SIGTERM kills them. Call it from the
    main thread: only there signals are heard.

    Args:
        command: What each rank runs.
        num: Number of ranks.
        logs: Folder, made here, for the output of all ranks but 0, which has this terminal;
            rank-1.log and so on, removed when all went well or rank 0 has told why not.
        say: Prints one line for a person.
        grace: Seconds between asking the remaining ranks to stop and killing them.
    """
    logs.mkdir(parents=True, exist_ok=True)
    paths = [None, *(logs / f"rank-{rank}.log" for rank in range(1, num))]
    ranks: list[subprocess.Popen[bytes]] = []
    with _listening() as heard:
        try:
            for environment, path in zip(_environments(num), paths, strict=True):
                ranks.append(_start(command, environment, path))
            codes, stopped = _watch(ranks, heard, grace)
        finally:
            _send(ranks, signal.SIGKILL)
            for process in ranks:
                process.wait()
    first = next((rank for rank in codes if codes[rank]), None)
    if first is None or (_told_by_rank_0(codes, first) and codes[first] != 1):
        _remove(logs, filter(None, paths))
    if first is None:
        return 0
    if _told_by_rank_0(codes, first):
        return codes[first] if codes[first] > 0 else _exit_code(codes[first])
    say(_blame(first, codes[first], num, stopped, paths[first]))
    return _exit_code(codes[first])


def _remove(logs: Path, paths: Iterable[Path]) -> None:
    """The logs, and their folder if nothing else is in it."""
    for path in paths:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        logs.rmdir()


def _environments(num: int) -> list[dict[str, str]]:
    """What each rank is told: torch's env://, and the names Lightning Fabric looks for."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    shared = {
        # Otherwise each rank takes all cores, and they wait for one another.
        "OMP_NUM_THREADS": str(max(1, cores // num)),
        **os.environ,
        "WORLD_SIZE": str(num),
        "LOCAL_WORLD_SIZE": str(num),
        "GROUP_RANK": "0",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"bayesdg-{os.getpid()}",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    # Inside a torchrun it promises a store that nobody serves at our port.
    shared.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num)]


def _start(
    command: Sequence[str], environment: dict[str, str], path: Path | None
) -> subprocess.Popen[bytes]:
    # In a session of its own, Ctrl-C reaches a rank through us alone, and once. It cannot
    # read from the terminal there, so it finds an empty input instead of an error.
    with open(path or os.devnull, "w") as log:
        output = log if path else None
        return subprocess.Popen(
            tied(command, signal.SIGKILL), env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


def tied(command: Sequence[str], number: int) -> list[str]:
    """The command, which is sent a signal when this process ends; on Linux alone."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-ISc", BOND, str(os.getpid()), str(int(number)), *command]


@contextmanager
def _listening() -> Iterator[list[int]]:
    """A list of the signals that asked us to leave so far; a closed terminal does not ask."""
    heard: list[int] = []
    before = {one: signal.signal(one, lambda number, _: heard.append(number)) for one in LEAVES}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield heard
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _watch(
    ranks: list[subprocess.Popen[bytes]], heard: list[int], grace: float
) -> tuple[dict[int, int], bool]:
    """The code of each rank in the order they ended, and whether we had to stop some."""
    codes: dict[int, int] = {}
    num_heard = num_hasty = 0
    due, force, stopped = math.inf, signal.SIGTERM, False
    while len(codes) < len(ranks):
        time.sleep(PERIOD)
        fresh = {
            rank: code
            for rank, process in enumerate(ranks)
            if rank not in codes and (code := process.poll()) is not None
        }
        # In one look: a crash is a cause, and a plain 1 is often "connection closed by peer".
        codes.update(sorted(fresh.items(), key=lambda item: (item[1] >= 0, item[1] == 1)))
        bad = next(filter(None, codes.values()), None)
        # Signals in one look count once: a wrapper may pass on what the terminal sent as well.
        new = heard[num_heard:]
        if new and not num_heard:
            _send(ranks, new[0])
        num_heard += len(new)
        # Slurm sends SIGUSR1 early and SIGTERM in the end: that SIGTERM is no second wish.
        hasty = [number for number in new if number in (signal.SIGINT, signal.SIGTERM)]
        num_hasty += bool(hasty)
        if hasty and num_hasty > 1:
            _send(ranks, signal.SIGKILL)
            codes.update((rank, -hasty[0]) for rank in range(len(ranks)) if rank not in codes)
        elif bad is not None and due == math.inf:
            # Ranks that agreed to leave are not broken: rank 0 may still be saving.
            agreed = num_heard > 0 or _exit_code(bad) in LEAVES.values()
            due = time.monotonic() + (grace if agreed else SETTLE)
        elif time.monotonic() >= due:
            _send(ranks, force)
            due, force, stopped = time.monotonic() + grace, signal.SIGKILL, True
    return codes, stopped


def _send(ranks: list[subprocess.Popen[bytes]], number: int) -> None:
    for process in ranks:
        if number != signal.SIGKILL:
            process.send_signal(number)
        elif process.poll() is None:
            with suppress(PermissionError):  # macOS, for one that is just ending
                os.killpg(process.pid, number)  # with its data workers


def _exit_code(code: int) -> int:
    """One of our exit codes; a negative `code` is the signal that ended the process."""
    return code if code in CODES else LEAVES.get(-code, 1)


def _told_by_rank_0(codes: dict[int, int], first: int) -> bool:
    """Whether all ended alike, so that the terminal shows why already."""
    code = codes[first]
    if _exit_code(code) in LEAVES.values():
        return {_exit_code(other) for other in codes.values()} == {_exit_code(code)}
    # A 1 is a traceback, and the one of rank 0 may only say that another rank is gone.
    return set(codes.values()) == {code} and code > 0 and (code != 1 or first == 0)


def _blame(first: int, code: int, num: int, stopped: bool, path: Path | None) -> str:
    """One line about the rank that ended first."""
    if code >= 0:
        how = f"with exit code {code}"
    else:
        how = f"by {signal.Signals(-code).name if -code in set(signal.Signals) else -code}"
    if code == -signal.SIGKILL:
        how += " (perhaps the system killed it for lack of memory)"
    parts = [f"rank {first} of {num} ended first, {how}"]
    if num > 1:
        parts.append("the others were stopped" if stopped else "the others ended too")
    if path is not None:
        parts.append(f"its output is in {path}")
        if words := last_words(path):
            parts.append(f"its last words: {words}")
    return "; ".join(parts)


def last_words(path: Path) -> str:
    """The last line of a log that says something, without colours and control characters."""
    try:
        tail = path.read_bytes()[-4096:]
    except OSError:  # the folder is gone, perhaps with all that failed
        return ""
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", tail.decode(errors="replace"))
    lines = ("".join(filter(str.isprintable, line)).strip() for line in text.splitlines())
    return next(filter(None, reversed(list(lines))), "")[-300:]
