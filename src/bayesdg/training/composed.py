"""Methods that are put together from trained runs: a deep ensemble, a Laplace approximation.

The parts are ordinary runs in the same output folder. Those that are there and done are taken as
they are, the others are trained or continued first; so an interrupted ensemble goes on with the
member it was at, and an erm run of the same seed is shared with whoever else needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bayesdg.data import ImageSet, Split
from bayesdg.data.contents import contents
from bayesdg.errors import NumericError, UsageError
from bayesdg.extras import need
from bayesdg.methods.laplace import fit_laplace
from bayesdg.methods.learner import Ensemble, LastLayers, Learner
from bayesdg.records import NoteRecord, Record, StartRecord, StepRecord, mean_accuracy
from bayesdg.settings import Settings
from bayesdg.stages import ModelSettings
from bayesdg.training.about import Task, is_finished
from bayesdg.training.engine import Engine
from bayesdg.training.folder import RunFolder
from bayesdg.training.judge import validate
from bayesdg.training.run import Run, empty_learner, load_run
from bayesdg.training.signals import Signals


def parts_of(settings: Settings) -> list[Settings]:
    """The settings of the runs that a composed method is made of; those of that method alone.

    An ensemble of M members and seed s has the seeds M s, M s + 1, ... M s + M - 1, so that no two
    ensembles share one; the others have the seed of the whole.
    """
    method, seed, num = settings.row.made_of, settings.seed, settings.model.members
    if method is None:
        return []
    seeds = [seed]
    if settings.row.uncertainty == "ensemble":
        seeds = list(range(num * seed, num * (seed + 1)))
    plain = ModelSettings()
    # What means nothing to the parts is no part of their settings: who trains one by hand, or for
    # another ensemble, gets the same run.
    common = {
        "method": method,
        "model.members": plain.members,
        "model.dropout": plain.dropout,
    }
    return [settings.replace({**common, "seed": seed}) for seed in seeds]


def compose(
    settings: Settings,
    task: Task,
    split: Split,
    path: Path | None,
    train_part: Callable[[Settings, Signals | None], Run],
    start: Callable[[Engine], StartRecord],
    on_record: Callable[[Record], None],
    signals: Signals | None,
) -> Run:
    """The parts, trained where they are not, and what is made of them; kept in `path`.

    Args:
        settings: Of the composed method.
        task: What it is trained on.
        split: Of which the source domains are looked at.
        path: Folder of the run; nothing is written without it.
        train_part: Trains, continues or loads a part.
        start: Makes the first record.
        on_record: Is handed each record, those of the parts too.
        signals: That are heard already; with a folder they are heard here otherwise.
    """
    if settings.engine.processes > 1:
        raise UsageError(
            f"{settings.method} is put together by one process; runs of {settings.row.made_of} "
            "that several have trained in the same folder are taken as they are"
        )
    if settings.row.uncertainty == "laplace":
        need("laplace", "laplace")
    with ExitStack() as stack:
        if path is not None:
            if is_finished(path):
                return load_run(path, settings.engine.device)
            if signals is None:
                signals = stack.enter_context(Signals().heard())
            folder = stack.enter_context(RunFolder.open(path, 1, on_record))
            folder.begin(settings, task, contents(split.sources))
        trained = []
        plans = parts_of(settings)
        for number, plan in enumerate(plans, start=1):
            which = f"part {number} of {len(plans)}: {plan.method} seed {plan.seed}"
            on_record(NoteRecord(0, which))
            trained.append(train_part(plan, signals))
            if signals is not None and path is not None:
                signals.can_wait = True  # the parts that are done are saved
                _leave_if_asked(signals)
        # Not before: a part has an engine of its own.
        engine = stack.enter_context(Engine(settings))
        records: list[Record] = [start(engine)]
        learner = empty_learner(settings, task).to(engine.device)
        parts = [run.learner for run in trained]
        train = {name: domain.train for name, domain in split.sources.items()}
        note = assembled(learner, parts, train)
        if note:
            records.append(NoteRecord(settings.training.steps, note))
        val = {name: domain.val for name, domain in split.sources.items()}
        records.append(_judged(settings, learner, trained, val))
        if signals is not None and path is not None:
            _leave_if_asked(signals)
            signals.can_wait = False
        for record in records:
            on_record(record)
        run = Run(settings, task, learner, records)
        if path is not None:
            run.save(path)
        return replace(run, path=path)


def assembled(learner: Learner, parts: Sequence[Learner], train: Mapping[str, ImageSet]) -> str:
    """Fill a learner from its trained parts, in place; returns what a person should know of it."""
    if isinstance(learner, Ensemble):
        for member, part in zip(learner.members, parts, strict=True):
            member.load_state_dict(part.state_dict())
        return ""
    assert isinstance(learner, LastLayers)
    (part,) = parts
    # All but the covariance, which the part does not have.
    learner.load_state_dict(part.state_dict(), strict=False)
    precision = fit_laplace(learner, train)
    return f"prior precision of psi by marginal likelihood: {precision:.4g}"


def _judged(
    settings: Settings, learner: Learner, parts: Sequence[Run], val: Mapping[str, ImageSet]
) -> StepRecord:
    """What would be the last step of a run that is trained at once."""
    found = validate(learner, val, settings.prediction.draws)
    if mean_accuracy(found) is None:
        raise NumericError("source validation gave no number: there is nothing to keep")
    last = [[r for r in run.records if isinstance(r, StepRecord)][-1] for run in parts]
    return StepRecord(
        step=settings.training.steps,
        seconds=sum(record.seconds for record in last),
        terms={},
        loss=None,
        learning_rate=last[0].learning_rate,
        gradient=None,
        skipped=sum(record.skipped for record in last),
        source_val=found,
        best=True,
        health=learner.health(),
    )


def _leave_if_asked(signals: Signals) -> None:
    if signals.requested:
        raise signals.error("everything is saved; the same command goes on")
