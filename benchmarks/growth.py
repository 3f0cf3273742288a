"""How the cost of a training iteration grows: images/s against one thing at a time.

    python benchmarks/growth.py --json results/speed/growth-cpu.json

The whole iteration of `bayesdg train` (iteration.py) with two Bayesian layers, for more target
images, draws (both ways to combine them), classes and source domains. More classes and domains mean
more source images, so it is images per second that should stay, not milliseconds. Last, several
processes on a CPU share each episode, one thread each, timed by the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from iteration import forget, peak_gib, pictures, trained_milliseconds
from measuring import about, chosen_device, write

from bayesdg.presets import preset
from bayesdg.settings import Settings

# What is grown, and what it is while something else is.
GROWN: dict[str, tuple[object, ...]] = {
    "batch": (16, 32, 64, 128, 256),
    "draws": (1, 5, 10, 20),
    "draws, product": (1, 5, 10, 20),
    "classes": (7, 65, 345),
    "domains": (3, 6, 20),
}
USUAL = {"batch": 32, "draws": 10, "classes": 7, "domains": 3}
PROCESSES = (1, 2)
# A CPU is given small pictures and a small network.
SIZES = {"cpu": 16, "cuda": 224}
PER_CLASS = {"cpu": 2, "cuda": 4}
STEPS = {"cpu": (10, 30), "cuda": (30, 40)}


def settings_of(values: dict[str, Any], device: torch.device) -> Settings:
    """Of a run; bf16 on a GPU, not compiled, because every case has other sizes."""
    fast = device.type == "cuda"
    return preset("default", "bil").replace(
        {
            "model.backbone": "resnet18" if fast else "small-cnn",
            "model.pretrained": False,
            "model.draws": values["draws"],
            "model.combine": values.get("combine", "paired"),
            "episode.batch_size": values["batch"],
            "episode.per_class": PER_CLASS[device.type],
            "training.precision": "bf16" if fast else "32",
            "engine.device": device.type,
            "engine.processes": values.get("processes", 1),
            "data.storage": "device",
        }
    )


def measured(grown: str, values: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """One row."""
    several = "processes" in values
    per_class = PER_CLASS[device.type]
    dataset = pictures(values["domains"], values["classes"], SIZES[device.type], per_class + 1)
    settings, (warm_up, steps) = settings_of(values, device), STEPS[device.type]
    forget(device)
    now = time.perf_counter if several else None
    ms = trained_milliseconds(dataset, settings, warm_up, steps, now=now)
    images = values["batch"] + (values["domains"] - 1) * values["classes"] * per_class
    return {
        "grown": grown,
        **values,
        "images": images,
        "ms": round(ms, 3),
        "images_per_second": 0 if ms != ms else round(1e3 * images / ms),
        "gib": peak_gib(device),
    }


def rows(device: torch.device) -> Iterator[dict[str, Any]]:
    """One thing after another."""
    for grown, sizes in GROWN.items():
        key, _, combine = grown.partition(", ")
        for size in sizes:
            values = {**USUAL, key: size, "combine": combine or "paired"}
            yield measured(grown, values, device)


def with_processes() -> Iterator[dict[str, Any]]:
    """This program again, in several processes that share each episode, on the CPU."""
    for num in PROCESSES:
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *command, __file__, "--rank-of", str(num)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{num} processes ended with exit code {done.returncode}")
        yield json.loads(done.stdout.strip().splitlines()[-1])


def as_rank(num: int) -> None:
    """One of several processes; the first prints a row."""
    torch.set_num_threads(1)
    # Enough to share: an episode of the usual size takes longer to talk about than to compute.
    values = {**USUAL, "batch": 128, "classes": 65, "processes": num}
    row = measured("processes", values, torch.device("cpu"))
    if os.environ["RANK"] == "0":
        print(json.dumps(row), flush=True)


def show(row: dict[str, Any]) -> None:
    """A line of the table."""
    key = row["grown"].partition(",")[0]
    memory = "" if row["gib"] is None else f"{row['gib']:8.1f} GiB"
    text = f"{row['grown']:16}{row[key]:6}{row['images']:8} images{row['ms']:10.1f} ms"
    print(f"{text}{row['images_per_second']:9,} images/s{memory}", flush=True)


def main() -> None:
    """Print rows as they come; keep them in the file as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of the CPU; fewer where others compute too")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--rank-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        as_rank(arguments.rank_of)
        return
    device = chosen_device(arguments.device)
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    options = [f"--device {device.type}"]
    options += [f"--threads {arguments.threads}"] if arguments.threads else []
    origin = about(" ".join(["python benchmarks/growth.py", *options]), device)
    found = []
    for part in (rows(device), with_processes() if device.type == "cpu" else ()):
        for row in part:
            show(row)
            found.append(row)
            if arguments.json:
                write(arguments.json, {**origin, "rows": found})


if __name__ == "__main__":
    main()
