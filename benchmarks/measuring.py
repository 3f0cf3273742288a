"""Time and memory of a piece of work, and what is said about where it was measured."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

# The profiler reports on standard error that it began, and that there is no GPU.
os.environ.setdefault("KINETO_LOG_LEVEL", "9")

import torch

Work = Callable[[], object]


def chosen_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def keep_memory() -> None:
    """Start the program again so that memory once used is kept, as it is on a GPU.

    On Linux large tensors are otherwise fetched from the system page by page each time, which
    takes three times as long as what is computed in them.
    """
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
    if sys.platform == "linux" and not kept.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **kept})


def clock(device: torch.device) -> Callable[[], float]:
    """Seconds: of the wall, or for one thread on a CPU those it was given to compute.

    A CPU is shared with whatever else runs there; what one thread was given does not tell of it.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def milliseconds(
    works: Mapping[str, Work], device: torch.device, seconds: float = 1.0, least: int = 3
) -> dict[str, float]:
    """Median time of each piece of work.

    After a call to warm up they run in turns, so that whatever else the machine does meets all of
    them, until `seconds` are over and each has run `least` times.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    wait(device)
    now, begin, rounds = clock(device), time.perf_counter(), 0
    while rounds < least or time.perf_counter() - begin < seconds:
        for name, work in works.items():
            start = now()
            work()
            wait(device)
            times[name].append(1e3 * (now() - start))
        rounds += 1
    return {name: statistics.median(values) for name, values in times.items()}


def peak_mebibytes(work: Work, device: torch.device) -> float:
    """The most memory that tensors of this work held at once, its inputs not counted.

    On a GPU the caching allocator knows; on a CPU every allocation of torch is traced.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, profile_memory=True, acc_events=True
    ) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    held = [event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]"]
    return max(held, default=0) / 2**20


def memory_limit(device: torch.device) -> float:
    """MiB that a benchmark may fill: most of what a GPU has free, a quarter of other memory."""
    if device.type == "cuda":
        return 0.8 * torch.cuda.mem_get_info(device)[0] / 2**20
    return 0.25 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20


def about(command: str, device: torch.device) -> dict[str, object]:
    """The head of a results file."""
    cpu = f"{platform.machine()}, {os.cpu_count()} cores"
    on_gpu = device.type == "cuda"
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": torch.cuda.get_device_name(device) if on_gpu else cpu,
        "threads": torch.get_num_threads(),
        "clock": "CPU time" if clock(device) is time.process_time else "wall",
        "torch": torch.__version__,
    }


def write(path: Path, content: Mapping[str, object]) -> None:
    """As JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
