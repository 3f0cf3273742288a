"""From data and settings to a trained run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import torch

from bayesdg.data import Domain, DomainDataset, ImageSet, Split
from bayesdg.data.contents import contents
from bayesdg.data.known import expanded
from bayesdg.errors import UsageError
from bayesdg.extras import need
from bayesdg.methods.learner import build_learner
from bayesdg.records import Record, StartRecord
from bayesdg.settings import Settings
from bayesdg.training import checkpoint
from bayesdg.training.about import CHECKPOINTS, Task, is_finished, now, run_name, versions
from bayesdg.training.composed import compose
from bayesdg.training.engine import Engine, device_name, explained
from bayesdg.training.folder import RunFolder
from bayesdg.training.judge import Judge
from bayesdg.training.keeper import Keeper, Memory, Silent
from bayesdg.training.loop import fit
from bayesdg.training.run import Run, load_run
from bayesdg.training.signals import Signals
from bayesdg.training.state import TrainingState
from bayesdg.training.tensorboard import mirrored


def train(
    dataset: DomainDataset,
    settings: Settings,
    targets: Iterable[str] | None = None,
    out: Path | str | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
    signals: Signals | None = None,
) -> Run:
    """Train on the source domains, or go on where an earlier call stopped.

    Targets are not touched before the weights are chosen, and afterwards only if
    settings.training.evaluate_target asks for it; `Run.evaluate` does it at any time.

    Args:
        dataset: Where images come from.
        settings: From `preset`, perhaps changed.
        targets: Unseen domains; the data set's own by default.
        out: Folder in which the run gets a folder of its own, named by data, targets, method,
            seed and a hash of the settings. A run that is there is continued, or returned if it
            is done. Nothing is written without it.
        on_record: Is handed each record, for a progress bar.
        signals: That are heard already; with a folder they are heard here otherwise.
    """
    _check_size(dataset, settings)
    split = dataset.split(targets)
    task = _task(dataset, split)
    looking = settings.training.evaluate_target
    name = run_name(dataset.name, task.targets, settings)
    path = None if out is None else expanded(out) / name
    if settings.row.made_of is not None:
        run = compose(
            settings, task, split, path,
            lambda part, heard: train(dataset, part, task.targets, out, on_record, heard),
            lambda engine: _start_record(engine, settings, 0),
            on_record, signals,
        )  # fmt: skip
        return _evaluated(run, dataset, looking != "never")
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(settings))
        if path is None:
            signals = Signals()
        elif signals is None:
            signals = stack.enter_context(Signals().heard())
        # Before there is a folder: what cannot be built leaves none behind.
        if settings.engine.tensorboard:
            need("viz", "tensorboard")
        state = None if _is_done(engine, path) else _fresh_state(dataset, settings, task, engine)
        keeper: Keeper = Memory(on_record) if engine.is_first else Silent()
        if path is not None:
            if engine.is_first:
                opened = RunFolder.open(path, settings.engine.checkpoints, on_record)
                keeper = stack.enter_context(opened)
                opened.begin(settings, task, contents(split.sources))
            if state is None or _is_done(engine, path):
                done = load_run(path, str(engine.device))
                return _evaluated(done, dataset, looking != "never" and engine.is_first)
        assert state is not None, "nothing is done before without a folder"
        if path is not None:
            keeper.resume(state)
            _follow_first_rank(engine, state, path)
            signals.can_wait = True
        if settings.engine.tensorboard and path is not None and engine.is_first:
            keeper.watch = stack.enter_context(mirrored(keeper.watch, path, state.progress.step))
        keeper.start(_start_record(engine, settings, state.progress.step))
        watch = looking == "along"
        held_out = {name: d for name, d in split.sources.items() if d.held_out_test}
        judge = Judge(
            {name: domain.val for name, domain in split.sources.items()},
            settings.prediction.draws,
            keeper,
            leave=lambda: signals.requested,
            watched=_watched(split.targets, "test", task) if watch else {},
            watched_val=_watched(split.targets, "val", task) if watch else {},
            watched_sources=_watched(held_out, "test", task) if watch else {},
        )
        with torch.random.fork_rng([engine.device] if engine.device.type == "cuda" else []):
            try:
                fit(
                    state, split.sources, settings, engine, judge, keeper, signals,
                    dataset.augmentation,
                )  # fmt: skip
            except RuntimeError as error:
                raise explained(error, settings, engine.device) from error
        signals.can_wait = False
        if engine.is_first:
            keeper.select(state)
        run = Run(settings, task, state.learner, keeper.records, path)
        return _evaluated(run, dataset, looking != "never" and engine.is_first)


def _is_done(engine: Engine, path: Path | None) -> bool:
    """Whether the run was trained to its end; the first rank looks and tells the others."""
    return engine.any(path is not None and engine.is_first and is_finished(path))


def _check_size(dataset: DomainDataset, settings: Settings) -> None:
    """Settings that speak of other images than those at hand would be written beside a lie."""
    wanted, found = settings.data.image_size, dataset.image_shape[-1]
    if wanted not in (None, found):
        raise UsageError(
            f"data.image_size is {wanted}, but {dataset.name} was loaded with {found} pixels; give "
            "the settings to both: load_dataset(..., data=settings.data)"
        )


def _evaluated(run: Run, dataset: DomainDataset, wanted: bool) -> Run:
    if not wanted or run.results:
        return run
    run.evaluate(dataset)
    return run


def _task(dataset: DomainDataset, split: Split) -> Task:
    labels = torch.cat([domain.train.labels for domain in split.sources.values()])
    return Task(
        dataset=dataset.name,
        place=dataset.place,
        classes=dataset.classes,
        known_classes=tuple(labels.unique().tolist()),
        image_shape=dataset.image_shape,
        sources=tuple(split.sources),
        targets=tuple(split.targets),
        skipped=dataset.skipped,
        notes=dataset.notes,
    )


def _watched(
    domains: Mapping[str, Domain], part: Literal["val", "test"], task: Task
) -> dict[str, ImageSet]:
    """What is looked at along the way: a part of each domain, if there are images in it."""
    parts: dict[str, ImageSet] = {name: getattr(d, part) for name, d in domains.items()}
    known = {name: images.of_classes(task.known_classes) for name, images in parts.items()}
    return {name: images for name, images in known.items() if len(images)}


def _fresh_state(
    dataset: DomainDataset, settings: Settings, task: Task, engine: Engine
) -> TrainingState:
    learner = build_learner(
        settings,
        len(dataset.classes),
        dataset.image_shape[0],
        dataset.mean,
        dataset.std,
        num_sources=len(task.sources),
    ).to(engine.device)
    state = TrainingState(learner, settings.training)
    engine.prepare(learner)
    return state


def _follow_first_rank(engine: Engine, state: TrainingState, path: Path) -> None:
    """Load on every rank what the first one has found."""
    step = torch.tensor(state.progress.step * engine.is_first, device=engine.device)
    found = int(engine.ranks.sum(step))
    if found and not engine.is_first:
        where = path / CHECKPOINTS / checkpoint.NAME.format(found)
        state.load(checkpoint.read_checkpoint(where), str(where))


def _start_record(engine: Engine, settings: Settings, step: int) -> StartRecord:
    return StartRecord(
        step=step,
        time=now(),
        versions=versions(),
        device=device_name(engine.device),
        processes=engine.ranks.size,
        threads=torch.get_num_threads(),
        precision=settings.training.precision,
        compile=settings.engine.compile,
    )
