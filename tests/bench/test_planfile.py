"""Plans in files."""

from pathlib import Path

import pytest

from bayesdg.bench.jobs import jobs_of
from bayesdg.bench.planfile import find_plan, to_plain
from bayesdg.bench.plans import PLANS
from bayesdg.errors import UsageError

MINE = """
about = "how wide a prior"
methods = ["j"]
datasets = ["rotated-digits"]
targets = ["0+90", "0"]
seeds = [1, 2]

[settings]
training.steps = 7

[variants.narrow]
model.std1 = 0.05
[variants.usual]
"""


def test_a_file_says_what_the_dictionary_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    name, plan = find_plan(str(path))
    assert name == "mine"
    assert plan.targets == (("0", "90"), ("0",))
    jobs = jobs_of(plan)
    assert len(jobs) == 2 * 2 * 2
    assert {job.settings.training.steps for job in jobs} == {7}
    widths = {job.variant: job.settings.model.std1 for job in jobs}
    assert widths == {"narrow": 0.05, "usual": 0.1}


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_of_ours_could_be_written_as_a_file(name: str, tmp_path: Path) -> None:
    import json

    plain = to_plain(PLANS[name])
    plain["targets"] = ["+".join(group) for group in plain["targets"]]
    path = tmp_path / f"copy-of-{name}.json"
    path.write_text(json.dumps(plain))
    assert find_plan(str(path)) == (f"copy-of-{name}", PLANS[name])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("methods = 'j'\n", "methods is 'j'; wanted a list"),
        ("method = ['j']\n", "unknown entry 'method'; did you mean 'methods'?"),
        ("about = 'x'\n", "methods is missing; wanted a list"),
        ("methods = []\n", "methods is empty; wanted at least one"),
        ("methods = ['j']\nseeds = 3\n", "seeds is 3; wanted a list"),
        (
            "methods = ['j']\n[settings]\nseed = 3\n",
            "seed is set to 3, but a plan has it in its seeds",
        ),
        ("methods = ['j']\n[variants.x]\nmethod = 'a'\n", "a plan has it in its methods"),
        (
            "methods = ['j']\ndatasets = ['rotated-digits']\ntargets = ['0+15+30+45+60+75+90']\n",
            "leave at least one to train on",
        ),
        (
            "methods = ['j']\ntargets = ['photo']\n[settings]\ndata.exclude = ['photo']\n",
            "photo of pacs is a target and in data.exclude as well",
        ),
        ("methods = ['j']\nseeds = ['a']\n", "seeds.0: "),
        ("methods = ['j']\ntest_draws = [-3]\n", "test_draws holds -3; wanted 0 or more"),
        ("methods = ['j']\nseeds = [-1]\n", "seed: Input should be greater"),
        ("methods = ['j']\nsettings = 3\n", "settings is 3; wanted a table"),
        ("methods = ['j']\n[variants]\nx = 1\n", "holds no settings"),
        ("methods = ['j']\nmeasures = 'time'\n", "measures: "),
        ("methods = [", "mine.toml: "),
    ],
)
def test_a_wrong_file_is_told_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        jobs_of(find_plan(str(path))[1])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_cannot_take_the_name_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "pacs.toml"
    path.write_text(MINE)
    with pytest.raises(UsageError, match="pacs is the name of a plan already"):
        find_plan(str(path))


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_plan(str(tmp_path / "nothing.toml"))
