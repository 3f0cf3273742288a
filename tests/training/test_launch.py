"""Ranks of a few lines, started and watched over."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bayesdg.training import launch as module
from bayesdg.training.launch import launch

RANK = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
# Says that it is ready, then waits for signals that the test sends.
READY = """
def leave(number, frame):
    with open(f"heard-{rank}", "a") as file:
        file.write(f"{number} ")
    if POLITE:
        sys.exit(130 if number == signal.SIGINT else 75)
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(one, leave)
open(f"pid-{rank}.part", "w").write(str(os.getpid()))
os.rename(f"pid-{rank}.part", f"pid-{rank}")
while True:
    time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SETTLE", 0.3)
    monkeypatch.chdir(tmp_path)


class Case:
    """`launch` of a script in this process, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "logs"
        self.said: list[str] = []

    def __call__(self, script: str, num: int = 2, grace: float = 5.0) -> int:
        command = [sys.executable, "-c", RANK + script]
        return launch(command, num, self.logs, self.said.append, grace)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


Supervise = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """`launch` in a process of its own, once its two ranks are ready."""
    supervisors = []

    def start(polite: bool) -> subprocess.Popen[str]:
        script = RANK + f"POLITE = {polite}" + READY
        watcher = (
            "import sys; from pathlib import Path\n"
            "from bayesdg.training.launch import launch\n"
            f"command = [sys.executable, '-c', {script!r}]\n"
            "sys.exit(launch(command, 2, Path('logs'), print))"
        )
        supervisor = subprocess.Popen(
            [sys.executable, "-c", watcher], stdout=subprocess.PIPE, text=True
        )
        supervisors.append(supervisor)
        wait_until(lambda: all((tmp_path / f"pid-{rank}").exists() for rank in range(2)))
        return supervisor

    yield start
    for supervisor in supervisors:
        supervisor.kill()
        supervisor.communicate()


def wait_until(happened: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    # One that nobody has asked about yet is a zombie: ended, but still listed.
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def pids() -> list[int]:
    return [int(Path(f"pid-{rank}").read_text()) for rank in range(2)]


def heard(rank: int) -> list[int]:
    path = Path(f"heard-{rank}")
    return [int(number) for number in path.read_text().split()] if path.exists() else []


def test_each_rank_is_told_who_it_is(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert case("import json; json.dump(dict(os.environ), open(f'{rank}.json', 'w'))", 3) == 0
    told = [json.loads(Path(f"{rank}.json").read_text()) for rank in range(3)]
    for rank, environment in enumerate(told):
        assert environment["RANK"] == environment["LOCAL_RANK"] == str(rank)
        assert environment["WORLD_SIZE"] == environment["LOCAL_WORLD_SIZE"] == "3"
        assert environment["GROUP_RANK"] == environment["NODE_RANK"] == "0"
        assert environment["MASTER_ADDR"] == "127.0.0.1"
        assert environment["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert "TORCHELASTIC_USE_AGENT_STORE" not in environment
        assert environment["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 3))
    assert len({environment["MASTER_PORT"] for environment in told}) == 1
    assert len({environment["TORCHELASTIC_RUN_ID"] for environment in told}) == 1


def test_the_users_number_of_threads_is_kept(
    case: Case, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert case("print(os.environ['OMP_NUM_THREADS'])", 1) == 0
    assert capfd.readouterr().out == "7\n"


def test_rank_0_has_the_terminal_and_logs_go_when_all_went_well(
    case: Case, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert case("print('I am', rank); print('alas', rank, file=sys.stderr)") == 0
    assert capfd.readouterr() == ("I am 0\n", "alas 0\n")
    assert not case.logs.exists()
    assert case.said == []
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("code", [2, 75, 130, 9])
def test_one_code_of_all_is_the_code_of_the_whole(case: Case, code: int) -> None:
    assert case(f"sys.exit({code})") == code
    assert case.said == []
    assert not case.logs.exists()


def test_a_killed_rank_is_named_and_the_others_are_stopped(case: Case) -> None:
    begin = time.monotonic()
    code = case(
        "open(f'pid-{rank}', 'w').write(str(os.getpid()))\n"
        "while rank == 1 and not all(os.path.exists(f'pid-{r}') for r in range(3)): pass\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
        3,
    )
    assert code == 1
    assert time.monotonic() - begin < 5
    assert case.said == [
        "rank 1 of 3 ended first, by SIGKILL (perhaps the system killed it for lack of memory); "
        f"the others were stopped; its output is in {case.logs / 'rank-1.log'}"
    ]
    for rank in range(3):
        assert not Path("/proc", Path(f"pid-{rank}").read_text()).exists()


def test_a_rank_that_ignores_the_request_is_killed(case: Case) -> None:
    begin = time.monotonic()
    script = """
signal.signal(signal.SIGTERM, lambda *_: open("asked", "w").close())
if rank == 0:
    open("deaf", "w").close()
while rank == 0 or not os.path.exists("deaf"):
    time.sleep(0.01)
sys.exit(3)
"""
    assert case(script, grace=0.5) == 3
    assert 0.8 < time.monotonic() - begin < 5
    assert Path("asked").exists()
    assert case.said[0].startswith(
        "rank 1 of 2 ended first, with exit code 3; the others were stopped;"
    )


def test_no_log_is_named_for_rank_0(case: Case) -> None:
    assert case("if rank == 0: sys.exit(4)\ntime.sleep(60)") == 4
    assert case.said == ["rank 0 of 2 ended first, with exit code 4; the others were stopped"]


def test_the_others_may_end_by_themselves(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE", 20)
    assert case("if rank == 1: sys.exit(5)\ntime.sleep(0.5); sys.exit(1)") == 5
    assert "ended first, with exit code 5; the others ended too;" in case.said[0]


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        ("sys.exit(77)", 1, "with exit code 77"),
        ("os.abort()", 1, "by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "by SIGINT"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 75, "by SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", 1, f"by {signal.SIGRTMIN + 1}"),
    ],
)
def test_the_code_of_the_first_is_the_code_of_the_whole(
    case: Case, end: str, code: int, how: str
) -> None:
    assert case(f"if rank == 1: {end}") == code
    assert case.said[0].startswith(f"rank 1 of 2 ended first, {how}; ")


def test_tracebacks_of_all_still_name_the_first(case: Case) -> None:
    assert case("time.sleep(0 if rank == 1 else 0.25); raise ValueError(f'rank {rank}')") == 1
    assert case.said[0].endswith("its last words: ValueError: rank 1")


def test_last_words_hold_no_control_characters(case: Case) -> None:
    script = r"""
if rank == 1:
    print("50%\r\x1b[1;31mdisk\x1b[0m is \x07full\u202e\n\n \x1b[2K", flush=True)
    sys.exit(5)
"""
    assert case(script) == 5
    assert case.said[0].endswith("; its last words: disk is full")


def test_a_log_starts_empty(case: Case) -> None:
    case.logs.mkdir()
    (case.logs / "rank-1.log").write_text("of yesterday")
    assert case("if rank == 1: sys.exit(3)") == 3
    assert "yesterday" not in case.said[0]
    assert (case.logs / "rank-1.log").read_text() == ""


def test_ranks_started_before_a_failure_are_ended(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        if started:
            raise OSError("no more processes")
        started.append(real(*arguments))
        return started[0]

    real = module._start
    monkeypatch.setattr(module, "_start", start)
    with pytest.raises(OSError, match="no more processes"):
        case("time.sleep(60)")
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
)
def test_a_request_is_passed_on_once(supervise: Supervise, number: int, code: int) -> None:
    supervisor = supervise(polite=True)
    supervisor.send_signal(signal.SIGHUP)
    supervisor.send_signal(number)
    assert supervisor.communicate(timeout=20) == ("", None)
    assert supervisor.returncode == code
    assert heard(0) == heard(1) == [number]


def test_a_second_ctrl_c_kills(supervise: Supervise) -> None:
    supervisor = supervise(polite=False)
    supervisor.send_signal(signal.SIGINT)
    wait_until(lambda: bool(heard(0) and heard(1)))
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.communicate(timeout=5) == ("", None)
    assert supervisor.returncode == 130
    assert heard(0) == heard(1) == [signal.SIGINT]
    assert not any(map(alive, pids()))


def test_the_sigterm_that_follows_slurms_sigusr1_does_not_kill(supervise: Supervise) -> None:
    supervisor = supervise(polite=False)
    supervisor.send_signal(signal.SIGUSR1)
    wait_until(lambda: bool(heard(0) and heard(1)))
    supervisor.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert all(map(alive, pids()))
    supervisor.send_signal(signal.SIGTERM)
    supervisor.communicate(timeout=5)
    assert supervisor.returncode == 75


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux only")
def test_no_rank_outlives_a_killed_supervisor(supervise: Supervise) -> None:
    supervisor = supervise(polite=False)
    assert all(map(alive, pids()))
    supervisor.kill()
    wait_until(lambda: not any(map(alive, pids())), seconds=2)


@pytest.mark.slow
def test_an_aborted_rank_of_torch_ends_the_others(case: Case) -> None:
    script = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1000):
    if step == 5 and rank == 1:
        print("all is lost", flush=True)
        os.abort()
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [2, 2, 2]
dist.destroy_process_group()
"""
    begin = time.monotonic()
    assert case(script) == 1
    assert time.monotonic() - begin < 60
    assert case.said[0].startswith("rank 1 of 2 ended first, by SIGABRT; ")
    assert case.said[0].endswith("its last words: all is lost")
    case.said.clear()
    assert case(script.replace("step == 5", "False")) == 0
    assert case.said == []
