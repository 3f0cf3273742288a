"""What do draws cost? One pass with T draws against one with the mean weights.

    python benchmarks/draws.py --json results/uncertainty/draws-cpu.json

The network is `bil` on the backbone, with random weights; predictions are made as `Run.predict`
makes them, uncertainties included.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from measuring import about, chosen_device, milliseconds, write

from bayesdg.evaluate.predict import Predictions, asking
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.presets import preset

DRAWS = (0, 1, 10, 50, 200)


def main() -> None:
    """Print a line per number of draws; write all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    device = chosen_device(arguments.device)
    settings = preset("default", "bil").replace(
        {"model.backbone": arguments.backbone, "model.pretrained": False}
    )
    learner = build_learner(settings, arguments.classes, 3).to(device).eval()
    generator = torch.Generator().manual_seed(0)
    shape = (arguments.batch, 3, arguments.size, arguments.size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
    forward = torch.no_grad()(partial(learner.answer, images, learner.draw(0, generator)))
    works = {"one forward pass": forward}
    works |= {f"{num} draws": partial(predicted, learner, images, num) for num in DRAWS}
    times = milliseconds(works, device, arguments.seconds)
    rows = []
    for name, value in times.items():
        ratio = value / times["one forward pass"]
        print(f"{name:20}{value:10.1f} ms{ratio:8.3f} x")
        rows.append({"what": name, "ms": round(value, 2), "ratio": round(ratio, 4)})
    if arguments.json:
        command = "python benchmarks/draws.py " + " ".join(
            f"--{name} {getattr(arguments, name)}"
            for name in ("json", "backbone", "size", "batch", "classes", "seconds")
        )
        content = {**about(command, device), "batch": arguments.batch, "size": arguments.size,
                   "backbone": arguments.backbone, "rows": rows}  # fmt: skip
        write(arguments.json, content)


def predicted(learner: Learner, images: torch.Tensor, draws: int) -> Predictions:
    """As a first batch is: the weights are drawn, too."""
    with asking(learner, draws) as ask:
        return ask(images)


if __name__ == "__main__":
    main()
