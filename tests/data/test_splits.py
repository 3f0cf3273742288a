"""Seeded splits, PACS's lists, tables of your own (bad-input scenarios 45 and 62)."""

from pathlib import Path

import pytest

from bayesdg.data.splits import Parts, official_pacs_split, seeded_split, split_from_csv
from bayesdg.data.tree import Tree, read_tree
from bayesdg.errors import BayesdgError, DataError
from pictures import make_tree

LAYOUT = {"art": {"cat": 30, "dog": 10, "owl": 1}, "photo": {"cat": 5, "dog": 20}}


def names(tree: Tree, rows: list[int]) -> set[str]:
    return {tree.entries[row].path for row in rows}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return read_tree(make_tree(tmp_path, LAYOUT))


def test_a_seeded_split_takes_a_tenth_of_every_class(tree: Tree) -> None:
    parts = seeded_split(tree)
    for domain, classes in LAYOUT.items():
        assert not set(parts.train[domain]) & set(parts.val[domain])
        assert len(parts.train[domain]) + len(parts.val[domain]) == sum(classes.values())
        for label, number in classes.items():
            own = [r for r in parts.val[domain] if tree.entries[r].label == label]
            assert len(own) == {30: 3, 20: 2, 10: 1, 5: 1, 1: 0}[number]
        assert len(parts.test[domain]) == sum(classes.values())
    assert not parts.held_out


def test_a_seeded_split_is_a_function_of_names_and_seed(tree: Tree, tmp_path: Path) -> None:
    first, again, other = seeded_split(tree), seeded_split(tree), seeded_split(tree, seed=1)
    assert first == again
    assert first.val != other.val
    moved = Tree(tmp_path / "elsewhere", tree.domains, tree.classes, tree.entries)
    assert seeded_split(moved) == first


def test_what_is_skipped_is_in_no_part_and_not_counted(tree: Tree) -> None:
    rows = [row for row, e in enumerate(tree.entries) if (e.domain, e.label) == ("art", "dog")]
    parts = seeded_split(tree, skip=set(rows[:9]))
    left = [r for r in (*parts.train["art"], *parts.val["art"]) if r in rows]
    assert left == rows[9:]  # the last dog trains
    assert rows[9] in parts.train["art"]


def write_lists(folder: Path, tree: Tree, parts: Parts, newline: str = "\n", bom: str = "") -> None:
    folder.mkdir(exist_ok=True)
    for domain in tree.domains:
        for part, rows in (("train", parts.train), ("crossval", parts.val)):
            lines = [
                f"{tree.entries[row].path} {tree.classes.index(tree.entries[row].label) + 1}"
                for row in rows[domain]
            ]
            text = bom + newline.join(lines) + newline
            (folder / f"{domain}_{part}_kfold.txt").write_bytes(text.encode())


@pytest.mark.parametrize(("newline", "bom"), [("\n", ""), ("\r\n", ""), ("\r\n\r\n", "\ufeff")])
def test_official_lists_are_read_with_any_line_ends(
    tree: Tree, tmp_path: Path, newline: str, bom: str
) -> None:
    wanted = seeded_split(tree, seed=7)
    write_lists(tmp_path / "splits", tree, wanted, newline, bom)
    parts = official_pacs_split(tree, tmp_path / "splits")
    assert parts.train == wanted.train
    assert parts.val == wanted.val
    assert [len(parts.test[d]) for d in ("art", "photo")] == [41, 25]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("art/cat/0.png 0", "label 0, allowed are 1 to 3"),
        ("art/cat/0.png 4", "label 4, allowed are 1 to 3"),
        ("art/cat/0.png 2", "label 2 is dog, but the image is in cat; labels count from 1"),
        ("art/cat/0.png", "expected 'domain/class/image LABEL'"),
        ("art/cat/99.png 1", "art/cat/99.png is not there"),
        ("../../etc/cat/0.png 1", "leads out of the data folder"),
        ("photo/cat/0.png 1", "photo/cat/0.png is not of the domain art"),
        ("art/cat/0.png \u00b2", "expected 'domain/class/image LABEL'"),
        ("/etc/cat/0.png 1", "leads out of the data folder"),
    ],
)
def test_a_wrong_line_is_named(tree: Tree, tmp_path: Path, line: str, says: str) -> None:
    write_lists(tmp_path / "splits", tree, seeded_split(tree))
    with (tmp_path / "splits" / "art_train_kfold.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=says) as caught:
        official_pacs_split(tree, tmp_path / "splits")
    assert "art_train_kfold.txt line 3" in str(caught.value)


def test_an_image_in_both_lists_is_refused(tree: Tree, tmp_path: Path) -> None:
    wanted = seeded_split(tree)
    write_lists(tmp_path / "splits", tree, wanted)
    path = tree.entries[wanted.val["art"][0]].path
    with (tmp_path / "splits" / "art_train_kfold.txt").open("a") as file:
        file.write(f"{path} 1\n")
    with pytest.raises(DataError, match=r"is listed before, in art_train_kfold.txt line \d+"):
        official_pacs_split(tree, tmp_path / "splits")


def test_an_image_twice_in_one_list_is_refused(tree: Tree, tmp_path: Path) -> None:
    write_lists(tmp_path / "splits", tree, seeded_split(tree))
    path = tmp_path / "splits" / "photo_train_kfold.txt"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="is listed before, in photo_train_kfold.txt line 1"):
        official_pacs_split(tree, tmp_path / "splits")


def test_lists_speak_of_published_names_whatever_the_folder_is_called(tmp_path: Path) -> None:
    make_tree(tmp_path, {"art": {"cat": 10}, "photo": {"cat": 10}})
    published = read_tree(tmp_path, ["art_painting", "photo"], {"art": "art_painting"})
    (tmp_path / "splits").mkdir()
    for domain in published.domains:
        for part, numbers in (("train", range(9)), ("crossval", [9])):
            lines = [f"{domain}/cat/{i}.png 1" for i in numbers]
            (tmp_path / "splits" / f"{domain}_{part}_kfold.txt").write_text("\n".join(lines))
    parts = official_pacs_split(published, tmp_path / "splits")
    assert [len(parts.train[d]) for d in ("art_painting", "photo")] == [9, 9]


def test_other_columns_are_nobodys_business(tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("note,path,domain,class,split\n,art/cat/0.png,a,b,train\n")
    listed, _ = split_from_csv(table, tmp_path)
    assert len(listed.entries) == 1


def test_a_missing_list_is_named(tree: Tree, tmp_path: Path) -> None:
    write_lists(tmp_path / "splits", tree, seeded_split(tree))
    (tmp_path / "splits" / "photo_crossval_kfold.txt").unlink()
    with pytest.raises(DataError, match="photo_crossval_kfold.txt cannot be read: No such file"):
        official_pacs_split(tree, tmp_path / "splits")


CSV = "path,domain,class,split\n"


def test_a_table_decides_domains_classes_and_parts(tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(
        "\ufeffPath,Domain,Class,Split\r\n"
        "art/cat/0.png,inside,animal,train\r\n"
        '"art/cat/1.png",inside,animal,validation\r\n'
        "photo/dog/0.png,outside,animal,test\r\n"
        "photo/dog/1.png,outside,thing,train\r\n".encode()
    )
    listed, parts = split_from_csv(table, tmp_path)
    assert listed.domains == ("inside", "outside")
    assert listed.classes == ("animal", "thing")
    assert names(listed, parts.train["inside"]) == {"art/cat/0.png"}
    assert names(listed, parts.val["inside"]) == {"art/cat/1.png"}
    assert names(listed, parts.test["outside"]) == {"photo/dog/0.png"}
    # No test images of its own: all it has.
    assert names(listed, parts.test["inside"]) == {"art/cat/0.png", "art/cat/1.png"}
    assert parts.held_out == {"outside"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path,domain,class\n", "lacks the column split"),
        (CSV, "lists no images"),
        (CSV + "art/cat/0.png,a,b,trian\n", "line 2: unknown split 'trian'; did you mean 'train'"),
        (CSV + "art/cat/99.png,a,b,train\n", "line 2: no file art/cat/99.png"),
        (CSV + "../x.png,a,b,train\n", "line 2: ../x.png leads out"),
        (CSV + "/etc/passwd,a,b,train\n", "leads out"),
        (CSV + "C:\\x.png,a,b,train\n", "leads out"),
        (CSV + "art/cat/0.png,,b,train\n", "line 2: a column is empty"),
        (CSV + "art/cat/0.png,a\n", "line 2: a column is empty"),
        (CSV + "a" * 300 + ".png,a,b,train\n", "line 2: no file aaa"),
        (CSV + "x" * 200_000 + ",a,b,train\n", "line 2 is no CSV"),
        (
            CSV + "art/cat/0.png,a,b,train\n./art//cat/0.png,c,b,test\n",
            "line 3: art/cat/0.png is l",
        ),
        (CSV + "art/cat/0.png,a,b,train\nart/cat/0.png,a,d,val\n", "is listed before, in line 2"),
        (
            CSV + "art/cat/0.png,a,b,train\nart/cat/0.png,a,b,val\n",
            "line 3: art/cat/0.png is listed before, in line 2",
        ),
    ],
)
def test_a_wrong_table_is_named_with_its_line(
    tree: Tree, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(BayesdgError, match=says) as caught:
        split_from_csv(tmp_path / "table.csv", tmp_path)
    assert caught.value.exit_code == 3
