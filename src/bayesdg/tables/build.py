"""The tables of a folder of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.evaluate.statistics import STATISTICS, mark
from bayesdg.methods.rows import METHODS, ROWS
from bayesdg.names import choose
from bayesdg.records import TRAINED, results_of
from bayesdg.selection import RULES, Choice, leave_one_source_out
from bayesdg.stored_runs import StoredRun, find_runs
from bayesdg.tables.cost import cost_table
from bayesdg.tables.entries import Entry, found_entries, planned
from bayesdg.tables.layouts import LAYOUTS, MEAN, METRICS, Column, Point, layout_of
from bayesdg.tables.measures import measure
from bayesdg.tables.paper import Printed, other_papers, paper, printed, printed_order
from bayesdg.tables.readings import Reading, read_under
from bayesdg.tables.table import Place, Table, averaged, table_of


def tables_of(
    folder: Path,
    plan: str | None = None,
    selection: str = "source-val",
    metrics: Sequence[str] = (),
    keep: Callable[[StoredRun], bool] = lambda run: True,
    statistics: str = TRAINED,
    each_target: bool = False,
) -> tuple[list[Table], list[str]]:
    """Every table that the runs in a folder make, and what a person should know of the others.

    Args:
        folder: Holds run folders, and a bench's plan.json perhaps.
        plan: Only this one; where there is no plan.json, whose table of the paper to stand beside.
        selection: A rule's name.
        metrics: What is shown; the plan's own without.
        keep: Which runs count.
        statistics: Of batch norm; a table has figures made with these and with no others.
        each_target: Whether several metrics make a table each, with every unseen domain, instead of
            one table of means over them.
    """
    choose("selection", selection, RULES)
    choose("statistics", statistics, STATISTICS)
    for metric in metrics:
        measure(metric)
    runs, notes = find_runs(folder)
    runs = [run for run in runs if keep(run)]
    plans = planned(folder, runs, plan)
    if not plans:
        if plan is not None:
            choose("plan", plan, paper())
        plans = {plan or "": found_entries(runs)}
    choices = leave_one_source_out(runs) if RULES[selection].over_runs else []
    groups = [(metric,) for metric in metrics] if each_target and metrics else [metrics]
    tables = [
        table
        for name, entries in plans.items()
        for shown in groups
        for table in _tables(
            folder,
            name,
            [e for e in entries if not e.inner],
            choices,
            selection,
            shown,
            statistics,
        )
    ]
    if not tables:
        if any(entry.measures == "cost" for entries in plans.values() for entry in entries):
            raise UsageError(
                f"{folder} measures what training costs, which has no statistics of batch norm to "
                f"choose; leave out --statistics {statistics}"
            )
        why = f": {notes[0]}" if notes else "; give a folder that bayesdg has written runs to"
        raise StoredRunError(f"{folder} holds no run that can be read{why}")
    wanted = {entry.name for entries in plans.values() for entry in entries}
    spare = [entry.name for entry in found_entries(runs) if entry.name not in wanted]
    if spare and plan is None:
        notes.append(f"{len(spare)} more runs are in no plan that is shown, such as {spare[0]}")
    if not any(results_of(run.records, statistics) for run in runs) and statistics != TRAINED:
        way = f"bayesdg evaluate RUN --statistics {statistics}"
        notes.append(f"no run here was evaluated with {statistics} statistics; {way} does it")
    found = (choice for choice in choices if choice.runs)
    notes += [f"not compared: {text}" for choice in found for text in choice.missing]
    return tables, notes


def _tables(
    folder: Path,
    plan: str,
    entries: Sequence[Entry],
    choices: Sequence[Choice],
    selection: str,
    metrics: Sequence[str],
    statistics: str,
) -> list[Table]:
    if not entries:
        return []
    asked = metrics or METRICS.get(plan, ())
    is_timed = statistics == TRAINED and any(entry.test_draws for entry in entries)
    if not metrics and not is_timed:
        asked = [metric for metric in asked if metric != "milliseconds"]
    rule = RULES[selection]
    readings = {
        entry.key: Reading(problem="no run")
        if entry.run is None
        else read_under(entry.run, rule, statistics)
        for entry in entries
    }
    winners: list[str] = []
    if rule.over_runs:
        entries, winners = _with_chosen_settings(entries, choices, readings)
    name = layout_of(entries, asked)
    if name == "cost":  # which a step of training has, whatever is evaluated with
        by_dataset: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries if statistics == TRAINED else ():
            by_dataset[entry.dataset].append(entry)
        return [cost_table(folder, plan, those) for those in by_dataset.values()]
    layout = LAYOUTS[name]
    shown = asked or METRICS.get(name, ("accuracy",))
    if len(shown) > 1 and name not in ("metrics", "draws"):
        raise UsageError(f"a table with {name} in columns shows one metric; give one --metric")
    # A variant has the same label on every data set: a table for each.
    by_heading: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for entry in entries:
        for point in layout.points(entry, readings[entry.key], shown):
            apart = point.column.dataset if name == "variants" else ""
            by_heading[layout.heading(point), apart].append(point)
    tables = []
    for (heading, _), points in by_heading.items():
        datasets = " and ".join(dict.fromkeys(p.column.dataset for p in points))
        metrics_here = list(dict.fromkeys(p.column.metric for p in points))
        what = measure(metrics_here[0]).label if len(metrics_here) == 1 else ""
        about = [plan, heading if name == "variants" else "", datasets, what]
        about += [f"{selection} PEEKED" if rule.peeked else "", mark(statistics)]
        title = ", ".join(filter(None, about))
        compare = points
        if layout.mean == "beside":
            compare = averaged(points, MEAN)
            points = _in_printed_order(points) + (compare if compare != points else [])
        elif layout.mean == "instead":
            compare = points = averaged(points)
        columns = list(dict.fromkeys(p.column for p in compare)) if layout.compare else []
        table = table_of(title, selection, points, columns, rule.over_runs)
        annotated = _annotated(replace(table, statistics=statistics), plan, name)
        tables.append(replace(annotated, notes=(*annotated.notes, *winners)))
    return tables


def _with_chosen_settings(
    entries: Sequence[Entry], choices: Sequence[Choice], readings: dict[str, Reading]
) -> tuple[list[Entry], list[str]]:
    """The entries whose settings won, and which these are, a line each.

    Where none could win it is all entries, and the reading says why.
    """
    chosen: set[tuple[object, ...]] = set()
    winners: set[Path] = set()
    for choice in choices:
        winners.update(run.path for run in choice.runs)
        task_of = ((run.task, run.settings) for run in choice.runs)
        chosen.update((t.dataset, t.targets, s.method, s.preset) for t, s in task_of)
    kept = []
    told: dict[str, None] = {}
    for entry in entries:
        about = (entry.dataset, entry.targets, entry.method, entry.preset)
        if about not in chosen:
            why = "not every source domain was left out in a run of its own"
            readings[entry.key] = replace(readings[entry.key], problem=why)
        elif entry.variant if entry.run is None else entry.run.path not in winners:
            continue
        elif entry.variant:
            unseen = " and ".join(entry.targets)
            told[f"chosen for {entry.method} on {entry.dataset}, {unseen}: {entry.variant}"] = None
        kept.append(replace(entry, variant=""))
    return kept, list(told)


def _in_printed_order(points: Sequence[Point]) -> list[Point]:
    """Columns as the paper has them, if it has them all."""
    order = printed_order(points[0].column.dataset)
    if not {p.column.target for p in points} <= set(order):
        return list(points)
    return sorted(points, key=lambda p: order.index(p.column.target))


def _annotated(table: Table, plan: str, layout: str) -> Table:
    """With the paper's figures, and the layers' kinds where the plan compares those."""
    rule = RULES[table.selection]
    methods = [line.method for line in table.lines]
    ticks: tuple[str, ...] = ()
    if plan == "depth":
        ticks = ("phi_prime",)
    elif plan.startswith("ablation") or (not plan and len(set(methods) & set(ROWS)) > 2):
        ticks = ("psi", "phi")
    if not all(method in METHODS for method in methods):
        ticks = ()
    found: dict[Place, Printed] = {}
    sources: dict[str, None] = {}
    names: Mapping[Column, str] = {}
    # What is in print is ordinary, and stands beside nothing else.
    if layout in ("targets", "in-and-out") and table.statistics == TRAINED:
        names = _printed_names(table)
    for line in table.lines:
        for column, name in names.items():
            figure = printed(column.dataset, line.method, name)
            if figure is not None:
                found[line, column] = figure[0]
                sources[figure[1]] = None
    others = {
        other: {
            column: figure[0]
            for column, name in names.items()
            if (figure := printed(column.dataset, other, name)) is not None
        }
        for other in other_papers(plan)
    }
    return replace(
        table,
        ticks=ticks,
        printed=found,
        others={name: row for name, row in others.items() if row},
        notes=(f"chosen by {table.selection}: {rule.about}",)
        + ((f"in print: the paper's {', '.join(sources)}",) if sources else ())
        + (_printed_optimum(table) if (plan, table.statistics) == ("sensitivity", TRAINED) else ()),
        marks=(f"PEEKED ({table.selection}): {rule.peeked}",) if rule.peeked else (),
    )


def _printed_optimum(table: Table) -> tuple[str, ...]:
    """What the paper says of a curve for which it prints no figures."""
    figure = paper()["sensitivity"]
    varied = table.columns[0].label.rpartition(" ")[0]
    return tuple(
        f"in print: {figure['source']} has its best at {varied} = {value['best']:g}"
        for name, value in figure.items()
        if name.rpartition(".")[2] == varied
    )


def _printed_names(table: Table) -> Mapping[Column, str]:
    """How the paper calls the columns; it has accuracies only, and means over all domains."""
    here = {column.target for column in table.columns}
    names: dict[Column, str] = {}
    for column in table.columns:
        if column.metric != "accuracy":
            continue
        if column.dataset.startswith("rotated-"):
            names[column] = "in" if column.target == "in-distribution" else "out"
        elif column.target != MEAN or set(printed_order(column.dataset)) <= here:
            names[column] = column.target
    return names
