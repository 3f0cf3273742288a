from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bayesdg.errors import UsageError
from bayesdg.evaluate.stored import predictions_path, write_predictions
from bayesdg.records import write_records
from bayesdg.report.build import build_page
from bayesdg.report.page import Table, to_html
from bayesdg.report.runs import ReportedRun, read_run, run_folders
from ready_runs import half_finished, ready_run


def test_runs_are_found_in_a_run_a_folder_of_runs_and_a_bench(tmp_path: Path) -> None:
    runs = [ready_run(tmp_path / "bench" / "runs", method) for method in ("bil", "erm")]
    assert run_folders([runs[0]]) == [runs[0]]
    assert run_folders([tmp_path / "bench" / "runs"]) == sorted(runs)
    assert run_folders([tmp_path / "bench"]) == sorted(runs)
    assert run_folders([tmp_path / "bench", runs[0]]) == sorted(runs)


@pytest.mark.parametrize(("place", "says"), [("", "no run in"), ("nowhere", "no folder")])
def test_no_run_is_one_line(tmp_path: Path, place: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_folders([tmp_path / place])


def test_a_whole_run_lacks_nothing(tmp_path: Path) -> None:
    run = read_run(ready_run(tmp_path))
    assert run.problems == ()
    assert run.is_done
    assert run.selected == 100
    assert {part.key.domain for part in run.parts} == {"art_painting", "cartoon", "photo", "sketch"}
    assert run.features is not None


def damaged(folder: Path) -> None:
    (folder / "predictions" / "draws-10.npz").write_bytes(b"no archive")


def failed(folder: Path) -> None:
    (folder / "records.jsonl").write_text("no record\n")


def without_settings(folder: Path) -> None:
    (folder / "settings.json").unlink()


def from_the_future(folder: Path) -> None:
    (folder / "run.json").write_text('{"format": 99}')


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (half_finished, "not finished: step 15 of 100"),
        (damaged, "draws-10.npz is damaged"),
        (failed, "line 1 is not a record"),
        (without_settings, "no settings.json"),
        (from_the_future, "upgrade bayesdg"),
    ],
)
def test_what_is_missing_is_said_on_the_page(
    tmp_path: Path, spoil: Callable[[Path], object], says: str
) -> None:
    folder = ready_run(tmp_path, with_features=False)
    spoil(folder)
    run = read_run(folder)
    assert any(says in line for line in run.problems)
    untested = read_run(ready_run(tmp_path, "erm", evaluated=False))
    page = to_html(build_page([run, untested]))
    assert f"{folder.name}: " in page
    assert page.count(says) == 2  # in the comparison and with the run


def test_a_run_that_was_not_tested_says_how(tmp_path: Path) -> None:
    run = read_run(ready_run(tmp_path, evaluated=False))
    assert any("bayesdg evaluate" in line for line in run.problems)
    page = to_html(build_page([run]))
    assert "Validation accuracy" in page
    assert "Reliability" not in page


def test_transductive_results_are_a_marked_table_of_their_own(tmp_path: Path) -> None:
    folder = ready_run(tmp_path, with_features=False)
    before = read_run(folder)
    (ordinary,) = _tables_of_results(before)
    own = [
        replace(record, statistics="own", metrics={**record.metrics, "accuracy": 0.12345})
        for record in [*before.results, *before.detections]
    ]
    # More draws than anything ordinary has.
    more = [replace(record, draws=999) for record in own]
    write_records(folder / "records.jsonl", [*more, *before.records, *own])
    write_predictions(predictions_path(folder, 999, "own"), before.parts)
    run = read_run(folder)
    assert (run.results, run.detections) == (before.results, before.detections)
    assert (run.draws, run.problems) == (10, ())
    first, second = _tables_of_results(run)
    assert first == ordinary
    assert second.caption.startswith("TRANSDUCTIVE (own): batch norm takes ")
    assert {row.cells[3] for row in second.rows} == {"12.3"}
    assert to_html(build_page([run, before])).count("12.3<") == len(second.rows)
    # Alone they are no test.
    write_records(folder / "records.jsonl", [*before.steps, *own])
    assert any("not tested" in problem for problem in read_run(folder).problems)


def _tables_of_results(run: ReportedRun) -> Sequence[Table]:
    (section,) = build_page([run]).sections
    return next(block.tables for block in section.blocks if block.title == "Results")


def test_an_empty_run_folder_makes_a_page(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("")
    run = read_run(tmp_path)
    assert len(run.problems) >= 3
    assert tmp_path.name in to_html(build_page([run]))
