"""The tables of a folder as sections, bars and curves: what is drawn is what the table says."""

import json
from pathlib import Path

import pytest

from bayesdg.cli.report import write_report
from bayesdg.errors import StoredRunError
from bayesdg.report.bench import bench_figure, bench_sections, figure_of, kind_of, shown_in
from bayesdg.report.comparison import half_width
from bayesdg.report.named import NAMED, Asked
from bayesdg.report.page import Page, to_html
from bayesdg.report.runs import run_folders
from bayesdg.report.watch import live_page
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
    figure = figure_of(shown_in("ablation", table))
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
        low, high = (100 * (cell.mean + sign * half_width(cell)) for sign in (-1, 1))
        # Two seeds that differ say little: their interval leaves what is possible.
        assert sorted(segment[:, 0]) == pytest.approx([max(low, 0), min(high, 100)])


def test_a_page_has_ours_the_papers_and_what_is_missing(ablation: Path, tmp_path: Path) -> None:
    half_finished(ready_run(tmp_path / "runs", "g"))
    ready_run(tmp_path / "runs", "j")
    sections = bench_sections([ablation, tmp_path])
    page = to_html(Page("t", "", sections, 0))
    assert "in print" in page
    assert "80.28" in page  # row a of Table 1: its mean over the four domains
    assert "What is missing" in page
    assert "metrics over unseen domains" in page
    assert page.count("<li>g: seed 0: at step 15 of 100</li>") == 1  # not once for each metric


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
        bench_figure([ablation], "sensitivity", None, None)


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
    figure = bench_figure([tmp_path], "sensitivity", None, None)
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
    assert run_folders([tmp_path]) == []  # costs are measured without a run
    figure = bench_figure([tmp_path], "cost", "cost", None)
    first = figure.axes[0]
    assert [line.get_label() for line in first.lines] == ["c paired", "j paired"]
    assert list(first.lines[1].get_xdata()) == [10, 20]
    assert list(first.lines[1].get_ydata()) == pytest.approx([20, 40])  # millions more than c
    assert first.get_ylim()[0] == 0
    page, num = tmp_path / "report.html", write_report([tmp_path], tmp_path / "report.html")[1]
    assert num == 0
    assert "extra multiply-adds (M)" in page.read_text()
    assert "extra multiply-adds (M)" in to_html(live_page([tmp_path]))
    with pytest.raises(StoredRunError, match="no run for the figure confusion"):
        NAMED["confusion"].draw(Asked([tmp_path], []))


DRAWS = (0, 2, 10)


def drawn_run(out: Path, method: str, seed: int) -> Path:
    """A run that was tested under several numbers of draws: accuracy 0.5 to 0.6, 1 to 11 ms."""
    folder = ready_run(out, method, seed, with_features=False)
    tests = [
        {
            "draws": draws, "domain": "sketch", "num_images": 40, "seconds": 0.04 * (1 + draws),
            "metrics": {"accuracy": 0.5 + draws / 100 + 0.02 * seed, "ece": 0.1, "nll": 1.5},
        }
        for draws in DRAWS
    ]  # fmt: skip
    (folder / "draws.json").write_text(json.dumps({"tests": tests}))
    return folder


def test_draws_have_a_panel_for_each_metric_in_its_own_unit(tmp_path: Path) -> None:
    folders = [drawn_run(tmp_path / "runs", method, seed) for method in "bj" for seed in (0, 1)]
    planned(tmp_path, "draws", [job(folder, test_draws=list(DRAWS)) for folder in folders])
    figure = bench_figure([tmp_path], "draws", None, None)
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert labels == ["accuracy %", "ECE %", "ms an image"]
    for axis, expected in zip(figure.axes, ([51, 53, 61], [10, 10, 10], [1, 3, 11]), strict=True):
        assert [line.get_label() for line in axis.lines] == ["b", "j"]
        for line in axis.lines:
            assert list(line.get_xdata()) == list(DRAWS)
            assert list(line.get_ydata()) == pytest.approx(expected)
    (alone,) = bench_figure([tmp_path], "draws", None, "nll").axes
    assert alone.get_ylabel() == "NLL"
    assert list(alone.lines[0].get_ydata()) == pytest.approx([1.5] * 3)
    sections = bench_sections([tmp_path])
    assert [len(block.panels) for section in sections for block in section.blocks] == [1, 1, 1]


def renamed(folder: Path, dataset: str) -> Path:
    """The run as if it were of other data."""
    about = json.loads((folder / "run.json").read_text())
    about["task"]["dataset"] = dataset
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def test_an_ablation_of_two_data_sets_has_two_panels(tmp_path: Path) -> None:
    for methods, dataset in (("agj", "pacs"), ("cd", "office-home")):
        for method in methods:
            renamed(ready_run(tmp_path / "runs", method, with_features=False), dataset)
    figure = bench_figure([tmp_path], "ablation", None, None)
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert labels == ["accuracy %, pacs sketch", "accuracy %, office-home sketch"]
    assert [len(axis.lines[0].get_xdata()) for axis in figure.axes] == [3, 2]


def test_rotated_digits_are_drawn_at_known_and_at_new_angles(tmp_path: Path) -> None:
    for method in "aj":
        renamed(ready_run(tmp_path / "runs", method, with_features=False), "rotated-mnist")
    figure = bench_figure([tmp_path], "ablation", None, None)
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert labels == ["accuracy %, rotated-mnist in", "accuracy %, rotated-mnist out"]
