import json
from pathlib import Path

import pytest

from bayesdg.errors import StoredRunError
from bayesdg.settings import Settings
from bayesdg.stored_runs import find_runs, read_run
from bayesdg.training.about import identity
from run_folders import step_record, write_run

FIXTURE = Path(__file__).parent / "fixtures" / "run-format-1"


def test_runs_are_found_at_any_of_three_depths_and_not_below_a_run(tmp_path: Path) -> None:
    deep = [write_run(tmp_path / place).path for place in (".", "one", "one/two")]
    write_run(tmp_path / "one/two/three/four")
    write_run(deep[0] / "checkpoints")
    runs, problems = find_runs(tmp_path)
    assert {run.path for run in runs} == set(deep)
    assert problems == []
    assert [run.path for run in find_runs(deep[0])[0]] == [deep[0]]


def test_a_run_of_an_older_version_is_read_with_todays_settings() -> None:
    run = read_run(FIXTURE)
    assert run.identity.keys() == identity(Settings()).keys()
    assert run.identity["data"].keys() == identity(Settings())["data"].keys()


def test_how_far_a_run_came_is_what_its_records_say(tmp_path: Path) -> None:
    half = write_run(tmp_path / "half", steps=[step_record(4, source_val={"a": 0.5})])
    assert (half.last_step, half.is_trained) == (4, False)
    whole = write_run(tmp_path / "whole")
    assert (whole.last_step, whole.is_trained) == (10, True)
    (half.path / "records.jsonl").unlink()
    begun = read_run(half.path)
    assert (begun.last_step, begun.is_trained, begun.results) == (0, False, [])


@pytest.mark.parametrize("name", ["run.json", "settings.json", "records.jsonl", "draws.json"])
@pytest.mark.parametrize("content", ["", "<html>\n", "[]\n", '{"tests": [{"draws": "many"}]}\n'])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = write_run(tmp_path)
    (run.path / name).write_text(content)
    if (name, content) == ("records.jsonl", ""):
        return  # killed before its first line
    with pytest.raises(StoredRunError, match=name):
        read_run(run.path)
    runs, problems = find_runs(tmp_path)
    assert runs == []
    assert len(problems) == 1


def test_tests_under_several_numbers_of_draws_come_with_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    assert run.tests == ()
    test = {"draws": 5, "domain": "photo", "num_images": 9, "seconds": 1, "metrics": {"nll": None}}
    (run.path / "draws.json").write_text(json.dumps({"device": "cpu", "tests": [test]}))
    assert [found.model_dump() for found in read_run(run.path).tests] == [test]
