"""Folder data sets, from names to trained runs (bad-input scenarios 43 to 49 and 61)."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdg.cli.results import print_results
from bayesdg.data import DomainDataset, load_dataset
from bayesdg.data.known import data_root, place_of, user_cache
from bayesdg.errors import BayesdgError, DataError, UsageError
from bayesdg.settings import Settings
from bayesdg.stages import DataSettings
from bayesdg.training.run import Run
from bayesdg.training.train import train
from pictures import make_tree

MakeSettings = Callable[..., Settings]
THREE = {
    "art": {"cat": 12, "dog": 12},
    "photo": {"cat": 12, "dog": 12},
    "web": {"cat": 6, "dog": 6},
}
SMALL = DataSettings(image_size=16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "pets", THREE)


def trained(dataset: DomainDataset, settings: Settings, target: str = "web") -> Run:
    settings = settings.replace({"training.evaluate_target": "end"})
    return train(dataset, settings, targets=[target])


def test_a_folder_of_your_own_works_by_its_path(folder: Path, tiny_settings: MakeSettings) -> None:
    dataset = load_dataset(str(folder), data=SMALL)
    assert dataset.name == "pets"
    assert dataset.classes == ("cat", "dog")
    assert dataset.image_shape == (3, 16, 16)
    run = trained(dataset, tiny_settings("bil"))
    parts = {result.domain: (result.role, result.part) for result in run.results}
    # Test images of a source were trained on, so its validation images speak for it.
    assert parts == {
        "art": ("source", "val"),
        "photo": ("source", "val"),
        "web": ("target", "test"),
    }
    with pytest.raises(
        UsageError, match="pets has no target of its own; name one: art, photo, web"
    ):
        train(dataset, tiny_settings("bil"))


def test_labels_mean_the_same_class_in_every_domain(tmp_path: Path) -> None:
    make_tree(tmp_path / "pets", {"art": {"dog": 3, "giraffe": 3}, "sketch": {"giraffe": 3}})
    dataset = load_dataset(str(tmp_path / "pets"), data=SMALL)
    assert set(dataset.domains["sketch"].test.labels.tolist()) == {1}
    assert dataset.classes[1] == "giraffe"


def test_pixels_and_labels_belong_together(folder: Path) -> None:
    from bayesdg.data.decode import decode

    domain = load_dataset(str(folder), data=SMALL).domains["photo"]
    known = {
        decode(path.read_bytes(), 16).pixels.tobytes(): path.parent.name
        for path in (folder / "photo").rglob("*.png")
    }
    assert len(known) == 24
    for part in (domain.train, domain.val, domain.test):
        pixels = part.images[torch.arange(len(part))]
        for picture, label in zip(pixels, part.labels, strict=True):
            name = known[picture.permute(1, 2, 0).contiguous().numpy().tobytes()]
            assert name == ("cat", "dog")[label]


def test_a_class_that_a_source_lacks_is_trained_from_the_others(
    tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    layout = {"art": {"cat": 8, "dog": 8}, "photo": {"cat": 8}, "web": {"cat": 4, "dog": 4}}
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    run = trained(dataset, tiny_settings("bil", {"training.steps": 8}))
    assert all(np.isfinite(list(r.metrics.values())).all() for r in run.results)


def test_a_class_of_the_target_alone_is_not_counted(
    tmp_path: Path, tiny_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = {
        "art": {"cat": 20, "dog": 20},
        "photo": {"cat": 20, "dog": 20},
        "web": {"cat": 4, "owl": 6},
    }
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    results = trained(dataset, tiny_settings("erm")).results
    assert (results[-1].num_images, results[-1].num_excluded) == (4, 6)
    print_results(results)
    assert "web: 6 more images are of classes that training never saw" in capsys.readouterr().out
    layout["web"] = {"owl": 6}
    shutil.rmtree(tmp_path / "pets" / "web" / "cat")
    dataset = load_dataset(str(tmp_path / "pets"), data=SMALL)
    with pytest.raises(DataError, match="no test image of web is of a class that was trained on"):
        trained(dataset, tiny_settings("erm"))


def test_one_image_per_class_trains_with_repeats_and_lacks_validation(
    tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    layout = {d: {"cat": 1, "dog": 1} for d in ("art", "photo", "web")}
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    assert len(dataset.domains["art"].train) == 2
    with pytest.raises(DataError, match="no validation images in art, photo"):
        trained(dataset, tiny_settings("bil"))
    # With a few more there is something to validate on; classes still repeat in an episode.
    layout["art"]["cat"] = layout["photo"]["cat"] = 10
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    trained(dataset, tiny_settings("bil", {"episode.per_class": 8}))


def test_two_source_domains_are_enough(folder: Path, tiny_settings: MakeSettings) -> None:
    run = trained(load_dataset(str(folder), data=SMALL), tiny_settings("bil"))
    assert run.task.sources == ("art", "photo")
    assert {"inv_phi", "inv_psi"} <= set(run.records[1].terms)  # type: ignore[union-attr]


def test_one_source_domain_is_refused_or_trained_without_invariance(
    tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    layout = {"art": {"cat": 20, "dog": 20}, "web": {"cat": 4, "dog": 4}}
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    with pytest.raises(UsageError, match=r"bil compares domains, but there is only one.*erm"):
        trained(dataset, tiny_settings("bil"))
    trained(dataset, tiny_settings("h"))
    with pytest.warns(UserWarning, match="bil is trained without its invariance terms"):
        run = trained(dataset, tiny_settings("bil", {"episode.single_source": True}))
    assert set(run.records[1].terms) == {"nll", "kl_phi", "kl_psi"}  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bayesdg.training.run import load_run

        load_run(run.save(tmp_path / "run"))


def test_a_domain_a_hundred_times_smaller_is_met_as_often(tmp_path: Path) -> None:
    from bayesdg.chance import stream
    from bayesdg.episodes import EpisodeSampler

    layout = {"big": {"cat": 150, "dog": 150}, "small": {"cat": 2, "dog": 1}}
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    (note,) = (note for note in dataset.notes if note.startswith("big has 300 images, small 3: "))
    assert note.endswith("an image of small repeats 100 times as often")
    sampler = EpisodeSampler({n: d.train for n, d in dataset.domains.items()}, 4, 2, "episode")
    met = [sampler.draw(stream(0, "episode", step)).meta_target for step in range(200)]
    assert 70 < met.count("small") < 130


def test_broken_images_stop_everything_with_a_list(folder: Path) -> None:
    (folder / "art" / "cat" / "0.png").write_bytes(b"<html>")
    (folder / "web" / "dog" / "1.png").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        load_dataset(str(folder), data=SMALL)
    message = str(caught.value)
    assert "2 broken images" in message
    assert "art/cat/0.png: an HTML page" in message
    assert "web/dog/1.png: empty file" in message
    assert "--skip-bad" in message
    assert "data.bad_images = skip" in message
    assert caught.value.exit_code == 3


def test_broken_images_can_be_skipped_and_are_recorded(
    folder: Path, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    (folder / "art" / "cat" / "0.png").write_bytes(b"<html>")
    skip = SMALL.model_copy(update={"bad_images": "skip"})
    dataset = load_dataset(str(folder), data=skip)
    assert dataset.skipped == ("art/cat/0.png: an HTML page, not an image",)
    assert len(dataset.domains["art"].test) == 23
    run = trained(dataset, tiny_settings("erm"))
    assert run.task.skipped == dataset.skipped
    run.save(tmp_path / "run")
    assert "art/cat/0.png" in (tmp_path / "run" / "run.json").read_text()


def test_the_folder_is_not_needed_once_it_is_decoded(
    folder: Path, tiny_settings: MakeSettings
) -> None:
    for cache in (True, False):
        dataset = load_dataset(str(folder), data=SMALL.model_copy(update={"cache": cache}))
        folder.rename(folder.with_name("gone"))
        trained(dataset, tiny_settings("bil"))
        folder.with_name("gone").rename(folder)


def test_a_table_of_your_own_decides(folder: Path) -> None:
    table = folder / "table.csv"
    lines = ["path,domain,class,split"]
    for domain in ("art", "photo", "web"):
        for i, part in enumerate(["train", "train", "val", "test"]):
            lines += [f"{domain}/{c}/{i}.png,{domain},{c},{part}" for c in ("cat", "dog")]
    table.write_text("\n".join(lines))
    dataset = load_dataset(str(folder), data=SMALL.model_copy(update={"split_file": table}))
    sizes = {(len(d.train), len(d.val), len(d.test)) for d in dataset.domains.values()}
    assert sizes == {(4, 2, 2)}
    assert all(domain.held_out_test for domain in dataset.domains.values())


def test_a_source_without_test_images_is_judged_on_validation(
    folder: Path, tiny_settings: MakeSettings
) -> None:
    table = folder / "table.csv"
    lines = ["path,domain,class,split"]
    for domain, parts in {
        "art": ["train", "train", "val"], "photo": ["train", "train", "val", "test"],
        "web": ["test"],
    }.items():  # fmt: skip
        for i, part in enumerate(parts):
            lines += [f"{domain}/{c}/{i}.png,{domain},{c},{part}" for c in ("cat", "dog")]
    table.write_text("\n".join(lines))
    data = SMALL.model_copy(update={"split_file": table})
    run = trained(load_dataset(str(folder), data=data), tiny_settings("erm"))
    found = {r.domain: (r.part, r.num_images) for r in run.results}
    assert found == {"art": ("val", 2), "photo": ("test", 2), "web": ("test", 2)}


def test_names_that_are_no_utf8_survive_a_whole_run(
    tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    import os

    from bayesdg.training.run import load_run

    names = [os.fsdecode(b"caf\xe9"), "[/dog]".replace("/", "|"), "=cmd()", "new\nline"]
    layout = {os.fsdecode(b"d\xe9"): dict.fromkeys(names, 4), "b": dict.fromkeys(names, 4)}
    layout["web"] = dict.fromkeys(names, 4)
    dataset = load_dataset(str(make_tree(tmp_path / "pets", layout)), data=SMALL)
    run = trained(dataset, tiny_settings("bil"))
    again = load_run(run.save(tmp_path / "run"))
    assert again.task == run.task
    assert r"caf\xe9" in again.task.classes
    assert {r.domain for r in again.results} == {r"d\xe9", "b", "web"}


def test_oddities_travel_with_the_run(folder: Path) -> None:
    from PIL import Image

    Image.new("CMYK", (20, 20)).save(folder / "art" / "cat" / "0.jpg")
    (folder / "art" / "cat" / ".DS_Store").touch()
    notes = load_dataset(str(folder), data=SMALL).notes
    assert "1 images: CMYK" in notes
    assert "ignored, junk: 1" in notes


PACS_LAYOUT = {
    domain: dict.fromkeys(("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"), 3)
    for domain in ("art_painting", "cartoon", "photo", "sketch")
}


def test_pacs_reads_the_official_lists_or_a_seeded_split(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "PACS", PACS_LAYOUT)
    with pytest.raises(UsageError, match="no official split in .*splits; use data.split = seeded"):
        load_dataset("pacs", tmp_path, SMALL.model_copy(update={"split": "official"}))
    (root / "splits").mkdir()
    for domain, classes in PACS_LAYOUT.items():
        for part, numbers in (("train", (0, 1)), ("crossval", (2,))):
            lines = [
                f"{domain}/{label}/{i}.png {index}"
                for index, label in enumerate(classes, start=1)
                for i in numbers
            ]
            (root / "splits" / f"{domain}_{part}_kfold.txt").write_text("\n".join(lines))
    official = load_dataset("pacs", tmp_path, SMALL).domains["photo"]
    assert (len(official.train), len(official.val), len(official.test)) == (14, 7, 21)
    seeded = load_dataset("pacs", tmp_path, SMALL.model_copy(update={"split": "seeded"}))
    assert len(seeded.domains["photo"].val) == 7  # one of three of each class


# Folder, and some domains and classes, as these data sets are distributed.
OTHERS = {
    "VLCS": ["Caltech101", "LabelMe", "SUN09", "VOC2007"],
    "terra_incognita": ["location_38", "location_43", "location_46", "location_100"],
    "domain_net": ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"],
    "office_caltech_10": ["amazon", "caltech", "dslr", "webcam"],
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_benchmarks_work_without_code(
    name: str, tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    layout = {domain: {"bird": 10, "The_Eiffel_Tower": 10} for domain in OTHERS[name]}
    dataset = load_dataset(str(make_tree(tmp_path / name, layout)), data=SMALL)
    assert list(dataset.domains) == OTHERS[name]  # location_100 after location_46
    run = trained(dataset, tiny_settings("bil"), target=OTHERS[name][0])
    assert run.results[-1].num_images == 20


def test_counts_other_than_published_travel_with_the_run(
    tmp_path: Path, tiny_settings: MakeSettings
) -> None:
    layout = {domain: {"dog": 10, "cat": 10} for domain in PACS_LAYOUT}
    make_tree(tmp_path / "PACS", layout)
    dataset = load_dataset("pacs", tmp_path, SMALL)
    assert "photo/dog has 10 images, published are 189" in dataset.notes
    run = trained(dataset, tiny_settings("erm"), target="photo")
    assert run.task.notes == dataset.notes


@pytest.mark.parametrize("spelling", ["Real World", "RealWorld"])
def test_office_home_in_both_spellings(tmp_path: Path, spelling: str) -> None:
    layout = {d: {"Alarm Clock": 10, "Bed": 10} for d in ("Art", "Clipart", "Product", spelling)}
    make_tree(tmp_path / "OfficeHomeDataset_10072016", layout)
    dataset = load_dataset("office-home", tmp_path, SMALL)
    assert list(dataset.domains) == ["Art", "Clipart", "Product", "Real World"]
    assert dataset.classes == ("Alarm Clock", "Bed")
    assert [len(d.val) for d in dataset.domains.values()] == [2, 2, 2, 2]


def test_what_is_absent_is_told_with_its_page_and_layout(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"pacs is not at .*PACS; get it from https://.*DOMAIN/CLASS"
    ):
        load_dataset("pacs", tmp_path)
    with pytest.raises(BayesdgError, match="neither train-images-idx3-ubyte nor .*gz"):
        load_dataset("rotated-mnist", tmp_path)


def test_the_root_is_an_argument_a_variable_or_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAYESDG_DATA", raising=False)
    assert data_root() == user_cache() / "data"
    monkeypatch.setenv("BAYESDG_DATA", "~/pictures")
    assert data_root() == Path.home() / "pictures"
    assert data_root(tmp_path) == tmp_path
    assert place_of("pacs", tmp_path) == tmp_path / "PACS"
