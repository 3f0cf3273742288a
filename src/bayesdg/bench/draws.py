"""A trained run tested under several numbers of weight draws: how good, and at what cost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from bayesdg.data import DomainDataset
from bayesdg.data.domains import Rows
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.predict import predict_images
from bayesdg.records import write_text
from bayesdg.stored_runs import TESTS, DrawsTest, read_tests
from bayesdg.training.about import now, versions
from bayesdg.training.engine import device_name
from bayesdg.training.run import load_run


def write_tests(run_path: Path, numbers: Iterable[int], dataset: DomainDataset) -> None:
    """Test the run on its targets under each number of draws and add to its draws.json.

    Times are those of prediction from decoded pixels, after a small call that counts for nothing.
    """
    run = load_run(run_path, "auto")
    learner, split = run.learner, dataset.split(run.task.targets)
    device = next(learner.parameters()).device
    known = torch.tensor(run.task.known_classes)
    tests = list(read_tests(run_path))
    for num in numbers:
        for name, domain in split.targets.items():
            images = domain.test
            rows = torch.isin(images.labels, known).nonzero().squeeze(1)
            pixels, labels = Rows(images.images, rows), images.labels[rows].numpy()
            predict_images(learner, Rows(images.images, rows[:8]), num)
            start = time.perf_counter()
            found = predict_images(learner, pixels, num).log_probabilities  # waits for the device
            seconds = time.perf_counter() - start
            tests.append(
                DrawsTest(
                    draws=num,
                    domain=name,
                    num_images=len(labels),
                    seconds=seconds,
                    metrics={metric: f(found, labels) for metric, f in METRICS.items()},
                )
            )
    about = {"device": device_name(device), "time": now(), "versions": versions()}
    content = {**about, "tests": [test.model_dump() for test in tests]}
    write_text(run_path / TESTS, json.dumps(content, indent=1, allow_nan=False) + "\n")
