"""Signals that ask a run to leave: it finishes its step, saves and goes.

SIGINT is Ctrl-C; SIGTERM comes from a system that shuts down or takes a machine away; SIGUSR1 from
Slurm, some time before the limit. A closed terminal (SIGHUP) is no reason to stop.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bayesdg.errors import InterruptedRunError

PRE_EMPTED, CTRL_C = 75, 130
NAMES = [name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


class Signals:
    """Hears signals.

    Attributes:
        requested: Whether one asked the run to leave.
        can_wait: Whether there is something to save. Until then a signal ends the program at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self.can_wait = False
        self._num_hasty = 0
        self.name = "a signal to another process"
        self.exit_code = PRE_EMPTED

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Inside, signals are heard; afterwards everything is as it was."""
        if threading.current_thread() is not threading.main_thread():
            yield self  # Python hands signals to the main thread alone
            return
        before: dict[int, Any] = {}
        for name in NAMES:
            number = getattr(signal, name)
            before[number] = signal.signal(number, self._hear)
        if hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self.exit_code = CTRL_C if number == signal.SIGINT else PRE_EMPTED
        # SIGUSR1 comes early and leaves time: beside it, a single SIGTERM is no second wish.
        is_early = self.name == "SIGUSR1"
        self._num_hasty += not is_early
        if not self.can_wait or (self._num_hasty > 1 and not is_early):
            raise self.error("nothing new was saved" if not self.can_wait else "at once")
        if self.requested:
            return
        self.requested = True
        if sys.stderr is not None:
            # Not through a buffered writer: it may be in the middle of a line just now.
            try:
                sys.stderr.write(f"\n{self.name}: saving; once more to leave at once\n")
            except (OSError, RuntimeError, ValueError):
                return

    def error(self, how: str) -> InterruptedRunError:
        """What ends the program."""
        return InterruptedRunError(f"stopped by {self.name}, {how}", self.exit_code)
