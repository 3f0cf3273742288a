"""What a training step takes, beside the paper's table (appendix F)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesdg.bench.folder import COST, COSTS
from bayesdg.errors import StoredRunError
from bayesdg.tables.cells import Cell
from bayesdg.tables.entries import Entry
from bayesdg.tables.layouts import Column, Line
from bayesdg.tables.measures import measure
from bayesdg.tables.paper import Printed, paper
from bayesdg.tables.table import Place, Table
from bayesdg.training.about import read_json

# Metric -> name in cost.json, and what it is divided by.
COLUMNS = {
    "layers": ("layers", 1),
    "extra_multiply_adds": ("multiply_adds", 1e6),
    "extra_parameters": ("parameters", 1e6),
    "saved_gib": ("saved_bytes", 2**30),
    "memory_gib": ("peak_bytes", 2**30),
    "step_seconds": ("seconds", 1),
}
PRINTED = {
    "extra_multiply_adds": "flops_m",
    "extra_parameters": "parameters_m",
    "memory_gib": "memory_gb",
}


def cost_table(folder: Path, plan: str, entries: Sequence[Entry]) -> Table:
    """A row per method and number of draws; parameters and multiply-adds beyond the row without."""
    measured: dict[Line, Mapping[str, Any]] = {}
    missing = []
    for entry in entries:
        line = Line(entry.method, entry.preset, entry.variant)
        path = folder / COSTS / entry.name / COST
        if path.is_file():
            measured[line] = read_json(path)
        why = measured[line].get("problem") if line in measured else "not measured"
        if why:
            missing.append(f"{entry.method} {entry.variant}".strip() + f": {why}")
    dataset = entries[0].dataset
    columns = tuple(Column(dataset, "", name, measure(name).label) for name in COLUMNS)
    plain = next((found for found in measured.values() if found.get("layers") == 0), {})
    cells: dict[Place, Cell] = {}
    for line, found in measured.items():
        for column in columns:
            value = _value(found, plain, column.metric)
            if value is not None:
                cells[line, column] = Cell(value, None, 1)
    lines = tuple(dict.fromkeys(Line(e.method, e.preset, e.variant) for e in entries))
    used = tuple(c for c in columns if any(place[1] == c for place in cells))
    devices = dict.fromkeys(str(found.get("device", "")) for found in measured.values())
    is_the_papers = dataset == paper()["cost"]["dataset"]
    printed = _printed(lines, used, measured) if is_the_papers else {}
    return Table(
        f"{plan}, {dataset}, one training step",
        "",
        lines,
        used,
        cells,
        frozenset(),
        1,
        tuple(missing),
        printed=printed,
        notes=(f"measured on {', '.join(filter(None, devices))}",) * bool(measured)
        + ("in print: the paper's Table F.1, GPU memory of a Tesla V100",) * bool(printed),
    )


def _value(found: Mapping[str, Any], plain: Mapping[str, Any], metric: str) -> float | None:
    name, unit = COLUMNS[metric]
    value = found.get(name)
    if metric.startswith("extra_"):
        before = plain.get(name)
        value = None if value is None or before is None else value - before
    if value is not None and not isinstance(value, int | float):
        raise StoredRunError(f"{COST} is damaged: {name} is {value!r}")
    return None if value is None else value / unit


def _printed(
    lines: Sequence[Line], columns: Sequence[Column], measured: Mapping[Line, Mapping[str, Any]]
) -> dict[Place, Printed]:
    """The paper draws as 'product' does."""
    table = paper()["cost"]
    rows = {
        (row[0], row[1]): dict(zip(table["columns"], row, strict=True)) for row in table["rows"]
    }
    found: dict[Place, Printed] = {}
    for line in lines:
        combine, _, draws = line.what.partition(" ")
        layers = measured.get(line, {}).get("layers")
        key = (layers, int(draws)) if draws.isdecimal() and combine == "product" else (layers, 0)
        for column in columns:
            name = PRINTED.get(column.metric)
            if name and key in rows and combine != "paired":
                above = name == "memory_gb" and list(key) in table["more_than"]
                found[line, column] = Printed(rows[key][name], None, above)
    return found
