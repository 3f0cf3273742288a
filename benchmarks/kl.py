"""The KL from the scale mixture by quadrature and by Monte Carlo: time, and how steady it is.

python benchmarks/kl.py --json results/kl.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from measuring import about, milliseconds, write
from torch import Tensor

from bayesdg.bayes import BayesLinear, ScaleMixturePrior

COMMAND = "python benchmarks/kl.py --json results/kl.json"
PRIOR = ScaleMixturePrior()
DRAWS = 10


def both_ways(work: Callable[[], Tensor]) -> None:
    """Forward and backward."""
    work().backward()


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
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    device = torch.device("cpu")
    rows = []
    print(
        f"{'layer':14}{'quadrature':>14}{'Monte Carlo, 10 draws':>24}{'noise of its gradient':>24}"
    )
    for width in (128, 512, 1024):
        layer = BayesLinear(width, width)
        works: dict[str, Callable[[], Tensor]] = {
            "quadrature": partial(layer.kl, PRIOR, "quadrature"),
            "draws": partial(on_fresh_draws, layer),
        }
        times = milliseconds({n: partial(both_ways, w) for n, w in works.items()}, device)
        quadrature, draws = times["quadrature"], times["draws"]
        exact = gradient(layer, layer.kl(PRIOR, "quadrature"))
        noisy = gradient(layer, layer.kl(PRIOR, "monte-carlo", layer.draw(DRAWS)))
        noise = float((noisy - exact).norm() / exact.norm())
        print(f"{width:5} x {width:<6}{quadrature:11.1f} ms{draws:21.1f} ms{100 * noise:22.0f} %")
        rows.append(
            {"width": width, "quadrature_ms": quadrature, "monte_carlo_ms": draws,
             "gradient_noise": noise}
        )  # fmt: skip
    if arguments.json:
        write(arguments.json, {**about(COMMAND, device), "draws": DRAWS, "rows": rows})


if __name__ == "__main__":
    main()
