"""The invariance losses in linear time against the same losses pair by pair: time and memory.

Eqs. 7 and 9 average a divergence over all pairs of a target image and a source image of its class.
`gaussian_invariance` and `categorical_invariance` need averages over the source images only; the
losses here form every pair, as the equations are printed. Forward and backward, 32 bits.

    python benchmarks/invariance.py --json results/speed/invariance-cpu.json

Two sweeps over the number of source images: with 128 target images, where both ways are linear and
the pairs cost a constant factor more, and with as many target images, where the pairs are
quadratic. The pairs stop where the next size would take more than SECONDS for one call, or more
memory than can be spared: 80% of what a GPU has free, a quarter of other memory.

Figures need matplotlib, and can be drawn again from stored results:

    python benchmarks/invariance.py --from results/speed/invariance-*.json \\
        --figure docs/images/invariance.svg
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from invariance_figure import draw
from measuring import (
    about,
    chosen_device,
    keep_memory,
    memory_limit,
    milliseconds,
    peak_mebibytes,
    write,
)
from torch import Tensor

from bayesdg.objectives import categorical_invariance, gaussian_invariance

D, K, DRAWS = 512, 7, 10
SIZES = [round(10 ** (exponent / 2)) for exponent in range(4, 11)]
SWEEPS: dict[str, Callable[[int], int]] = {
    "128 target images": lambda num_source: 128,
    "as many target as source images": lambda num_source: num_source,
}
SECONDS = 4.0
WAYS = ("linear", "pairwise")
HEAD = (
    f"{'sources':>10}{'linear ms':>12}{'pairwise ms':>16}{'ratio':>10}{'linear MiB':>12}"
    f"{'pairwise MiB':>14}"
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Images:
    """One side of a loss: (..., n, D) values of n images, sorted by class, and (n,) labels."""

    values: tuple[Tensor, ...]
    labels: Tensor

    @classmethod
    def of(cls, values: tuple[Tensor, ...], dtype: torch.dtype) -> Images:
        """Leaves; the classes are as large as each other, give or take one."""
        leaves = tuple(x.to(dtype).clone().requires_grad_() for x in values)
        sizes = [len(part) for part in torch.arange(values[0].shape[-2]).tensor_split(K)]
        labels = torch.arange(K).repeat_interleave(torch.tensor(sizes))
        return cls(leaves, labels.to(values[0].device))

    def by_class(self) -> Iterator[tuple[Tensor, ...]]:
        """The values of each class."""
        return zip(*(x.tensor_split(K, dim=-2) for x in self.values), strict=True)


Loss = Callable[[Images, Images], Tensor]


def linear_gaussian(target: Images, source: Images) -> Tensor:
    """Ours, eq. 9."""
    return gaussian_invariance(*target.values, target.labels, *source.values, source.labels, K)


def linear_categorical(target: Images, source: Images) -> Tensor:
    """Ours, eq. 7."""
    return categorical_invariance(*target.values, target.labels, *source.values, source.labels)


def pairwise(
    divergence: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor],
    target: Images,
    source: Images,
) -> Tensor:
    """The mean over target images of the mean over source images of their class.

    Class by class, the fastest plain way: a mask over all pairs and a row gathered for each pair
    of one class were two to twenty times as slow.
    """
    sums = []
    for ours, theirs in zip(target.by_class(), source.by_class(), strict=True):
        kl = divergence([x.unsqueeze(-2) for x in ours], [x.unsqueeze(-3) for x in theirs])
        sums.append(kl.mean(-1).sum(-1).mean())
    return torch.stack(sums).sum() / len(target.labels)


def gaussian_kl(target: Sequence[Tensor], source: Sequence[Tensor]) -> Tensor:
    """KL[N(g_t, v_t) || N(g_i, v_i)] of every pair."""
    (g_t, v_t), (g_i, v_i) = target, source
    return 0.5 * (v_i.log() - v_t.log() - 1 + (v_t + (g_t - g_i).square()) / v_i).sum(-1)


def categorical_kl(target: Sequence[Tensor], source: Sequence[Tensor]) -> Tensor:
    """KL[p_t || p_i] of every pair, from logits."""
    log_p_t, log_p_i = target[0].log_softmax(-1), source[0].log_softmax(-1)
    return (log_p_t.exp() * (log_p_t - log_p_i)).sum(-1)


def gaussian_values(num: int, chance: torch.Generator) -> tuple[Tensor, ...]:
    """Means and variances."""
    mean, log_std = torch.randn(2, num, D, generator=chance, device=chance.device)
    return mean, log_std.exp()


def categorical_values(num: int, chance: torch.Generator) -> tuple[Tensor, ...]:
    """Logits under each draw."""
    return (torch.randn(DRAWS, num, K, generator=chance, device=chance.device),)


@dataclass(frozen=True)
class Case:
    """A loss both ways."""

    values: Callable[[int, torch.Generator], tuple[Tensor, ...]]
    linear: Loss
    pairs: Loss

    def sides(
        self, num_target: int, num_source: int, device: torch.device, dtype: torch.dtype
    ) -> tuple[Images, Images]:
        """Target and source, the same on every call."""
        chance = torch.Generator(device).manual_seed(0)
        target = Images.of(self.values(num_target, chance), dtype)
        return target, Images.of(self.values(num_source, chance), dtype)


CASES = {
    f"Gaussian, {D} features": Case(
        gaussian_values, linear_gaussian, partial(pairwise, gaussian_kl)
    ),
    f"categorical, {K} classes, {DRAWS} draws": Case(
        categorical_values, linear_categorical, partial(pairwise, categorical_kl)
    ),
}


def step(loss: Loss, target: Images, source: Images) -> tuple[Tensor, ...]:
    """The value and the gradients."""
    value = loss(target, source)
    return (value, *torch.autograd.grad(value, [*target.values, *source.values]))


def check(name: str, case: Case, num_source: int, device: torch.device) -> None:
    """End the program if the two ways differ by more than rounding, in value or gradients."""
    target, source = case.sides(128, num_source, device, torch.float64)
    linear, pairs = (step(loss, target, source) for loss in (case.linear, case.pairs))
    for ours, theirs in zip(linear, pairs, strict=True):
        apart = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        if not apart < 1e-9:
            sys.exit(f"{name}: linear and pairwise differ by {apart:.1e}, relative; nothing timed")


def sweep(
    name: str, targets: str, sizes: Sequence[int], device: torch.device, limit: float
) -> Iterator[Row]:
    """A row for each number of source images; the pairs in no more than `limit` MiB."""
    expected: Mapping[str, float] = {}  # of one pair, from the size before
    stopped = None
    for num in sizes:
        target, source = CASES[name].sides(SWEEPS[targets](num), num, device, torch.float32)
        num_pairs = len(target.labels) * num
        if expected and expected["mib"] * num_pairs > limit:
            stopped = "memory"
        elif expected and expected["ms"] * num_pairs > 1e3 * SECONDS:
            stopped = "time"
        works = {"linear": partial(step, CASES[name].linear, target, source)}
        if stopped is None:
            works["pairwise"] = partial(step, CASES[name].pairs, target, source)
        try:
            ms, mib = costs(works, device)
        except torch.OutOfMemoryError:  # less was free than it seemed
            stopped = "memory"
            del works["pairwise"]
            ms, mib = costs(works, device)
        if stopped is None:
            expected = {"ms": ms["pairwise"] / num_pairs, "mib": mib["pairwise"] / num_pairs}
        yield {
            "loss": name,
            "targets": targets,
            "sources": num,
            **{f"{way}_ms": ms.get(way) for way in WAYS},
            **{f"{way}_mib": mib.get(way) for way in WAYS},
            "pairwise_stopped": stopped,
        }


def costs(
    works: Mapping[str, Callable[[], object]], device: torch.device
) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds and MiB of each."""
    ms = milliseconds(works, device)
    return ms, {way: peak_mebibytes(work, device) for way, work in works.items()}


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The results, printed and kept in the file as they come."""
    device = chosen_device(arguments.device)
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    limit = memory_limit(device)
    for name, case in CASES.items():
        check(name, case, arguments.sizes[0], device)
    print("linear and pairwise agree, values and gradients")
    options = [f"--device {device.type}"]
    options += [f"--threads {arguments.threads}"] if arguments.threads else []
    rows: list[Row] = []
    slopes: dict[str, dict[str, float | None]] = {}
    results = {
        **about(" ".join(["python benchmarks/invariance.py", *options]), device),
        "pairwise_limit": {"mib": limit, "seconds": SECONDS},
        "slopes": slopes,
        "rows": rows,
    }
    for name in CASES:
        for targets in SWEEPS:
            print(f"\n{name}; {targets}\n{HEAD}")
            here = []
            for row in sweep(name, targets, arguments.sizes, device, limit):
                print_row(row)
                here.append(row)
                rows.append(row)
                found = {way: slope(here, way) for way in WAYS}
                slopes[f"{name}; {targets}"] = found
                if arguments.json:
                    write(arguments.json, results)
            print("slope over the last decade: " + ", ".join(f"{w} {v}" for w, v in found.items()))
    return results


def slope(rows: Sequence[Row], way: str) -> float | None:
    """d log(time) / d log(source images), fitted to the last decade that was measured."""
    points = [(row["sources"], row[f"{way}_ms"]) for row in rows if row[f"{way}_ms"]]
    last = [(num, time) for num, time in points if num > 0.09 * points[-1][0]]
    if len(last) < 2:
        return None
    return round(float(np.polyfit(*np.log(np.array(last)).T, deg=1)[0]), 2)


def print_row(row: Row) -> None:
    """A line of the table."""
    line = f"{row['sources']:10,}{row['linear_ms']:12.1f}"
    if row["pairwise_ms"] is None:
        line += f"{'out of ' + row['pairwise_stopped']:>16}{'':10}{row['linear_mib']:12.1f}"
    else:
        ratio = row["pairwise_ms"] / row["linear_ms"]
        line += f"{row['pairwise_ms']:16.1f}{ratio:10.1f}{row['linear_mib']:12.1f}"
        line += f"{row['pairwise_mib']:14.1f}"
    print(line, flush=True)


def main() -> None:
    """Check, measure, print, write; or only draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of the CPU; fewer where others compute too")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="source images")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--figure", type=Path, help="where to draw them, .svg or .png")
    parser.add_argument("--from", type=Path, nargs="+", dest="stored", help="draw these only")
    arguments = parser.parse_args()
    if arguments.stored:
        results = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.stored]
    else:
        keep_memory()
        results = [measured(arguments)]
    if arguments.figure:
        draw(results, arguments.figure)


if __name__ == "__main__":
    main()
