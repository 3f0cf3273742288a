"""What can go wrong, as the person at the keyboard sees it: one line and an exit code.

0 fine, 1 anything else, 2 usage or settings, 3 data, 4 numbers, 5 disk or memory, 6 stored run
unusable, 7 folder in use, 75 asked to leave and can go on later, 130 Ctrl-C.
"""

from __future__ import annotations


class BayesdgError(Exception):
    """Base of every error that is reported as one line instead of a traceback."""

    exit_code = 1


class UsageError(BayesdgError):
    """A name, an option or a setting that does not exist or does not fit."""

    exit_code = 2


class DataError(BayesdgError):
    """Images, labels or domains that cannot be trained on."""

    exit_code = 3


class NumericError(BayesdgError):
    """A loss that is no longer a number."""

    exit_code = 4


class ResourceError(BayesdgError):
    """A disk or a memory that is too small."""

    exit_code = 5


class StoredRunError(BayesdgError):
    """A run folder or a weights file that is damaged or incomplete."""

    exit_code = 6


class FolderInUseError(BayesdgError):
    """Another process works in the run folder."""

    exit_code = 7


class ProcessLostError(BayesdgError):
    """Another process of the same run is gone."""


class InterruptedRunError(BayesdgError):
    """A signal asked the run to leave; the same command goes on later."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
