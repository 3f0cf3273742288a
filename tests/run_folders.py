"""Run folders that nobody trained, with the figures a test wants."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesdg.presets import preset
from bayesdg.records import Record, ResultRecord, StepRecord, write_records, write_text
from bayesdg.stored_runs import StoredRun, read_run
from bayesdg.training.about import RECORDS, SETTINGS, Task, run_name, write_about

PACS = ("art_painting", "cartoon", "photo", "sketch")


def step_record(step: int, **values: Any) -> StepRecord:
    """A step with nothing but what a test is about; accuracies by domain become metrics."""
    parts = ("source_val", "target_test", "target_val")
    looks = {
        name: {domain: {"accuracy": a, "images": 10} for domain, a in values.pop(name).items()}
        for name in parts
        if name in values
    }
    return StepRecord(step, 1.0, {"nll": 1.0}, 1.0, 0.1, 1.0, **looks, **values)


def write_run(
    out: Path,
    method: str = "erm",
    seed: int = 0,
    dataset: str = "pacs",
    targets: Sequence[str] = ("photo",),
    sources: Sequence[str] | None = None,
    target: Mapping[str, float] | float | None = 0.5,
    source: float | None = None,
    steps: Sequence[StepRecord] | None = None,
    settings: Mapping[str, Any] | None = None,
    extra: Sequence[Record] = (),
) -> StoredRun:
    """A run of 10 steps, tested at the tenth: `target` is its accuracy, or all its metrics."""
    chosen = preset("default", method, seed).replace({"training.steps": 10, **(settings or {})})
    names = tuple(d for d in PACS if d not in targets) if sources is None else tuple(sources)
    task = Task(
        dataset=dataset, classes=("a", "b"), image_shape=(1, 8, 8), sources=names,
        targets=tuple(targets),
    )  # fmt: skip
    records: list[Record] = list(steps or [step_record(10, source_val={names[0]: 0.9}, best=True)])

    def result(domain: str, role: Any, metrics: Mapping[str, float]) -> ResultRecord:
        draws = chosen.prediction.draws if chosen.row.is_bayesian else 0
        return ResultRecord(
            dataset, method, "default", seed, "source-val", 10, domain, role, "test", 10, 0, draws,
            metrics,
        )  # fmt: skip

    if target is not None:
        metrics = {"accuracy": target} if isinstance(target, float) else target
        records += [result(name, "target", metrics) for name in targets]
    if source is not None:
        records += [result(name, "source", {"accuracy": source}) for name in names]
    folder = out / run_name(dataset, targets, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SETTINGS, chosen.model_dump_json() + "\n")
    write_about(folder, chosen, task)
    write_records(folder / RECORDS, [*records, *extra])
    return read_run(folder)
