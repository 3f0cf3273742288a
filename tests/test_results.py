"""docs/results.md against the records it is said to come from."""

import importlib
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from bayesdg.records import ResultRecord, read_records
from bayesdg.tables import by_method

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


def uncertainty_rows() -> list[dict[str, Any]]:
    stored = (ROOT / "results" / "uncertainty" / "rotated.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(stored)["rows"]
    return rows


def test_uncertainty_tables_are_those_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tables = importlib.import_module("uncertainty").tables(uncertainty_rows())
    assert tables.count("**rotated-") == 6
    assert tables in PAGE


def test_what_the_text_says_of_uncertainty_holds_for_every_seed() -> None:
    rows = {(r["dataset"], r["method"], r["seed"]): r for r in uncertainty_rows()}
    assert len(rows) == 12
    for (dataset, method, seed), row in rows.items():
        (other,) = (scores for task, scores in row["detections"].items() if "unknown" in task)
        assert other["density"]["auroc"] == max(score["auroc"] for score in other.values()) > 0.96
        # No promise of 90% holds where nobody made it.
        assert max(row["domains"][a]["recalibrated"]["set_coverage"] for a in ("0", "90")) < 0.9
        if method == "erm":
            continue
        erm = rows[dataset, "erm", seed]
        for angle in ("0", "90"):
            ours, theirs = (r["domains"][angle] for r in (row, erm))
            better = [ours["metrics"][name] < theirs["metrics"][name] for name in ("nll", "aurc")]
            better.append(ours["metrics"]["accuracy"] > theirs["metrics"]["accuracy"])
            better.append(ours["recalibrated"]["nll"] < theirs["recalibrated"]["nll"])
            wrong = (ours["recalibrated"]["accepted_risk"], theirs["recalibrated"]["accepted_risk"])
            better.append(wrong[0] < wrong[1])
            density = (r["detections"][f"domain {angle}"]["density"]["auroc"] for r in (row, erm))
            scores = row["detections"][f"domain {angle}"].values()
            better.append(next(density) == max(score["auroc"] for score in scores))
            better.append(max(score["auroc"] for score in scores) > next(density))
            errors = (r["detections"][f"errors {angle}"]["max_probability"] for r in (row, erm))
            better.append(next(errors)["auroc"] > next(errors)["auroc"])
            assert all(better), (dataset, seed, angle)
            if dataset == "rotated-mnist":
                assert ours["metrics"]["ece"] > theirs["metrics"]["ece"]
                assert ours["recalibrated"]["ece"] < theirs["recalibrated"]["ece"] / 2
        for angle in ("15", "30", "45", "60", "75"):
            ours, theirs = (r["domains"][angle]["metrics"] for r in (row, erm))
            assert (ours["accuracy"] > theirs["accuracy"]) == (dataset == "rotated-mnist")
            assert ours["nll"] > theirs["nll"]
            assert ours["ece"] > 0.2 > 0.06 > theirs["ece"]


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
