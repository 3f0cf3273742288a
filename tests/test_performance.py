"""The page on performance says what the files in results/speed say."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SPEED = ROOT / "results" / "speed"
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
LAYERS = (
    "bayesdg, mixture, Monte Carlo",
    "bayesdg, mixture, quadrature",
    "bayesdg, Gaussian, closed form",
    "TorchUncertainty",
    "bayesian-torch",
    "BLiTZ",
)


def stored(name: str) -> Any:
    return json.loads((SPEED / name).read_text(encoding="utf-8"))


def step_lines() -> list[str]:
    lines = []
    for row in stored("step-cpu.json"):
        times = [row[f"{name}_ms"] for name in ("floor", "ours", "reference", "erm")]
        floor, ours, reference, _ = times
        cells = [row["case"], *(f"{value:.0f}" for value in times)]
        cells += [f"{ours / floor:.2f}", f"{reference / ours:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def layer_lines() -> list[str]:
    rows = stored("layers-cpu.json")["rows"]
    found = {(row["batch"], row["draws"], row["layer"]): row for row in rows}
    lines = []
    for batch, draws in dict.fromkeys((row["batch"], row["draws"]) for row in rows):
        cells = [str(batch), str(draws)]
        for layer in LAYERS:
            row = found[batch, draws, layer]
            ratio = f" ({row['times_slower']:.1f} x)" if row["times_slower"] else ""
            cells.append(f"{row['ms']:.1f}{ratio}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def invariance_lines() -> list[str]:
    results = stored("invariance-cpu.json")
    lines = []
    for name, slopes in results["slopes"].items():
        loss, targets = name.split("; ")
        rows = [r for r in results["rows"] if (r["loss"], r["targets"]) == (loss, targets)]
        last = [row for row in rows if row["pairwise_ms"]][-1]
        cells = [loss, targets, f"{slopes['linear']:.1f}", f"{slopes['pairwise']:.1f}"]
        cells += [f"{last['sources']:,}", f"{last['pairwise_ms'] / last['linear_ms']:.0f} x"]
        cells.append(f"{last['pairwise_mib'] / last['linear_mib']:.0f} x")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def growth_lines() -> list[str]:
    lines = []
    for row in stored("growth-cpu.json")["rows"]:
        size = row[row["grown"].partition(",")[0]]
        cells = [row["grown"], str(size), f"{row['images']:,}", f"{row['ms']:.1f}"]
        cells.append(f"{row['images_per_second']:,}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def about(name: str) -> str:
    results = stored(name)
    threads = f"{results['threads']} thread" + "s" * (results["threads"] != 1)
    clock = "CPU time" if results["clock"] == "CPU time" else "time by the wall"
    torch = results["torch"].partition("+")[0]
    return f"{results['machine']}, {threads}, {clock}, torch {torch}, {results['date']}"


TABLES = {
    "step": step_lines,
    "layers": layer_lines,
    "invariance": invariance_lines,
    "growth": growth_lines,
}


@pytest.mark.parametrize("lines", TABLES.values(), ids=TABLES)
def test_tables_are_those_of_the_benchmarks(lines: Any) -> None:
    wanted = lines()
    assert wanted
    assert "\n".join(wanted) in PAGE


@pytest.mark.parametrize("name", ["layers", "invariance", "growth"])
def test_machine_and_date_are_told(name: str) -> None:
    assert about(f"{name}-cpu.json") in " ".join(PAGE.split())


def test_the_quickstart_is_as_fast_as_before_and_has_the_same_bits() -> None:
    results = stored("quickstart-cpu.json")
    for method in ("erm", "bil"):
        assert results[method]["same_bits"]
        assert f"{results[method]['ratio']:.2f}" in PAGE
        assert results[method]["ratio"] < 1.1
