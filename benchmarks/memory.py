"""Does `bayesdg predict` need more memory for more pictures? Peak of the process, and its speed.

On Linux alone, which tells it in /proc. The pictures are hard links in one folder, which is the
hardest case: its names are sorted, so they are in memory together.

    python benchmarks/memory.py --json results/uncertainty/memory.json
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measuring import about, write
from PIL import Image

from bayesdg.data import load_dataset
from bayesdg.presets import small_images
from bayesdg.training.train import train

# File systems allow some 65,000 links to a file.
MOST_LINKS = 10_000
SIDE = 32
# The command, which then says its own peak in KiB. What the system tells a parent of its children
# begins with the parent's memory, from which they were forked.
WATCHED = """
import re, sys
from bayesdg.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
sys.exit(code)
"""


def make_folder(folder: Path, num: int) -> None:
    """`num` names for num / 10,000 pictures."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for first in range(0, num, MOST_LINKS):
        original = folder / f"{first:07}.png"
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(original)
        for number in range(first + 1, min(first + MOST_LINKS, num)):
            os.link(original, folder / f"{number:07}.png")


def measured(run: Path, folder: Path, out: Path) -> tuple[float, float]:
    """Peak MiB and seconds of one `bayesdg predict`."""
    command = ["predict", str(run), str(folder), "--out", str(out), "--device", "cpu"]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", WATCHED, *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout) / 1024, time.perf_counter() - start


def main() -> None:
    """Print a line per number of pictures; write all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--most", type=int, default=100_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        settings = small_images("default", "bil").replace(
            {"training.steps": 5, "training.evaluate_target": "never"}
        )
        run = train(load_dataset("rotated-digits"), settings, out=Path(place) / "runs")
        assert run.path is not None
        sizes = [num for num in (1_000, 10_000, 100_000, 1_000_000) if num <= arguments.most]
        for num in sizes:
            make_folder(Path(place) / f"pictures-{num}", num)
        for suffix in ("csv", "parquet"):
            for num in sizes:
                folder = Path(place) / f"pictures-{num}"
                mebibytes, seconds = measured(run.path, folder, Path(place) / f"out.{suffix}")
                print(f"{num:9,} pictures to {suffix:8}{mebibytes:8.0f} MiB{seconds:8.0f} s",
                      flush=True)  # fmt: skip
                rows.append({"pictures": num, "to": suffix, "peak_mib": round(mebibytes, 1),
                             "seconds": round(seconds, 1)})  # fmt: skip
    if arguments.json:
        command = f"python benchmarks/memory.py --json {arguments.json}"
        if arguments.most != 100_000:
            command += f" --most {arguments.most}"
        write(arguments.json, {**about(command, torch.device("cpu")), "rows": rows})


if __name__ == "__main__":
    main()
