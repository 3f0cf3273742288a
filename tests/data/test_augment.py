"""Augmentation against torchvision, given the same parameters."""

import pytest
import torch
from torchvision.transforms import v2

from bayesdg.chance import stream
from bayesdg.data.augment import Changes, apply, augment, draw
from bayesdg.errors import UsageError
from bayesdg.stages import AugmentationSettings

functional = v2.functional
EVERYTHING = AugmentationSettings(grey=0.3)


def images(num: int = 24, size: int = 32, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (num, channels, size, size), dtype=torch.uint8, generator=generator)


def by_torchvision(image: torch.Tensor, changes: Changes, i: int) -> torch.Tensor:
    """One image, function by function."""
    size = image.shape[-1]
    box = [int(v[i]) for v in (changes.top, changes.left, changes.height, changes.width)]
    x = functional.resized_crop(image.float() / 255, *box, [size, size])
    x = functional.horizontal_flip(x) if changes.flip[i] else x
    x = functional.adjust_brightness(x, float(changes.brightness[i]))
    x = functional.adjust_contrast(x, float(changes.contrast[i]))
    x = functional.adjust_saturation(x, float(changes.saturation[i]))
    return functional.rgb_to_grayscale(x, 3) if changes.grey[i] else x


@pytest.mark.parametrize("size", [32, 57])
def test_it_is_torchvisions_given_the_same_parameters(size: int) -> None:
    pictures = images(size=size)
    changes = draw(len(pictures), size, EVERYTHING, torch.Generator().manual_seed(1))
    ours = apply(pictures, changes)
    for i, picture in enumerate(pictures):
        torch.testing.assert_close(ours[i], by_torchvision(picture, changes, i), atol=2e-5, rtol=0)
    # The comparison met every kind of change.
    assert changes.flip.any()
    assert not changes.flip.all()
    assert changes.grey.any()
    assert (changes.height < size).any()


def test_crops_have_torchvisions_distribution() -> None:
    """Area and ratio of 20,000 crops against RandomResizedCrop's own parameters."""
    settings = AugmentationSettings(crop_low=0.3, crop_high=1.0)
    changes = draw(20_000, 100, settings, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    crop = v2.RandomResizedCrop(100, scale=(0.3, 1.0), ratio=(3 / 4, 4 / 3))
    theirs = [crop.make_params([torch.empty(3, 100, 100)]) for _ in range(4000)]
    for name in ("top", "left", "height", "width"):
        expected = torch.tensor([float(p[name]) for p in theirs])
        ours = getattr(changes, name)
        assert abs(ours.mean() - expected.mean()) < 5 * expected.std() / 4000**0.5
        assert abs(ours.std() / expected.std() - 1) < 0.1


def test_every_crop_lies_inside() -> None:
    changes = draw(5000, 64, AugmentationSettings(crop_low=0.01, crop_ratio=4), torch.Generator())
    assert (changes.top >= 0).all()
    assert (changes.left >= 0).all()
    assert (changes.top + changes.height <= 64).all()
    assert (changes.left + changes.width <= 64).all()
    assert (changes.height >= 1).all()


def test_factors_lie_in_their_range_and_differ_between_images() -> None:
    changes = draw(5000, 64, AugmentationSettings(), torch.Generator().manual_seed(0))
    for factor in (changes.brightness, changes.contrast, changes.saturation):
        assert 0.6 <= factor.min() < 0.61
        assert 1.39 < factor.max() <= 1.4
        assert len(factor.unique()) > 4000
    assert abs(changes.flip.float().mean() - 0.5) < 0.04
    assert not changes.grey.any()


def test_no_changes_change_nothing() -> None:
    still = AugmentationSettings(crop_low=2, crop_high=2, flip=0, jitter=0)
    pictures = images()
    torch.testing.assert_close(
        augment(pictures, still, torch.Generator()), pictures / 255, atol=1e-5, rtol=0
    )


def test_grey_images_of_one_channel_are_augmented_too() -> None:
    pictures = images(channels=1)
    changes = draw(len(pictures), 32, EVERYTHING, torch.Generator().manual_seed(1))
    three = apply(pictures.expand(-1, 3, -1, -1).contiguous(), changes)
    torch.testing.assert_close(apply(pictures, changes), three[:, :1], atol=2e-4, rtol=0)


def test_floats_are_taken_as_they_are() -> None:
    changes = draw(24, 32, EVERYTHING, torch.Generator().manual_seed(1))
    torch.testing.assert_close(apply(images() / 255, changes), apply(images(), changes))


@pytest.mark.parametrize("shape", [(2, 3, 32, 30), (2, 2, 32, 32)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"use data.augmentation = none"):
        augment(torch.zeros(shape, dtype=torch.uint8), EVERYTHING, torch.Generator())


def test_same_seed_and_step_give_the_same_pixels() -> None:
    def pixels(step: int) -> torch.Tensor:
        return augment(images(), EVERYTHING, stream(0, "augmentation", step))

    assert torch.equal(pixels(3), pixels(3))
    assert not torch.equal(pixels(3), pixels(4))
