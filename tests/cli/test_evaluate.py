"""`bayesdg evaluate --statistics`: what is transductive says so, and ordinary results stay."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.evaluate import normalised
from bayesdg.records import read_records, results_of

Bayesdg = Callable[..., tuple[int, str, str]]


def test_every_table_of_a_transductive_evaluation_says_so(run: Path, bayesdg: Bayesdg) -> None:
    code, out, err = bayesdg("evaluate", run, "--statistics", "own", "--intervals")
    assert code == 0, err
    assert out.startswith("TRANSDUCTIVE (own): ")
    assert max(map(len, out.splitlines())) <= 80
    # Answers, calibration, three of detection, intervals; and the line at the top.
    assert " ".join(out.split()).count("TRANSDUCTIVE (own)") == 7
    code, out, err = bayesdg("evaluate", run, "--statistics", "sources")
    assert (code, out.count("TRANSDUCTIVE")) == (0, 0)
    assert "statistics (sources): batch norm takes" in out
    _, out, _ = bayesdg("evaluate", run)
    assert "statistics (" not in out


def test_json_says_which_statistics_and_what_they_looked_at(run: Path, bayesdg: Bayesdg) -> None:
    accuracies = {}
    for name, transductive in (("own", True), ("sources", False), ("trained", False)):
        _, out, _ = bayesdg("evaluate", run, "--json", "--statistics", name)
        content = json.loads(out)
        assert (content["statistics"], content["transductive"]) == (name, transductive)
        records = [*content["results"], *content["detections"]]
        assert {record["statistics"] for record in records} == {name}
        accuracies[name] = [result["metrics"]["nll"] for result in content["results"]]
    assert len(set(map(tuple, accuracies.values()))) == 3
    stored = read_records(run / "records.jsonl")
    for name, found in accuracies.items():
        assert [r.metrics["nll"] for r in results_of(stored, name)] == found
    assert {p.name for p in (run / "predictions").iterdir()} == {
        "draws-4.npz", "draws-4-own.npz", "draws-4-sources.npz",
    }  # fmt: skip
    assert bayesdg("verify", run)[0] == 0


def test_a_recalibration_is_for_ordinary_predictions(run: Path, bayesdg: Bayesdg) -> None:
    bayesdg("calibrate", run, "--coverage", "0.5")
    _, out, err = bayesdg("evaluate", run, "--json", "--statistics", "own")
    assert "recalibration is for the statistics that training kept and left out" in err
    assert {result["recalibrated"] for result in json.loads(out)["results"]} == {None}
    _, out, err = bayesdg("evaluate", run, "--json")
    assert err == ""
    assert all(result["recalibrated"] for result in json.loads(out)["results"])


@pytest.mark.parametrize("command", ["evaluate", "table"])
def test_a_typo_has_an_answer(run: Path, bayesdg: Bayesdg, command: str) -> None:
    code, out, err = bayesdg(command, run, "--statistics", "Owm")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "unknown statistics 'Owm'; did you mean 'own'? allowed: trained, sources, own" in err


def test_a_network_without_batch_norm_has_one_line(
    run: Path, bayesdg: Bayesdg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalised, "norms_with_statistics", lambda learner: [])
    code, out, err = bayesdg("evaluate", run, "--statistics", "own", "--data", "nowhere")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no batch norm with statistics of its own" in err
