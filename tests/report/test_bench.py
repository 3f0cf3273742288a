"""The tables of a folder as sections, bars and curves: what is drawn is what the table says."""

import json
from pathlib import Path

import pytest

from bayesdg.errors import StoredRunError
from bayesdg.report.bench import bench_figure, bench_sections, drawn, kind_of
from bayesdg.report.comparison import half_width
from bayesdg.report.page import Page, to_html
from bayesdg.tables.build import tables_of
from ready_runs import SOURCES, half_finished, ready_run


@pytest.fixture(scope="module")
def ablation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ablation")
    for method in ("a", "j"):
        for target in (*SOURCES, "sketch"):
            for seed in (0, 1):
                ready_run(out / "runs", method, seed, targets=(target,), with_features=False)
    return out


def test_bars_are_the_means_of_the_table_beside_the_papers(ablation: Path) -> None:
    (table,) = tables_of(ablation)[0]
    assert kind_of(table) == "ablation"
    figure = drawn("ablation", [table])
    assert figure is not None
    ours, printed = figure.axes[0].lines
    mean = table.columns[-1]
    cells = [table.cells[line, mean] for line in table.lines]
    assert ours.get_xdata() == pytest.approx([100 * cell.mean for cell in cells])
    papers = [
        table.printed[line, mean].mean for line in table.lines if (line, mean) in table.printed
    ]
    assert list(printed.get_xdata()) == pytest.approx(papers)
    (lines,) = figure.axes[0].collections
    for cell, segment in zip(cells, lines.get_segments(), strict=True):
        width = segment[:, 0].max() - segment[:, 0].min()
        assert width == pytest.approx(200 * half_width(cell))


def test_a_page_has_ours_the_papers_and_what_is_missing(ablation: Path, tmp_path: Path) -> None:
    half_finished(ready_run(tmp_path / "runs", "g"))
    ready_run(tmp_path / "runs", "j")
    sections = bench_sections([ablation, tmp_path])
    page = to_html(Page("t", "", sections, 0))
    assert "in print" in page
    assert "80.28" in page  # row a of Table 1: its mean over the four domains
    assert "What is missing" in page
    assert "metrics over unseen domains" in page


def test_a_folder_that_is_a_run_has_no_tables(ablation: Path) -> None:
    assert bench_sections([next((ablation / "runs").iterdir())]) == []


def test_what_hinders_a_table_is_on_the_page(tmp_path: Path) -> None:
    """Runs of one method and seed with different settings: a mean would mix them."""
    for rate in (0.1, 0.2):
        ready_run(tmp_path, values={"training.learning_rate": rate}, with_features=False)
    (section,) = bench_sections([tmp_path])
    assert "training.learning_rate" in section.problems[0]


def test_a_figure_without_runs_of_its_kind_is_one_line(ablation: Path) -> None:
    with pytest.raises(StoredRunError, match="no runs for the figure sensitivity"):
        bench_figure([ablation], "sensitivity", None, "accuracy")


def planned(out: Path, plan: str, jobs: list[dict[str, object]]) -> None:
    (out / "plan.json").write_text(json.dumps({"format": 1, "plans": {plan: {"jobs": jobs}}}))


def job(folder: Path, variant: str = "", **more: object) -> dict[str, object]:
    settings = json.loads((folder / "settings.json").read_text())
    return {
        "run": folder.name, "dataset": "pacs", "targets": ["sketch"], "method": settings["method"],
        "variant": variant, "seed": settings["seed"], "measures": "accuracy", "test_draws": [],
        "settings": {"method": settings["method"], "seed": settings["seed"]}, **more,
    }  # fmt: skip


def test_a_sensitivity_curve_goes_through_the_cells(tmp_path: Path) -> None:
    jobs = []
    for value in (0.1, 1.0, 10.0):
        folder = ready_run(
            tmp_path / "runs", "j", values={"objective.lambda_phi": value}, with_features=False
        )
        jobs.append(job(folder, f"lambda_phi {value:g}"))
    planned(tmp_path, "sensitivity", jobs)
    figure = bench_figure([tmp_path], "sensitivity", None, "accuracy")
    (axis,) = figure.axes
    assert axis.get_xlabel() == "λ of φ"
    assert axis.get_xscale() == "log"
    (table,) = tables_of(tmp_path)[0]
    for line, curve in zip(table.lines, axis.lines, strict=True):
        assert list(curve.get_xdata()) == [0.1, 1, 10]
        means = [100 * table.cells[line, column].mean for column in table.columns]
        assert list(curve.get_ydata()) == pytest.approx(means)


def test_costs_are_drawn_over_the_number_of_draws(tmp_path: Path) -> None:
    jobs = []
    for method, layers in (("c", 0), ("j", 2)):
        for draws in (10, 20):
            name = f"{method}-{draws}"
            folder = tmp_path / "costs" / name
            folder.mkdir(parents=True)
            cost = {
                "layers": layers, "parameters": 11e6, "multiply_adds": 1.8e9 + layers * draws * 1e6,
                "num_images": 128, "saved_bytes": 2**30, "peak_bytes": None, "seconds": 0.5,
                "device": "cpu",
            }  # fmt: skip
            (folder / "cost.json").write_text(json.dumps(cost))
            jobs.append(
                {
                    "run": name, "dataset": "pacs", "targets": ["sketch"], "method": method,
                    "variant": f"paired {draws}", "seed": 0, "measures": "cost", "test_draws": [],
                    "settings": {"method": method},
                }
            )  # fmt: skip
    planned(tmp_path, "cost", jobs)
    ready_run(tmp_path / "runs", with_features=False)
    figure = bench_figure([tmp_path], "cost", "cost", "accuracy")
    first = figure.axes[0]
    assert [line.get_label() for line in first.lines] == ["c paired", "j paired"]
    assert list(first.lines[1].get_xdata()) == [10, 20]
    assert list(first.lines[1].get_ydata()) == pytest.approx([20, 40])  # millions more than c
