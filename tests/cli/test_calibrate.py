"""`bayesdg calibrate`, and what predict and evaluate make of it."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

Bayesdg = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pictures(trained: Path) -> Path:
    return trained.parent.parent / "data" / "sketch"


def test_what_was_fitted_is_stored_told_and_used(
    run: Path, pictures: Path, bayesdg: Bayesdg
) -> None:
    arguments = ("--conformal", 0.6, "--coverage", 0.5)
    code, out, err = bayesdg("calibrate", run, *arguments, "--json")
    assert code == 0, err
    fit = json.loads(out)
    assert fit == json.loads((run / "recalibration.json").read_text())
    assert fit["domains"] == ["art", "photo"]
    assert fit["temperature"] is None
    code, out, _ = bayesdg("calibrate", run, *arguments)
    assert "sets         hold the right class in 60% of cases" in out
    assert f"written to {run / 'recalibration.json'}" in out
    _, out, _ = bayesdg("predict", run, pictures)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 36
    for row in rows:
        accepted = float(row["entropy"]) <= fit["rejection"]["threshold"]
        assert row["decision"] == ("accept" if accepted else "reject")
        assert row["set"].split("|")[0] == row["class"]
        assert len(row["set"].split("|")) == int(row["set_size"])
    _, out, _ = bayesdg("predict", run, pictures, "--raw")
    assert "set_size" not in out
    code, _, err = bayesdg("predict", run, pictures, "--draws", 2)
    assert code == 2
    assert "recalibrated for 4 draws, not for 2; ask without that (--raw)" in err


def test_rows_are_after_the_temperature_and_decisions_are_not(
    run: Path, pictures: Path, bayesdg: Bayesdg
) -> None:
    """p^(1/T), scaled to sum to 1, by hand from the rows without."""
    bayesdg("calibrate", run, "--conformal", 0.6, "--coverage", 0.5)
    path = run / "recalibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0.25}))
    raw, rows = (
        list(csv.DictReader(io.StringIO(bayesdg("predict", run, pictures, "--top", 3, *more)[1])))
        for more in (["--raw"], [])
    )
    threshold = json.loads(path.read_text())["sets"]["threshold"]
    for before, after in zip(raw, rows, strict=True):
        columns = ("probability", "probability_2", "probability_3")
        sharper = [float(before[column]) ** 4 for column in columns]
        expected = [p / sum(sharper) for p in sharper]
        assert [float(after[column]) for column in columns] == pytest.approx(expected, rel=1e-5)
        assert after["entropy"] == before["entropy"]
        size = 1 + sum(sum(expected[:k]) <= threshold for k in (1, 2))
        assert int(after["set_size"]) == size


def test_an_evaluation_shows_it_beside_the_metrics_in_80_columns(
    run: Path, pictures: Path, bayesdg: Bayesdg
) -> None:
    bayesdg("calibrate", run, "--conformal", 0.6, "--coverage", 0.5)
    code, out, err = bayesdg("evaluate", run, "--ood", pictures.parent / "photo", "--intervals")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    for expected in ("worst domain:", "in set", "accept", "AUROC", "bootstrap", "unknown"):
        assert expected in out
    twins = [pictures.parent / domain / "dog" for domain in ("art", "photo")]
    _, out, _ = bayesdg("evaluate", run, "--json", "--ood", twins[0], "--ood", twins[1])
    unknown = {d["domain"] for d in json.loads(out)["detections"] if d["task"] == "unknown"}
    assert unknown == {"dog", str(twins[1])}
    _, out, _ = bayesdg("evaluate", run, "--json")
    content = json.loads(out)
    assert [r["domain"] for r in content["results"]] == ["art", "photo", "sketch"]
    worst = min(content["results"], key=lambda r: r["metrics"]["accuracy"])
    assert content["worst_domain"]["accuracy"] == worst["metrics"]["accuracy"]
    for result in content["results"]:
        assert set(result["recalibrated"]) >= {"set_coverage", "set_size", "accepted"}
    _, out, err = bayesdg("evaluate", run, "--draws", 0, "--json")
    assert {r["recalibrated"] for r in json.loads(out)["results"]} == {None}
    assert "note: the recalibration is for 4 draws and left out" in err
    # An earlier --ood stays in the records and out of this evaluation.
    assert {d["domain"] for d in json.loads(out)["detections"]} <= {"sketch"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--coverage", "0.9", "--risk", "0.1"], 2, "give one of them"),
        (["--coverage", "90"], 2, "coverage is 90.0: "),
        (["--conformal", "1"], 2, "conformal is 1.0: "),
        (["--conformal", "0.99"], 3, "too few for sets at 0.99: at least 99"),
        (["--reject-by", "entropi", "--risk", "0.1"], 2, "reject-by is 'entropi'"),
        (["--reject-by", "energy", "--temperature"], 2, "without coverage or risk"),
        (["--conformal", "0.5", "--data", "nowhere"], 2, "unknown data set 'nowhere'"),
    ],
)
def test_what_cannot_be_fitted_is_one_line_and_nothing_is_stored(
    run: Path, bayesdg: Bayesdg, arguments: list[str], code: int, says: str
) -> None:
    found, out, err = bayesdg("calibrate", run, *arguments)
    assert (found, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
    assert not (run / "recalibration.json").exists()
