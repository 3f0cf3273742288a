"""docs/reliability.md against the tests it names and the record it quotes."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    existing = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 50
    assert named - existing == set()


def test_exit_codes_are_those_of_the_errors() -> None:
    from bayesdg import errors
    from bayesdg.training.launch import CODES

    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert codes == CODES
    for error in errors.BayesdgError.__subclasses__():
        assert error.exit_code in codes


def test_the_kills_are_those_of_the_record() -> None:
    stored = json.loads((ROOT / "results" / "reliability" / "kills.json").read_text())
    assert stored["all_bits_agree"] is True
    assert stored["sha256"]["calm"] == stored["sha256"]["killed"]
    assert len(stored["newest_checkpoint_after_each_kill"]) == stored["kills"]
    said = re.search(r"(\d+)\s+random moments, (\d+) of them", PAGE)
    assert said is not None
    assert [int(number) for number in said.groups()] == [stored["kills"], stored["writes_cut"]]
