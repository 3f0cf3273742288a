"""Train, be killed at random moments, go on, and see what is left at the end.

    python tests/training/killing.py FOLDER --kills 50 --steps 300 --calm OTHER_FOLDER

A process that has imported torch but never computed forks one child after another. Each child
trains in the same run folder, which checkpoints at every step, until SIGKILL ends it; the last one
is left alone. Prints after which step each was killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import torch._dynamo  # torch needs it at the first step, and every child would load it again

from bayesdg.data import Domain, DomainDataset
from bayesdg.presets import preset
from bayesdg.settings import Settings
from bayesdg.training.train import train
from worlds import TINY, image_set

SHIFTS = {"near": 0.0, "mid": 0.5, "third": 1.0, "far": 2.0}


def dataset() -> DomainDataset:
    """Made anew in every child, as a program would load it anew."""
    domains = {
        name: Domain(
            name, *(image_set(num, 3, 10 * i + j, shift) for j, num in enumerate((18, 6, 9)))
        )
        for i, (name, shift) in enumerate(SHIFTS.items())
    }
    return DomainDataset("tiny", ("low", "mean", "high"), domains, targets=("far",))


def settings(steps: int) -> Settings:
    """Everything that has a state or draws: an average, Adam, styles, pictures, weights."""
    return preset("default", "bil").replace(
        {
            **TINY,
            "training.steps": steps,
            "training.evaluate_every": 5,
            "training.checkpoint_every": 1,
            "training.average": 0.9,
            "training.clip_norm": 5.0,
            "training.schedule": "cosine",
            "training.weight_decay": 1e-3,
            "training.learning_rate": 3e-3,
            "model.style_mixing": 0.5,
            "data.augmentation": "photo",
            "engine.device": "cpu",
        }
    )


def run(out: Path, steps: int) -> None:
    """One process that trains, or goes on training."""
    torch.set_num_threads(1)
    train(dataset(), settings(steps), out=out)


def newest_step(out: Path) -> int:
    """Of the checkpoints that are there."""
    return max((int(path.name[5:]) for path in out.glob("*/checkpoints/step-*")), default=0)


def killed(out: Path, steps: int, kills: int, seed: int) -> list[int]:
    """Kill `kills` processes, then let one run to the end; the newest checkpoint at each kill."""
    chance = random.Random(seed)
    found: list[int] = []
    while len(found) < kills:
        child = os.fork()
        if child == 0:
            try:
                run(out, steps)
            finally:
                os._exit(0)
        # A few steps on, and then at any moment: beginnings and ends, the middle of a write.
        goal, deadline = newest_step(out) + chance.randint(0, 5), time.monotonic() + 30
        while newest_step(out) < goal and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.06) if chance.random() < 0.8 else chance.uniform(0, 0.6))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break  # it had come to its end before
        found.append(newest_step(out))
    undisturbed(out, steps)
    return found


def undisturbed(out: Path, steps: int) -> None:
    """One process that is left alone."""
    child = os.fork()
    if child == 0:
        run(out, steps)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the last process failed"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm", type=Path, help="do the same here without a kill")
    arguments = parser.parse_args()
    if arguments.calm:
        undisturbed(arguments.calm, arguments.steps)
    print(*killed(arguments.folder, arguments.steps, arguments.kills, arguments.seed))
