"""Signals before there is anything to save, and those that are no reason to stop."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.data import DomainDataset
from bayesdg.errors import InterruptedRunError
from bayesdg.records import Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.signals import Signals
from bayesdg.training.train import train

MakeSettings = Callable[..., Settings]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 75), ("SIGUSR1", 75), ("SIGINT", 130)])
def test_15_16_17_before_there_is_something_to_save_a_signal_ends_at_once(
    name: str, code: int
) -> None:
    with (
        pytest.raises(InterruptedRunError, match=f"stopped by {name}, nothing new was saved") as e,
        Signals().heard(),
    ):
        os.kill(os.getpid(), getattr(signal, name))
    assert e.value.exit_code == code


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_15_a_second_signal_leaves_at_once(second: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Signals().heard() as signals:
        signals.can_wait = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.requested
        assert "SIGTERM: saving; once more to leave at once" in capsys.readouterr().err
        with pytest.raises(InterruptedRunError, match=f"stopped by {second}, at once"):
            os.kill(os.getpid(), getattr(signal, second))


@pytest.mark.parametrize("order", [("SIGUSR1", "SIGTERM"), ("SIGTERM", "SIGUSR1", "SIGUSR1")])
def test_15_an_early_word_makes_nobody_leave_at_once(order: tuple[str, ...]) -> None:
    """Slurm says SIGUSR1 long before its SIGTERM, and a scheduler may say both."""
    with Signals().heard() as signals:
        signals.can_wait = True
        for name in order:
            os.kill(os.getpid(), getattr(signal, name))
        assert signals.requested
        with pytest.raises(InterruptedRunError, match="stopped by SIGTERM, at once"):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_32_a_closed_terminal_stops_nothing(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    def hang_up(record: Record) -> None:
        if isinstance(record, StepRecord):
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.getsignal(signal.SIGHUP)
    settings = tiny_settings("bil")
    run = train(tiny_dataset, settings, out=tmp_path, on_record=hang_up)
    steps = [r.step for r in run.records if isinstance(r, StepRecord)]
    assert steps[-1] == settings.training.steps
    assert signal.getsignal(signal.SIGHUP) == before


def test_in_another_thread_signals_are_nobodys_business(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path
) -> None:
    """Python hands signals to the main thread alone; training works without them."""
    done: list[Run] = []
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(
        target=lambda: done.append(train(tiny_dataset, tiny_settings("bil"), out=tmp_path))
    )
    thread.start()
    thread.join()
    assert len(done) == 1
    assert signal.getsignal(signal.SIGTERM) == before
