"""Images of none of a run's classes, from data sets and folders."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdg.data import load_dataset
from bayesdg.data.elsewhere import Grey, Joined, images_elsewhere
from bayesdg.data.pictures import Frame
from bayesdg.errors import DataError, UsageError
from bayesdg.stages import DataSettings
from pictures import make_tree

PLAIN = DataSettings(cache=False)


def test_joined_sets_are_their_concatenation_in_any_order() -> None:
    parts = [torch.randint(0, 256, (n, 1, 4, 4), dtype=torch.uint8) for n in (3, 1, 5)]
    joined = Joined(tuple(parts))
    index = torch.tensor([8, 0, 3, 2, 4, 3])
    assert joined.shape == (9, 1, 4, 4)
    assert (joined[index] == torch.cat(parts)[index]).all()


def test_of_a_rotated_set_the_test_images_at_the_same_angles_are_taken() -> None:
    images, skipped = images_elsewhere("rotated-digits", Frame(1, 12), PLAIN, domains=["30", "75"])
    dataset = load_dataset("rotated-digits", data=DataSettings(image_size=12))
    expected = torch.cat([dataset.domains[d].test.images[torch.arange(359)] for d in ("30", "75")])
    assert (images[torch.arange(718)] == expected).all()
    assert skipped == {}
    every, _ = images_elsewhere("rotated-digits", Frame(3, 12), PLAIN, domains=["photo"])
    assert every.shape == (7 * 359, 3, 12, 12)


def test_of_a_folder_all_pictures_that_can_be_read_are_taken(tmp_path: Path) -> None:
    make_tree(tmp_path, {"any": {"thing": 3}, "other": {"thing": 1}})
    (tmp_path / "any" / "0.png").write_bytes(b"no image")
    images, skipped = images_elsewhere(str(tmp_path), Frame(3, 8), PLAIN)
    assert images.shape == (4, 3, 8, 8)
    assert list(skipped.values()) == ["not an image"]
    grey, _ = images_elsewhere(str(tmp_path), Frame(1, 8), PLAIN)
    assert isinstance(grey, Grey)
    index = torch.tensor([2, 0])
    assert grey[index].shape == (2, 1, 8, 8)
    colours = images[index].double().numpy()
    luma = np.einsum("nchw,c->nhw", colours, [0.299, 0.587, 0.114])
    assert np.abs(grey[index][:, 0].numpy() - luma).max() <= 0.51


def test_what_holds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown data set 'rotated-mnis'; did you mean"):
        images_elsewhere("rotated-mnis", Frame(1, 8), PLAIN)
    with pytest.raises(DataError, match="no pictures that can be read"):
        images_elsewhere(str(tmp_path), Frame(1, 8), PLAIN)
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match="no pictures that can be read"):
        images_elsewhere(str(tmp_path), Frame(1, 8), PLAIN)
