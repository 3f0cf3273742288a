"""From a run to one file that answers as the run does, or to no file at all.

As the run does: with the temperature of its recalibration, if it has one, and for the draws that
this was fitted for. Thresholds of sets and of rejection are told in the file, for who applies them.

The file is asked about images, random and real, before it gets its name; answers that differ from
the run's by more than TOLERANCE are an error.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesdg import __version__
from bayesdg.errors import NumericError, UsageError
from bayesdg.evaluate.arrays import Floats
from bayesdg.evaluate.predict import Predictions
from bayesdg.export.formats import FORMATS, About, Answers, traced
from bayesdg.export.frozen import OUTPUTS, Frozen
from bayesdg.extras import need
from bayesdg.names import choose
from bayesdg.training.run import Run

TOLERANCE = 1e-4
NUM_RANDOM = 5
# What fits into one ONNX file, with room for the graph.
MOST_BYTES = 2**31 - 2**26


@dataclass(frozen=True)
class Exported:
    """A file that was written and found to be right.

    Attributes:
        path: Of the file.
        draws: In it; 0 for the mean weights.
        num_random: Random images that it was asked about.
        num_real: Real ones.
        largest_difference: To the run's answers, over all outputs and images.
    """

    path: Path
    draws: int
    num_random: int
    num_real: int
    largest_difference: float


def export_run(
    run: Run,
    path: Path | str,
    format: str = "onnx",
    draws: int | None = None,
    real: Tensor | None = None,
) -> Exported:
    """Write a run with a frozen bank of draws; the file is there, verified, or not at all.

    Args:
        run: Trained.
        path: Of the file; its suffix is the format's.
        format: A name in FORMATS.
        draws: In the bank; as in `Run.predict` by default. An ensemble has its members.
        real: (n, C, H, W) images to ask the file about, beside random ones.
    """
    kind, path = choose("format", format, FORMATS), Path(path)
    if path.suffix != kind.suffix:
        raise UsageError(f"{path}: the name of a {format} file ends in {kind.suffix}")
    need("export", *kind.needs)
    draws = run.used_draws(draws, run.recalibration)
    # Where the file will be computed, and where its draws are those of the run.
    run = replace(run, learner=copy.deepcopy(run.learner).cpu())
    temperature = run.recalibration.temperature if run.recalibration else None
    frozen = Frozen(copy.deepcopy(run.learner), draws, temperature)
    _check_size(frozen, draws)
    # Beside its place, so that it can be renamed; torch insists on the suffix.
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind.write(traced(frozen, run.task.image_shape), _about(run, draws), temporary)
        answers = kind.read(temporary)
        chance = torch.Generator().manual_seed(0)
        images = torch.rand(NUM_RANDOM, *run.task.image_shape, generator=chance)
        # One image alone as well: the number of images is no constant of the file.
        batches = [images, images[:1], *([] if real is None else [as_floats(real)])]
        worst = max(_difference(run, answers, batch, draws) for batch in batches)
        if not worst <= TOLERANCE:  # so that NaN is none
            raise NumericError(
                f"the exported file answers otherwise than the run, by up to {worst:.2g} where "
                f"{TOLERANCE:g} is allowed; nothing was written"
            )
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Exported(path, draws, NUM_RANDOM, 0 if real is None else len(real), worst)


def as_floats(images: Tensor) -> Tensor:
    """What the file takes: float32 in 0..1."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _about(run: Run, draws: int) -> About:
    """What a stranger needs to know, kept in the file."""
    return {
        "bayesdg_version": __version__,
        "method": run.settings.method,
        "preset": run.settings.preset,
        "seed": run.settings.seed,
        "dataset": run.task.dataset,
        "sources": list(run.task.sources),
        "targets": list(run.task.targets),
        "classes": list(run.task.classes),
        "image_shape": list(run.task.image_shape),
        "input": "images (n, channels, height, width), float32 in 0..1, not normalised",
        "draws": draws,
        **_recalibration(run),
    }


def _recalibration(run: Run) -> About:
    """What was applied, and what is left to whoever reads the answers."""
    if run.recalibration is None:
        return {"temperature": None}
    found = run.recalibration.model_dump(mode="json", include={"temperature", "sets", "rejection"})
    return {name: value for name, value in found.items() if value or name == "temperature"}


def _check_size(frozen: Frozen, draws: int) -> None:
    bank = frozen.bank.values() if isinstance(frozen.bank, dict) else ()
    size = sum(t.numel() * t.element_size() for t in frozen.state_dict().values())
    size += sum(4 * (d.weight.numel() + (0 if d.bias is None else d.bias.numel())) for d in bank)
    if size > MOST_BYTES:
        raise UsageError(
            f"{draws} draws make a file of {size / 2**30:.1f} GiB, and 2 are the most; take fewer "
            "(--draws)"
        )


def _difference(run: Run, answers: Answers, images: Tensor, draws: int) -> float:
    """The largest one to the run's own predictions, over images and outputs."""
    expected = run.predict(images, draws, keep_draws=True)
    found = dict(zip(OUTPUTS, answers(images), strict=True))
    worst = 0.0
    for name, values in found.items():
        gap: Floats = np.abs(np.asarray(values, np.float64) - getattr(expected, name))
        if name == "variation_ratio":
            gap = np.maximum(gap - _undecided(expected), 0)
        if name == "energy":  # without bounds: of a large one single precision has fewer decimals
            gap = gap / np.maximum(np.abs(expected.energy), 1)
        worst = max(worst, float(gap.max())) if np.isfinite(gap).all() else float("nan")
    return worst


def _undecided(expected: Predictions) -> Floats:
    """(n,) share of draws whose two best classes are closer than rounding: they may vote either."""
    assert expected.per_draw is not None
    best = np.sort(np.exp(expected.per_draw), axis=-1)[..., -2:]
    share: Floats = (best[..., 1] - best[..., 0] < TOLERANCE).mean(0)
    return share
