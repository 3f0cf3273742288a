"""`bayesdg bench` as a person meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayesdg.bench.folder import is_done, job_path, last_step
from bayesdg.bench.jobs import jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.cli import main
from bayesdg.records import ResultRecord, StartRecord, read_records
from benches import MINIATURE, miniature, tiny_pacs


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["bench", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_a_name_the_plans_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys)
    assert code == 0
    for name, plan in PLANS.items():
        assert any(line.startswith(name) and plan.about in line for line in out.splitlines())
    code, out, _ = said(capsys, "--json")
    assert list(json.loads(out)) == list(PLANS)


def test_a_dry_run_lists_every_run_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "bench"
    code, text, _ = said(capsys, "ablation", "--seeds", "2", "--dry-run", "--out", str(out))
    assert code == 0
    assert text.count("to do") == 10 * 4 * 2
    assert f"80 runs, 0 of them done in {out}" in " ".join(text.split())
    assert "time unknown: it is told from runs that are done in this folder" in text
    code, text, _ = said(
        capsys, "ablation", "--seeds", "4,7", "--dry-run", "--json", "--out", str(out)
    )
    found = json.loads(text)
    assert {run["seed"] for run in found["runs"]} == {4, 7}
    assert found["seconds"] is None
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ablatoin"], "unknown plan 'ablatoin'; did you mean 'ablation'?"),
        (["pacs", "--engine", "rya"], "unknown engine 'rya'; did you mean 'ray'?"),
        (["pacs", "--seeds", "few"], "--seeds is 'few'; wanted how many, such as 5, or which"),
        (["pacs", "--seeds", "0"], "--seeds is '0'"),
        (["pacs", "--seeds", ","], "--seeds is ','"),
        (["pacs", "--seeds", "1,-1"], "--seeds is '1,-1'"),
        (["pacs", "--methods", ","], "--methods is empty"),
        (["pacs", "--targets", "foto"], "unknown domain 'foto' in pacs; did you mean 'photo'?"),
        (["pacs", "--methods", "a,jj"], "unknown method 'jj'"),
        (["pacs", "--set", "training.stpes=3"], "did you mean 'training.steps'?"),
        (["nothing.toml"], "nothing.toml: no such file"),
    ],
)
def test_a_mistake_gets_one_line_and_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = said(capsys, *arguments, "--out", str(tmp_path / "bench"))
    assert code == 2
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_engine_that_is_not_installed_begins_no_bench(
    engine: str,
    package: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = said(capsys, "pacs", "--engine", engine, "--out", str(tmp_path / "bench"))
    assert code == 2
    assert f"needs {package}, not installed here; pip install 'bayesdg[{engine}]'" in err
    assert not (tmp_path / "bench").exists()


def command(folder: Path, out: Path, **more: object) -> list[str]:
    """The two runs of a small bench."""
    values = [f"--set={name}={value}" for name, value in {**MINIATURE, **more}.items()]
    plan = ["pacs", "--dataset", str(folder), "--targets", "photo", "--seeds", "1"]
    return [sys.executable, "-m", "bayesdg", "bench", *plan, "--out", str(out), *values]


def run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def test_a_run_that_fails_is_told_with_its_reason_and_its_log(tmp_path: Path) -> None:
    data = tiny_pacs(tmp_path)
    (data / "art" / "dog" / "0.png").write_bytes(b"no picture")
    done = run([*command(data, tmp_path / "bench"), "--methods", "a"])
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    (line,) = lines
    assert "art/dog/0.png" in line
    assert "exit code 3" in line
    log = Path(line.rpartition("all it said is in ")[2].rstrip(")"))
    assert "art/dog/0.png" in log.read_text()
    assert "1 of 1 runs failed; the same command tries them again" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_real_command_goes_on_after_a_signal_as_if_there_had_been_none(
    number: signal.Signals, tmp_path: Path
) -> None:
    data = tiny_pacs(tmp_path)
    steps = {
        "training.steps": 300, "training.checkpoint_every": 10, "training.evaluate_every": 100
    }  # fmt: skip
    calm, out = tmp_path / "calm", tmp_path / "bench"
    assert run(command(data, calm, **steps)).returncode == 0
    jobs = jobs_of(miniature(PLANS["pacs"], data, [["photo"]], **steps))  # type: ignore[arg-type]
    driver = subprocess.Popen(command(data, out, **steps), stderr=subprocess.DEVNULL)
    while last_step(job_path(out, jobs[0]))[0] < 30:
        time.sleep(0.02)
    driver.send_signal(number)
    driver.wait(60)
    expected = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 75}
    assert driver.returncode == expected[number]
    assert not is_done(out, jobs[0])
    # Jobs are told by the kernel when their driver is gone: they save and leave, too.
    log = out / "logs" / f"{jobs[0].name}.log"
    deadline = time.monotonic() + 30
    while "everything is saved" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "everything is saved; the same command goes on" in log.read_text()
    done = run(command(data, out, **steps))
    assert done.returncode == 0, done.stderr
    for job in jobs:
        records = read_records(job_path(out, job) / "records.jsonl")
        undisturbed = read_records(job_path(calm, job) / "records.jsonl")
        assert [r for r in records if isinstance(r, ResultRecord)] == [
            r for r in undisturbed if isinstance(r, ResultRecord)
        ]
    starts = [
        r.step
        for r in read_records(job_path(out, jobs[0]) / "records.jsonl")
        if isinstance(r, StartRecord)
    ]
    assert len(starts) == 2
    assert starts[1] >= 30


@pytest.mark.slow
def test_jobs_run_beside_each_other(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    words = command(
        tiny_pacs(tmp_path), out, **{"training.steps": 200, "training.evaluate_every": 100}
    )
    done = run([*words, "--jobs", "2", "--methods", "a,b"])
    assert done.returncode == 0, done.stderr
    begun = [line.endswith("begun") for line in done.stderr.splitlines()[:2]]
    assert begun == [True, True]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
@pytest.mark.slow
def test_a_terminal_sees_one_bar_for_all_and_one_per_run(tmp_path: Path) -> None:
    leader, follower = os.openpty()
    words = command(
        tiny_pacs(tmp_path),
        tmp_path / "bench",
        **{"training.steps": 200, "training.evaluate_every": 100},
    )
    process = subprocess.Popen(
        words, stderr=follower, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "110"}
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # what Linux answers when nobody writes any more
        pass
    assert process.wait() == 0
    assert b"2/2" in shown
    assert b"photo unseen, j, seed 0" in shown
    assert b"/200" in shown
