"""How long jobs will take, from runs that were done in the same folder. Imports no torch."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from bayesdg.bench.folder import job_path, last_step
from bayesdg.bench.jobs import Job
from bayesdg.errors import BayesdgError
from bayesdg.methods.rows import METHODS
from bayesdg.settings import Settings
from bayesdg.training.about import is_finished, read_about, read_settings

# What the time of a step depends on most.
Kind = tuple[str, str, int | None, str]


class Estimate:
    """Seconds per training step by data set, backbone, image size and device, and by method.

    A method that no run here had takes as long as the mean of the others, for each run that it is
    made of. Tests at the end are not counted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rates: dict[Kind, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for path in sorted((folder / "runs").glob("*/")):
            if not is_finished(path):
                continue
            try:
                dataset, settings = read_about(path).task.dataset, read_settings(path)
            except BayesdgError:
                continue
            step, seconds = last_step(path)
            if step:
                rates = self._rates[_kind(dataset, settings)]
                rates[settings.method].append(seconds / step)

    def seconds(self, job: Job) -> float | None:
        """Of training that is left; None if nothing alike was done here."""
        rates = self._rates.get(_kind(job.title, job.settings))
        if job.measures == "cost" or not rates:
            return None
        steps = job.settings.training.steps - last_step(job_path(self._folder, job))[0]
        return max(0, steps) * _rate(job.settings, rates)

    def total(self, jobs: Iterable[Job]) -> float | None:
        """Of all jobs, one after another; None if one of them is not known."""
        each = [self.seconds(job) for job in jobs]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None


def _rate(settings: Settings, rates: Mapping[str, list[float]]) -> float:
    """Seconds per step of one method."""
    row, own = settings.row, rates.get(settings.method)
    if own:
        return statistics.mean(own)
    num = settings.model.members if row.uncertainty == "ensemble" else 1
    whole = [rate for name, found in rates.items() if not METHODS[name].made_of for rate in found]
    every = whole or [rate for found in rates.values() for rate in found]
    return num * statistics.mean(rates.get(row.made_of or "") or every)


def _kind(dataset: str, settings: Settings) -> Kind:
    image_size, device = settings.data.image_size, settings.engine.device
    return dataset, settings.model.backbone, image_size, device
