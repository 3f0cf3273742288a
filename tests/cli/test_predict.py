"""`bayesdg predict` on what people have in their folders."""

import csv
import io
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesdg.bayes import layers
from bayesdg.data.tree import shown
from bayesdg.training.run import load_run
from disks import fill, small_disk
from pictures import encoded, picture, with_damaged_exif

# The name in bayesdg.cli is that of the command.
predicting = sys.modules["bayesdg.cli.predict"]
Bayesdg = Callable[..., tuple[int, str, str]]
FRAMES = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
MOVING = {"save_all": True, "append_images": FRAMES[1:]}
RAMP = np.linspace(0, 65535, 1200).reshape(30, 40)


def bomb() -> bytes:
    """A PNG of a few bytes that says it has 400 million pixels."""
    whole = encoded(Image.new("L", (8, 8)), "PNG")
    header = whole[12:16] + struct.pack(">II", 20_000, 20_000) + whole[24:29]
    return whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]


# Name -> content of files that can be read.
ODD = {
    "plain.jpg": encoded(picture(), "JPEG"),
    "grey.png": encoded(picture(mode="L"), "PNG"),
    "bilevel.png": encoded(picture(mode="1"), "PNG"),
    "palette.gif": encoded(picture(mode="P"), "GIF"),
    "transparent.png": encoded(picture(mode="RGBA"), "PNG"),
    "grey-alpha.png": encoded(picture(mode="LA"), "PNG"),
    "printers-ink.jpg": encoded(picture(mode="CMYK"), "JPEG"),
    "sixteen-bit.png": encoded(Image.fromarray(RAMP.astype(np.uint16)), "PNG"),
    "moving.gif": encoded(FRAMES[0], "GIF", **MOVING),
    "moving.webp": encoded(FRAMES[0], "WEBP", **MOVING),
    "telephone.jpg": encoded(FRAMES[0], "MPO", **MOVING),
    "a-png-named.jpg": encoded(picture(), "PNG"),
    "damaged-exif.jpg": with_damaged_exif(picture()),
    "one-pixel.png": encoded(Image.new("RGB", (1, 1)), "PNG"),
    "a-line.png": encoded(Image.new("RGB", (1, 900)), "PNG"),
    "windows.bmp": encoded(picture(), "BMP"),
    "press.tiff": encoded(picture(), "TIFF"),
    "UPPER.PNG": encoded(picture(), "PNG"),
    "=cmd().png": encoded(picture(), "PNG"),
    "two\nlines.png": encoded(picture(), "PNG"),
    'a,comma "and" quotes.png': encoded(picture(), "PNG"),
    "[red]markup :dog:.png": encoded(picture(), "PNG"),
    "\u202egnp.png": encoded(picture(), "PNG"),
    "caf\udce9.png": encoded(picture(), "PNG"),
    "\U0001f415.png": encoded(picture(), "PNG"),
}
# Name -> content of files that cannot, and the reason that is told.
BROKEN = {
    "empty.png": (b"", "empty file"),
    "page.jpg": (b"<!doctype html><html>no such picture</html>", "an HTML page, not an image"),
    "text.png": (b"just some text", "not an image"),
    "cut.jpg": (encoded(picture(size=(200, 200)), "JPEG")[:-900], "damaged: image file is trunc"),
    "cut.png": (encoded(picture(size=(200, 200)), "PNG")[:-900], "damaged: "),
    "bomb.png": (bomb(), "the limit is 89"),
    "float.tiff": (encoded(Image.fromarray(RAMP.astype(np.float32)), "TIFF"), "float pixels"),
    "program.png": (encoded(picture(), "EPS"), "not an image"),
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    folder.mkdir()
    for name, content in ODD.items():
        (folder / name).write_bytes(content)
    for name, (content, _) in BROKEN.items():
        (folder / name).write_bytes(content)
    (folder / "dangling.png").symlink_to("gone.png")
    (folder / "itself.png").symlink_to("itself.png")
    (folder / "round").symlink_to(folder)
    (folder / "a folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.png")
    for name in ("Thumbs.db", "._plain.jpg", "notes.txt"):
        (folder / name).touch()
    return folder


def rows_of(text: str) -> dict[str, dict[str, str]]:
    return {Path(row["path"]).name: row for row in csv.DictReader(io.StringIO(text))}


def test_every_picture_is_one_row_and_every_broken_one_says_why(
    run: Path, zoo: Path, bayesdg: Bayesdg
) -> None:
    code, out, err = bayesdg("predict", run, zoo)
    assert code == 0
    rows = rows_of(out)
    links = {"dangling.png": "cannot be read: No such", "itself.png": "cannot be read: Too many"}
    expected = {name: reason for name, (_, reason) in BROKEN.items()} | links
    assert set(rows) == {shown(name) for name in ODD} | set(expected)
    for name, row in rows.items():
        assert expected.get(name, "") in row["error"]
        assert bool(row["error"]) == (name in expected), row
        assert bool(row["class"]) == (name not in expected)
        if name not in expected:
            total, parts = float(row["entropy"]), (row["aleatoric"], row["epistemic"])
            assert total == pytest.approx(sum(map(float, parts)), rel=1e-6)
            assert 1 / 3 <= float(row["probability"]) <= 1
    assert err.startswith("35 pictures, 10 broken, such as ")
    for left_out in ("2 (junk)", "1 (no image suffix)", "1 (folder linked into itself)",
                     "1 (folder named like an image)", "1 (not a regular file)"):  # fmt: skip
        assert f"left out {left_out}" in err
    assert err.count("\n") == 1


def test_rows_are_what_python_says(run: Path, zoo: Path, bayesdg: Bayesdg) -> None:
    good = [zoo / name for name in ("plain.jpg", "grey.png", "windows.bmp")]
    found = load_run(run).predict(good)
    _, out, _ = bayesdg("predict", run, *good, "--top", 9, "--batch-size", 2)
    for i, row in enumerate(csv.DictReader(io.StringIO(out))):
        order = np.argsort(-found.probabilities[i])
        names = [row["class"], row["class_2"], row["class_3"]]
        assert [name.lstrip("'") for name in names] == [["=cmd()", "cat", "dog"][k] for k in order]
        assert float(row["probability_3"]) == pytest.approx(found.probabilities[i, order[2]], 1e-5)
        assert float(row["variation_ratio"]) == pytest.approx(found.variation_ratio[i], abs=1e-6)
        assert "class_4" not in row


def test_a_class_that_is_a_formula_is_quoted_in_csv_and_nowhere_else(
    run: Path, zoo: Path, bayesdg: Bayesdg, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")

    out = {suffix: tmp_path / f"out.{suffix}" for suffix in ("csv", "jsonl", "parquet")}
    for path in out.values():
        code, printed, err = bayesdg("predict", run, zoo, "--top", 3, "--out", path)
        assert (code, printed) == (0, "")
        assert err.rstrip().endswith(f"written to {path}")
    lines = [json.loads(line) for line in out["jsonl"].read_text().splitlines()]
    assert parquet.read_table(out["parquet"]).to_pylist() == lines
    names = {row[column] for row in lines for column in ("class", "class_2", "class_3")}
    assert names == {"=cmd()", "cat", "dog", None}
    table = csv.reader(io.StringIO(out["csv"].read_text()))
    assert not any(cell.startswith("=") for row in table for cell in row)
    _, printed, _ = bayesdg("predict", run, zoo, "--top", 3, "--json")
    assert [json.loads(line) for line in printed.splitlines()] == lines


def test_pictures_are_rejected_above_a_threshold(run: Path, zoo: Path, bayesdg: Bayesdg) -> None:
    _, out, err = bayesdg("predict", run, zoo / "plain.jpg", zoo / "text.png")
    assert [row["decision"] for row in rows_of(out).values()] == ["", ""]
    for threshold, decision in ((0, "reject"), (2, "accept")):
        arguments = ("predict", run, zoo / "plain.jpg", zoo / "text.png", "--reject-above")
        _, out, err = bayesdg(*arguments, threshold)
        assert [row["decision"] for row in rows_of(out).values()] == [decision, ""]
        assert ("1 rejected" in err) == (decision == "reject")
        _, out, err = bayesdg(*arguments, threshold, "--reject-by", "epistemic")
        assert rows_of(out)["plain.jpg"]["decision"] == decision
        assert "energy" not in out


def test_what_is_at_the_threshold_is_accepted(run: Path, zoo: Path, bayesdg: Bayesdg) -> None:
    """The mean weights have no epistemic uncertainty at all."""
    asked = ("predict", run, zoo / "plain.jpg", "--draws", 0, "--reject-by", "epistemic")
    for threshold, decision in ((0, "accept"), (-1e-9, "reject")):
        _, out, _ = bayesdg(*asked, f"--reject-above={threshold}")
        assert rows_of(out)["plain.jpg"]["decision"] == decision


def test_an_uncertainty_that_decides_is_a_column(run: Path, zoo: Path, bayesdg: Bayesdg) -> None:
    energy = load_run(run).predict(zoo / "plain.jpg").energy[0]
    for threshold, decision in ((energy - 0.01, "reject"), (energy + 0.01, "accept")):
        _, out, _ = bayesdg("predict", run, zoo / "plain.jpg", "--reject-by", "energy",
                            "--reject-above", threshold)  # fmt: skip
        row = rows_of(out)["plain.jpg"]
        assert row["decision"] == decision
        assert float(row["energy"]) == pytest.approx(energy, rel=1e-5)


def test_what_is_less_probable_than_asked_for_is_rejected(
    run: Path, zoo: Path, bayesdg: Bayesdg
) -> None:
    """As it is shown: after the temperature, if there is one."""
    shown_first = set()
    for _ in range(2):
        _, out, _ = bayesdg("predict", run, zoo, "--reject-by", "error_probability",
                            "--reject-above", 0.6)  # fmt: skip
        rows = [row for row in rows_of(out).values() if not row["error"]]
        for row in rows:
            assert float(row["error_probability"]) == pytest.approx(1 - float(row["probability"]))
            sure = float(row["probability"]) >= 0.4
            assert row["decision"] == ("accept" if sure else "reject")
        shown_first.add(rows[0]["probability"])
        assert bayesdg("calibrate", run, "--temperature")[0] == 0
    assert len(shown_first) == 2


def test_nothing_that_can_be_read_is_exit_code_3_and_the_rows_are_there(
    run: Path, zoo: Path, bayesdg: Bayesdg, tmp_path: Path
) -> None:
    path = tmp_path / "out.csv"
    code, _, err = bayesdg("predict", run, zoo / "empty.png", zoo / "text.png", "--out", path)
    assert code == 3
    assert "none of the pictures could be read" in err
    assert list(rows_of(path.read_text())) == ["empty.png", "text.png"]
    (tmp_path / "void").mkdir()
    code, out, err = bayesdg("predict", run, tmp_path / "void", "--out", tmp_path / "void.csv")
    assert (code, out) == (3, "")
    assert "no pictures in" in err
    assert not (tmp_path / "void.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{run}", "nothing.png"], 2, "no file or folder at nothing.png"),
        (["{run}", "{zoo}", "--out", "x.xls"], 2, "x.xls: tables are written as .csv, .jsonl"),
        (["{run}", "{zoo}", "--out", "{zoo}"], 2, "tables are written as"),
        (["{run}", "{zoo}", "--out", "x.csv", "--json"], 2, "--json is for standard output"),
        (["{run}", "{zoo}", "--reject-by", "entropi"], 2, "did you mean 'entropy'"),
        (["{run}", "{zoo}", "--reject-by", "entropy"], 2, "needs a threshold"),
        (["{run}", "{zoo}", "--reject-above", "nan"], 2, "--reject-above is no number"),
        (["{run}", "{zoo}", "--top", "0"], 2, "--top"),
        (["{run}", "{zoo}/*.nothing"], 2, "no file or folder at"),
        (["{run}", "{zoo}", "--draws", "-1"], 2, "'--draws': Input should be greater than or eq"),
        (["{run}", "{zoo}", "--draws", "10001"], 2, "'--draws': Input should be less than or eq"),
        (["{run}", "{zoo}", "--device", "xpu"], 2, "should be auto, cpu, mps, cuda"),
        (["{run}", "{zoo}", "--out", "{zoo}/plain.jpg/x.csv"], 2, "cannot be written to"),
        (["{run}", "{zoo}", "--drws", "3"], 2, "did you mean '--draws'"),
        (["{zoo}", "{zoo}"], 6, "is it a run folder"),
        (["nowhere", "{zoo}"], 6, "no run at nowhere"),
        (["{run}"], 2, "Missing argument"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    run: Path, zoo: Path, bayesdg: Bayesdg, arguments: list[str], code: int, says: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    given = [argument.format(run=run, zoo=zoo) for argument in arguments]
    found, out, err = bayesdg("predict", *given)
    assert (found, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_a_run_that_is_not_done_is_not_asked(run: Path, zoo: Path, bayesdg: Bayesdg) -> None:
    (run / "manifest.json").unlink()
    code, out, err = bayesdg("predict", run, zoo)
    assert (code, out) == (6, "")
    assert err == f"bayesdg: {run} is not done yet; the command that began it goes on with it\n"


def test_thousands_of_tiny_pictures_with_odd_names_are_a_row_each(
    run: Path, bayesdg: Bayesdg, tmp_path: Path
) -> None:
    """In a folder that is given twice, to a table in a folder that is not there yet."""
    odd = ("=1", "-x", "@a", " ", "'", '"', ",", ";", "|", "a\tb", "\r", "$(x)", "%s", "{0}", "é",
           "e\u0301", "\udce9", "\x1b[31m", "*", "~", "n" * 240)  # fmt: skip
    content = encoded(picture(size=(3, 3)), "PNG")
    (tmp_path / "many").mkdir()
    for number in range(1000):
        (tmp_path / "many" / f"{odd[number % len(odd)]}{number}.png").write_bytes(content)
    table = tmp_path / "new" / "folder" / "table.csv"
    many = tmp_path / "many"
    code, _, err = bayesdg("predict", run, many, many, "--draws", 1, "--out", table)
    assert (code, err) == (0, f"2,000 pictures; written to {table}\n")
    with table.open(newline="", encoding="utf-8") as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    assert len(set(paths)) == 1000
    assert paths == paths[:1000] * 2


def test_a_full_disk_is_told_and_nothing_is_left(
    run: Path, zoo: Path, bayesdg: Bayesdg, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "table.csv").write_text("before")
        fill(disk)
        for name in ("table.csv", "table.jsonl"):
            code, _, err = bayesdg("predict", run, zoo, "--out", disk / name)
            assert code == 5
            assert err == (
                f"bayesdg: disk full: {disk / name} was not written; make room, or give another "
                "place\n"
            )
        assert sorted(path.name for path in disk.iterdir()) == ["filling", "table.csv"]
        assert (disk / "table.csv").read_text() == "before"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_in_the_middle_leaves_the_earlier_table_and_no_litter(
    run: Path, zoo: Path, bayesdg: Bayesdg, tmp_path: Path, number: int, code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """After the second batch of rows was written."""
    table = tmp_path / "tables" / "table.csv"
    table.parent.mkdir()
    table.write_text("before")
    written = []
    plain = predicting.Tally.add

    def add(tally: object, rows: list[dict[str, object]]) -> None:
        plain(tally, rows)
        (temporary,) = table.parent.glob("*.tmp-*")
        written.append(temporary.read_text().count("\n"))
        if len(written) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(predicting.Tally, "add", add)
    found, _, err = bayesdg("predict", run, zoo, "--batch-size", 8, "--out", table)
    assert found == code
    assert err == f"bayesdg: stopped by {signal.Signals(number).name}, nothing new was saved\n"
    assert written == [9, 17]
    assert [path.name for path in table.parent.iterdir()] == ["table.csv"]
    assert table.read_text() == "before"


def test_too_little_memory_names_what_to_lower(
    run: Path, zoo: Path, bayesdg: Bayesdg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million GiB, refused by torch itself."""
    plain = layers.standard_normal
    monkeypatch.setattr(
        layers, "standard_normal", lambda num, like, generator: plain(2**34, like, generator)
    )
    code, _, err = bayesdg("predict", run, zoo, "--draws", 9)
    assert code == 5
    assert "too little memory on cpu for 9 draws; ask for fewer (--draws)" in err
    assert err.count("\n") == 1


def test_what_is_closed_from_the_start_is_told_or_not_needed(
    run: Path, zoo: Path, tmp_path: Path
) -> None:
    """Without standard output there is nowhere for rows to go; the other two are not needed."""
    words = [sys.executable, "-m", "bayesdg", "predict", str(run), str(zoo / "plain.jpg")]
    command = " ".join(map(shlex.quote, words))
    closed = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert closed.returncode == 2
    assert closed.stderr.startswith("bayesdg: standard output is closed; --out FILE writes")
    assert closed.stderr.count("\n") == 1
    table = tmp_path / "table.csv"
    closed = subprocess.run(f"{command} --out {table} <&- >&- 2>&-", shell=True)
    assert closed.returncode == 0
    assert table.read_text().count("\n") == 2


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_it_quietly(run: Path, zoo: Path) -> None:
    command = [sys.executable, "-m", "bayesdg", "predict", str(run), *[str(zoo)] * 300]
    process = subprocess.Popen(
        [*command, "--batch-size", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()
