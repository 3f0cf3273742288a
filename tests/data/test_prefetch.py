"""Steps prepared ahead, and where pixels wait: nothing of it changes what is trained on."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdg.data import load_dataset
from bayesdg.data.domains import ImageSet, Rows
from bayesdg.data.folders import StoredImages
from bayesdg.data.placing import num_bytes, placed
from bayesdg.data.prefetch import prefetched
from bayesdg.episodes import EpisodeSampler
from bayesdg.errors import ResourceError
from bayesdg.settings import Settings
from bayesdg.stages import DataSettings
from bayesdg.training.loop import episodes
from bayesdg.training.train import train
from pictures import make_tree

MakeSettings = Callable[..., Settings]


@pytest.mark.parametrize(("depth", "workers"), [(0, 0), (1, 1), (3, 2), (64, 8)])
def test_results_come_in_order(depth: int, workers: int) -> None:
    def slow_when_even(step: int) -> int:
        time.sleep(0.004 * (step % 2 == 0))
        return step * step

    found = list(prefetched(slow_when_even, range(20), depth, workers))
    assert found == [step * step for step in range(20)]


def test_no_more_is_prepared_than_asked_for() -> None:
    begun: list[int] = []
    before = set(threading.enumerate())  # an error elsewhere may keep its run's threads alive
    results = prefetched(lambda step: begun.append(step) or step, range(100), 3, 2)
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 5
    results.close()  # type: ignore[attr-defined]
    time.sleep(0.05)
    fresh = set(threading.enumerate()) - before
    assert not [thread for thread in fresh if thread.name.startswith("prefetch")]


def test_an_error_appears_at_its_step() -> None:
    def fails_at_five(step: int) -> int:
        if step == 5:
            raise ValueError("step 5")
        return step

    results = prefetched(fails_at_five, range(20), 4, 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="step 5"):
        next(results)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESDG_CACHE", str(tmp_path / "cache"))
    layout = {d: {"cat": 12, "dog": 12} for d in ("art", "photo", "web")}
    return make_tree(tmp_path / "pets", layout)


@pytest.mark.parametrize("storage", ["device", "memory", "disk"])
@pytest.mark.parametrize(("prefetch", "workers"), [(0, 0), (1, 1), (5, 3)])
def test_same_seed_and_step_same_pixels_however_they_are_fetched(
    folder: Path, tiny_settings: MakeSettings, storage: str, prefetch: int, workers: int
) -> None:
    def pixels(**values: object) -> list[torch.Tensor]:
        data = DataSettings(image_size=16, **values)  # type: ignore[arg-type]
        settings = tiny_settings("bil").model_copy(update={"data": data})
        sources = load_dataset(str(folder), data=data).split("web").sources
        sets = placed({n: d.train for n, d in sources.items()}, torch.device("cpu"), data)
        sampler = EpisodeSampler(sets, 8, 2, "episode")
        return [e.images for _, e in episodes(sampler, settings, torch.device("cpu"), "photo")]

    expected = pixels(storage="memory", prefetch=0)
    found = pixels(storage=storage, prefetch=prefetch, workers=workers)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert expected[0].dtype == torch.float32


def test_data_beyond_the_limit_stays_on_disk_and_trains_the_same(
    folder: Path, tiny_settings: MakeSettings
) -> None:
    def weights(**values: object) -> list[torch.Tensor]:
        data = DataSettings(image_size=16, **values)  # type: ignore[arg-type]
        settings = tiny_settings("bil").model_copy(update={"data": data})
        run = train(load_dataset(str(folder), data=data), settings, targets=["web"])
        return list(run.learner.state_dict().values())

    limit = 10_000 / 2**30  # ten kilobytes for 44 images of 768 bytes
    data = DataSettings(image_size=16, memory_limit_gb=limit)
    sources = load_dataset(str(folder), data=data).split("web").sources
    train_sets = {name: domain.train for name, domain in sources.items()}
    assert sum(map(num_bytes, train_sets.values())) > 3 * 10_000
    left = placed(train_sets, torch.device("cpu"), data)["art"].images
    assert isinstance(left, Rows)
    assert isinstance(left.images, StoredImages)
    assert isinstance(left.images.pixels, np.memmap)
    for a, b in zip(weights(memory_limit_gb=limit), weights(storage="memory"), strict=True):
        assert torch.equal(a, b)


def test_a_device_too_small_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesdg.data.placing.free_bytes", lambda device: 100)
    images = ImageSet(torch.zeros(9, 1, 8, 8, dtype=torch.uint8), torch.zeros(9).long())
    with pytest.raises(ResourceError, match=r"use data.storage = disk"):
        placed({"a": images}, torch.device("cpu"), DataSettings(storage="device"))


def test_validation_and_test_images_are_never_augmented(
    folder: Path, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every picture that augmentation sees is a training image of a source."""
    import bayesdg.training.loop as loop

    dataset = load_dataset(str(folder), data=DataSettings(image_size=16))
    train_pixels = {
        picture.numpy().tobytes()
        for domain in dataset.split("web").sources.values()
        for picture in domain.train.images[torch.arange(len(domain.train))]
    }
    original, seen = loop.augment, []

    def spy(images: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.extend(picture.numpy().tobytes() for picture in images)
        return original(images, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "augment", spy)
    train(dataset, tiny_settings("bil"), targets=["web"])
    assert seen
    assert set(seen) <= train_pixels
    off = tiny_settings("bil").replace({"data.augmentation": "none"})
    seen.clear()
    train(replace(dataset), off, targets=["web"])
    assert seen == []
