"""Every figure by name, as a file; and what is drawn against the numbers it is drawn from."""

import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.evaluate.calibration import reliability_diagram
from bayesdg.report import figures, style
from bayesdg.report.comparison import Bar, Bars, Curve, Curves, bars, setting_curves
from bayesdg.report.named import NAMED, Asked
from bayesdg.report.prepare import prepared
from bayesdg.report.runs import ReportedRun, pooled, read_run
from bayesdg.tables import Cell
from ready_runs import ODD_NAMES, half_finished, ready_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    folder = ready_run(tmp_path_factory.mktemp("run"), classes=ODD_NAMES)
    return prepared(read_run(folder), compute=False)


SINGLE = [
    "terms", "validation", "confusion", "reliability", "risk-coverage", "uncertainty", "failures",
    "features",
]  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_every_figure_is_a_column_wide_and_holds_its_type(
    name: str, run: ReportedRun, tmp_path: Path
) -> None:
    figure = NAMED[name].draw(Asked([run.path], [run]))
    assert figure.get_figwidth() <= style.COLUMN
    svg = style.save(figure, tmp_path / "f.svg").read_text()
    assert "<text" not in svg  # letters are outlines: no font is needed
    assert "alert(1)</script>" not in svg
    pdf = style.save(figure, tmp_path / "f.pdf").read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    assert b"/FontFile2" in pdf or any(b"/FontFile2" in _inflated(s) for s in streams)
    assert b"/Type3" not in pdf
    assert style.save(figure, tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def test_the_same_figure_is_the_same_file(run: ReportedRun, tmp_path: Path) -> None:
    contents = []
    for name in ("a.svg", "b.svg"):
        figure = NAMED["features"].draw(Asked([run.path], [run]))
        contents.append(style.save(figure, tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert b"<dc:date>" not in contents[0]


def test_a_reliability_diagram_draws_the_bins(run: ReportedRun) -> None:
    found = pooled(run.parts, "target")
    assert found is not None
    diagram = reliability_diagram(*found)
    figure = figures.reliability({"unseen domains": diagram})
    line = figure.axes[0].lines[1]
    full = diagram.count > 0
    assert np.allclose(line.get_xdata(), diagram.confidence[full])
    assert np.allclose(line.get_ydata(), diagram.accuracy[full])
    assert f"ECE {100 * diagram.error:.1f}%" in figure.axes[0].get_title(loc="left")


def test_a_confusion_matrix_counts_every_image(run: ReportedRun) -> None:
    figure = NAMED["confusion"].draw(Asked([run.path], [run]))
    numbers = [int(text.get_text()) for text in figure.axes[0].texts]
    assert sum(numbers) == sum(len(p) for p in run.parts if p.key.role == "target")


def test_many_classes_need_no_names() -> None:
    matrix = np.eye(65, dtype=np.int64)
    figure = figures.confusion(matrix, [f"class {k}" for k in range(65)])
    assert len(figure.axes[0].texts) == 0


def test_a_figure_of_one_run_asks_which(run: ReportedRun) -> None:
    with pytest.raises(UsageError, match="the figure confusion is of one run, here are 2"):
        NAMED["confusion"].draw(Asked([run.path], [run, run]))


def test_a_run_that_has_nothing_to_draw_says_why(tmp_path: Path) -> None:
    unfinished = read_run(half_finished(ready_run(tmp_path)))
    for name in ("confusion", "features", "failures"):
        with pytest.raises(StoredRunError, match="not finished: step 15 of 100"):
            NAMED[name].draw(Asked([tmp_path], [unfinished]))


def test_methods_are_drawn_side_by_side(tmp_path: Path) -> None:
    folders = [ready_run(tmp_path, method) for method in ("a", "j", "d", "g")]
    runs = [prepared(read_run(folder), compute=False) for folder in folders]
    for name, num in (("features", 4), ("reliability", 4), ("risk-coverage", 1)):
        figure = NAMED[name].draw(Asked([tmp_path], runs))
        assert len(figure.axes) == num
    titles = [a.get_title(loc="left") for a in NAMED["features"].draw(Asked([], runs)).axes]
    assert titles == ["a", "d", "g", "j"]


def test_bars_show_the_interval_of_the_mean() -> None:
    """Of 5 seeds with deviation 1: 2.776 / sqrt(5) points to either side, by the table of t."""
    rows = [Bar("j", Cell(0.8, 0.01, 5), 0.85), Bar("a", Cell(0.7, None, 1))]
    figure = bars([Bars("accuracy %", rows)])
    (segments,) = [c.get_segments() for c in figure.axes[0].collections]
    ends = [sorted(segment[:, 0]) for segment in segments]
    assert ends[0] == pytest.approx([80 - 1.2417, 80 + 1.2417], abs=1e-3)
    assert ends[1] == pytest.approx([70, 70])


def test_settings_of_many_magnitudes_are_drawn_on_a_log_scale() -> None:
    cells = [Cell(0.5, 0.1, 3)] * 3
    curves = [
        Curves("λ", "accuracy %", [Curve("unseen", [10, 0.1, 1], cells)]),
        Curves("π", "accuracy %", [Curve("unseen", [0.1, 0.5, 0.9], cells)]),
    ]
    figure = setting_curves(curves)
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "linear"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0.1, 1, 10]


def test_a_name_has_one_colour_in_all_panels_and_stands_once_below_them() -> None:
    cells = [Cell(0.5, None, 1)] * 2
    b, j = (Curve(name, [1, 2], cells) for name in "bj")
    figure = setting_curves([Curves("draws", "a %", [b, j]), Curves("draws", "ms", [j], 1)])
    first, second = figure.axes
    assert second.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()
    assert list(second.lines[0].get_ydata()) == [0.5, 0.5]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["b", "j"]


def test_an_unknown_kind_of_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown kind of figure file '.jpg'.*allowed: .svg"):
        style.save(Figure(), tmp_path / "f.jpg")


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_are_told_apart_by_colour_blind_people(kind: str) -> None:
    """Sources from targets, and in from out: at least 10 in CIELAB, where 2 is just visible."""
    seen = {c: _lab(_blind(c, kind)) for c in {*style.SOURCES, *style.TARGETS, style.IN, style.OUT}}
    for source in style.SOURCES[:5]:
        for target in style.TARGETS[:1]:
            assert np.linalg.norm(seen[source] - seen[target]) > 10, (source, target)
    assert np.linalg.norm(seen[style.IN] - seen[style.OUT]) > 10


def _blind(colour: str, kind: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1)


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
