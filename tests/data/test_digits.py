"""Rotation against scipy, and the data set against its own promises."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.data.rotated import rotate
from bayesdg.errors import UsageError


@pytest.fixture(scope="module")
def digits() -> DomainDataset:
    return load_dataset("rotated-digits")


@pytest.mark.parametrize("degrees", [15, 30, 45, 60, 75, -20])
def test_rotation_agrees_with_scipy(degrees: float) -> None:
    """Bilinear about the centre, counter-clockwise as seen on screen."""
    image = torch.rand(1, 1, 17, 17, generator=torch.Generator().manual_seed(0)).double()
    ours = rotate(image, degrees)[0, 0].numpy()
    scipys = ndimage.rotate(image[0, 0].numpy(), degrees, order=1, reshape=False)
    inside = np.hypot(*np.mgrid[-8:9, -8:9]) < 7.5  # the two fade out differently at the border
    np.testing.assert_allclose(ours[inside], scipys[inside], atol=1e-6)


def test_quarter_turn_is_exact() -> None:
    image = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(rotate(image, 90), torch.rot90(image, 1, (2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(rotate(image, 0), image, atol=1e-5, rtol=0)


def test_domains_are_the_papers_angles(digits: DomainDataset) -> None:
    split = digits.split()
    assert list(split.sources) == ["15", "30", "45", "60", "75"]
    assert list(split.targets) == ["0", "90"]
    assert len(digits.classes) == 10


def test_all_1797_images_are_used_and_splits_are_disjoint(digits: DomainDataset) -> None:
    domain = digits.domains["0"]
    parts = {name: getattr(domain, name) for name in ("train", "val", "test")}
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 1079, "val": 359, "test": 359,
    }  # fmt: skip
    seen = {
        name: {image.numpy().tobytes() for image in part.images} for name, part in parts.items()
    }
    assert not seen["train"] & seen["val"]
    assert not seen["train"] & seen["test"]
    assert not seen["val"] & seen["test"]


def test_an_image_is_in_the_same_split_at_every_angle(digits: DomainDataset) -> None:
    for name in ("train", "val", "test"):
        upright = getattr(digits.domains["0"], name)
        turned = getattr(digits.domains["90"], name)
        assert torch.equal(upright.labels, turned.labels)
        back = torch.rot90(turned.images, -1, (2, 3))
        assert (back.int() - upright.images.int()).abs().max() <= 1


def test_targets_can_be_chosen(digits: DomainDataset) -> None:
    assert list(digits.split("45").targets) == ["45"]
    assert "45" not in digits.split(["45"]).sources
    with pytest.raises(UsageError, match="all domains of rotated-digits are targets"):
        digits.split(digits.domains)
