"""Tiny worlds for tests: generated, seeded, small enough to train on in a moment."""

import torch

from bayesdg.data import Domain, Images, ImageSet

TINY = {
    "model.backbone": "small-cnn",
    "model.draws": 3,
    "episode.batch_size": 8,
    "episode.per_class": 2,
    "training.steps": 3,
    "training.evaluate_every": 2,
    "prediction.draws": 4,
}


def image_set(num: int, num_classes: int, seed: int, shift: float = 0.0) -> ImageSet:
    """Images with a bright band whose direction is their class; brightness is the domain."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num) % num_classes
    row, column = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    patterns = torch.stack([row - 3, column - 3, row - column]).abs() <= 1
    noise = torch.randn(num, 1, 8, 8, generator=generator)
    return ImageSet(2.0 * patterns[labels].unsqueeze(1) + shift + 0.3 * noise, labels)


class Sealed:
    """Images that must not be looked at."""

    def __init__(self, images: Images) -> None:
        self.shape = tuple(images.shape)
        self.dtype = getattr(images, "dtype", torch.uint8)

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        raise AssertionError("images of the target were opened")


def sealed(domain: Domain) -> Domain:
    """The domain, with images that must not be looked at."""

    def closed(images: ImageSet) -> ImageSet:
        return ImageSet(Sealed(images.images), images.labels)

    return Domain(domain.name, closed(domain.train), closed(domain.val), closed(domain.test))
