"""What all commands share: where they print, a bar, a check of an output folder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from bayesdg.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from bayesdg.records import Record, StartRecord, StepRecord
    from bayesdg.settings import Settings


class _Console(Console):
    """Rich's own ends the program where a pipe is closed, as `| head` does."""

    def on_broken_pipe(self) -> None:
        """Output that nobody reads is an error; messages that nobody reads end no work."""
        if not self.stderr:
            raise BrokenPipeError
        go_unheard()


def go_unheard() -> None:
    """Let nowhere be where messages go from here on."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


# User text may hold ':dog:'; it is shown as it is.
console = _Console(emoji=False)
messages = _Console(stderr=True, emoji=False)


def check_folder(folder: Path, option: str = "--out") -> None:
    """Before the work, not after it: can results be written there?"""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"{option} {folder} cannot be written to ({error.strerror}); give another folder"
        ) from None


class TrainingProgress:
    """A bar with speed and remaining time per run; plain lines where no terminal listens.

    Nobody has to listen: a closed terminal or pipe ends no run.
    """

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column

        self.begun = 0
        self._heard = True
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(16), MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"), TimeRemainingColumn(), TextColumn("left"),
            # What does not fit beside the numbers is cut, and not they.
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, ratio=1)),
            console=messages, disable=not messages.is_terminal, expand=True,
        )  # fmt: skip

    def __enter__(self) -> TrainingProgress:
        self._safely(self._bars.start)
        return self

    def __exit__(self, *_: object) -> None:
        self._safely(self._bars.stop)

    def watch(self, settings: Settings, folder: Path | None = None) -> Callable[[Record], None]:
        """What to call with each record of a run; its bar begins with the first.

        A run that begins is told only where somebody says in which folder.
        """
        from bayesdg.records import NoteRecord, StartRecord, StepRecord

        steps = settings.training.steps
        name = f"{settings.method} seed {settings.seed}"
        bar: list[TaskID] = []
        validation = ""

        def advance(record: Record) -> None:
            nonlocal validation
            if isinstance(record, StartRecord):
                self.begun += 1
                bar.append(
                    self._bars.add_task(
                        escape(name), total=steps, completed=record.step, speed="", note=""
                    )
                )
                if record.step or folder:
                    self._line(f"{name}: {start_in_words(record, steps, folder)}")
            elif isinstance(record, NoteRecord):
                self._line(f"{name}: note: {record.text}")
            elif isinstance(record, StepRecord):
                note, speed = terms_in_words(record), speed_in_words(record)
                if record.source_val is not None:
                    accuracy = record.val_accuracy
                    percent = "no number" if accuracy is None else f"{100 * accuracy:.1f}%"
                    validation = f"val {percent}"
                    if not messages.is_terminal:
                        where = f"{name}: step {record.step} of {steps}"
                        self._line(f"{where}, {speed}, {note}, source {validation}")
                for task in bar[-1:]:  # of the part at hand, where a run is made of several
                    self._bars.update(
                        task, completed=record.step, speed=speed, note=f"{validation}  {note}"
                    )

        return lambda record: self._safely(lambda: advance(record))

    def _line(self, text: str) -> None:
        # Rich shows it above the bars.
        messages.print(escape(text), highlight=False, soft_wrap=True)

    def _safely(self, show: Callable[[], object]) -> None:
        if not self._heard:
            return
        try:
            show()
        except (OSError, ValueError):  # a closed file is a ValueError
            self._heard = False
            go_unheard()


def start_in_words(record: StartRecord, steps: int, folder: Path | None) -> str:
    """What begins or goes on, on what, and where."""
    what = f"going on after step {record.step} of {steps}" if record.step else f"{steps} steps"
    on = record.device if record.processes == 1 else f"{record.processes} x {record.device}"
    return f"{what} on {on}" + (f", in {folder}" if folder else "")


def terms_in_words(record: StepRecord) -> str:
    """Loss and terms, shortly.

    >>> from bayesdg.records import StepRecord
    >>> terms_in_words(StepRecord(1, 0.0, {"nll": 0.5, "kl_psi": None}, 1.25, 0.1, 0.0))
    'loss 1.250 (nll 0.5, kl_psi none)'
    """
    if not record.terms:
        return "put together"
    terms = ", ".join(
        f"{name} {'none' if value is None else format(value, '.3g')}"
        for name, value in record.terms.items()
    )
    loss = "none" if record.loss is None else f"{record.loss:.3f}"
    return f"loss {loss} ({terms})"


def speed_in_words(record: StepRecord) -> str:
    """Steps per second, or how long it took where that is not known."""
    if record.steps_per_second is None:
        return f"{record.seconds:.0f} s"
    return f"{record.steps_per_second:.2f} step/s"
