"""What do batch-norm statistics do to unseen domains? A probe on the rotated sets.

Trains on three of the five source angles (30, 45 and 60 degrees) and asks about all five: 15 and
75 stand for the unseen ones, and 0 and 90 are not touched. Each network answers three times: with
the statistics that training kept, with those of all source images together, and with those of the
angle's own validation images (which is transductive).

    python benchmarks/batch_norm.py rotated-fashion-mnist --json FILE
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from bayesdg.data import DomainDataset, ImageSet, load_dataset
from bayesdg.methods.learner import Learner
from bayesdg.models.normalisation import statistics_from
from bayesdg.presets import preset
from bayesdg.records import mean_accuracy
from bayesdg.settings import Settings
from bayesdg.training.judge import validate
from bayesdg.training.train import train

SOURCES, HELD_OUT = ("30", "45", "60"), ("15", "75")
CASES: dict[str, dict[str, object]] = {
    "erm, pooled batches": {"method": "erm"},
    "erm, one angle a batch": {"method": "erm", "episode.without_invariance": "single-domain"},
    "erm, pooled, by domain": {"method": "erm", "model.batch_norm": "by-domain"},
    "bil, joint": {"method": "bil", "model.batch_norm": "joint"},
    "bil, grouped": {"method": "bil", "model.batch_norm": "grouped"},
    "bil, by domain": {"method": "bil", "model.batch_norm": "by-domain"},
    "bil, joint, weak invariance": {
        "method": "bil",
        "model.batch_norm": "joint",
        "objective.lambda_psi": 0.1,
        "objective.lambda_phi": 0.1,
    },
    "bil, joint, weaker": {
        "method": "bil",
        "model.batch_norm": "joint",
        "objective.lambda_psi": 0.01,
        "objective.lambda_phi": 0.01,
    },
    "bil, grouped, weak invariance": {
        "method": "bil",
        "objective.lambda_psi": 0.1,
        "objective.lambda_phi": 0.1,
    },
    "h, pooled batches": {"method": "h", "model.batch_norm": "joint"},
}


def shown(learner: Learner, images: ImageSet, most: int = 2048) -> Callable[[], None]:
    """Sends images through the learner in batches of 256, shuffled."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=generator)[:most]

    def show() -> None:
        for rows in order.split(256):
            batch = images.images[rows].to(next(learner.parameters()).device)
            learner.answer(batch, learner.draw(0, generator))

    return show


def pooled(dataset: DomainDataset) -> ImageSet:
    """Training images of the sources, together."""
    parts = [dataset.domains[name].train for name in SOURCES]
    images = torch.cat([part.images[torch.arange(0, len(part), 10)] for part in parts])
    return ImageSet(images, torch.cat([part.labels[::10] for part in parts]))


def answers(
    learner: Learner, dataset: DomainDataset, draws: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Accuracy per angle for each kind of statistics."""
    everything = pooled(dataset)
    kinds: dict[str, Callable[[ImageSet], AbstractContextManager[None]]] = {
        "training": lambda images: nullcontext(),
        "all sources": lambda images: statistics_from(learner, shown(learner, everything)),
        "own angle": lambda images: statistics_from(learner, shown(learner, images)),
    }
    learner.eval()
    for kind, statistics_of in kinds.items():
        found = {}
        for name in (*SOURCES, *HELD_OUT):
            images = dataset.domains[name].val
            with statistics_of(images):
                found[name] = mean_accuracy(validate(learner, {name: images}, draws)) or 0.0
        yield kind, found


def settings_for(arguments: argparse.Namespace, changes: dict[str, object], seed: int) -> Settings:
    """Of one case."""
    values = dict(changes)
    method = str(values.pop("method"))
    return preset("default", method, seed).replace(
        {
            "model.backbone": arguments.backbone,
            "model.weights": arguments.weights,
            "episode.per_class": arguments.per_class,
            "training.steps": arguments.steps,
            "training.learning_rate": arguments.learning_rate,
            "training.schedule": "cosine",
            "training.evaluate_every": arguments.steps,
            "training.precision": arguments.precision,
            "prediction.draws": 20,
        }
        | values
    )


def main() -> None:
    """Print a line per case, seed and kind of statistics; write all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=["rotated-mnist", "rotated-fashion-mnist"])
    parser.add_argument("--backbone", default="small-cnn")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--image-size", type=int, default=28)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--per-class", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--precision", default="32")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    channels = 1 if arguments.backbone == "small-cnn" else 3
    sizes = preset("default").replace(
        {"data.image_size": arguments.image_size, "data.channels": channels}
    )
    whole = load_dataset(arguments.dataset, data=sizes.data)
    seen = {name: whole.domains[name] for name in (*SOURCES, *HELD_OUT)}
    dataset = replace(whole, domains=seen, targets=HELD_OUT)
    rows = []
    print(f"{'case':30}{'seed':>5}  {'statistics':14}{'sources':>9}{'held out':>9}{'seconds':>9}")
    for case in arguments.cases:
        for seed in range(arguments.seeds):
            settings, begun = settings_for(arguments, CASES[case], seed), time.monotonic()
            run = train(dataset, settings)
            seconds = time.monotonic() - begun
            for kind, found in answers(run.learner, dataset, settings.prediction.draws):
                inside, outside = (
                    100 * statistics.mean(found[name] for name in names)
                    for names in (SOURCES, HELD_OUT)
                )
                print(
                    f"{case:30}{seed:5}  {kind:14}{inside:9.2f}{outside:9.2f}{seconds:9.0f}",
                    flush=True,
                )
                rows.append({"case": case, "changes": CASES[case], "seed": seed,
                             "statistics": kind, "accuracy": found})  # fmt: skip
            if arguments.json:
                write(arguments, rows)


def write(arguments: argparse.Namespace, rows: list[dict[str, object]]) -> None:
    """All that was measured so far."""
    about = {
        "command": f"python benchmarks/batch_norm.py {arguments.dataset} --json FILE",
        "options": {k: str(v) for k, v in vars(arguments).items() if k not in ("json", "weights")},
        "date": datetime.now(UTC).date().isoformat(),
        "machine": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "trained_on": SOURCES,
        "compared_on": HELD_OUT,
        "rows": rows,
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
