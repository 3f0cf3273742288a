"""The real data sets, where BAYESDG_DATA holds them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bayesdg.data import load_dataset
from bayesdg.data.check import check_folder
from bayesdg.data.known import KNOWN, data_root, is_present
from bayesdg.records import StepRecord
from bayesdg.settings import Settings
from bayesdg.stages import DataSettings
from bayesdg.training.train import train
from worlds import sealed

pytestmark = pytest.mark.data


def root_of(name: str) -> Path:
    root = data_root()
    if not is_present(name, root):
        pytest.skip(f"{name} is not in {root}; set BAYESDG_DATA")
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDG_CACHE", str(tmp_path / "cache"))


def test_pacs_is_whole_and_clean() -> None:
    report = check_folder("pacs", root_of("pacs"), DataSettings())
    assert report.counts == KNOWN["pacs"].counts
    for name in ("broken", "odd", "duplicates", "warnings", "unsafe"):
        assert not getattr(report, name), name


def test_pacs_has_the_official_split() -> None:
    dataset = load_dataset("pacs", root_of("pacs"), DataSettings(image_size=32))
    sizes = {n: (len(d.train), len(d.val), len(d.test)) for n, d in dataset.domains.items()}
    assert sizes == {
        "art_painting": (1840, 208, 2048), "cartoon": (2107, 237, 2344),
        "photo": (1499, 171, 1670), "sketch": (3531, 398, 3929),
    }  # fmt: skip
    for domain in dataset.domains.values():
        rows = [set(part.images.rows.tolist()) for part in (domain.train, domain.val)]  # type: ignore[attr-defined]
        assert not rows[0] & rows[1]


def test_the_target_of_pacs_is_never_opened_while_training(
    tiny_settings: Callable[..., Settings],
) -> None:
    dataset = load_dataset("pacs", root_of("pacs"), DataSettings(image_size=32))
    assert dataset.notes == ()
    domains = {**dataset.domains, "sketch": sealed(dataset.domains["sketch"])}
    without = replace(dataset, domains=domains)
    run = train(without, tiny_settings("bil"), ["sketch"])
    assert isinstance(run.records[-1], StepRecord)
    assert run.records[-1].source_val is not None
    with pytest.raises(AssertionError, match="were opened"):
        run.evaluate(without)


def test_pacs_trains(tiny_settings: Callable[..., Settings]) -> None:
    data = DataSettings(image_size=32)
    dataset = load_dataset("pacs", root_of("pacs"), data)
    run = train(dataset, tiny_settings("bil"), targets=["sketch"])
    assert run.evaluate(dataset)[-1].num_images == 3929


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("rotated-mnist", (1800, 200, 10_000)), ("rotated-fashion-mnist", (9000, 1000, 10_000))],
)
def test_rotated_sets_have_the_papers_sizes_and_disjoint_images(
    name: str, sizes: tuple[int, int, int]
) -> None:
    dataset = load_dataset(name, root_of(name))
    for domain in dataset.domains.values():
        assert (len(domain.train), len(domain.val), len(domain.test)) == sizes
    upright = dataset.domains["0"]
    parts = [
        {i.numpy().tobytes() for i in part.images[torch.arange(len(part))]}
        for part in (upright.train, upright.val, upright.test)
    ]
    # Fashion-MNIST itself holds a few pictures twice; MNIST holds none.
    repeats = sum(sizes) - len(set.union(*parts))
    assert repeats == 0 if name == "rotated-mnist" else repeats < 20
