"""Fixtures made of the tiny worlds."""

from collections.abc import Callable

import pytest

from bayesdg.data import Domain, DomainDataset
from bayesdg.presets import preset
from bayesdg.settings import Settings
from worlds import TINY, image_set

SHIFTS = {"near": 0.0, "mid": 0.5, "third": 1.0, "far": 2.0}


@pytest.fixture
def tiny_dataset() -> DomainDataset:
    """Four domains of three classes; the domain 'far' is the target."""
    domains = {
        name: Domain(
            name,
            train=image_set(18, 3, seed=10 * i, shift=shift),
            val=image_set(6, 3, seed=10 * i + 1, shift=shift),
            test=image_set(9, 3, seed=10 * i + 2, shift=shift),
        )
        for i, (name, shift) in enumerate(
            {"near": 0.0, "mid": 0.5, "third": 1.0, "far": 2.0}.items()
        )
    }
    return DomainDataset("tiny", ("low", "mean", "high"), domains, targets=("far",))


@pytest.fixture
def tiny_settings() -> Callable[..., Settings]:
    """Settings of a few steps: `tiny_settings("bil", {"training.steps": 5})`."""

    def make(method: str = "bil", values: dict[str, object] | None = None) -> Settings:
        return preset("default", method).replace({**TINY, **(values or {})})

    return make
