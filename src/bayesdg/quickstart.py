"""The first run: the baseline and the Bayesian method on real digits, in under two minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from bayesdg.data import load_dataset
from bayesdg.presets import preset
from bayesdg.records import Record, ResultRecord
from bayesdg.settings import Settings
from bayesdg.training.train import train

DATASET = "rotated-digits"

# What a small network on small images needs otherwise than a pretrained ResNet on photographs.
SMALL_IMAGES = {
    "model.backbone": "small-cnn",
    "episode.per_class": 4,
    "training.steps": 300,
    "training.learning_rate": 3e-3,
    "training.evaluate_every": 50,
    "training.evaluate_target": "end",
    "engine.device": "cpu",
}
# These two belong to the other presets; ours takes what is best on source domains alone: trained
# on 30, 45 and 60 degrees, compared on 15 and 75 (benchmarks/quickstart_settings.py).
DEFAULT_ONLY = {"model.batch_norm": "joint", "training.schedule": "step"}


def quickstart_settings(method: str, seed: int = 0, preset_name: str = "default") -> Settings:
    """The preset, adapted to the small CNN."""
    changes = SMALL_IMAGES | (DEFAULT_ONLY if preset_name == "default" else {})
    named = {"preset": f"{preset_name} for small images"}
    return preset(preset_name, method, seed).replace(changes | named)


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
    plan = [quickstart_settings(method, seed, preset_name) for seed in seeds for method in methods]
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
