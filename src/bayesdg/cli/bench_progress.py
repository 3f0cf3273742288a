"""How a bench goes: one bar for all runs and one per running job; plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bayesdg.cli.terminal import messages

if TYPE_CHECKING:
    from rich.progress import TaskID

    from bayesdg.bench.jobs import Job


class BenchProgress:
    """A drive.Watcher for a person. A closed terminal ends no bench."""

    def __init__(self, num: int) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"), TimeRemainingColumn(), TextColumn("left"),
            console=messages, disable=not messages.is_terminal,
        )  # fmt: skip
        self._num, self._done = num, 0
        self._all = self._bars.add_task("all", total=num, unit="runs")
        self._running: dict[str, TaskID | None] = {}
        self._heard = True

    def __enter__(self) -> BenchProgress:
        self._safely(self._bars.start)
        return self

    def __exit__(self, *error: object) -> None:
        self._safely(self._bars.stop)

    def began(self, job: Job) -> None:
        """See drive.Watcher."""
        # Its bar begins with its first step: on a cluster it may wait for long.
        self._running[job.name] = None
        if not messages.is_terminal:
            self._line(f"{job}: begun")

    def at(self, job: Job, step: int) -> None:
        """See drive.Watcher."""
        if step and self._running[job.name] is None:
            self._running[job.name] = self._bars.add_task(
                escape(str(job)), total=job.settings.training.steps, unit="steps"
            )
        task = self._running[job.name]
        if task is not None:
            self._safely(lambda: self._bars.update(task, completed=step))

    def ended(self, job: Job, how: str) -> None:
        """See drive.Watcher."""
        was_running = job.name in self._running
        task = self._running.pop(job.name, None)
        if task is not None:
            self._safely(lambda: self._bars.remove_task(task))
        if not how:
            self._done += 1
            self._safely(lambda: self._bars.update(self._all, completed=self._done))
        if how or (was_running and not messages.is_terminal):
            self._line(f"{job}: {how or f'done, {self._done} of {self._num}'}")

    def _line(self, text: str) -> None:
        self._safely(lambda: messages.print(escape(text), highlight=False, soft_wrap=True))

    def _safely(self, show: Callable[[], object]) -> None:
        if not self._heard:
            return
        try:
            show()
        except (OSError, ValueError):  # a closed file is a ValueError
            self._heard = False
