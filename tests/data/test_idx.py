"""The files of MNIST: small ones made here, the real ones where they are."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdg.data import load_dataset
from bayesdg.data.digits import read_idx
from bayesdg.data.rotated import Turned, rotate
from bayesdg.errors import DataError, UsageError
from bayesdg.stages import DataSettings
from pictures import idx_bytes


def write_idx(path: Path, array: np.ndarray, packed: bool = False) -> None:
    content = idx_bytes(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for folder in ("MNIST", "FashionMNIST"):
        for part, num in (("train", 300), ("t10k", 50)):
            raw = tmp_path / folder / "raw"
            images = rng.integers(0, 256, (num, 28, 28))
            write_idx(raw / f"{part}-images-idx3-ubyte", images, packed=folder == "MNIST")
            write_idx(raw / f"{part}-labels-idx1-ubyte", np.arange(num) % 10, packed=part == "t10k")
    return tmp_path


SUBSET = DataSettings(subset=100)


@pytest.mark.parametrize("name", ["rotated-mnist", "rotated-fashion-mnist"])
def test_the_papers_protocol(root: Path, name: str) -> None:
    dataset = load_dataset(name, root, SUBSET)
    split = dataset.split()
    assert list(split.sources) == ["15", "30", "45", "60", "75"]
    assert list(split.targets) == ["0", "90"]
    for domain in dataset.domains.values():
        assert (len(domain.train), len(domain.val), len(domain.test)) == (90, 10, 50)
    assert dataset.image_shape == (1, 28, 28)
    assert all(domain.held_out_test for domain in dataset.domains.values())


def test_parts_share_no_image_at_any_angle(root: Path) -> None:
    upright = load_dataset("rotated-mnist", root, SUBSET).domains["0"]
    pictures = [
        {image.numpy().tobytes() for image in part.images[torch.arange(len(part))]}
        for part in (upright.train, upright.val, upright.test)
    ]
    assert [len(p) for p in pictures] == [90, 10, 50]
    assert len(set.union(*pictures)) == 150
    domains = load_dataset("rotated-mnist", root, SUBSET).domains
    assert len({tuple(d.train.labels.tolist()) for d in domains.values()}) == 1


def test_the_subset_follows_the_seed(root: Path) -> None:
    def drawn(seed: int) -> torch.Tensor:
        data = SUBSET.model_copy(update={"split_seed": seed})
        return load_dataset("rotated-mnist", root, data).domains["15"].train.images

    assert torch.equal(drawn(0), drawn(0))  # type: ignore[arg-type]
    assert not torch.equal(drawn(0), drawn(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [28, 32, 64])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_size_channels_and_interpolation_are_settings(
    root: Path, size: int, interpolation: str
) -> None:
    data = DataSettings(subset=20, image_size=size, channels=3, interpolation=interpolation)  # type: ignore[arg-type]
    dataset = load_dataset("rotated-mnist", root, data)
    assert dataset.image_shape == (3, size, size)
    assert dataset.mean == (0.485, 0.456, 0.406)
    pixels = dataset.domains["30"].test.images[torch.tensor([0])]
    assert torch.equal(pixels[:, 0], pixels[:, 2])


def test_turned_when_asked_for_is_turned_at_once(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    kept = load_dataset("rotated-mnist", root, SUBSET).domains["45"].test.images
    monkeypatch.setattr("bayesdg.data.rotated.KEEP_BYTES", 0)
    made = load_dataset("rotated-mnist", root, SUBSET).domains["45"].test.images
    assert isinstance(made, Turned)
    index = torch.tensor([7, 3, 3, 49])
    assert torch.equal(kept[index], made[index])
    assert torch.equal(made[index[1:2]], made[index][1:2])


def test_interpolations_agree_with_torchvision() -> None:
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    image = torch.rand(2, 1, 33, 33, generator=torch.Generator().manual_seed(0))
    for mode in ("nearest", "bilinear"):
        theirs = functional.rotate(image, 30, InterpolationMode(mode))
        inside = torch.meshgrid(torch.arange(33) - 16, torch.arange(33) - 16, indexing="ij")
        centre = inside[0] ** 2 + inside[1] ** 2 < 200
        ours = rotate(image, 30, mode)  # type: ignore[arg-type]
        assert (ours - theirs)[..., centre].abs().max() < 1e-4


@pytest.mark.parametrize("keep", [0, 3, 10, 5000])
def test_cut_files_are_named(root: Path, keep: int) -> None:
    path = root / "FashionMNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte is (cut|no IDX file)"):
        load_dataset("rotated-fashion-mnist", root, SUBSET)


def test_damaged_gz_and_pages_of_a_proxy_are_named(root: Path) -> None:
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:1000], b"<html>not found</html>", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match="ubyte"):
            load_dataset("rotated-mnist", root, SUBSET)
    (path.with_suffix("")).write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="is no IDX file"):
        read_idx(path.with_suffix(""))


def test_more_images_than_there_are_cannot_be_drawn(root: Path) -> None:
    with pytest.raises(UsageError, match="data.subset is 2000, but MNIST has 300"):
        load_dataset("rotated-mnist", root)


def test_labels_that_do_not_fit_are_named(root: Path) -> None:
    write_idx(root / "FashionMNIST" / "raw" / "train-labels-idx1-ubyte", np.zeros(5))
    with pytest.raises(DataError, match="300 train images have 5 labels"):
        load_dataset("rotated-fashion-mnist", root, SUBSET)
