"""Plans as values: what the paper compares."""

import subprocess
import sys

import pytest

from bayesdg.bench.jobs import each_once, jobs_of
from bayesdg.bench.plans import PLANS
from bayesdg.methods import METHODS


@pytest.mark.parametrize("name", PLANS)
def test_every_method_of_a_plan_exists(name: str) -> None:
    assert set(PLANS[name].methods) <= set(METHODS)


@pytest.mark.parametrize(
    ("name", "num"),
    [
        ("ablation", 10 * 4 * 5),
        ("ablation-full", 14 * 4 * 5),
        ("priors", 2 * 4 * 5),
        ("depth", 3 * 4 * 5),
        ("pacs", 2 * 4 * 5),
        ("office-home", 2 * 4 * 5),
        ("rotated", 2 * 2 * 5),
        ("sensitivity", (5 + 5 + 5 - 2) * 5),  # the optimum is in all three
        ("cost", 1 + 3 * 2 * 3),  # without draws there is nothing to combine
        ("draws", 3 * 4 * 5),
        ("uncertainty", 8 * 4 * 5),
    ],
)
def test_a_plan_has_as_many_runs_as_its_table_has_cells(name: str, num: int) -> None:
    assert len(each_once(jobs_of(PLANS[name]))) == num


def test_rows_of_the_ablation_are_ticked_as_in_print() -> None:
    """Table 1: Bayesian and invariant, of the classifier and of the feature extractor."""
    printed = {
        "a": "....", "b": "x...", "c": ".x..", "d": "xx..", "e": "..x.", "f": "...x", "g": "..xx",
        "h": "x.x.", "i": ".x.x", "j": "xxxx",
    }  # fmt: skip
    found = {}
    for name in PLANS["ablation"].methods:
        psi, phi = METHODS[name].psi, METHODS[name].phi
        ticks = (psi.bayes, psi.invariant, phi.bayes, phi.invariant)
        found[name] = "".join("x" if tick else "." for tick in ticks)
    assert found == printed


def test_sensitivity_moves_one_setting_at_a_time_away_from_the_optimum() -> None:
    optimum = {"lambda_phi": 1.0, "lambda_psi": 100.0, "pi": 0.5}
    for job in jobs_of(PLANS["sensitivity"]):
        s = job.settings
        values = {
            "lambda_phi": s.objective.lambda_phi,
            "lambda_psi": s.objective.lambda_psi,
            "pi": s.model.pi,
        }
        moved = {name for name in optimum if values[name] != optimum[name]}
        assert job.targets == ("cartoon",)
        assert moved <= {job.variant.split()[0]}
        assert values[job.variant.split()[0]] == float(job.variant.split()[1])


def test_section_4_1_gives_office_home_four_images_per_class() -> None:
    assert {j.settings.episode.per_class for j in jobs_of(PLANS["office-home"])} == {4}
    assert {j.settings.episode.per_class for j in jobs_of(PLANS["pacs"])} == {16}


def test_cost_measures_zero_to_three_bayesian_layers() -> None:
    layers = [sum(x.bayes for x in METHODS[m].layers.values()) for m in PLANS["cost"].methods]
    assert layers == [0, 1, 2, 3]
    assert all(METHODS[m].invariant_layers for m in PLANS["cost"].methods)


def test_listing_the_whole_ablation_needs_no_torch() -> None:
    program = (
        "import sys, json; from bayesdg.cli import main;"
        "sys.exit(main(['bench', 'ablation-full', '--dry-run', '--json', '--seeds', '3'])"
        " or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"state": "to do"') == 14 * 4 * 3
