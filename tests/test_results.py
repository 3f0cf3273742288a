"""docs/results.md against the records it is said to come from."""

import importlib
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from bayesdg.records import ResultRecord, StepRecord, read_records
from bayesdg.tables import by_method
from bayesdg.tables.build import tables_of
from bayesdg.tables.formats import as_json

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def quickstart_results() -> list[ResultRecord]:
    return [
        record
        for path in sorted((ROOT / "results" / "quickstart").glob("*/records.jsonl"))
        for record in read_records(path)
        if isinstance(record, ResultRecord)
    ]


def test_quickstart_table_is_that_of_the_records() -> None:
    for method, row in by_method(quickstart_results()).items():
        line = re.search(rf"^\| {method} \|(.*±.*±.*)\|$", PAGE, re.MULTILINE)
        assert line is not None, method
        printed = [float(n) for n in re.findall(r"[\d.]+", line.group(1))]
        expected = []
        for metric, scale, digits in (("accuracy", 100, 1), ("nll", 1, 3), ("ece", 100, 1)):
            for role in ("source", "target"):
                cell = row[metric, role]
                assert cell.num_seeds == 5
                assert cell.std is not None
                expected += [round(scale * cell.mean, digits), round(scale * cell.std, digits)]
        assert printed == pytest.approx(expected)


def test_readmes_table_is_that_of_seed_0() -> None:
    first = [result for result in quickstart_results() if result.seed == 0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for method, row in by_method(first).items():
        line = re.search(rf"^ {method}  .*$", readme, re.MULTILINE)
        assert line is not None, method
        expected = [
            f"{scale * row[metric, role].mean:.{digits}f}"
            for metric, scale, digits in (("accuracy", 100, 1), ("nll", 1, 3), ("ece", 100, 1))
            for role in ("source", "target")
        ]
        assert line.group().split()[1:] == expected


def test_confidence_is_as_the_text_says() -> None:
    """Too sure by 10 points out for erm; too cautious by 3 in and 7 out for bil."""
    rows = by_method(quickstart_results())
    gap = {
        (method, role): row["confidence", role].mean - row["accuracy", role].mean
        for method, row in rows.items()
        for role in ("source", "target")
    }
    assert round(100 * gap["erm", "target"]) == 10
    assert round(100 * gap["bil", "source"]) == -3
    assert round(100 * gap["bil", "target"]) == -7


def test_every_seed_says_the_same() -> None:
    out: dict[tuple[str, int], list[ResultRecord]] = {}
    for result in quickstart_results():
        if result.role == "target":
            out.setdefault((result.method, result.seed), []).append(result)
    means = {
        key: {m: statistics.mean(r.metrics[m] for r in results) for m in results[0].metrics}
        for key, results in out.items()
    }
    errors = {key: 1 - found["accuracy"] for key, found in means.items()}
    for seed in range(5):
        assert errors["bil", seed] < errors["erm", seed] / 2
        assert means["bil", seed]["ece"] < means["erm", seed]["ece"]
    mean = {m: statistics.mean(errors[m, s] for s in range(5)) for m in ("erm", "bil")}
    assert 0.35 < mean["bil"] / mean["erm"] < 0.45
    nll = {m: statistics.mean(means[m, s]["nll"] for s in range(5)) for m in ("erm", "bil")}
    assert nll["bil"] < 0.4 * nll["erm"]


@pytest.mark.parametrize("machine", ["gpu", "cpu"])
def test_speed_table_is_that_of_the_benchmark(machine: str) -> None:
    stored = json.loads((ROOT / "results" / "speed" / f"data-{machine}.json").read_text())
    speeds = [f"{value:,.0f}" for value in stored["images_per_second"].values()]
    share = f"{100 * stored['augmentation_share']:.1f}%"
    assert f"| {' | '.join(speeds)} | {stored['augmentation_ms']:.1f} ms |" in PAGE
    assert f"| {share} |" in PAGE


def test_settings_table_is_that_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    rows = json.loads((ROOT / "results" / "quickstart-settings.json").read_text())["rows"]
    assert importlib.import_module("quickstart_settings").table(rows) in PAGE


def test_kl_table_is_that_of_the_benchmark() -> None:
    page = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "kl.json").read_text())["rows"]
    for row in rows:
        times = f"{row['quadrature_ms']:.1f} ms | {row['monte_carlo_ms']:.1f} ms"
        noise = f"{100 * row['gradient_noise']:.0f} %"
        assert f"| {row['width']} x {row['width']} | {times} | {noise} |" in page


ROTATED = ("rotated-mnist", "rotated-fashion-mnist")
IN = ("15", "30", "45", "60", "75")


def uncertainty_rows(dataset: str) -> list[dict[str, Any]]:
    stored = ROOT / "results" / "uncertainty" / f"{dataset}.json"
    rows: list[dict[str, Any]] = json.loads(stored.read_text(encoding="utf-8"))["rows"]
    return rows


@pytest.mark.parametrize("dataset", ROTATED)
def test_uncertainty_tables_are_those_of_the_benchmark(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tables = importlib.import_module("uncertainty").tables(uncertainty_rows(dataset))
    assert tables.count(f"**{dataset}") == 3
    assert tables in PAGE


class Judged:
    """What a method says on a rotated set, by place."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.domains, self.detections = row["domains"], row["detections"]
        self.temperature = row["recalibration"]["temperature"]

    def mean(self, place: str, metric: str, kind: str = "metrics") -> float:
        angles = IN if place == "in" else (place,)
        return statistics.mean(self.domains[a][kind][metric] for a in angles)

    def auroc(self, task: str, score: str) -> float:
        (found,) = (scores for name, scores in self.detections.items() if name.startswith(task))
        return float(found[score]["auroc"])


def judged(dataset: str) -> dict[tuple[str, int], Judged]:
    rows = uncertainty_rows(dataset)
    found = {(row["method"], row["seed"]): Judged(row) for row in rows}
    methods = ("erm", "bil", "laplace", "dropout")
    assert set(found) == {(method, seed) for method in methods for seed in range(3)}
    return found


def test_what_the_text_says_of_digits_holds_for_every_seed() -> None:
    found = judged("rotated-mnist")
    for (method, seed), theirs in found.items():
        ours = found["bil", seed]
        for angle in ("0", "90") if method != "bil" else ():
            assert ours.mean(angle, "accuracy") > theirs.mean(angle, "accuracy")
            for metric in ("nll", "aurc"):
                assert ours.mean(angle, metric) < theirs.mean(angle, metric)
            for metric in ("nll", "accepted_risk"):
                wrong = [each.mean(angle, metric, "recalibrated") for each in (ours, theirs)]
                assert wrong[0] < wrong[1]
            errors = [each.auroc(f"errors {angle}", "max_probability") for each in (ours, theirs)]
            assert errors[0] > errors[1]
            if method != "erm":
                seen = [
                    each.auroc(f"domain {angle}", "mutual_information") for each in (ours, theirs)
                ]
                assert seen[0] < seen[1]
            else:
                assert ours.mean(angle, "ece") < theirs.mean(angle, "ece")
                calibrated = [each.mean(angle, "ece", "recalibrated") for each in (ours, theirs)]
                assert calibrated[0] < calibrated[1]
        if method == "erm":
            assert ours.mean("in", "accuracy") > theirs.mean("in", "accuracy")
            assert ours.mean("in", "nll") < theirs.mean("in", "nll")
            assert ours.mean("in", "ece") > theirs.mean("in", "ece")
        assert ours.auroc("unknown", "energy") < 0.2
        assert theirs.auroc("unknown", "density") > 0.98


def test_what_the_text_says_of_clothes_holds_for_every_seed() -> None:
    found = judged("rotated-fashion-mnist")
    for seed in range(3):
        ours, theirs = found["bil", seed], found["erm", seed]
        assert ours.mean("in", "accuracy") < theirs.mean("in", "accuracy")
        assert ours.mean("in", "nll") > theirs.mean("in", "nll")
        assert ours.mean("in", "ece") > 0.19 > 0.02 > theirs.mean("in", "ece")
        for angle in ("0", "90"):
            assert ours.mean(angle, "nll") < theirs.mean(angle, "nll")
            assert ours.mean(angle, "ece") < theirs.mean(angle, "ece")
            assert ours.mean(angle, "set_coverage", "recalibrated") < 0.7
            density = [each.auroc(f"domain {angle}", "density") for each in (ours, theirs)]
            assert density[0] > density[1]
        assert min(ours.auroc("unknown", s) for s in ("energy", "mutual_information")) > 0.92
        assert ours.auroc("unknown", "density") > 0.98
    for angle in ("0", "90"):
        accuracies = [
            [found[method, seed].mean(angle, "accuracy") for seed in range(3)]
            for method in ("bil", "erm")
        ]
        gap = abs(statistics.mean(accuracies[0]) - statistics.mean(accuracies[1]))
        assert gap < max(map(statistics.stdev, accuracies))


def test_memory_table_is_that_of_the_benchmark_and_flat() -> None:
    stored = json.loads((ROOT / "results" / "uncertainty" / "memory.json").read_text())
    peak: dict[str, dict[int, float]] = {}
    for row in stored["rows"]:
        peak.setdefault(row["to"], {})[row["pictures"]] = row["peak_mib"]
    for suffix, by_number in peak.items():
        cells = " | ".join(f"{value:,.0f} MiB" for value in by_number.values())
        assert f"| {suffix} | {cells} |" in PAGE
        assert by_number[100_000] < 1.1 * by_number[1_000]


def test_draws_table_is_that_of_the_benchmark() -> None:
    stored = json.loads((ROOT / "results" / "uncertainty" / "draws-cpu.json").read_text())
    for row in stored["rows"]:
        assert f"| {row['what']} | {row['ms']:,.0f} ms | {row['ratio']:.3f} |" in PAGE


def test_the_lab_books_table_is_that_of_the_probe() -> None:
    book = (ROOT / "results" / "LABBOOK.md").read_text(encoding="utf-8")
    probe = json.loads((ROOT / "results" / "batch-norm" / "fashion-small-cnn.json").read_text())
    rows: dict[str, list[str]] = {}
    for row in probe["rows"]:
        seen, held_out = (
            100 * statistics.mean(row["accuracy"][angle] for angle in probe[names])
            for names in ("trained_on", "compared_on")
        )
        rows.setdefault(row["case"], []).append(f"{seen:.1f} / {held_out:.1f}")
    assert len(rows) == 8
    for case, cells in rows.items():
        assert f"| {case} | {' | '.join(cells)} |" in book


def test_the_lab_books_seeds_are_those_of_the_probe() -> None:
    book = (ROOT / "results" / "LABBOOK.md").read_text(encoding="utf-8")
    probe = json.loads((ROOT / "results" / "batch-norm" / "fashion-weights.json").read_text())

    def cell(case: str, kind: str, names: str) -> str:
        values = [
            100 * statistics.mean(row["accuracy"][angle] for angle in probe[names])
            for row in probe["rows"]
            if (row["case"], row["statistics"]) == (case, kind)
        ]
        assert len(values) == 3
        return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"

    wanted = (("training", "trained_on"), ("training", "compared_on"), ("own angle", "compared_on"))
    for case in dict.fromkeys(row["case"] for row in probe["rows"]):
        assert f"| {case} | {' | '.join(cell(case, *which) for which in wanted)} |" in book


def test_the_lab_books_rates_are_those_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    book = (ROOT / "results" / "LABBOOK.md").read_text(encoding="utf-8")
    stored = ROOT / "results" / "lab" / "rotated-mnist-settings.json"
    table = importlib.import_module("quickstart_settings").table(
        json.loads(stored.read_text())["rows"]
    )
    assert table.replace(", `training.evaluate_every = 100`", "") in book


def test_the_lab_books_pacs_runs_are_those_of_the_records() -> None:
    book = (ROOT / "results" / "LABBOOK.md").read_text(encoding="utf-8")
    found = set()
    for run in (ROOT / "results" / "lab" / "pacs-64" / "source-validation").iterdir():
        (step,) = (
            record
            for record in read_records(run / "records.jsonl")
            if isinstance(record, StepRecord) and record.step == 250 and record.source_val
        )
        assert set(step.source_val or {}) == {"photo", "sketch"}
        accuracy, nll, ece = (
            statistics.mean(m[name] or 0.0 for m in (step.source_val or {}).values())
            for name in ("accuracy", "nll", "ece")
        )
        found.add(f"{100 * accuracy:.1f} | {nll:.3f} | {100 * ece:.1f} |")
    assert len(found) == 4
    assert all(figures in book for figures in found)


def test_the_summary_is_what_the_table_of_these_records_says() -> None:
    metrics = ("accuracy", "nll", "ece", "aurc")
    tables, _ = tables_of(ROOT / "results", metrics=metrics, each_target=True)
    stored = (ROOT / "results" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(stored) == json.loads(as_json(tables))
