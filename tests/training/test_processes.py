"""Two processes that train together, as a person starts them; tests/test_ranks.py has the sums.

Slow: each process loads torch, and they share the cores of a small machine.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.records import StepRecord, read_records
from bayesdg.training.checkpoint import checkpoints, read_checkpoint

pytestmark = pytest.mark.slow
TRAIN = (
    "-m", "bayesdg", "train", "rotated-digits", "--device", "cpu", "--backbone", "small-cnn",
    "--set", "episode.per_class=4", "--set", "training.evaluate_every=1",
)  # fmt: skip


def start(out: Path, processes: int, steps: int) -> subprocess.Popen[str]:
    options = ["--steps", str(steps), "--processes", str(processes), "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, *TRAIN, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def steps_of(out: Path) -> list[StepRecord]:
    (folder,) = out.glob("rotated-digits_*")
    records = read_records(folder / "records.jsonl")
    return [record for record in records if isinstance(record, StepRecord)]


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Terms of every step, to what float32 gives; both from the same command line."""
    for processes in (1, 2):
        run = start(tmp_path / str(processes), processes, steps=5)
        _, told = run.communicate(timeout=200)
        assert run.returncode == 0, told
    alone, together = steps_of(tmp_path / "1"), steps_of(tmp_path / "2")
    assert [record.step for record in together] == [1, 2, 3, 4, 5]
    for one, two in zip(alone, together, strict=True):
        assert two.terms == pytest.approx(one.terms, rel=1e-3, abs=1e-5)
        assert two.gradient == pytest.approx(one.gradient, rel=1e-2)
        assert two.val_accuracy == pytest.approx(one.val_accuracy, abs=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="finds a rank by /proc")
def test_18_19_28_what_ends_one_rank_ends_the_run_and_it_goes_on(tmp_path: Path) -> None:
    """SIGTERM to one alone, the same command again, SIGKILL to one alone."""

    def newest() -> int:
        return max((s for f in tmp_path.glob("*/checkpoints") for s in checkpoints(f)), default=0)

    def send_to_rank_1(number: int) -> tuple[int, str, float]:
        run, before = start(tmp_path, 2, steps=10_000), newest()
        try:
            wait_until(lambda: newest() >= before + 2 or run.poll() is not None)
            os.kill(rank_1(run.pid), number)
            began = time.monotonic()
            _, told = run.communicate(timeout=60)
            return run.returncode, told, time.monotonic() - began
        finally:
            run.kill()

    code, told, seconds = send_to_rank_1(signal.SIGTERM)
    assert code == 75, told
    assert "everything is saved; the same command goes on" in told
    assert seconds < 20
    saved = newest()
    assert steps_of(tmp_path)[-1].step == saved

    code, told, seconds = send_to_rank_1(signal.SIGKILL)
    assert code == 1
    assert f"going on after step {saved} of 10000" in told
    assert "rank 1 of 2 ended first, by SIGKILL" in " ".join(told.split())
    assert seconds < 60
    # Only the first rank writes: nothing is there twice or in part.
    (kept,) = tmp_path.glob("*/checkpoints")
    assert read_checkpoint(checkpoints(kept)[newest()])
    steps = [record.step for record in steps_of(tmp_path)]
    assert steps == list(range(1, len(steps) + 1))


def rank_1(supervisor: int) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == supervisor and b"RANK=1" in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
        except (OSError, ValueError):
            continue
    raise AssertionError("there is no rank 1")


def wait_until(happened: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
