"""The worst answers, against sorting by hand and against what a run really said."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesdg.cli import main
from bayesdg.cli.terminal import console
from bayesdg.data import DomainDataset, load_dataset
from bayesdg.data.folders import file_of
from bayesdg.errors import DataError
from bayesdg.evaluate.failures import failures
from bayesdg.evaluate.gallery import caption, gallery, images_of
from bayesdg.evaluate.stored import PartKey, PredictedPart, read_predictions
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.train import train
from pictures import make_tree
from worlds import TINY

MakeSettings = Callable[..., Settings]
KEY = PartKey("near", "target", "test")


def part(p: list[list[float]], labels: list[int], entropy: list[float]) -> PredictedPart:
    scores = {"entropy": np.array(entropy, np.float32), "epistemic": np.zeros(len(p), np.float32)}
    log_p = np.log(np.array(p, np.float32))
    return PredictedPart(KEY, np.array(labels, np.int32), log_p, scores)


def test_the_worst_come_first_by_hand() -> None:
    answers = part(
        [[0.9, 0.1, 0.0001], [0.2, 0.7, 0.1], [0.04, 0.01, 0.95], [0.3, 0.4, 0.3]],
        [1, 1, 0, 2],
        [0.3, 0.8, 0.2, 1.1],
    )
    found = failures([answers], num=2)
    assert [(f.kind, f.row) for f in found] == [
        ("mistake", 2), ("mistake", 0), ("unsure", 3), ("unsure", 1),
    ]  # fmt: skip
    worst = found[0]
    assert (worst.label, worst.classes) == (0, (2, 0))
    assert worst.probabilities == pytest.approx((0.95, 0.04))
    assert [f.is_right for f in found] == [False, False, False, True]
    assert len(failures([answers], num=10)) == 3 + 4  # there are only three mistakes


def test_equally_bad_answers_keep_their_order() -> None:
    same = part([[0.2, 0.8]] * 5, [0] * 5, [0.5] * 5)
    assert [f.row for f in failures([same], num=3)] == [0, 1, 2, 0, 1, 2]


def test_every_answer_about_an_unknown_class_is_a_mistake() -> None:
    unknown = part([[0.6, 0.4], [0.1, 0.9]], [-1, -1], [0.7, 0.3])
    found = failures([unknown], num=1)
    assert (found[0].kind, found[0].row, found[0].label) == ("mistake", 1, -1)
    assert next(caption(found[0], ["a", "b"]))[0] == "is (unknown class)"


@pytest.fixture
def run(tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path) -> Run:
    return train(
        tiny_dataset, tiny_settings("bil", {"training.evaluate_target": "end"}), out=tmp_path
    )


def parts_of(run: Run) -> list[PredictedPart]:
    assert run.path is not None
    return read_predictions(run.path / "predictions" / "draws-4.npz")


def test_failures_are_of_the_images_they_name(run: Run, tiny_dataset: DomainDataset) -> None:
    """The run is asked again about each image that is found."""
    parts = parts_of(run)
    images = images_of(tiny_dataset, run.task.known_classes, parts)
    for failure in failures(parts, num=3):
        row = np.array([failure.row])
        again = run.predict(images[failure.key].images[row])
        assert again.entropy[0] == pytest.approx(failure.entropy, abs=1e-5)
        assert again.labels[0] == failure.classes[0]
        assert int(images[failure.key].labels[failure.row]) == failure.label


def test_the_gallery_shows_the_pictures(run: Run, tiny_dataset: DomainDataset) -> None:
    parts = parts_of(run)
    images = images_of(tiny_dataset, run.task.known_classes, parts)
    odd = ("[/dog]", ":dog: 🐕", "<b>é</b> with a name that is too long for its place")
    found = failures(parts, num=3)
    sheet = np.asarray(gallery(found, images, odd))
    assert (sheet < 128).any()
    first = images[found[0].key].images[np.array([found[0].row])][0]
    corner = sheet[24 : 24 + 112, 4 : 4 + 112, 0]
    expected = (first[0].clamp(0, 1) * 255).round().numpy()[::1].repeat(14, 0).repeat(14, 1)
    assert (np.abs(corner.astype(float) - expected) <= 1).all()
    assert gallery([], {}, odd).size[0] > 0


def test_images_that_changed_since_are_refused(
    run: Run, tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    parts = parts_of(run)
    parts[0].labels[0] += 1
    with pytest.raises(DataError, match="tiny/near has other images .* bayesdg evaluate renews"):
        images_of(tiny_dataset, run.task.known_classes, parts)


@pytest.fixture
def folder_run(tmp_path: Path) -> Path:
    """A run on a folder with names that would trip a terminal; evaluated."""
    from bayesdg.presets import preset

    classes = {"[/dog]": 4, ":cat:": 4}
    tree = make_tree(tmp_path / "data", dict.fromkeys(("one", "two", "[b]three"), classes))
    values = {**TINY, "data.image_size": 8, "training.evaluate_target": "end"}
    settings = preset("default", "erm").replace({**values, "data.cache": False})
    dataset = load_dataset(str(tree), data=settings.data)
    run = train(dataset, settings, ["[b]three"], out=tmp_path / "runs")
    assert run.path is not None
    images = dataset.domains["[b]three"].test.images
    assert file_of(images, 0) == "[b]three/:cat:/0.png"
    return run.path


def test_the_command_prints_data_for_a_program(
    folder_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["failures", str(folder_run), "--json", "--num", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in rows} == {"mistake", "unsure"}
    for row in rows:
        assert row["file"].split("/")[:2] == [row["domain"], row["class"]]
        assert row["right"] == (row["top"][0]["class"] == row["class"])
        assert row["top"][0]["probability"] >= row["top"][1]["probability"]
    assert {row["domain"] for row in rows} == {"one", "two", "[b]three"}


def test_the_command_prints_names_as_they_are_and_writes_a_picture(
    folder_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "width", 200)
    out = tmp_path / "new" / "failures.png"
    command = ["failures", str(folder_run), "--domain", "[b]three", "--out", str(out)]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "[/dog]" in text
    assert ":cat:" in text
    assert "[b]three" in text
    with Image.open(out) as picture:
        assert picture.format == "PNG"


def test_without_the_data_there_are_rows_but_no_picture(
    folder_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    assert main(["failures", str(folder_run), "--json"]) == 0
    captured = capsys.readouterr()
    assert all(row["file"] is None for row in json.loads(captured.out))
    assert "no file names: " in captured.err
    assert main(["failures", str(folder_run), "--out", str(tmp_path / "x.png")]) == 2
    assert not (tmp_path / "x.png").exists()
    moved = ["--data", str(tmp_path / "elsewhere"), "--out", str(tmp_path / "x.png")]
    assert main(["failures", str(folder_run), *moved]) == 0


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["--draws", "7"], "no predictions of 7 draws", 2),
        (["--domain", "thre"], "unknown domain 'thre'", 2),
        (["--out", "failures.jpg"], "failures.jpg: pictures are written as a PNG", 2),
        (["--num", "0"], "Invalid value for '--num'", 2),
    ],
)
def test_what_is_not_there_is_told(
    folder_run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str, code: int
) -> None:
    assert main(["failures", str(folder_run), *arguments]) == code
    captured = capsys.readouterr()
    assert says in " ".join(captured.err.split())
    assert captured.out == ""


def test_a_run_that_was_never_evaluated_says_how_to_do_it(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = train(tiny_dataset, tiny_settings("erm"), out=tmp_path)
    assert main(["failures", str(run.path)]) == 6
    assert f"bayesdg evaluate {run.path} makes them" in " ".join(capsys.readouterr().err.split())
    assert main(["failures", str(tmp_path / "nothing")]) == 6
