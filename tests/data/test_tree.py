"""Folders as people have them (bad-input scenarios 43, 50, 57 to 59)."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesdg.data.tree import Tree, natural, read_tree, shown
from bayesdg.errors import DataError
from pictures import make_tree, picture

TWO = {"art": {"dog": 2, "cat": 1}, "photo": {"dog": 1, "cat": 2}}


def labels(tree: Tree) -> set[tuple[str, str]]:
    return {(entry.domain, entry.label) for entry in tree.entries}


def test_domains_classes_and_files_in_natural_order(tmp_path: Path) -> None:
    make_tree(tmp_path, {"10": {"b": 12, "a": 1}, "9": {"b": 1}})
    tree = read_tree(tmp_path)
    assert tree.domains == ("9", "10")
    assert tree.classes == ("a", "b")
    names = [entry.path for entry in tree.entries]
    assert names[:3] == ["9/b/0.png", "10/a/0.png", "10/b/0.png"]
    assert names[-2:] == ["10/b/10.png", "10/b/11.png"]


def test_a_class_that_a_domain_lacks_shifts_no_label(tmp_path: Path) -> None:
    make_tree(tmp_path, {"art": {"dog": 1, "giraffe": 1}, "sketch": {"giraffe": 1}})
    tree = read_tree(tmp_path)
    assert tree.classes == ("dog", "giraffe")
    sketch = [entry for entry in tree.entries if entry.domain == "sketch"]
    assert [entry.label for entry in sketch] == ["giraffe"]


def test_junk_is_ignored_and_counted(tmp_path: Path) -> None:
    make_tree(tmp_path, TWO)
    dog = tmp_path / "art" / "dog"
    for name in ("._0.png", ".DS_Store", "Thumbs.db", "desktop.ini", "notes.txt", "label"):
        (dog / name).write_bytes(b"junk")
    for folder in (dog / ".ipynb_checkpoints", tmp_path / "art" / ".git", tmp_path / "__MACOSX"):
        folder.mkdir()
        picture().save(folder / "0.png")
    (dog / "folder.jpg").mkdir()
    os.mkfifo(dog / "pipe.png")
    tree = read_tree(tmp_path)
    assert len(tree.entries) == 6
    assert tree.ignored == {
        "junk": 7,
        "no image suffix": 2,
        "folder named like an image": 1,
        "not a regular file": 1,
    }


def test_links_in_a_circle_bring_nothing_twice(tmp_path: Path) -> None:
    make_tree(tmp_path, TWO)
    (tmp_path / "art" / "dog" / "loop").symlink_to(tmp_path / "art" / "dog")
    (tmp_path / "art" / "dog" / "up").symlink_to(tmp_path)
    (tmp_path / "art" / "up").symlink_to(tmp_path / "art")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "photo" / "dog" / "self.png").symlink_to("self.png")
    tree = read_tree(tmp_path)
    assert len(tree.entries) == 7  # the link to itself counts, and is found broken when read
    assert tree.ignored["folder linked into itself"] == 4
    assert tree.domains == ("art", "photo")


def test_links_to_outside_work_and_are_told(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "data", TWO)
    picture().save(tmp_path / "elsewhere.png")
    (root / "art" / "dog" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    tree = read_tree(root)
    assert len(tree.entries) == 7
    assert tree.warnings == ("1 images are links out of the folder, such as art/dog/link.png",)


def test_two_encodings_of_a_name_are_one_class(tmp_path: Path) -> None:
    composed, decomposed = (
        unicodedata.normalize("NFC", "café"),
        unicodedata.normalize("NFD", "café"),
    )
    make_tree(tmp_path, {"art": {composed: 1, "b": 1}, "photo": {decomposed: 1, "b": 1}})
    tree = read_tree(tmp_path)
    assert tree.classes == ("b", composed)
    assert len(tree.warnings) == 1
    assert tree.warnings[0].startswith("class café has several spellings on disk")
    assert all((tmp_path / entry.path).is_file() for entry in tree.entries)


def test_names_that_differ_in_case_only_are_told(tmp_path: Path) -> None:
    make_tree(tmp_path, {"art": {"Dog": 1}, "photo": {"dog": 1, "cat": 1}})
    assert "class names that differ in case only: Dog, dog" in read_tree(tmp_path).warnings


@pytest.mark.parametrize(
    "name",
    ["with space", "quote'\"s", "emoji 🐶", "new\nline", "a" * 200, "#1", "=cmd()", "[bold]dog"],
)
def test_unusual_names_are_names(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, {name: {name: 1, "b": 1}, "other": {name: 1}})
    tree = read_tree(tmp_path)
    assert (name, name) in labels(tree)
    assert "\n" not in shown(name)


def test_names_that_are_no_utf8_work_and_are_shown(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/art/caf\xe9"
    os.makedirs(raw)
    picture().save(Path(os.fsdecode(raw)) / "0.png")
    make_tree(tmp_path, {"photo": {"b": 1}})
    tree = read_tree(tmp_path)
    label = next(e.label for e in tree.entries if e.domain == "art")
    assert shown(label) == r"caf\xe9"
    assert shown(label).encode()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_name_can_be_shown_and_sorted(name: str) -> None:
    assert shown(name).isprintable()
    others = ["9", "10", "a"]
    ordered = [n for n in sorted([name, *others], key=natural) if n in others]
    assert [n for n in ordered if n != name or n in others][-1] == "a"


def test_aliases_and_known_domains(tmp_path: Path) -> None:
    make_tree(tmp_path, {"RealWorld": {"a": 1}, "Art": {"a": 1}, "splits": {"a": 1}})
    tree = read_tree(tmp_path, ["Art", "Real World"], {"RealWorld": "Real World"})
    assert tree.domains == ("Art", "Real World")


def test_images_without_domain_and_class_are_said(tmp_path: Path) -> None:
    """A folder of pictures, and one of classes without domains."""
    for name in ("1.png", "cat/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture().save(tmp_path / name)
    with pytest.raises(DataError, match=r"2 images are not in DOMAIN/CLASS.* such as 1\.png; exp"):
        read_tree(tmp_path)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder at"):
        read_tree(tmp_path / "absent")
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(DataError, match="no images below .*; expected DOMAIN/CLASS/IMAGE"):
        read_tree(tmp_path)
