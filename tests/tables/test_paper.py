"""The paper's figures, against sums of themselves."""

import math

import pytest

from bayesdg.data.known import KNOWN
from bayesdg.methods.rows import METHODS
from bayesdg.tables.paper import Printed, other_papers, paper, printed, printed_order

WITH_MEAN = [name for name, table in paper().items() if "mean" in table.get("columns", ())]
# Printed to one digit in the paper that is cited, and so are the figures its mean was made of.
ONE_DIGIT = {"Piratla et al. 2020"}


@pytest.mark.parametrize("plan", WITH_MEAN)
def test_the_mean_of_each_row_is_the_printed_one(plan: str) -> None:
    for name, row in paper()[plan]["rows"].items():
        *domains, mean = row["mean"]
        # Both sides are rounded to two digits.
        slack = 0.1 if name in ONE_DIGIT else 0.0101
        assert math.fsum(domains) / len(domains) == pytest.approx(mean, abs=slack), (plan, name)


def test_every_row_has_a_figure_for_every_column() -> None:
    for plan, table in paper().items():
        for name, row in table["rows"].items() if isinstance(table.get("rows"), dict) else ():
            assert len(row["mean"]) == len(table["columns"]), (plan, name)
            assert len(row.get("std", row["mean"])) == len(table["columns"]), (plan, name)
            assert name in METHODS or " " in name


def test_columns_are_domains_as_data_sets_call_them() -> None:
    for plan in WITH_MEAN:
        known = KNOWN[paper()[plan]["dataset"]]
        assert {*known.domains, "mean"} == set(paper()[plan]["columns"])


def test_rows_that_stand_in_two_tables_say_the_same_in_both() -> None:
    for plan in ("ablation-full", "priors", "depth"):
        for name, row in paper()[plan]["rows"].items():
            assert row == paper()["ablation"]["rows"].get(name, row)
    assert paper()["pacs"]["rows"]["j"] == paper()["ablation"]["rows"]["j"]
    assert paper()["pacs"]["rows"]["a"]["mean"] == paper()["ablation"]["rows"]["a"]["mean"]


@pytest.mark.parametrize(
    ("dataset", "method", "column", "figure"),
    [
        ("pacs", "erm", "sketch", Printed(75.72, 0.47)),
        ("pacs", "bil", "mean", Printed(85.45, 0.24)),
        ("pacs", "n", "cartoon", Printed(80.27, 0.58)),
        ("pacs", "j-standard-prior", "photo", Printed(95.17, 0.25)),
        ("office-home", "a", "Real World", Printed(73.14, None)),
        ("rotated-fashion-mnist", "j", "out", Printed(83.5, 0.63)),
        ("pacs", "Seo et al. 2019", "sketch", Printed(82.23, None)),
    ],
)
def test_a_figure_is_found(dataset: str, method: str, column: str, figure: Printed) -> None:
    found = printed(dataset, method, column)
    assert found is not None
    assert found[0] == figure


def test_what_is_not_printed_is_not_found() -> None:
    """Rows k and l are spoken of and not printed; digits of scikit-learn are not in the paper."""
    assert printed("pacs", "k", "photo") is None
    assert printed("rotated-digits", "j", "out") is None
    assert printed("pacs", "j", "moon") is None


def test_other_papers_are_told_from_methods() -> None:
    assert len(other_papers("pacs")) == 10
    assert other_papers("ablation") == []
    assert printed_order("pacs")[0] == "photo"


def test_cost_grows_with_layers_and_draws() -> None:
    rows = {tuple(row[:2]): row[2:] for row in paper()["cost"]["rows"]}
    assert len(rows) == 10
    for draws in (10, 15, 20):
        assert rows[1, draws] < rows[2, draws] < rows[3, draws]
    assert paper()["cost"]["more_than"] == [[3, 20]]
