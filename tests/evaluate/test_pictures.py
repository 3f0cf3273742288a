"""Whatever people have for pictures: all of it the same to a run."""

from collections.abc import Callable
from dataclasses import replace
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
        DataLoader(PIXELS, batch_size=2, collate_fn=np.stack),  # type: ignore[arg-type]
    ):  # fmt: skip
        found = run.predict(same).log_probabilities
        np.testing.assert_allclose(found, expected, atol=1e-5)
    for one in (images[2], paths[2], str(paths[2])):
        np.testing.assert_allclose(run.predict(one).log_probabilities, expected[2:3], atol=1e-5)


@pytest.mark.parametrize("kind", ["float64", "float32", ">f4", "float16"])
def test_floats_are_pixels_in_whatever_precision_and_order(run: Run, kind: str) -> None:
    expected = run.predict(PIXELS).log_probabilities
    scaled = (PIXELS / 255).astype(kind)
    found = [
        run.predict(scaled),
        run.predict(DataLoader(scaled, batch_size=3, collate_fn=np.stack)),
    ]  # type: ignore[arg-type]
    if not kind.startswith(">"):
        found.append(run.predict(torch.from_numpy(scaled)))
    for same in found:
        np.testing.assert_allclose(
            same.log_probabilities, expected, atol=1e-2 if "16" in kind else 1e-5
        )


def test_arrays_may_be_turned_and_locked(run: Run, recwarn: pytest.WarningsRecorder) -> None:
    """Views with negative strides, as of colours from BGR to RGB, and arrays mapped from disk."""
    locked = PIXELS.copy()
    locked.flags.writeable = False
    expected = run.predict(PIXELS).log_probabilities
    np.testing.assert_array_equal(run.predict(locked).log_probabilities, expected)
    turned = run.predict(PIXELS[::-1, ::-1])
    np.testing.assert_allclose(turned.log_probabilities[::-1], expected, atol=1e-5)
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["int64", "int32", "int8", "uint16", "bool", "complex64"])
def test_numbers_of_another_range_are_refused_and_not_taken_for_floats(run: Run, kind: str) -> None:
    array = PIXELS.astype(kind)
    for given in (array, torch.from_numpy(array), DataLoader(torch.from_numpy(array))):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"pixels are {kind}; uint8 or floats in 0..1"):
            run.predict(given)


def test_bytes_as_floats_and_normalised_pixels_are_told_where_the_run_normalises(
    tiny_dataset: DomainDataset, tiny_settings: Callable[..., Settings]
) -> None:
    scaled = (PIXELS / 255).astype(np.float32)
    settings = tiny_settings("ensemble", {"model.members": 2})
    for method in (tiny_settings("bil"), settings):
        normalising = train(replace(tiny_dataset, mean=(0.4,), std=(0.2,)), method)
        for wrong, ends in (
            (PIXELS.astype(np.float32), "0 to 255"),
            ((scaled - 0.4) / 0.2, "-2 to 3"),
        ):
            with pytest.raises(
                UsageError, match=f"floats from {ends}; give uint8, or floats in 0..1"
            ):
                normalising.predict(wrong)
        overshot = 1.2 * scaled - 0.1  # as after resampling
        assert len(normalising.predict(overshot)) == 7
        # What the pixels of a run without normalisation mean, only its owner knows.
        assert len(train(tiny_dataset, method).predict(PIXELS.astype(np.float32))) == 7


def test_draws_and_batch_sizes_that_are_no_counts_are_refused(run: Run) -> None:
    expected = run.predict(PIXELS, draws=3).log_probabilities
    found = run.predict(PIXELS, draws=np.int64(3), batch_size=np.int64(2)).log_probabilities  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for wrong in (-1, 2.5, "3"):
        with pytest.raises(UsageError, match=f"draws is {wrong!r}; a whole number from 0 up"):
            run.predict(PIXELS, draws=wrong)  # type: ignore[arg-type]
    for wrong in (0, -1, 2.5):
        with pytest.raises(UsageError, match=f"batch_size is {wrong!r}; a whole number from 1 up"):
            run.predict(PIXELS, batch_size=wrong)  # type: ignore[arg-type]


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
