"""Whatever people have for pictures: all of it the same to a run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from bayesdg.data import DomainDataset
from bayesdg.errors import DataError, UsageError
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.train import train

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 1, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels[0]).save(place / f"{number}.png")
    return place


@pytest.fixture
def run(tiny_dataset: DomainDataset, tiny_settings: Callable[..., Settings]) -> Run:
    return train(tiny_dataset, tiny_settings("bil"))


def test_arrays_tensors_images_paths_and_loaders_get_the_same_answers(
    run: Run, folder: Path
) -> None:
    expected = run.predict(PIXELS).log_probabilities
    tensor = torch.from_numpy(PIXELS)
    images = [Image.fromarray(pixels[0]) for pixels in PIXELS]
    paths = sorted(folder.iterdir())
    labelled = TensorDataset(tensor, torch.zeros(7))
    for same in (
        tensor, PIXELS.astype(np.float32) / 255, images, tuple(images), paths,
        list(map(str, paths)), folder, str(folder), [folder], [images[0], *paths[1:]],
        DataLoader(labelled, batch_size=3), DataLoader(tensor, batch_size=2),  # type: ignore[arg-type]
    ):  # fmt: skip
        found = run.predict(same).log_probabilities
        np.testing.assert_allclose(found, expected, atol=1e-5)
    for one in (images[2], paths[2], str(paths[2])):
        np.testing.assert_allclose(run.predict(one).log_probabilities, expected[2:3], atol=1e-5)


def test_an_image_passes_the_backbone_once_whatever_the_number_of_draws(run: Run) -> None:
    passed = []
    backbone = run.learner.network.backbone  # type: ignore[union-attr]
    hook = backbone.register_forward_hook(lambda _, given, out: passed.append(len(given[0])))  # type: ignore[operator, union-attr]
    found = run.predict(PIXELS, draws=30, keep_draws=True, batch_size=4)
    hook.remove()
    assert passed == [4, 3]
    assert found.per_draw is not None
    assert found.per_draw.shape == (30, 7, 3)
    mean = np.exp(found.per_draw).mean(0)
    np.testing.assert_allclose(found.probabilities, mean, rtol=1e-9)


def test_a_picture_that_cannot_be_read_is_named(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad.png: not an image; leave it out, or take bayesdg"):
        run.predict([next(folder.iterdir()), tmp_path / "bad.png"])


def test_what_are_no_pictures_is_refused(run: Run, tmp_path: Path) -> None:
    for wrong, says in (
        (5, "pictures come as int"),
        ([1, 2], "a sequence holds int"),
        ([PIXELS[0]], "arrays as one array"),
        (PIXELS[0], r"images have shape \(1, 8, 8\); \(n, C, H, W\) is needed"),
        (PIXELS[:, :, :7], r"images have shape \(1, 7, 8\), this run was trained on"),
        ("nowhere.png", "no file or folder at nowhere.png"),
        (DataLoader([{"image": 1}]), "the DataLoader gives dict"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match=says):
            run.predict(wrong)  # type: ignore[arg-type]
    for nothing in (PIXELS[:0], [], tmp_path):
        with pytest.raises(DataError, match="no images to predict"):
            run.predict(nothing)
