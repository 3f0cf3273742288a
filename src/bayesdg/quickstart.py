"""The first run: the baseline and the Bayesian method on real digits, in under two minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from bayesdg.data import load_dataset
from bayesdg.presets import small_images
from bayesdg.records import Record, ResultRecord
from bayesdg.settings import Settings
from bayesdg.training.train import train

DATASET = "rotated-digits"


def run_quickstart(
    out: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    preset_name: str,
    watch: Callable[[Settings], Callable[[Record], None]],
) -> tuple[list[ResultRecord], list[Path]]:
    """Train every method with every seed, or take it from `out` where that was done before.

    Args:
        out: Where run folders go.
        methods: Names.
        seeds: One run per method and seed.
        preset_name: As in `preset`.
        watch: Is told which run begins, and answers with what to call after its steps.

    Returns:
        The results of all runs and their folders.
    """
    plan = [small_images(preset_name, method, seed) for seed in seeds for method in methods]
    dataset = load_dataset(DATASET)
    results: list[ResultRecord] = []
    folders: list[Path] = []
    with _one_thread():
        for settings in plan:
            run = train(dataset, settings, out=out, on_record=watch(settings))
            results += run.results
            assert run.path is not None
            folders.append(run.path)
    return results, folders


@contextmanager
def _one_thread() -> Iterator[None]:
    """On images this small as fast as all cores, and the same bits whatever their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
