"""Whole tables from run folders, against figures worked out by hand."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.records import DetectionRecord, ResultRecord, write_records
from bayesdg.tables.build import tables_of
from bayesdg.tables.formats import as_json
from bayesdg.tables.grid import footnotes
from bayesdg.tables.table import Table
from run_folders import PACS, step_record, write_run

# Accuracy by method, domain and seed: seed means of erm 0.55 and 0.65, of bil 0.75 and 0.95.
ACCURACIES = {
    "erm": {"photo": (0.7, 0.8), "art_painting": (0.4, 0.5)},
    "bil": {"photo": (0.9, 1.0), "art_painting": (0.6, 0.9)},
}
TWO = ("photo", "art_painting")


def write_two_by_two(out: Path, **values: object) -> None:
    for method, domains in ACCURACIES.items():
        for domain, by_seed in domains.items():
            for seed, accuracy in enumerate(by_seed):
                write_run(out, method, seed, targets=(domain,), target=accuracy, **values)  # type: ignore[arg-type]


def only(found: tuple[list[Table], list[str]]) -> Table:
    (table,), _ = found
    return table


def figures(table: Table) -> dict[tuple[str, str], tuple[float, float | None, int]]:
    """Mean, deviation and number by method and column."""
    return {
        (line.method + f" {line.what}".rstrip(), column.label): (
            pytest.approx(cell.mean), cell.std and pytest.approx(cell.std), cell.num_seeds
        )
        for (line, column), cell in table.cells.items()
    }  # fmt: skip


def test_domains_stand_in_columns_with_their_mean(tmp_path: Path) -> None:
    write_two_by_two(tmp_path)
    table = only(tables_of(tmp_path))
    assert [column.label for column in table.columns] == ["photo", "art_painting", "mean"]
    assert [line.method for line in table.lines] == ["erm", "bil"]
    half, deep = 0.1 / 2**0.5, 0.3 / 2**0.5
    assert figures(table) == {
        ("erm", "photo"): (0.75, half, 2),
        ("erm", "art_painting"): (0.45, half, 2),
        ("erm", "mean"): (0.6, half, 2),
        ("bil", "photo"): (0.95, half, 2),
        ("bil", "art_painting"): (0.75, deep, 2),
        ("bil", "mean"): (0.85, 0.2 / 2**0.5, 2),
    }
    assert {line.method for line, _ in table.best} == {"bil"}
    assert len(table.best) == 3
    assert table.missing == ()


def test_methods_are_compared_by_seed_in_the_mean(tmp_path: Path) -> None:
    """Differences 0.2 and 0.3: every resample is between, and a quarter of them at each end."""
    write_two_by_two(tmp_path)
    (found,) = only(tables_of(tmp_path)).comparisons
    assert (found.line.method, found.baseline.method, found.column.label) == ("bil", "erm", "mean")
    assert found.num_seeds == 2
    assert found.interval is not None
    assert found.interval.value == pytest.approx(0.25)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.2, 0.3))
    assert "few seeds give too short an interval" in " ".join(footnotes(only(tables_of(tmp_path))))


def test_of_a_falling_metric_the_least_is_best(tmp_path: Path) -> None:
    write_run(tmp_path, "erm", target={"accuracy": 0.5, "nll": 0.2, "confidence": 0.9})
    write_run(tmp_path, "bil", target={"accuracy": 0.5, "nll": 0.4, "confidence": 0.5})
    best = only(tables_of(tmp_path, metrics=["nll"])).best
    assert {line.method for line, _ in best} == {"erm"}
    assert only(tables_of(tmp_path, metrics=["confidence"])).best == frozenset()
    both = only(tables_of(tmp_path)).best
    assert {line.method for line, _ in both} == {"erm", "bil"}


def test_what_is_missing_is_named_and_leaves_the_mean_out(tmp_path: Path) -> None:
    write_two_by_two(tmp_path)
    write_run(tmp_path, "j", 0, targets=("photo",), target=0.9)
    half_way = [step_record(4, source_val={"cartoon": 0.5}, best=True)]
    write_run(tmp_path, "j", 0, targets=("art_painting",), target=None, steps=half_way)
    table = only(tables_of(tmp_path))
    assert ("j", "mean") not in figures(table)
    assert figures(table)["j", "photo"] == (0.9, None, 1)
    assert "j, photo: seed 1: no run" in table.missing
    assert "j, art_painting: seed 0: at step 4 of 10" in table.missing
    assert "j, art_painting: seed 1: no run" in table.missing


def test_a_run_that_was_trained_and_not_tested_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path, target=None)
    table = only(tables_of(tmp_path))
    assert table.cells == {}
    assert table.missing == ("erm, photo: seed 0: nothing of the target is recorded at step 10",)


def test_settings_are_not_mixed_in_a_cell(tmp_path: Path) -> None:
    first = write_run(tmp_path, seed=0)
    second = write_run(tmp_path, seed=1, settings={"training.learning_rate": 0.5})
    with pytest.raises(UsageError) as error:
        tables_of(tmp_path)
    message = str(error.value)
    assert "erm on pacs, photo" in message
    assert "training.learning_rate: 0.0001 -> 0.5" in message
    assert first.path.name in message
    assert second.path.name in message
    tables, _ = tables_of(tmp_path, keep=lambda run: run.settings.seed == 1)
    assert list(figures(tables[0]).values()) == [(0.5, None, 1)]


def test_settings_are_not_mixed_in_a_mean_either(tmp_path: Path) -> None:
    write_run(tmp_path, targets=("photo",))
    write_run(tmp_path, targets=("sketch",), settings={"training.learning_rate": 0.5})
    with pytest.raises(UsageError, match=r"erm on pacs, mean would mix settings: .*0.5"):
        tables_of(tmp_path)


def test_a_run_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    write_run(tmp_path / "two")
    with pytest.raises(UsageError, match="seed 0 of erm on pacs, photo is there twice"):
        tables_of(tmp_path)


def test_presets_are_rows_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path, settings={"preset": "default"})
    write_run(tmp_path, settings={"preset": "paper", "training.learning_rate": 0.5}, target=0.7)
    table = only(tables_of(tmp_path))
    assert [line.preset for line in table.lines] == ["default", "paper"]


def test_rotated_sets_stand_beside_each_other_in_and_out(tmp_path: Path) -> None:
    for dataset, accuracy in (("rotated-mnist", 0.9), ("rotated-fashion-mnist", 0.7)):
        write_run(
            tmp_path, "a", dataset=dataset, targets=("0", "90"), sources=("15", "30"),
            target=accuracy, source=accuracy + 0.05,
        )  # fmt: skip
    table = only(tables_of(tmp_path, plan="rotated"))
    assert [column.label for column in table.columns] == [
        "rotated-mnist in", "rotated-mnist out", "rotated-fashion-mnist in",
        "rotated-fashion-mnist out",
    ]  # fmt: skip
    assert figures(table)["a", "rotated-mnist in"] == (0.95, None, 1)
    assert figures(table)["a", "rotated-mnist out"] == (0.9, None, 1)
    printed = {column.label: figure.mean for (_, column), figure in table.printed.items()}
    assert printed["rotated-mnist out"] == 93.5
    assert set(table.others) == {"Dou et al. 2019", "Piratla et al. 2020"}


def test_angles_that_are_unseen_one_by_one_do_not_share_a_cell(tmp_path: Path) -> None:
    for target, accuracy in (("0", 0.8), ("90", 0.6)):
        write_run(
            tmp_path, "a", dataset="rotated-mnist", targets=(target,), sources=("15", "30"),
            target=accuracy,
        )  # fmt: skip
    assert figures(only(tables_of(tmp_path))) == {
        ("a", "0"): (0.8, None, 1), ("a", "90"): (0.6, None, 1), ("a", "mean"): (0.7, None, 1),
    }  # fmt: skip


def test_the_papers_figures_stand_beside_ours_in_its_order(tmp_path: Path) -> None:
    for domain in PACS:
        write_run(tmp_path, "j", targets=(domain,))
    table = only(tables_of(tmp_path, plan="ablation"))
    assert [c.label for c in table.columns] == ["photo", "art_painting", "cartoon", "sketch",
                                                "mean"]  # fmt: skip
    assert [table.printed[table.lines[0], c].mean for c in table.columns] == [
        95.97, 83.92, 81.61, 80.31, 85.45,
    ]  # fmt: skip
    assert table.ticks == ("psi", "phi")
    write_run(tmp_path / "other", "j", target={"accuracy": 0.5, "nll": 1.0})
    losses = only(tables_of(tmp_path / "other", plan="ablation", metrics=["nll"]))
    assert losses.printed == {}  # print has accuracies only


def test_a_mean_over_two_domains_is_not_shown_beside_one_over_four(tmp_path: Path) -> None:
    write_two_by_two(tmp_path)
    names = {column.label for _, column in only(tables_of(tmp_path)).printed}
    assert names == {"photo", "art_painting"}


def test_a_rule_that_peeks_marks_its_table(tmp_path: Path) -> None:
    steps = [
        step_record(5, source_val={"cartoon": 0.5}, target_test={"photo": 0.8}),
        step_record(10, source_val={"cartoon": 0.6}, target_test={"photo": 0.5}, best=True),
    ]
    write_run(tmp_path, steps=steps)
    assert list(figures(only(tables_of(tmp_path))).values()) == [(0.5, None, 1)]
    table = only(tables_of(tmp_path, selection="oracle"))
    assert list(figures(table).values()) == [(0.8, None, 1)]
    assert "PEEKED" in table.title
    assert footnotes(table)[0].startswith("PEEKED (oracle): the target's test labels")
    leaking = only(tables_of(tmp_path, selection="released-code"))
    assert "not watched" in leaking.missing[0]


def test_several_metrics_are_columns(tmp_path: Path) -> None:
    for domain, seed in ((d, s) for d in TWO for s in (0, 1)):
        found = [
            DetectionRecord("pacs", "erm", "default", seed, "source-val", 10, domain, 0, "domain",
                            score, 5, 5, {"auroc": value})
            for score, value in (("entropy", 0.6), ("density", 0.9))
        ]  # fmt: skip
        metrics = {"accuracy": 0.5 + 0.1 * seed, "nll": 1.0}
        write_run(tmp_path, seed=seed, targets=(domain,), target=metrics, extra=found)
    names = ["accuracy", "nll", "domain_auroc", "domain_auroc:density"]
    table = only(tables_of(tmp_path, metrics=names))
    assert figures(table) == {
        ("erm", "accuracy %"): (0.55, 0.1 / 2**0.5, 2),
        ("erm", "NLL"): (1.0, 0.0, 2),
        ("erm", "domain AUROC %"): (0.6, 0.0, 2),
        ("erm", "domain AUROC % by density"): (0.9, 0.0, 2),
    }
    assert {column.target for column in table.columns} == {"mean"}


def test_several_metrics_may_show_each_unseen_domain(tmp_path: Path) -> None:
    """A table per metric is the table of that metric; in JSON a cell each, means among them."""
    losses = {"photo": 1.0, "sketch": 3.0}
    for domain, nll in losses.items():
        for seed in (0, 1):
            metrics = {"accuracy": 0.5 + 0.1 * seed, "nll": nll}
            write_run(tmp_path, seed=seed, targets=(domain,), target=metrics)
    found, _ = tables_of(tmp_path, metrics=["accuracy", "nll"], each_target=True)
    assert [figures(table) for table in found] == [
        figures(only(tables_of(tmp_path, metrics=[metric]))) for metric in ("accuracy", "nll")
    ]
    cells = [(c["target"], c["metric"], c["mean"]) for c in json.loads(as_json(found))]
    assert cells[3:] == [("photo", "nll", 1.0), ("sketch", "nll", 3.0), ("mean", "nll", 2.0)]


def plan_json(folder: Path, jobs: list[dict[str, object]], name: str = "mine") -> None:
    folder.mkdir(exist_ok=True)
    content = {"format": 1, "plans": {name: {"plan": {}, "jobs": jobs}}}
    (folder / "plan.json").write_text(json.dumps(content))


def job(run: str, target: str = "photo", **values: object) -> dict[str, object]:
    return {
        "run": run, "dataset": "pacs", "targets": [target], "method": "erm", "variant": "",
        "seed": 0, "measures": "accuracy", "test_draws": [],
        "settings": {"method": values.get("method", "erm")}, **values,
    }  # fmt: skip


def test_of_two_copies_of_a_planned_run_that_of_the_bench_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", target=0.6)
    write_run(tmp_path / "a-copy", target=0.7)
    write_run(tmp_path / "the-copy", target=0.8)
    plan_json(tmp_path, [job(run.path.name)])
    assert list(figures(only(tables_of(tmp_path))).values()) == [(0.6, None, 1)]


@pytest.mark.parametrize("test_draws", [[], [0]])
def test_the_comparison_of_uncertainties_has_a_column_of_times_where_they_were_taken(
    tmp_path: Path, test_draws: list[int]
) -> None:
    run = write_run(tmp_path / "runs", target={"accuracy": 0.5, "nll": 1.0})
    plan_json(tmp_path, [job(run.path.name, test_draws=test_draws)], "uncertainty")
    columns = [column.metric for column in only(tables_of(tmp_path)).columns]
    assert columns[:4] == ["accuracy", "nll", "ece", "aurc"]
    assert ("milliseconds" in columns) == bool(test_draws)


def test_a_plan_knows_what_is_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", "bil")
    plan_json(tmp_path, [job(run.path.name), job("not-begun", "sketch")])
    (table,), notes = tables_of(tmp_path)
    assert table.missing == ("erm, sketch: seed 0: no run",)
    assert [line.method for line in table.lines] == ["erm"]
    assert notes[0].startswith("1 more runs are in no plan")
    with pytest.raises(UsageError, match="unknown plan 'mime'.*did you mean 'mine'"):
        tables_of(tmp_path, plan="mime")


def test_variants_stand_in_columns_a_table_for_each_setting(tmp_path: Path) -> None:
    jobs = []
    for variant, value in (("pi 0.1", 0.1), ("pi 0.5", 0.5), ("lambda_psi 1", None)):
        settings = {} if value is None else {"model.pi": value}
        accuracy = 0.6 + (value or 0.0)
        run = write_run(tmp_path / "runs", "j", settings=settings, target=accuracy)
        jobs.append(job(run.path.name, method="j", variant=variant))
    plan_json(tmp_path, jobs)
    (pi, psi), _ = tables_of(tmp_path)
    assert [column.label for column in pi.columns] == ["pi 0.1", "pi 0.5"]
    assert [column.label for column in psi.columns] == ["lambda_psi 1"]
    assert figures(pi)["j unseen", "pi 0.1"] == (0.7, None, 1)
    assert figures(pi)["j source validation", "pi 0.5"] == (0.9, None, 1)


def test_variants_of_two_data_sets_have_a_table_each(tmp_path: Path) -> None:
    jobs = []
    for dataset, accuracy in (("pacs", 0.6), ("office-home", 0.8)):
        run = write_run(tmp_path / "runs", "j", dataset=dataset, target=accuracy)
        jobs += [
            job(run.path.name, method="j", dataset=dataset, variant=variant)
            for variant in ("pi 0.5", "pi 0.9")
        ]
    plan_json(tmp_path, jobs)
    tables, _ = tables_of(tmp_path)
    assert [figures(table)["j unseen", "pi 0.5"] for table in tables] == [
        (0.6, None, 1),
        (0.8, None, 1),
    ]


def test_variants_whose_names_are_words_stand_in_one_table(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "j")
    names = ["no prior", "with a prior", "wide"]
    plan_json(tmp_path, [job(run.path.name, method="j", variant=name) for name in names])
    table = only(tables_of(tmp_path))
    assert [column.label for column in table.columns] == names


def test_the_papers_optimum_stands_below_its_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "j")
    variants = ["lambda_phi 1", "lambda_psi 100", "pi 0.5"]
    jobs = [job(run.path.name, method="j", variant=name) for name in variants]
    plan_json(tmp_path, jobs, "sensitivity")
    tables, _ = tables_of(tmp_path)
    for table, name in zip(tables, variants, strict=True):
        optimum = name.replace(" ", " = ")
        assert f"in print: Figure C.2 has its best at {optimum}" in table.notes


@pytest.mark.parametrize(("method", "answers"), [("j", 7), ("ensemble", 5), ("erm", 0)])
def test_an_image_takes_as_long_as_under_the_draws_of_the_settings(
    tmp_path: Path, method: str, answers: int
) -> None:
    """An ensemble answers with its members, however many draws are asked for."""
    settings = {"prediction.draws": 7}
    run = write_run(tmp_path / "runs", method, settings=settings, target=None)
    about = ("pacs", method, "default", 0, "source-val", 10, "photo", "target", "test", 10, 0)
    write_records(
        run.path / "records.jsonl",
        [*run.records, ResultRecord(*about, answers, {"accuracy": 0.5})],  # type: ignore[arg-type]
    )
    asked = 0 if method == "erm" else 7
    test = {"draws": asked, "domain": "photo", "num_images": 10, "seconds": 0.2, "metrics": {}}
    (run.path / "draws.json").write_text(json.dumps({"tests": [test]}))
    table = only(tables_of(tmp_path, metrics=["accuracy", "milliseconds"]))
    assert figures(table) == {
        (method, "accuracy %"): (0.5, None, 1), (method, "ms an image"): (20.0, None, 1),
    }  # fmt: skip


def test_draws_stand_in_columns_a_table_for_each_metric(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "j")
    tests = [
        {"draws": n, "domain": "photo", "num_images": 10, "seconds": 0.01 * (n + 1),
         "metrics": {"accuracy": 0.5 + n / 100, "ece": 0.1}}
        for n in (0, 10)
    ]  # fmt: skip
    (run.path / "draws.json").write_text(json.dumps({"tests": tests}))
    plan_json(tmp_path, [job(run.path.name, method="j", test_draws=[0, 10, 20])])
    (accuracy, ece, time), _ = tables_of(tmp_path)
    for table in (accuracy, ece, time):
        assert [c.label for c in table.columns] == ["mean weights", "10 draws", "20 draws"]
    assert figures(accuracy) == {
        ("j", "mean weights"): (0.5, None, 1),
        ("j", "10 draws"): (0.6, None, 1),
    }
    assert figures(ece)["j", "10 draws"] == (0.1, None, 1)
    assert figures(time)["j", "10 draws"] == (11.0, None, 1)
    assert accuracy.missing == ("j, 20 draws: seed 0: not tested with 20 draws",)
    assert time.missing == ("j, 20 draws: seed 0: not timed",)
    assert time.title == "mine, pacs, ms an image"


def test_costs_stand_beside_the_papers(tmp_path: Path) -> None:
    measured = {
        "plain": {"layers": 0, "parameters": 11_000_000, "multiply_adds": 1_800_000_000},
        "three": {
            "layers": 3, "parameters": 12_060_000, "multiply_adds": 1_832_000_000,
            "saved_bytes": 2**30, "peak_bytes": None, "seconds": 0.5, "problem": "",
        },
    }  # fmt: skip
    for name, found in measured.items():
        (tmp_path / "costs" / name).mkdir(parents=True)
        (tmp_path / "costs" / name / "cost.json").write_text(json.dumps(found))
    jobs = [
        job("plain", method="c", measures="cost"),
        job("three", method="j-deep-invariant", variant="product 20", measures="cost"),
        job("absent", method="j", variant="paired 20", measures="cost"),
    ]
    plan_json(tmp_path, jobs, "cost")
    table = only(tables_of(tmp_path))
    found = {(line.what, column.metric): cell.mean for (line, column), cell in table.cells.items()}
    assert found["product 20", "extra_parameters"] == pytest.approx(1.06)
    assert found["product 20", "extra_multiply_adds"] == pytest.approx(32)
    assert found["product 20", "saved_gib"] == 1
    printed = {(line.what, c.metric): p for (line, c), p in table.printed.items()}
    assert printed["product 20", "extra_multiply_adds"].mean == 138.77
    assert table.missing == ("j paired 20: not measured",)


def test_costs_on_two_data_sets_have_a_table_each(tmp_path: Path) -> None:
    """More classes take more parameters."""
    jobs = []
    for dataset, num in (("pacs", 1_060_000), ("office-home", 2_000_000)):
        for method, layers in (("c", 0), ("j", num)):
            name = f"{dataset}-{method}"
            found = {"layers": bool(layers), "parameters": 11_000_000 + layers}
            (tmp_path / "costs" / name).mkdir(parents=True)
            (tmp_path / "costs" / name / "cost.json").write_text(json.dumps(found))
            jobs.append(job(name, method=method, dataset=dataset, measures="cost"))
    plan_json(tmp_path, jobs, "cost")
    extra = [
        (table.title, cell.mean)
        for table in tables_of(tmp_path)[0]
        for (line, column), cell in table.cells.items()
        if line.method == "j" and column.metric == "extra_parameters"
    ]
    assert extra == [
        ("cost, pacs, one training step", pytest.approx(1.06)),
        ("cost, office-home, one training step", pytest.approx(2.0)),
    ]


def test_folders_that_cannot_be_read_are_named_and_the_others_shown(tmp_path: Path) -> None:
    write_run(tmp_path)
    damaged = write_run(tmp_path, "bil").path
    (damaged / "run.json").write_text("{")
    (tmp_path / "notes").mkdir()
    (table,), notes = tables_of(tmp_path)
    assert [line.method for line in table.lines] == ["erm"]
    assert len(notes) == 1
    assert str(damaged / "run.json") in notes[0]


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoredRunError, match="holds no run"):
        tables_of(tmp_path)
    with pytest.raises(StoredRunError, match="no folder at"):
        tables_of(tmp_path / "nowhere")


def test_settings_chosen_by_left_out_sources_are_the_ones_reported(tmp_path: Path) -> None:
    sources = [name for name in PACS if name != "sketch"]
    for rate, left_out, unseen in ((0.01, 0.8, 0.1), (0.1, 0.6, 0.9)):
        rates = {"training.learning_rate": rate}
        write_run(tmp_path, targets=("sketch",), target=unseen, settings=rates)
        for name in sources:
            write_run(
                tmp_path, targets=(name,), sources=[s for s in sources if s != name],
                target=left_out, settings={**rates, "data.exclude": ["sketch"]},
            )  # fmt: skip
    with pytest.raises(UsageError, match="would mix settings"):
        tables_of(tmp_path)
    table = only(tables_of(tmp_path, selection="leave-one-source-out"))
    assert figures(table) == {("erm", "sketch"): (0.1, None, 1)}


def test_results_with_other_statistics_have_tables_of_their_own_and_change_no_other(
    tmp_path: Path,
) -> None:
    plain = {"accuracy": 0.5, "nll": 1.0}
    for out in ("without", "with"):
        run = write_run(tmp_path / out, "bil", target=plain, source=0.6)
        detection = DetectionRecord(
            "pacs", "bil", "default", 0, "source-val", 10, "photo", 50, "domain", "entropy", 5, 5,
            {"auroc": 0.7},
        )  # fmt: skip
        records = [*run.records, detection]
        if out == "with":
            records += [
                replace(record, statistics=name, metrics={**record.metrics, key: value})
                for record in (*run.results, detection)
                for name, key, value in (
                    ("own", "accuracy", 0.9), ("sources", "accuracy", 0.8), ("own", "auroc", 0.1)
                )
                if key in record.metrics
            ]  # fmt: skip
            # Nothing else is known with more draws.
            records.append(replace(run.results[0], statistics="own", draws=999))
        write_records(run.path / "records.jsonl", records)
    metrics = ["accuracy", "nll", "domain_auroc"]
    for selection in ("source-val", "last", "leave-one-source-out"):
        without, with_ = (
            tables_of(tmp_path / out, "pacs", selection, metrics) for out in ("without", "with")
        )
        assert with_ == without
    ordinary = only(tables_of(tmp_path / "with", "pacs"))
    assert figures(ordinary)["bil", "photo"] == (0.5, None, 1)
    assert (ordinary.statistics, "TRANSDUCTIVE" in ordinary.title) == ("trained", False)
    assert ordinary.printed
    own = only(tables_of(tmp_path / "with", "pacs", statistics="own"))
    assert figures(own)["bil", "photo"] == (0.9, None, 1)
    assert own.title == "pacs, pacs, accuracy %, TRANSDUCTIVE (own)"
    assert "TRANSDUCTIVE" in footnotes(own)[0]
    # What is in print is ordinary.
    assert (own.printed, own.others) == ({}, {})
    shown = only(tables_of(tmp_path / "with", "pacs", metrics=metrics, statistics="own"))
    assert [cell.mean for cell in shown.cells.values()] == [0.9, 1.0, 0.1]
    assert only(tables_of(tmp_path / "with", statistics="sources")).title.endswith(
        "accuracy %, statistics (sources)"
    )


def test_what_was_recorded_along_the_way_is_not_taken_for_transductive(tmp_path: Path) -> None:
    watched = step_record(10, source_val={"cartoon": 0.9}, target_test={"photo": 0.8}, best=True)
    write_run(tmp_path, steps=[watched])
    assert figures(only(tables_of(tmp_path)))["erm", "photo"] == (0.5, None, 1)
    (table,), notes = tables_of(tmp_path, statistics="own")
    assert table.cells == {}
    assert table.missing == ("erm, photo: seed 0: not evaluated with own statistics at step 10",)
    way = "bayesdg evaluate RUN --statistics own"
    assert notes == [f"no run here was evaluated with own statistics; {way} does it"]


def test_no_torch_is_imported_for_a_table(tmp_path: Path) -> None:
    write_run(tmp_path)
    program = (
        "import sys; from bayesdg.cli import main; code = main(['table', sys.argv[1]]); "
        "main(['verify', sys.argv[1]]); sys.exit('torch' in sys.modules or code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"50.00" in done.stdout
