from dataclasses import replace

import pytest

from bayesdg.errors import UsageError
from bayesdg.records import ResultRecord
from bayesdg.tables import Cell, by_method


def result(method: str, seed: int, domain: str, role: str, accuracy: float) -> ResultRecord:
    return ResultRecord(
        "d",
        method,
        "default",
        seed,
        "source-val",
        1,
        domain,
        role,
        "test",
        9,
        0,
        0,
        {"accuracy": accuracy},
    )  # type: ignore[arg-type]


def test_domains_are_averaged_first_and_seeds_then() -> None:
    """Worked by hand: seed means 0.5 and 0.9, so 0.7 and a deviation of 0.4 / sqrt(2)."""
    rows = by_method(
        [
            result("bil", 0, "a", "source", 0.4),
            result("bil", 0, "b", "source", 0.6),
            result("bil", 0, "t", "target", 0.1),
            result("bil", 1, "a", "source", 0.8),
            result("bil", 1, "b", "source", 1.0),
            result("erm", 0, "a", "source", 0.3),
        ]
    )
    cell = rows["bil"]["accuracy", "source"]
    assert cell.mean == pytest.approx(0.7)
    assert cell.std == pytest.approx(0.4 / 2**0.5)
    assert cell.num_seeds == 2
    assert rows["bil"]["accuracy", "target"] == Cell(0.1, None, 1)
    assert rows["erm"]["accuracy", "source"] == Cell(0.3, None, 1)


def test_what_is_transductive_is_not_averaged_with_what_is_not() -> None:
    ordinary = result("bil", 0, "a", "source", 0.4)
    own = replace(ordinary, statistics="own")
    with pytest.raises(UsageError, match="statistics own and trained would be mixed"):
        by_method([ordinary, own])
    assert by_method(iter([own])) == by_method([ordinary])


def test_one_seed_has_no_deviation() -> None:
    assert Cell.of([0.5]).std is None
