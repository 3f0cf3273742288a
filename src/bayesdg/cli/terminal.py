"""What all commands share: where they print, a bar, a check of an output folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from bayesdg.errors import UsageError

if TYPE_CHECKING:
    from bayesdg.records import StepRecord
    from bayesdg.settings import Settings

# User text may hold ':dog:'; it is shown as it is.
console = Console(emoji=False)
messages = Console(stderr=True, emoji=False)


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
    """A bar with the remaining time per run; plain lines where no terminal listens."""

    def __init__(self, num_runs: int) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.num_runs = num_runs
        self.begun = 0
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"), console=messages, disable=not messages.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> TrainingProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def watch(self, settings: Settings) -> Callable[[StepRecord], None]:
        """Begin a bar for a run and return what moves it."""
        self.begun += 1
        steps = settings.training.steps
        name = f"{settings.method} seed {settings.seed}"
        bar = self._bars.add_task(escape(name), total=steps, note="")

        def advance(record: StepRecord) -> None:
            note = f"loss {record.loss:.2f}"
            if record.source_val is not None:
                mean = sum(record.source_val.values()) / len(record.source_val)
                note += f"  source validation {100 * mean:.1f}%"
                if not messages.is_terminal:
                    messages.print(
                        f"{name}: step {record.step} of {steps}, {note}", highlight=False
                    )
            self._bars.update(bar, completed=record.step, note=note)

        return advance
