"""One process at a time in a run folder, told apart with real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bayesdg.errors import FolderInUseError
from bayesdg.training import lock as module
from bayesdg.training.lock import FolderLock

GIB = 2**30
# Holds a folder, with quick beats, until it is told to end.
HOLD = """
import sys
from pathlib import Path
from bayesdg.training import lock as module
module.BEAT_SECONDS, module.ASLEEP_SECONDS = 0.02, 0.5
with module.FolderLock.acquire(Path(sys.argv[1]), lambda text: print(text, flush=True)) as lock:
    lock.step = 410
    print("held", flush=True)
    sys.stdin.read()
"""
# Enters a folder again and again; inside, it adds one to a number, and notices company.
RACE = """
import os, signal, sys, time
from pathlib import Path
from bayesdg.errors import FolderInUseError
from bayesdg.training import lock as module
folder, turns, dying, guarded = Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:])
if not guarded:
    sys.modules["fcntl"] = None

def enter(dies):
    with module.FolderLock.acquire(folder, lambda text: None) as lock:
        inside = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)
        os.close(inside)
        number = folder / "number"
        count = int(number.read_text()) + 1
        time.sleep(0.001)
        number.write_text(str(count))
        lock.check()
        (folder / "inside").unlink()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

while turns:
    try:
        if dying and turns % 2:
            child = os.fork()
            if not child:
                try:
                    enter(dies=True)
                except FolderInUseError:
                    os._exit(7)
                finally:
                    os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == 7:
                raise FolderInUseError
            assert code == -signal.SIGKILL, code
        else:
            enter(dies=False)
        turns -= 1
    except FolderInUseError:
        time.sleep(0.001)
"""


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts another process that holds the folder."""
    with ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            process = stack.enter_context(python(HOLD, tmp_path))
            stack.callback(process.kill)
            assert line(process) == "held"
            return process

        yield start


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.lock").read_text())


def leave(folder: Path, age: float = 0, **changes: object) -> None:
    """A lock as a process that is gone, or elsewhere, would leave it."""
    with FolderLock.acquire(folder, print):
        fields = content(folder)
    (folder / "run.lock").write_text(json.dumps(fields | changes))
    grow_old(folder / "run.lock", age)


def grow_old(path: Path, seconds: float) -> None:
    written = time.time() - seconds
    os.utime(path, (written, written))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_free_folder_is_taken_and_left_clean(tmp_path: Path) -> None:
    notes: list[str] = []
    with FolderLock.acquire(tmp_path, notes.append) as lock:
        lock.check()
        found = content(tmp_path)
        assert found["pid"] == os.getpid()
        assert found["step"] == 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["started"])
    lock.release()
    assert notes == []
    assert {path.name for path in tmp_path.iterdir()} <= {"run.lock.guard"}
    assert "run.lock" not in {thread.name for thread in threading.enumerate()}


def test_a_second_process_is_told_who_holds_the_folder(
    tmp_path: Path, hold: Callable[[], subprocess.Popen[str]]
) -> None:
    process = hold()
    until(lambda: content(tmp_path)["step"] == 410)
    found = content(tmp_path)
    with pytest.raises(FolderInUseError) as caught:
        FolderLock.acquire(tmp_path, print)
    assert str(caught.value) == (
        f"{tmp_path} is in use by host {found['host']}, process {process.pid}, since "
        f"{found['started']} (step 410); wait for it, stop it, or give another --out"
    )
    assert caught.value.exit_code == 7
    process.communicate("")
    FolderLock.acquire(tmp_path, print).release()


def test_the_same_process_cannot_hold_a_folder_twice(tmp_path: Path) -> None:
    with FolderLock.acquire(tmp_path, print) as lock:
        with pytest.raises(FolderInUseError, match=f"process {os.getpid()}"):
            FolderLock.acquire(tmp_path, print)
        lock.check()


@pytest.mark.parametrize("cleared", [True, False], ids=["gone", "zombie"])
def test_a_killed_holder_is_followed_and_its_last_step_told(
    tmp_path: Path, hold: Callable[[], subprocess.Popen[str]], cleared: bool
) -> None:
    process = hold()
    until(lambda: content(tmp_path)["step"] == 410)
    process.kill()
    if cleared:
        process.wait()
    else:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    notes: list[str] = []
    with FolderLock.acquire(tmp_path, notes.append) as lock:
        lock.check()
        assert content(tmp_path)["pid"] == os.getpid()
    (note,) = notes
    assert re.fullmatch(
        rf"the previous run here \(process {process.pid}\) ended without a goodbye at step 410, "
        r"using \d+\.\d of \d+\.\d GiB of memory; perhaps it was killed",
        note,
    )


@pytest.mark.parametrize(
    ("used", "total", "end"),
    [
        (22.9, 23, "using 22.9 of 23.0 GiB of memory; perhaps the system killed it for lack of"),
        (2, 23, "using 2.0 of 23.0 GiB of memory; perhaps it was killed"),
        (None, 23, "at step 9; perhaps it was killed"),
    ],
)
def test_lack_of_memory_is_guessed_from_the_last_beat(
    tmp_path: Path, used: float | None, total: float, end: str
) -> None:
    """The start differs: the number of the process was given to another one, here to us."""
    memory: dict[str, Any] = {"memory_used": used and used * GIB, "memory_total": total * GIB}
    leave(tmp_path, start=1, step=9, **memory)
    notes: list[str] = []
    FolderLock.acquire(tmp_path, notes.append).release()
    assert len(notes) == 1
    assert end in notes[0]


def test_a_live_process_holds_however_long_it_is_silent(tmp_path: Path) -> None:
    leave(tmp_path, age=1e6)
    with pytest.raises(FolderInUseError, match="in use by host"):
        FolderLock.acquire(tmp_path, print)


# The second is this machine on a system that does not tell when a process was started.
@pytest.mark.parametrize("changes", [{"host": "far", "machine": "other"}, {"start": None}])
def test_who_cannot_be_looked_up_is_gone_after_ten_minutes_of_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    leave(tmp_path, age=590, **changes)
    beat = content(tmp_path)["beat"]
    with pytest.raises(FolderInUseError, match=f"if it died, wait until 10 minutes after {beat}"):
        FolderLock.acquire(tmp_path, print)
    grow_old(tmp_path / "run.lock", 610)
    notes: list[str] = []
    with FolderLock.acquire(tmp_path, notes.append) as lock:
        lock.check()
    assert f"(process {os.getpid()}{' on far' if 'host' in changes else ''}) ended" in notes[0]


def test_of_two_who_follow_the_same_holder_the_last_to_write_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, age=1e6, machine="other")
    rival = json.dumps(content(tmp_path) | {"host": "rival", "token": "rival"})
    monkeypatch.setattr(time, "sleep", lambda s: (tmp_path / "run.lock").write_text(rival))
    with pytest.raises(FolderInUseError, match="host rival"):
        FolderLock.acquire(tmp_path, print)
    assert content(tmp_path)["token"] == "rival"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0" * 300])
def test_a_lock_that_says_nothing_holds_for_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    path = tmp_path / "run.lock"
    path.write_text(text)
    with pytest.raises(FolderInUseError, match="unknown process"):
        FolderLock.acquire(tmp_path, print)
    grow_old(path, 11)
    notes: list[str] = []
    FolderLock.acquire(tmp_path, notes.append).release()
    assert notes == ["run.lock here was empty or damaged, and nobody's; it was replaced"]


def test_who_lost_the_folder_is_told_and_leaves_the_winner_alone(
    tmp_path: Path, hold: Callable[[], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    lost = FolderLock.acquire(tmp_path, print)
    (tmp_path / "run.lock").unlink()
    with pytest.raises(FolderInUseError, match=r"run\.lock was deleted"):
        lost.check()
    winner = hold()
    with pytest.raises(FolderInUseError, match=f"taken over by host .*, process {winner.pid}, "):
        lost.check()
    time.sleep(0.1)  # a few beats of both
    lost.release()
    assert content(tmp_path)["pid"] == winner.pid


def test_a_forked_worker_does_not_give_the_folder_away(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from pathlib import Path
        from bayesdg.training.lock import FolderLock
        with FolderLock.acquire(Path(sys.argv[1]), print) as lock:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                lock.check()
                print("ours")
    """
    output, _ = python(script, tmp_path).communicate()
    assert output == "ours\n"


def test_the_heartbeat_tells_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    with FolderLock.acquire(tmp_path, print) as lock:
        before = content(tmp_path)
        lock.step = 12
        until(lambda: content(tmp_path)["step"] == 12)
        after = content(tmp_path)
    for name in ("token", "pid", "started"):
        assert after[name] == before[name]


def test_a_full_disk_does_not_stop_the_heart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    failed = threading.Event()

    def full(*_: object, **__: object) -> int:
        failed.set()
        raise OSError(28, "No space left on device")

    with FolderLock.acquire(tmp_path, print) as lock:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_text", full)
            lock.step = 5
            assert failed.wait(20)
        lock.check()
        until(lambda: content(tmp_path)["step"] == 5)


def test_a_stopped_process_notices_afterwards(
    hold: Callable[[], subprocess.Popen[str]],
) -> None:
    process = hold()
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    process.send_signal(signal.SIGCONT)
    assert re.fullmatch(
        r"the machine was asleep or this process was stopped for \d s", line(process)
    )
    output, _ = process.communicate("")
    assert output == ""


def test_litter_of_killed_beats_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "run.lock.tmp-0123").write_text("{")
    (tmp_path / "records.jsonl.tmp-1").write_text("not ours")
    with FolderLock.acquire(tmp_path, print):
        names = {path.name for path in tmp_path.iterdir()}
    assert names - {"run.lock.guard"} == {"run.lock", "records.jsonl.tmp-1"}


# Without the guard only a folder that nobody dies in is promised to have one at a time.
@pytest.mark.parametrize(("dying", "guarded"), [(0, 1), (1, 1), (0, 0)])
def test_processes_that_race_are_inside_one_at_a_time(
    tmp_path: Path, dying: int, guarded: int
) -> None:
    (tmp_path / "number").write_text("0")
    turns = 30 if dying else 100
    racers = [python(RACE, tmp_path, turns, dying, guarded) for _ in range(2)]
    for racer in racers:
        racer.communicate(timeout=60)
    assert [racer.returncode for racer in racers] == [0, 0]
    assert int((tmp_path / "number").read_text()) == 2 * turns


def test_no_torch_is_loaded() -> None:
    script = "import sys, bayesdg.training.lock; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
