import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesdg.cli import main
from bayesdg.data import DomainDataset
from bayesdg.evaluate.recalibration import FILE
from bayesdg.evaluate.stored import predictions_path, read_predictions, write_predictions
from bayesdg.evaluate.verify import verify
from bayesdg.records import detections_of
from bayesdg.settings import Settings
from bayesdg.stored_runs import read_run
from bayesdg.training.about import RECORDS
from bayesdg.training.run import load_run
from bayesdg.training.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def run(
    trained: Path,
    tmp_path: Path,
    tiny_dataset: DomainDataset,
    tiny_settings: Callable[..., Settings],
) -> Path:
    """A fresh copy of a run that was tested under two numbers of draws."""
    if not any(trained.iterdir()):
        hidden = tiny_dataset.hiding(["high"])
        settings = tiny_settings("bil", {"training.evaluate_target": "end"})
        train(hidden, settings, out=trained).evaluate(hidden, draws=0)
    (folder,) = trained.iterdir()
    return shutil.copytree(folder, tmp_path / folder.name)


def change(run: Path, kind: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Alter the last record of a kind."""
    lines = [json.loads(line) for line in (run / RECORDS).read_text().splitlines()]
    edit([line for line in lines if line["kind"] == kind][-1])
    (run / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_reported_figure_is_recomputed_to_the_last_bit(run: Path) -> None:
    verdict = verify(read_run(run))
    records = [json.loads(line) for line in (run / RECORDS).read_text().splitlines()]
    reported = [r for r in records if r["kind"] in ("result", "detection")]
    assert {r["kind"] for r in reported} == {"result", "detection"}
    assert {r["draws"] for r in reported} == {0, 4}
    assert verdict.num_exact == sum(len(r["metrics"]) + 2 for r in reported)
    assert verdict.num_rounded == 0
    assert verdict.problems == ()


def test_rounding_is_told_from_agreement_and_from_another_figure(run: Path) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["metrics"]["nll"] *= 1 + 1e-7
        record["metrics"]["accuracy"] += 0.01
        record["num_excluded"] += 1

    before = verify(read_run(run)).num_exact
    change(run, "result", edit)
    verdict = verify(read_run(run))
    assert (verdict.num_exact, verdict.num_rounded) == (before - 3, 1)
    assert len(verdict.problems) == 2
    excluded, accuracy = verdict.problems
    assert excluded.startswith("excluded images of far, target, test, 0 draws: recorded ")
    assert accuracy.startswith("accuracy of far, target, test, 0 draws: recorded ")


def test_a_detection_that_was_altered_is_found(run: Path) -> None:
    change(run, "detection", lambda record: record["metrics"].update(auroc=0.123))
    (problem,) = verify(read_run(run)).problems
    assert "auroc of far, unknown, " in problem
    assert "recorded 0.123" in problem


@pytest.mark.parametrize("kind", ["result", "detection"])
def test_a_record_that_was_taken_away_is_found(run: Path, kind: str) -> None:
    lines = (run / RECORDS).read_text().splitlines()
    place = max(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    gone = json.loads(lines.pop(place))
    (run / RECORDS).write_text("".join(f"{line}\n" for line in lines))
    (problem,) = verify(read_run(run)).problems
    assert problem.startswith(f"{gone['domain']}, ")
    assert problem.endswith("the predictions have it, and no record, 0 draws")


def test_a_figure_that_was_taken_away_is_found(run: Path) -> None:
    change(run, "result", lambda record: record["metrics"].pop("ece"))
    (problem,) = verify(read_run(run)).problems
    assert problem == "ece of far, target, test: no record, as others have, 0 draws"


def test_all_records_taken_away_are_found(run: Path) -> None:
    lines = (run / RECORDS).read_text().splitlines()
    left = [line for line in lines if json.loads(line)["kind"] not in ("result", "detection")]
    (run / RECORDS).write_text("".join(f"{line}\n" for line in left))
    problems = verify(read_run(run)).problems
    assert {text.rpartition(", ")[2] for text in problems} == {"0 draws", "4 draws"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 7), ("step", 1), ("method", "erm"), ("dataset", "pacs"), ("preset", "paper")],
)
def test_a_record_of_another_run_is_found(run: Path, name: str, value: object) -> None:
    change(run, "result", lambda record: record.update({name: value}))
    (problem,) = verify(read_run(run)).problems
    assert problem.startswith(f"{name} of far, target, test: recorded {value!r}, the run's ")


def test_a_prediction_that_was_altered_is_found(run: Path) -> None:
    path = predictions_path(run, 4)
    part = next(p for p in read_predictions(path) if p.key.domain == "far")
    part.log_probabilities[:, :] = np.log(np.float32(1 / 3))
    write_predictions(path, [part])
    assert any(text.startswith("nll of far, ") for text in verify(read_run(run)).problems)


def test_figures_after_a_recalibration_are_recomputed_by_what_the_run_has_now(
    run: Path, tiny_dataset: DomainDataset
) -> None:
    hidden = tiny_dataset.hiding(["high"])
    before = verify(read_run(run)).num_exact
    trained = load_run(run)
    trained.calibrate(hidden, temperature=False, conformal=0.6, coverage=0.5)
    trained.evaluate(hidden)
    verdict = verify(read_run(run))
    added = sum(len(result.recalibrated or {}) for result in trained.results)
    assert added
    assert (verdict.num_exact, verdict.problems) == (before + added, ())
    # What was recorded is of the calibration before; then there is none.
    whole = json.loads((run / FILE).read_text())
    whole["rejection"]["threshold"] = -1.0
    (run / FILE).write_text(json.dumps(whole))
    (problem,) = verify(read_run(run)).problems
    assert "figures are not what recalibration.json gives, such as recalibrated accept" in problem
    (run / FILE).write_text("{}")
    assert "recalibration.json is damaged" in verify(read_run(run)).problems[0]
    (run / FILE).unlink()
    verdict = verify(read_run(run))
    (problem,) = verdict.problems
    assert problem.startswith(f"{added} figures are not what ")
    assert problem.endswith("bayesdg evaluate renews them")
    assert verdict.num_exact == before


def test_figures_with_other_statistics_are_recomputed_from_predictions_of_their_own(
    run: Path, tiny_dataset: DomainDataset
) -> None:
    hidden = tiny_dataset.hiding(["high"])
    trained = load_run(run)
    trained.calibrate(hidden, temperature=False, conformal=0.6)
    trained.evaluate(hidden)
    before = verify(read_run(run)).num_exact
    results = trained.evaluate(hidden, statistics="own")
    verdict = verify(read_run(run))
    detections = detections_of(trained.records, "own")
    added = sum(len(record.metrics) + 2 for record in [*results, *detections])
    assert (verdict.num_exact, verdict.problems) == (before + added, ())
    path = predictions_path(run, 4, "own")
    assert path.name == "draws-4-own.npz"
    part = next(p for p in read_predictions(path) if p.key.domain == "far")
    part.log_probabilities[:, :] = np.log(np.float32(1 / 3))
    write_predictions(path, [part])
    problems = verify(read_run(run)).problems
    assert problems
    assert all("4 draws, own statistics: recorded" in text for text in problems)
    path.unlink()
    (problem,) = verify(read_run(run)).problems
    assert problem == f"no predictions/draws-4-own.npz: {added} figures not verified"


def test_a_figure_that_predictions_do_not_have_is_named(run: Path) -> None:
    change(run, "result", lambda record: record.update(domain="moon"))
    problems = verify(read_run(run)).problems
    left_out, *others = problems
    assert left_out == "far, target, test: the predictions have it, and no record, 0 draws"
    assert all("moon" in text and "do not have it" in text for text in others)
    assert others


@pytest.mark.parametrize("damage", ["gone", "cut", "text"])
def test_predictions_that_are_gone_or_damaged_are_named(
    run: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = predictions_path(run, 4)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:99] if damage == "cut" else b"<html>")
    before = len((run / RECORDS).read_bytes())
    assert main(["verify", str(run.parent)]) == 6
    output, errors = capsys.readouterr()
    assert "draws-4.npz" in output
    assert "not verified" in output
    assert "figures agree to the last bit" in output  # those of the mean weights
    assert "1 of 1 runs could not be confirmed" in errors
    assert len((run / RECORDS).read_bytes()) == before


def test_the_command_says_that_all_is_well(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unread"] == []
    assert found["runs"][run.name]["problems"] == []
    assert found["runs"][run.name]["num_exact"] > 100


def test_of_two_copies_of_a_run_each_has_its_verdict(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for copy in ("altered", "whole"):
        shutil.copytree(run, tmp_path / "both" / copy / run.name)
    altered = tmp_path / "both" / "altered" / run.name
    change(altered, "result", lambda record: record.update(domain="moon"))
    assert main(["verify", str(tmp_path / "both"), "--json"]) == 6
    found = json.loads(capsys.readouterr().out)["runs"]
    assert {Path(name).parts[0]: bool(v["problems"]) for name, v in found.items()} == {
        "altered": True, "whole": False,
    }  # fmt: skip


def test_a_folder_that_holds_no_run_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path)]) == 6
    assert "no run in" in capsys.readouterr().err
