"""Whole training iterations on generated pictures: how long one takes, as `train` does it."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable
from itertools import pairwise

import torch
from measuring import clock, wait

from bayesdg.data import Domain, DomainDataset, ImageSet
from bayesdg.data.domains import IMAGENET_MEAN, IMAGENET_STD
from bayesdg.records import Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.training.loop import RECORD_EVERY
from bayesdg.training.train import train


def pictures(num_sources: int, num_classes: int, size: int, per_class: int) -> DomainDataset:
    """Noise in bytes: `num_sources` domains to train on, and a target that is not looked at."""
    chance = torch.Generator().manual_seed(0)

    def images(num: int) -> ImageSet:
        pixels = torch.randint(256, (num, 3, size, size), dtype=torch.uint8, generator=chance)
        return ImageSet(pixels, torch.arange(num) % num_classes)

    names = [f"source{number}" for number in range(num_sources)]
    domains = {
        name: Domain(name, images(per_class * num_classes), images(num_classes), images(1))
        for name in names
    }
    domains["target"] = Domain("target", images(1), images(1), images(1))
    return DomainDataset(
        "noise", tuple(f"class{k}" for k in range(num_classes)), domains, targets=("target",),
        mean=IMAGENET_MEAN, std=IMAGENET_STD, augmentation="photo",
    )  # fmt: skip


def trained_milliseconds(
    dataset: DomainDataset,
    settings: Settings,
    warm_up: int,
    steps: int,
    watch: Callable[[Record], None] = lambda record: None,
    now: Callable[[], float] | None = None,
) -> float:
    """Per iteration, from drawing the episode to recording its terms.

    The median over stretches from one record to the next; each record waits for the device.
    Warming up, which compiles, and the validation at the end are left out. NaN on the ranks
    beside the first, which have no records.
    """
    total, seconds = warm_up + steps, []
    now = now or clock(torch.device(settings.engine.device))

    def look(record: Record) -> None:
        if isinstance(record, StepRecord) and warm_up <= record.step <= total:
            seconds.append(now())
        watch(record)

    changes = {"training.steps": total + 1, "training.evaluate_every": total + 1}
    train(dataset, settings.replace({**changes, "prediction.draws": 0}), on_record=look)
    stretches = [after - before for before, after in pairwise(seconds)]
    return 1e3 * statistics.median(stretches or [math.nan]) / RECORD_EVERY


def repeated_milliseconds(
    step: Callable[[], object], device: torch.device, warm_up: int, steps: int, stretch: int
) -> float:
    """Per call, the median over stretches of calls without waiting in between."""
    for _ in range(warm_up):
        step()
    wait(device)
    times, now = [], clock(device)
    for _ in range(max(1, steps // stretch)):
        start = now()
        for _ in range(stretch):
            step()
        wait(device)
        times.append((now() - start) / stretch)
    return 1e3 * statistics.median(times)


def forget(device: torch.device) -> None:
    """What was compiled and what is no longer used, so that cases do not meet."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float | None:
    """The most that was in use since `forget`; nothing is known of a CPU's."""
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(device) / 2**30, 3)
