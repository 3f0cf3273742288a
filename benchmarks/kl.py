"""The KL from the scale mixture by quadrature and by Monte Carlo: time, and how steady it is.

python benchmarks/kl.py --json results/kl.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from bayesdg.bayes import BayesLinear, ScaleMixturePrior

PRIOR = ScaleMixturePrior()
DRAWS = 10


def milliseconds(work: Callable[[], Tensor], repeats: int = 7) -> float:
    """Median of forward and backward together."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work().backward()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def on_fresh_draws(layer: BayesLinear) -> Tensor:
    """The noise is drawn for the forward pass in any case, but has to be drawn."""
    return layer.kl(PRIOR, "monte-carlo", layer.draw(DRAWS))


def gradient(layer: BayesLinear, value: Tensor) -> Tensor:
    """Of the weights' mu and rho, as one vector."""
    parts = torch.autograd.grad(value, [layer.weight_mu, layer.weight_rho])
    return torch.cat([part.flatten() for part in parts])


def main() -> None:
    """Print a line per layer size; write all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    print(
        f"{'layer':14}{'quadrature':>14}{'Monte Carlo, 10 draws':>24}{'noise of its gradient':>24}"
    )
    for width in (128, 512, 1024):
        layer = BayesLinear(width, width)
        quadrature = milliseconds(partial(layer.kl, PRIOR, "quadrature"))
        draws = milliseconds(partial(on_fresh_draws, layer))
        exact = gradient(layer, layer.kl(PRIOR, "quadrature"))
        noisy = gradient(layer, layer.kl(PRIOR, "monte-carlo", layer.draw(DRAWS)))
        noise = float((noisy - exact).norm() / exact.norm())
        print(f"{width:5} x {width:<6}{quadrature:11.1f} ms{draws:21.1f} ms{100 * noise:22.0f} %")
        rows.append(
            {"width": width, "quadrature_ms": quadrature, "monte_carlo_ms": draws,
             "gradient_noise": noise}
        )  # fmt: skip
    if arguments.json:
        about = {
            "command": f"python benchmarks/kl.py --json {arguments.json}",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "draws": DRAWS,
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
