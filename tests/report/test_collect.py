"""Features and pictures of a run that was really trained, a moment."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bayesdg.data import DomainDataset
from bayesdg.errors import DataError
from bayesdg.evaluate.stored import predictions_path, read_predictions
from bayesdg.report.collect import encoded, sampled
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.train import train


@pytest.fixture
def run(tiny_dataset: DomainDataset, tiny_settings: Callable[..., Settings], tmp_path: Path) -> Run:
    found = train(tiny_dataset, tiny_settings("bil"), out=tmp_path)
    found.evaluate(tiny_dataset)
    return found


def test_features_are_those_of_the_images_the_predictions_are_about(
    run: Run, tiny_dataset: DomainDataset
) -> None:
    assert run.path is not None
    parts = read_predictions(predictions_path(run.path, 4))
    case = parts[-1].key
    found = sampled(run, tiny_dataset, parts, {case: [8]}, most=12)
    assert [key.domain for key in found.keys] == ["near", "mid", "third", "far"]
    assert found.on_map.sum() == 12
    for index, (key, part) in enumerate(zip(found.keys, parts, strict=True)):
        here = found.part == index
        rows = torch.from_numpy(found.row[here]).long()
        images = tiny_dataset.domains[key.domain].test
        assert found.labels[here].tolist() == images.labels[rows].tolist()
        assert part.labels[rows].tolist() == found.labels[here].tolist()
        network = run.learner.network.eval()
        with torch.no_grad():
            output = network(images.images[rows], run.learner.draw(0, torch.Generator()))
        expected = list(output.features.values())[-1].mean.reshape(len(rows), -1)
        assert np.allclose(found.features[here], expected.numpy(), atol=1e-5)
    assert found.picture("far", "test", 8) is not None


def test_data_that_changed_since_are_noticed(run: Run, tiny_dataset: DomainDataset) -> None:
    assert run.path is not None
    part = read_predictions(predictions_path(run.path, 4))[0]
    from dataclasses import replace

    short = replace(part, labels=part.labels[:-1])
    with pytest.raises(DataError, match="has other images than the stored predictions"):
        sampled(run, tiny_dataset, [short], {})


def test_a_digit_is_kept_to_the_pixel_and_a_photograph_is_made_small() -> None:
    digit = torch.rand(1, 16, 16)
    shown = np.asarray(Image.open(io.BytesIO(encoded(digit, 64))).convert("RGB"))
    wanted = (digit * 255).round().to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0)
    assert np.array_equal(shown, wanted.numpy())
    photograph = torch.randint(256, (3, 300, 200), dtype=torch.uint8)
    assert Image.open(io.BytesIO(encoded(photograph, 64))).size == (43, 64)
