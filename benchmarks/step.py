"""One training iteration against the least it could take: milliseconds, images/s, memory.

    python benchmarks/step.py --json results/speed/step.json

Four things are timed for each case, on as many images:
  floor      ResNet-18 alone on ready-made images: channels last; on a GPU in bf16 and compiled
  ours       the whole iteration of `bayesdg train`, from drawing the episode to recording its
             terms: data, augmentation, last layers, invariance, optimiser; same precision
  reference  the step of the released code, data excluded: 32 bits, two passes, pairs of images,
             every draw with every other (released_step.py)
  erm        the whole iteration of `bayesdg train --method erm`, as ours
A case is N images per class and source domain, draws, Bayesian layers (0 to 3) and how draws
combine. On a CPU the pictures and batches are small. What would take longer than --seconds in
all is not started; run again with --only for the rest, which is added to the file.

    python benchmarks/step.py --profile        where the time of one case goes, and who waits
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from iteration import forget, peak_gib, pictures, repeated_milliseconds, trained_milliseconds
from measuring import about, chosen_device
from released_step import check, released_step
from torch import Tensor, nn

from bayesdg.models.backbones import build_backbone
from bayesdg.presets import preset
from bayesdg.records import Record, StepRecord
from bayesdg.settings import Settings
from bayesdg.stages import ModelSettings

# By the number of Bayesian layers; all are invariant.
METHODS = ("i", "d", "bil", "j-deep-invariant")
CLASSES, SOURCES = 7, 3
HEAD = f"{'case':34}{'floor':>9}{'ours':>9}{'ref':>9}{'erm':>9}{'ours/floor':>12}{'ref/ours':>10}"
HEAD += f"{'images/s':>10}{'GiB':>7}{'erm GiB':>9}"


@dataclass(frozen=True)
class Scale:
    """How large the work is: what the issue of speed is about, or what a CPU can bear."""

    device: torch.device
    size: int
    batch: int
    per_class: tuple[int, ...]
    draws: tuple[int, ...]
    warm_up: int
    steps: int

    @property
    def fast(self) -> bool:
        """Whether bf16 and compiling are of use."""
        return self.device.type == "cuda"


@dataclass(frozen=True)
class Case:
    """One row."""

    per_class: int
    draws: int
    layers: int
    combine: str

    @property
    def name(self) -> str:
        """As in the results."""
        return f"n{self.per_class}-draws{self.draws}-layers{self.layers}-{self.combine}"

    @property
    def computed(self) -> Case:
        """The first case that is the same computation: few layers have no draws to combine."""
        combine = self.combine if self.layers > 1 else "paired"
        return Case(self.per_class, self.draws if self.layers else 0, self.layers, combine)


def scale_of(device: torch.device) -> Scale:
    """Large on a GPU."""
    if device.type == "cuda":
        return Scale(device, 224, 128, (16, 32), (10, 20), warm_up=30, steps=50)
    return Scale(device, 64, 16, (2,), (10,), warm_up=10, steps=20)


def cases(scale: Scale) -> Iterator[Case]:
    """All, the one that matters most first."""
    first = Case(scale.per_class[0], scale.draws[0], 2, "paired")
    yield first
    for values in product(scale.per_class, scale.draws, (2, 3, 1, 0), ("paired", "product")):
        if (case := Case(*values)) != first:
            yield case


def settings_of(case: Case, scale: Scale, method: str) -> Settings:
    """Of a run of `bayesdg train`."""
    changes: dict[str, object] = {
        "model.pretrained": False,
        "model.combine": case.combine,
        "model.draws": max(1, case.draws),
        "episode.batch_size": scale.batch,
        "episode.per_class": case.per_class,
        "training.precision": "bf16" if scale.fast else "32",
        "engine.compile": scale.fast,
        "engine.device": scale.device.type,
        "data.storage": "device",
    }
    return preset("default", method).replace(changes)


def num_images(case: Case, scale: Scale) -> int:
    """Of one iteration."""
    return scale.batch + (SOURCES - 1) * CLASSES * case.per_class


class Measurements:
    """Each computation is measured once, whatever the number of cases it belongs to."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.dataset = pictures(SOURCES, CLASSES, scale.size, per_class=64 if scale.fast else 10)
        self.floor = cache(self._floor)
        self.erm = cache(self._erm)
        self.ours = cache(self._ours)
        self.reference = cache(self._reference)

    def _floor(self, num: int) -> float | str:
        return attempt(self.scale.device, lambda: self._repeated(self._plain_step(num)))[0]

    def _erm(self, per_class: int) -> tuple[float | str, float | None]:
        case = Case(per_class, 0, 0, "paired")
        num = num_images(case, self.scale)
        settings = settings_of(case, self.scale, "erm").replace({"episode.batch_size": num})
        return attempt(self.scale.device, lambda: self._trained(settings))

    def _ours(self, case: Case) -> tuple[float | str, float | None]:
        settings = settings_of(case, self.scale, METHODS[case.layers])
        return attempt(self.scale.device, lambda: self._trained(settings))

    def _reference(self, per_class: int, draws: int, layers: int) -> float | str:
        def work() -> float:
            num = (SOURCES - 1) * CLASSES * per_class
            target, source = (self._images(n) for n in (self.scale.batch, num))
            y_t, y_i = (torch.arange(n, device=self.scale.device) % CLASSES
                        for n in (self.scale.batch, num))  # fmt: skip
            return self._repeated(
                released_step(layers, draws, target, source, y_t, y_i, CLASSES), share=2
            )

        return attempt(self.scale.device, work)[0]

    def _trained(self, settings: Settings) -> float:
        return trained_milliseconds(self.dataset, settings, self.scale.warm_up, self.scale.steps)

    def _repeated(self, step: Callable[[], object], share: int = 1) -> float:
        warm_up, steps = self.scale.warm_up // (2 * share), self.scale.steps // share
        return repeated_milliseconds(step, self.scale.device, warm_up, steps, stretch=5)

    def _images(self, num: int) -> Tensor:
        return torch.randn(num, 3, self.scale.size, self.scale.size, device=self.scale.device)

    def _plain_step(self, num: int) -> Callable[[], object]:
        device, fast = self.scale.device, self.scale.fast
        backbone, width = build_backbone(ModelSettings(pretrained=False), 3)
        network = nn.Sequential(backbone, nn.Linear(width, CLASSES))
        network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if fast:
            network.compile(dynamic=False)
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, fused=fast)
        images = self._images(num).contiguous(memory_format=torch.channels_last)
        labels = torch.arange(num, device=device) % CLASSES

        def step() -> None:
            optimiser.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast):
                loss = nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            optimiser.step()

        return step


def attempt(device: torch.device, work: Callable[[], float]) -> tuple[float | str, float | None]:
    """Milliseconds and GiB, or what went wrong in their place."""
    forget(device)
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        return round(work(), 3), peak_gib(device)
    except Exception as error:
        if "out of memory" not in str(error):
            raise
        return "out of memory", None
    finally:
        torch.backends.cudnn.benchmark = benchmark


def measured(case: Case, measurements: Measurements, about: dict[str, Any]) -> dict[str, Any]:
    """One object of the results."""
    same, scale = case.computed, measurements.scale
    num = num_images(case, scale)
    ours, ours_gib = measurements.ours(same)
    erm, erm_gib = measurements.erm(case.per_class)
    values = {
        "floor_ms": measurements.floor(num),
        "ours_ms": ours,
        "reference_ms": measurements.reference(case.per_class, same.draws, case.layers),
        "erm_ms": erm,
    }
    numbers = {key: value for key, value in values.items() if isinstance(value, float)}
    failed = {key: value for key, value in values.items() if key not in numbers}
    return {
        "case": case.name,
        **{key: numbers.get(key) for key in values},
        "ours_gib": ours_gib,
        "erm_gib": erm_gib,
        "images": num,
        **{
            key.replace("_ms", "_images_per_second"): round(1e3 * num / value)
            for key, value in numbers.items()
        },
        "image_size": scale.size,
        "precision": "bf16" if scale.fast else "32",
        "compiled": scale.fast,
        "failed": failed,
        **about,
    }


def line(row: dict[str, Any]) -> str:
    """Of the table."""

    def number(key: str, width: int, digits: int) -> str:
        value = row.get(key)
        return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"

    def ratio(above: str, below: str, width: int) -> str:
        one, other = row.get(above), row.get(below)
        return f"{'-' if one is None or other is None else f'{one / other:.2f}':>{width}}"

    text = f"{row['case']:34}"
    text += "".join(number(f"{n}_ms", 9, 1) for n in ("floor", "ours", "reference", "erm"))
    text += ratio("ours_ms", "floor_ms", 12) + ratio("reference_ms", "ours_ms", 10)
    text += number("ours_images_per_second", 10, 0)
    text += number("ours_gib", 7, 1) + number("erm_gib", 9, 1)
    return text + "".join(f"  {key}: {value}" for key, value in row["failed"].items())


def profiled(scale: Scale) -> None:
    """Twenty iterations in the steady loop: waits of the host, and what the device does."""
    case = next(cases(scale))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if scale.fast:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=activities, acc_events=True)
    begin = scale.warm_up

    def watch(record: Record) -> None:
        if isinstance(record, StepRecord) and record.step == begin:
            profiler.start()
        if isinstance(record, StepRecord) and record.step == begin + 20:
            profiler.stop()

    dataset = Measurements(scale).dataset
    settings = settings_of(case, scale, METHODS[case.layers])
    trained_milliseconds(dataset, settings, begin, 20, watch)
    events = profiler.key_averages()
    order = "self_cuda_time_total" if scale.fast else "self_cpu_time_total"
    print(events.table(sort_by=order, row_limit=25, max_name_column_width=60))
    waits = {
        event.key: event.count
        for event in events
        if "Synchronize" in event.key or event.key in ("cudaMemcpy", "aten::_local_scalar_dense")
    }
    print(f"{case.name}: waits of the host in 20 steps, 2 of them readings: {waits or 'none'}")


def main() -> None:
    """Print rows as they come; keep them in the file as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of the CPU; fewer where others compute too")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--seconds", type=float, default=440, help="start nothing after these")
    parser.add_argument("--json", type=Path, help="where to write the results, or add to them")
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    arguments = parser.parse_args()
    device, begin = chosen_device(arguments.device), time.monotonic()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    scale = scale_of(device)
    if arguments.profile:
        profiled(scale)
        return
    wanted = [case for case in cases(scale) if arguments.only in case.name]
    if not wanted:
        sys.exit(
            f"no case contains {arguments.only!r}; they are named like {next(cases(scale)).name}"
        )
    check()
    options = [f"--device {device.type}"]
    options += [f"--threads {arguments.threads}"] if arguments.threads else []
    origin = about(" ".join(["python benchmarks/step.py", *options]), device)
    old = (
        json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    )
    rows: dict[str, dict[str, Any]] = {row["case"]: row for row in old}
    measurements = Measurements(scale)
    print(HEAD, flush=True)
    for case in wanted:
        if time.monotonic() - begin > arguments.seconds:
            print(f"{case.name:34}not measured: out of time; --only {case.name}", flush=True)
            continue
        rows[case.name] = measured(case, measurements, origin)
        print(line(rows[case.name]), flush=True)
        if arguments.json:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(list(rows.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
