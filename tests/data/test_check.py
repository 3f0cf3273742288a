"""`bayesdg data`: what it reports, and with which exit code (bad-input scenarios 43 to 62)."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesdg.data.check import MANIFEST, Report, check_folder
from bayesdg.data.known import KNOWN
from bayesdg.stages import DataSettings
from pictures import make_tree, picture, with_damaged_exif
from test_cli import bayesdg

LAYOUT = {domain: {"cat": 4, "dog": 4} for domain in ("art", "photo", "web")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "pets", LAYOUT)


def check(folder: Path, **values: object) -> Report:
    return check_folder(str(folder), folder.parent, DataSettings(**values))  # type: ignore[arg-type]


def test_sound_data_has_nothing_to_report(folder: Path) -> None:
    report = check(folder)
    assert report.counts == LAYOUT
    for name in ("broken", "odd", "ignored", "duplicates", "look_alikes", "warnings", "unsafe"):
        assert not getattr(report, name), name


def test_broken_and_odd_images_are_named(folder: Path) -> None:
    (folder / "art" / "cat" / "0.png").write_bytes(b"<html>")
    picture(mode="CMYK").save(folder / "art" / "cat" / "x.jpg")
    report = check(folder)
    assert report.broken == {"art/cat/0.png": "an HTML page, not an image"}
    assert report.odd == {"art/cat/x.jpg": ("CMYK",)}
    assert report.unsafe == ["1 broken images; mend or remove them, or use --skip-bad"]
    assert check(folder, bad_images="skip").unsafe == []


def test_the_same_content_elsewhere_is_a_leak(folder: Path) -> None:
    shutil.copy(folder / "art" / "cat" / "0.png", folder / "photo" / "cat" / "copy.png")
    shutil.copy(folder / "art" / "cat" / "1.png", folder / "art" / "dog" / "copy.png")
    shutil.copy(folder / "art" / "cat" / "2.png", folder / "art" / "cat" / "copy.png")
    report = check(folder)
    assert report.duplicates == [
        ["art/cat/0.png", "photo/cat/copy.png"],
        ["art/cat/1.png", "art/dog/copy.png"],
    ]
    assert report.unsafe == [
        "1 groups of equal images in several domains, such as art/cat/0.png = photo/cat/copy.png: "
        "the unseen domain would be seen"
    ]
    assert "1 groups of equal images under several classes" in report.warnings


def test_a_recompressed_copy_in_another_domain_looks_alike(folder: Path) -> None:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
    original = coarse.resize((144, 128), Image.Resampling.BICUBIC)
    original.save(folder / "art" / "cat" / "original.png")
    original.resize((100, 90)).save(folder / "photo" / "dog" / "again.jpg", quality=95)
    report = check(folder)
    assert report.look_alikes == [["art/cat/original.png", "photo/dog/again.jpg"]]
    assert not report.duplicates


def test_missing_classes_and_uneven_domains_are_told(tmp_path: Path) -> None:
    layout = {"art": {"cat": 60, "dog": 60}, "photo": {"cat": 1}}
    report = check(make_tree(tmp_path / "pets", layout))
    assert "photo has no images of dog" in report.warnings
    assert "photo has no validation for cat" in report.warnings
    assert any("art has 120 images, photo 1" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("layout", "says"),
    [({"art": {"cat": 2, "dog": 2}}, "only one domain, art"),
     ({"art": {"cat": 2}, "photo": {"cat": 2}}, "only one class, cat")],
)  # fmt: skip
def test_one_domain_or_one_class_is_unsafe(
    tmp_path: Path, layout: dict[str, dict[str, int]], says: str
) -> None:
    report = check(make_tree(tmp_path / "pets", layout))
    assert any(says in reason for reason in report.unsafe)


def test_what_training_would_refuse_is_unsafe(folder: Path) -> None:
    for path in (folder / "photo").rglob("*.png"):
        path.write_bytes(b"")
    report = check(folder, bad_images="skip")
    assert report.counts["photo"] == {"cat": 0, "dog": 0}
    assert report.unsafe == ["photo has no train images"]


ONE, MANY = {"cat": 1, "dog": 1}, {"cat": 9, "dog": 9}


def test_validation_images_in_one_source_are_enough(tmp_path: Path) -> None:
    report = check(make_tree(tmp_path / "pets", {"art": ONE, "photo": MANY, "web": MANY}))
    assert report.unsafe == []
    assert report.warnings == ["art has no validation for cat, dog"]
    report = check(make_tree(tmp_path / "pens", {"art": ONE, "photo": MANY, "web": ONE}))
    assert report.unsafe == []
    assert "only photo has validation images: it cannot be held out as a target" in report.warnings
    report = check(make_tree(tmp_path / "pots", {"art": ONE, "photo": ONE, "web": ONE}))
    assert report.unsafe == [
        "no domain has validation images: two readable images of a class leave one, or a table "
        "names some (--split-file)"
    ]


def test_two_domains_leave_a_single_source_which_is_told(tmp_path: Path) -> None:
    report = check(make_tree(tmp_path / "pets", {"art": MANY, "photo": MANY}))
    assert report.unsafe == []
    assert report.warnings == [
        "only two domains: with one of them held out a single source remains, which methods with "
        "invariance refuse; use one without, such as erm or h, or --single-source"
    ]


def write_table(folder: Path, parts: dict[str, list[str]]) -> Path:
    lines = [
        f"{domain}/{label}/{i}.png,{domain},{label},{part}"
        for domain, words in parts.items()
        for i, part in enumerate(words)
        for label in ("cat", "dog")
    ]
    table = folder / "table.csv"
    table.write_text("\n".join(["path,domain,class,split", *lines]))
    return table


def test_a_domain_with_test_images_alone_can_be_the_target(folder: Path) -> None:
    both = ["train", "train", "val"]
    table = write_table(folder, {"art": both, "photo": both, "web": ["test", "test"]})
    report = check(folder, split_file=table)
    assert report.unsafe == []
    assert report.warnings == ["web has no train images: it can only be a target"]
    table = write_table(folder, {"art": both, "photo": ["test"], "web": ["test"]})
    report = check(folder, split_file=table)
    assert report.unsafe == ["photo has no train images", "web has no train images"]


def test_a_hard_link_is_the_same_content(folder: Path) -> None:
    (folder / "photo" / "dog" / "link.png").hardlink_to(folder / "art" / "dog" / "0.png")
    report = check(folder)
    assert report.counts["photo"]["dog"] == 5
    assert report.duplicates == [["art/dog/0.png", "photo/dog/link.png"]]
    assert "equal images in several domains" in report.unsafe[0]


def test_a_class_folder_linked_to_another_is_the_same_content(folder: Path) -> None:
    (folder / "art" / "puppy").symlink_to(folder / "art" / "dog")
    report = check(folder)
    assert report.counts["art"]["puppy"] == 4
    assert len(report.duplicates) == 4
    assert "4 groups of equal images under several classes" in report.warnings


def test_broken_files_are_no_copies_of_each_other(folder: Path) -> None:
    for domain in ("art", "web"):
        (folder / domain / "cat" / "0.png").write_bytes(b"<html>not found</html>")
    report = check(folder, bad_images="skip")
    assert len(report.broken) == 2
    assert report.duplicates == report.unsafe == []


def test_what_the_decoder_warns_of_is_counted_and_shown(folder: Path) -> None:
    for name in ("x", "y"):
        (folder / "web" / "cat" / f"{name}.jpg").write_bytes(with_damaged_exif(picture(ord(name))))
    odd = check(folder).odd
    assert list(odd) == ["web/cat/x.jpg", "web/cat/y.jpg"]
    said = {text.removeprefix("decoder warning: ") for texts in odd.values() for text in texts}
    (words,) = said  # Pillow's, which change between its versions
    assert re.search("truncated|larger than file", words, re.IGNORECASE)
    _, out, err = bayesdg("data", "check", str(folder))
    assert f"decoder warning: 2 images, such as web/cat/x.jpg ({words})" in out
    assert err == ""


def test_images_in_the_wrong_place_are_told(folder: Path) -> None:
    picture().save(folder / "art" / "lost.png")
    picture().save(folder / "lost.png")
    (folder / "art" / "empty").mkdir()
    (folder / "paper").mkdir()
    report = check(folder)
    assert report.ignored == {"not in a class folder": 2}
    for said in (
        "2 images are not in DOMAIN/CLASS and left out, such as lost.png",
        "no images in art/empty",
        "no images in paper/CLASS",
    ):
        assert said in report.warnings


def test_a_wrong_list_is_part_of_the_report(tmp_path: Path) -> None:
    make_tree(tmp_path / "PACS", {domain: {"dog": 2} for domain in KNOWN["pacs"].domains})
    (tmp_path / "PACS" / "splits").mkdir()
    report = check_folder("pacs", tmp_path, DataSettings())
    assert any("kfold.txt cannot be read" in reason for reason in report.unsafe)
    assert report.counts["photo"] == {"dog": 2}


def test_counts_other_than_published_are_told(tmp_path: Path) -> None:
    layout = {domain: {"dog": 2} for domain in KNOWN["pacs"].domains}
    make_tree(tmp_path / "PACS", layout)
    report = check_folder("pacs", tmp_path, DataSettings())
    assert "photo/dog has 2 images, published are 189" in report.warnings
    assert "1 classes, published are 7" in report.warnings


def test_published_counts_add_up() -> None:
    total = sum(sum(c.values()) for c in KNOWN["pacs"].counts.values())
    assert total == 9991
    assert sum(c[""] for c in KNOWN["office-home"].counts.values()) == 15_588


def test_a_manifest_finds_what_has_changed(folder: Path) -> None:
    check_folder(str(folder), folder.parent, DataSettings(), write_manifest=True)
    verified = subprocess.run(["sha256sum", "-c", MANIFEST], cwd=folder, capture_output=True)
    assert verified.returncode == 0
    assert check(folder).unsafe == []
    path = folder / "art" / "cat" / "0.png"
    Image.new("RGB", (20, 20), "red").save(path)  # a picture still, but not the same
    (folder / "art" / "cat" / "1.png").rename(folder / "art" / "cat" / "9.png")
    assert check(folder).unsafe == [
        "changed since manifest.sha256 was written: art/cat/0.png",
        "missing since manifest.sha256 was written: art/cat/1.png",
        "new since manifest.sha256 was written: art/cat/9.png",
    ]


def test_a_manifest_of_unusual_names_holds(tmp_path: Path) -> None:
    layout = {"new\nline": {"back\\slash": 2, "\x85": 2}, "b": {"\u2028": 2, "\x85": 2}}
    folder = make_tree(tmp_path / "pets", layout)
    check_folder(str(folder), tmp_path, DataSettings(), write_manifest=True)
    assert check(folder).unsafe == []
    verified = subprocess.run(["sha256sum", "-c", MANIFEST], cwd=folder, capture_output=True)
    assert verified.returncode == 0


def test_the_command_prints_names_as_they_are_and_exits_with_3(tmp_path: Path) -> None:
    make_tree(
        tmp_path / "pets",
        {"[red]art": {"[/dog]".replace("/", "∕"): 3, ":cat:": 3}, "b": {":cat:": 3}},
    )
    code, out, err = bayesdg("data", "check", str(tmp_path / "pets"))
    assert code == 0, err
    assert "[red]art" in out
    assert ":cat:" in out
    (tmp_path / "pets" / "b" / ":cat:" / "0.png").write_bytes(b"")
    code, out, err = bayesdg("data", "check", str(tmp_path / "pets"))
    assert code == 3
    assert "broken: b/:cat:/0.png: empty file" in out
    assert "is not safe to train on: 1 broken images" in err
    assert bayesdg("data", "check", str(tmp_path / "pets"), "--skip-bad")[0] == 0


def test_json_is_data_alone(folder: Path) -> None:
    (folder / "art" / "cat" / "0.png").write_bytes(b"")
    code, out, err = bayesdg("data", "check", str(folder), "--json")
    assert code == 3
    assert json.loads(out)["broken"] == {"art/cat/0.png": "empty file"}
    assert err.startswith("bayesdg: ")
    listed = json.loads(bayesdg("data", "list", "--json", "--root", str(folder))[1])
    assert [row["name"] for row in listed] == list(KNOWN)
    assert not any(row["present"] for row in listed if row["name"] != "rotated-digits")


def test_list_says_where_and_how() -> None:
    code, out, _ = bayesdg("data", "list", BAYESDG_DATA="/nowhere")
    assert code == 0
    for known in KNOWN.values():
        assert known.about in out
        assert known.page in out
    assert "/nowhere/PACS" in out


def test_check_counts_the_rotated_sets() -> None:
    code, out, _ = bayesdg("data", "check", "rotated-digits", "--json")
    counts = json.loads(out)["counts"]
    assert code == 0
    assert list(counts) == ["0", "15", "30", "45", "60", "75", "90"]
    assert sum(counts["15"].values()) == 1797


@pytest.mark.parametrize("augmented", [False, True])
def test_show_writes_a_sheet_with_a_row_per_domain(folder: Path, augmented: bool) -> None:
    out = folder.parent / "out" / "sheet.png"
    flags = ["--augmented"] if augmented else []
    code, _, err = bayesdg(
        "data", "show", str(folder), "--out", str(out), "--columns", "3", "--image-size", "16",
        *flags, BAYESDG_CACHE=str(folder.parent / "cache"),
    )  # fmt: skip
    assert code == 0, err
    with Image.open(out) as sheet:
        width, height = sheet.size
    assert width == 4 + 3 * 116
    assert height == 4 + 3 * 152


def test_show_augments_only_what_training_augments(tmp_path: Path) -> None:
    def sheet(*flags: str) -> tuple[bytes, str]:
        place = tmp_path / "s.png"
        code, out, err = bayesdg(
            "data", "show", "rotated-digits", "--out", str(place), "--columns", "2", *flags
        )
        assert code == 0, err
        return place.read_bytes(), out

    (plain, out), (augmented, told) = sheet(), sheet("--augmented")
    assert augmented == plain
    assert "does not augment" not in out
    assert told.splitlines()[0] == "training does not augment rotated-digits; shown as it is"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["check", "pasc"],
            2,
            "unknown data set 'pasc'; did you mean 'pacs'? allowed: rotated-dig",
        ),
        (["check", "pacs", "--root", "/nowhere"], 3, "pacs is not at /nowhere/PACS; get it from"),
        (["check", "rotated-mnist", "--root", "/nowhere"], 3, "neither train-images-idx3-ubyte"),
        (
            ["show", "rotated-digits", "--image-size", "5000"],
            2,
            "data.image_size: Input should be l",
        ),
        (["check", "~nosuchuser/x"], 2, "~nosuchuser/x: there is no such user's home folder"),
        (["list", "--root", "~nosuchuser"], 2, "there is no such user's home folder"),
        (["check", ""], 2, "unknown data set ''"),
        (
            ["check", __file__],
            2,
            "test_check.py is a file and no data set; allowed: rotated",
        ),
        (
            ["show", "rotated-digits", "--out", "/tmp"],
            2,
            "--out /tmp is a folder; give the name",
        ),
        (["show", "rotated-digits", "--out", f"{__file__}/x.png"], 2, "cannot be written to (File"),
        (["get", "pacs", "--archive", __file__], 3, "is no whole zip or tar archive: file could"),
        (["check", "rotated-digits", "--skip-bad"], 2, "has no files of its own; --skip-bad"),
        (["get", "pacs"], 2, "cannot be downloaded by a program; get it from https://"),
        (["get", "office-home", "--archive", "/nowhere.zip"], 3, "no archive at /nowhere.zip"),
        (
            ["shwo"],
            2,
            "unknown command 'shwo'; did you mean 'show'? allowed: list, check, show, get",
        ),
        (["show", "rotated-digits", "--colums", "3"], 2, "unknown option '--colums'; did you mean"),
        (["show", "rotated-digits", "--out", "/proc/x/y.png"], 2, "No such file or directory"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], code: int, says: str, tmp_path: Path
) -> None:
    found = bayesdg("data", *arguments, BAYESDG_DATA=str(tmp_path))
    assert found[0] == code
    assert says in found[2]
    assert found[2].count("\n") == 1
