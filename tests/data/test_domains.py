"""What a data set refuses before anything is trained on it."""

from dataclasses import replace

import pytest
import torch

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.data.domains import Rows
from bayesdg.errors import DataError, UsageError
from worlds import image_set

IMAGES = torch.zeros(4, 1, 8, 8)


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (IMAGES, torch.zeros(3, dtype=torch.long), "4 images have 3 labels"),
        (IMAGES, torch.zeros(4), "labels are torch.float32"),
        (IMAGES, torch.zeros(4, 1, dtype=torch.long), r"of shape \(4, 1\)"),
        (IMAGES[0], torch.zeros(1, dtype=torch.long), r"needed \(n, C, H, W\)"),
    ],
)
def test_images_and_labels_that_do_not_fit(
    images: torch.Tensor, labels: torch.Tensor, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        ImageSet(images, labels)


def test_labels_beyond_the_classes_are_named_with_their_place(tiny_dataset: DomainDataset) -> None:
    with pytest.raises(
        DataError, match="labels of tiny/near/train run from 0 to 2, but there are 2"
    ):
        replace(tiny_dataset, classes=("low", "high"))


def test_images_of_different_shapes_are_refused(tiny_dataset: DomainDataset) -> None:
    odd = ImageSet(torch.zeros(3, 1, 9, 9), torch.arange(3))
    mid = replace(tiny_dataset.domains["mid"], val=odd)
    with pytest.raises(DataError, match="differ in shape"):
        replace(tiny_dataset, domains={**tiny_dataset.domains, "mid": mid})


def test_images_of_different_types_are_refused(tiny_dataset: DomainDataset) -> None:
    levels = ImageSet(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.arange(3))
    mid = replace(tiny_dataset.domains["mid"], val=levels)
    with pytest.raises(DataError, match="differ in type"):
        replace(tiny_dataset, domains={**tiny_dataset.domains, "mid": mid})


@pytest.mark.parametrize(("domain", "part"), [("mid", "train"), ("far", "test")])
def test_an_empty_part_is_named_before_training(
    tiny_dataset: DomainDataset, domain: str, part: str
) -> None:
    emptied = replace(tiny_dataset.domains[domain], **{part: image_set(0, 3, 0)})
    dataset = replace(tiny_dataset, domains={**tiny_dataset.domains, domain: emptied})
    with pytest.raises(DataError, match=f"the domain {domain} has no {part} images"):
        dataset.split()


def test_one_source_with_validation_images_is_enough(tiny_dataset: DomainDataset) -> None:
    domains = dict(tiny_dataset.domains)
    for name in ("mid", "third"):
        domains[name] = replace(domains[name], val=image_set(0, 3, 0))
    assert set(replace(tiny_dataset, domains=domains).split().sources) == {"near", "mid", "third"}
    domains["near"] = replace(domains["near"], val=image_set(0, 3, 0))
    with pytest.raises(DataError, match="no validation images in near, mid, third"):
        replace(tiny_dataset, domains=domains).split()


def test_a_target_has_to_be_named_where_there_is_none(tiny_dataset: DomainDataset) -> None:
    with pytest.raises(UsageError, match="tiny has no target of its own; name one: near, mid"):
        replace(tiny_dataset, targets=()).split()


def test_rows_are_a_view_in_their_own_order() -> None:
    images = torch.arange(5).view(5, 1, 1, 1)
    rows = Rows(images, torch.tensor([4, 0, 2]))
    assert rows.shape == (3, 1, 1, 1)
    assert rows[torch.tensor([2, 0])].flatten().tolist() == [2, 4]
