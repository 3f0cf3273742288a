"""A real Ray cluster on this machine, and one of its nodes taken away."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bayesdg.bench.drive import drive
from bayesdg.bench.folder import job_path, last_step, write_plan
from bayesdg.bench.jobs import Job, jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.records import ResultRecord, StartRecord, read_records
from benches import MINIATURE, Here, miniature, tiny_pacs

if find_spec("ray") is None:
    pytest.skip("needs the extra ray", allow_module_level=True)
# What Ray itself leaves open or deprecates is none of ours.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def closed_to_others() -> Iterator[None]:
    """Read when ray is imported, and kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


def planned(folder: Path, data: Path, steps: int) -> list[Job]:
    folder.mkdir()
    plan = miniature(
        PLANS["pacs"], data, [["photo"]],
        **{"training.steps": steps, "training.checkpoint_every": 10, "training.evaluate_every": 50},
    )  # fmt: skip
    write_plan(folder, "mine", plan, jobs_of(plan))
    return jobs_of(plan)


def results(folder: Path, job: Job) -> list[ResultRecord]:
    records = read_records(job_path(folder, job) / "records.jsonl")
    return [record for record in records if isinstance(record, ResultRecord)]


def test_a_run_whose_node_is_lost_goes_on_elsewhere_from_its_last_checkpoint(
    tmp_path: Path,
) -> None:
    from ray.cluster_utils import Cluster

    from bayesdg.bench.ray import Ray

    data = tiny_pacs(tmp_path)
    calm = planned(tmp_path / "calm", data, 400)
    drive(tmp_path / "calm", calm, Here(tmp_path / "calm"))
    jobs = planned(tmp_path / "bench", data, 400)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    lost = cluster.add_node(num_cpus=1)

    class Thief:
        """Takes the only worker away in the middle of the first run, and brings another."""

        def began(self, job: Job) -> None:
            pass

        def at(self, job: Job, step: int) -> None:
            nonlocal lost
            if lost is not None and last_step(job_path(tmp_path / "bench", job))[0] >= 30:
                cluster.remove_node(lost, allow_graceful=False)
                lost = None
                cluster.add_node(num_cpus=1)

        def ended(self, job: Job, how: str) -> None:
            pass

    try:
        with Ray(tmp_path / "bench", None, None, cluster.address, cpus=1, gpus=0) as engine:
            assert engine.jobs == 1
            outcome = drive(tmp_path / "bench", jobs, engine, retries=0, watcher=Thief())
    finally:
        cluster.shutdown()
    assert lost is None, "no node was lost"
    assert outcome.failures == []
    starts = [
        record.step
        for record in read_records(job_path(tmp_path / "bench", jobs[0]) / "records.jsonl")
        if isinstance(record, StartRecord)
    ]
    assert starts[0] == 0
    assert len(starts) == 2
    assert starts[1] >= 30
    for job in jobs:
        assert results(tmp_path / "bench", job) == results(tmp_path / "calm", job) != []


def test_the_command_begins_a_cluster_that_asks_for_a_token(tmp_path: Path) -> None:
    program = (
        "import os, sys; from bayesdg.cli import main; code = main(sys.argv[1:]);"
        "print(os.environ['RAY_AUTH_MODE'], len(os.environ['RAY_AUTH_TOKEN'])); sys.exit(code)"
    )
    texts = [f"--set={name}={value}" for name, value in MINIATURE.items()]
    command = [
        sys.executable, "-c", program, "bench", "pacs", "--dataset", str(tiny_pacs(tmp_path)),
        "--targets", "photo", "--seeds", "1", "--out", str(tmp_path / "bench"), "--engine", "ray",
    ]  # fmt: skip
    clean = {name: v for name, v in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run([*command, *texts], capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("token 64\n")
    assert "photo unseen, j, seed 0: done, 2 of 2" in done.stderr
    greedy = subprocess.run([*command, "--gpus", "99"], capture_output=True, text=True, env=clean)
    assert greedy.returncode == 2
    assert "the Ray cluster has no 1 CPU and 99 GPU for a run; lower" in greedy.stderr
