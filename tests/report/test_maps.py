import dataclasses

import numpy as np
import pytest

from bayesdg.errors import DataError, UsageError
from bayesdg.evaluate.features import FeatureSample
from bayesdg.evaluate.stored import PartKey
from bayesdg.report.maps import (
    Map,
    class_on_show,
    draw_maps,
    embed,
    embedded,
    make_map,
    separation,
    view_rows,
)

CLASSES = ("cat", "dog", "horse")
KEYS = (PartKey("photo", "source", "val"), PartKey("sketch", "target", "test"))


def sample(num: int = 60) -> FeatureSample:
    """Three classes far apart, in two domains; the last image is of no known class."""
    labels = np.arange(num, dtype=np.int32) % 3
    features = np.random.default_rng(0).normal(size=(num, 5)) + 20 * np.eye(5)[labels]
    labels[-1] = -1
    return FeatureSample(
        KEYS, (np.arange(num) % 2).astype(np.int32), np.arange(num, dtype=np.int32), labels,
        features.astype(np.float32), (b"",) * num, np.ones(num, bool), (num, num),
    )  # fmt: skip


def test_classes_that_are_far_apart_are_so_on_the_map() -> None:
    found = sample()
    xy = embed(found.features[:-1])
    centres = np.stack([xy[found.labels[:-1] == k].mean(0) for k in range(3)])
    nearest = np.linalg.norm(xy[:, None] - centres[None], axis=-1).argmin(1)
    assert (nearest == found.labels[:-1]).all()


def test_the_same_features_give_the_same_map() -> None:
    features = sample().features
    assert np.array_equal(embed(features), embed(features))


@pytest.mark.parametrize("shape", [(4, 1), (5, 600), (30, 2)])
def test_few_images_and_few_dimensions_are_no_trouble(shape: tuple[int, int]) -> None:
    xy = embed(np.random.default_rng(0).normal(size=shape))
    assert xy.shape == (shape[0], 2)
    assert np.isfinite(xy).all()


def test_equal_features_are_no_trouble() -> None:
    assert np.isfinite(embed(np.ones((20, 3)))).all()


def test_three_images_are_no_map() -> None:
    with pytest.raises(DataError, match="at least 4"):
        embed(np.ones((3, 2)))


def test_views_show_what_they_say() -> None:
    found = sample()
    assert len(view_rows(found, "all", 0)) == 59
    assert len(view_rows(found, "in-out", 0)) == 59
    assert found.is_target[view_rows(found, "target", 0)].all()
    assert (found.labels[view_rows(found, "class", 2)] == 2).all()
    gallery_only = dataclasses.replace(found, on_map=np.arange(60) < 10)
    assert view_rows(gallery_only, "all", 0).tolist() == list(range(10))
    with pytest.raises(UsageError, match="unknown view 'al'; did you mean 'all'"):
        view_rows(found, "al", 0)


def test_an_embedding_is_computed_once() -> None:
    once = embedded(sample(), "all", 0)
    assert embedded(once, "all", 0) is once
    assert embedded(once, "in-out", 0) is once  # the same images in other colours
    assert embedded(once, "target", 0) is not once


def test_colours_are_domains_or_classes_and_the_unseen_domain_is_violet() -> None:
    ready = sample()
    for view in ("all", "target", "class", "in-out"):
        ready = embedded(ready, view, 2)
        found = make_map(ready, CLASSES, view, 2, "j")
        assert found is not None
        names = np.array([name for name, _ in found.colours])[found.colour]
        if view == "target":
            assert names.tolist() == [CLASSES[k] for k in ready.labels[found.rows]]
        elif view == "in-out":
            assert (names == "out of distribution").tolist() == ready.is_target[found.rows].tolist()
        else:
            domains = ready.domains[found.rows].tolist()
            assert [name.removesuffix(" (unseen)") for name in names] == domains
            assert dict(found.colours)["sketch (unseen)"] == "#CC79A7"
        if view in ("all", "in-out"):
            assert found.shape.tolist() == ready.labels[found.rows].tolist()
        assert found.xy.min() >= 0
        assert found.xy.max() <= 1


def test_the_class_alone_is_the_papers_or_a_frequent_one() -> None:
    assert class_on_show(sample(), CLASSES, None) == 2  # horse
    assert class_on_show(sample(), ("a", "b", "c"), None) == 0
    assert class_on_show(sample(), CLASSES, "dog") == 1
    with pytest.raises(UsageError, match="unknown class 'hors'; did you mean 'horse'"):
        class_on_show(sample(), CLASSES, "hors")


def test_numbers_say_that_these_classes_are_apart_and_the_domains_are_not() -> None:
    found = separation(sample())
    assert found["intra_source"] < 0.5 < 1 < found["inter_source"]
    assert found["class_gap"] == pytest.approx(1, abs=0.1)
    assert found["separability_source"] is None  # one source domain
    assert found["separability_target"] < 0.75


def test_many_images_are_embedded_by_the_library_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openTSNE", reason="openTSNE is not installed (extra viz)")
    monkeypatch.setattr("bayesdg.report.maps.MOST_EXACT", 50)
    found = sample(90)
    xy = embed(found.features)
    assert xy.shape == (90, 2)
    assert np.array_equal(xy, embed(found.features))


def test_a_legend_has_columns_of_colours_and_columns_of_shapes() -> None:
    """Domain 0 and class 0 of rotated digits are told apart by where they stand."""
    xy, none = np.zeros((1, 2)), np.zeros(1, np.int64)
    colours = tuple((f"domain {k}", "#000000") for k in range(7))
    shapes = tuple(f"class {k}" for k in range(10))
    shown = Map("a", none, xy, none, none, colours, shapes, "colour: domain, shape: class")
    (legend,) = draw_maps([shown]).legends
    names = [text.get_text().strip() for text in legend.get_texts()]
    lines = len(names) // legend._ncols
    columns = [names[k : k + lines] for k in range(0, len(names), lines)]
    assert [{name.partition(" ")[0] for name in column} - {""} for column in columns] == [
        {"domain"}, {"class"}, {"class"},
    ]  # fmt: skip
    assert legend.get_title().get_text() == "colour: domain, shape: class"
