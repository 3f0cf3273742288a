"""Processes that are connected as the ranks of a run are; `run_ranks` starts them and watches."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from bayesdg.ranks import Ranks

TIMEOUT = 120.0
# How long the others may take to tell what they know after one has failed.
SETTLE = 2.0


def run_ranks(
    num: int, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT
) -> list[Any]:
    """What `function(ranks, *args)` returns on each of `num` connected processes.

    The function has to be importable by name, and so lives in a module beside this one. When a
    process fails, all are ended and its traceback is raised here; when one hangs or crashes, what
    is raised says where every process stood.
    """
    context = _context()
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = f"file://{Path(folder, 'meeting-point').as_posix()}"
        readers, processes, last_words = [], [], list[Path]()
        try:
            for rank in range(num):
                reader, writer = context.Pipe(duplex=False)
                last_words.append(Path(folder, f"last-words-{rank}"))
                place = writer, rank, num, meeting_point, last_words[rank], timeout
                process = context.Process(  # type: ignore[attr-defined]
                    target=_rank, args=(*place, function, args), daemon=True
                )
                process.start()
                writer.close()
                readers.append(reader)
                processes.append(process)
            return _collected(readers, last_words, timeout)
        finally:
            for process in processes:
                process.join(SETTLE)
                if process.is_alive():
                    process.kill()
                    process.join()
                process.close()
            for reader in readers:
                reader.close()


def _context() -> BaseContext:
    """Processes are forked off one that has torch already, where the system can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "bayesdg.methods.learner"])
    return context


def _collected(readers: list[Connection], last_words: list[Path], timeout: float) -> list[Any]:
    """The results by rank, or an AssertionError with every traceback there is."""
    results: dict[int, Any] = {}
    failures: dict[int, str] = {}
    waiting = dict(zip(readers, range(len(readers)), strict=True))
    # The processes give up first, and say where they stand.
    deadline = time.monotonic() + timeout + 10
    while waiting and (ready := wait(list(waiting), max(0.0, deadline - time.monotonic()))):
        for reader in ready:
            assert isinstance(reader, Connection)
            rank = waiting.pop(reader)
            try:
                ok, value = pickle.loads(reader.recv_bytes())  # noqa: S301  (our own)
            except EOFError:
                ok, value = False, last_words[rank].read_text() or "ended without a word\n"
            (results if ok else failures)[rank] = value
        if failures:
            deadline = min(deadline, time.monotonic() + SETTLE)
    failures |= dict.fromkeys(waiting.values(), "was still busy\n")
    if failures:
        num = len(readers)
        raise AssertionError(
            "\n".join(f"rank {rank} of {num}: {text}" for rank, text in failures.items())
        )
    return [results[rank] for rank in range(len(readers))]


def _rank(
    writer: Connection,
    rank: int,
    num: int,
    meeting_point: str,
    last_words: Path,
    timeout: float,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    # A file, because a forked process has the standard error of an earlier test.
    file = open(last_words, "w")  # noqa: SIM115  (open to the end)
    faulthandler.enable(file)
    faulthandler.dump_traceback_later(timeout, exit=True, file=file)
    torch.set_num_threads(1)
    try:
        distributed.init_process_group(
            "gloo",
            init_method=meeting_point,
            rank=rank,
            world_size=num,
            # Longer: whoever waits should print where, not fail.
            timeout=timedelta(seconds=2 * timeout),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = function(Ranks(rank, num), *args)
        distributed.barrier()
        distributed.destroy_process_group()
    except BaseException:
        faulthandler.cancel_dump_traceback_later()
        writer.send_bytes(pickle.dumps((False, traceback.format_exc())))
        writer.close()
        os._exit(1)  # without waiting for ranks that wait for this one
    # Plain bytes: a tensor would travel as shared memory that ends with this process.
    writer.send_bytes(pickle.dumps((True, result)))
    writer.close()
