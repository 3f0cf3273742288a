"""Our Bayesian layer and its KL against those of other libraries: forward and backward.

The same layer (512 x 512 with a bias), draws and batch; 32 bits. TorchUncertainty, bayesian-torch
and BLiTZ have one draw per call and compute the KL along with it, so they are called in a loop, as
their own losses do. TorchUncertainty and BLiTZ have a scale mixture as prior and estimate the KL on
the draws; bayesian-torch has a Gaussian and the closed form. Ours is timed with either prior.

    python benchmarks/layers.py --json results/speed/layers-cpu.json

The other libraries live in an environment of their own, made in a temporary folder with this
interpreter and this version of torch, and removed at the end. What cannot be installed or imported
there is told and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measuring import about, chosen_device, keep_memory, milliseconds, write
from torch import Tensor, nn

from bayesdg.bayes import BayesLinear, GaussianPrior, ScaleMixturePrior

# Pinned: another version may be faster or slower.
OTHERS = {
    "TorchUncertainty": "torch-uncertainty[cpu]==0.13.0",
    "bayesian-torch": "bayesian-torch==0.5.0",
    "BLiTZ": "blitz-bayesian-pytorch==0.2.8",
}
SIDE = 512
DRAWS, BATCHES = (1, 10, 50), (32, 352)
# Ours that computes the same as theirs.
LIKE = {
    "TorchUncertainty": "bayesdg, mixture, Monte Carlo",
    "bayesian-torch": "bayesdg, Gaussian, closed form",
    "BLiTZ": "bayesdg, mixture, Monte Carlo",
}
Loss = Callable[[Tensor, int], Tensor]


def ours(prior: str, estimator: str) -> tuple[nn.Module, Loss]:
    """All draws at once."""
    layer = BayesLinear(SIDE, SIDE)
    density = ScaleMixturePrior() if prior == "mixture" else GaussianPrior()

    def loss(x: Tensor, draws: int) -> Tensor:
        draw = layer.draw(draws)
        return layer(x, draw).square().mean() + layer.kl(density, estimator, draw)

    return layer, loss


def looped(one: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Loss:
    """One draw after another: mean loss and mean KL."""

    def loss(x: Tensor, draws: int) -> Tensor:
        total = x.new_zeros(())
        for _ in range(draws):
            output, kl = one(x)
            total = total + (output.square().mean() + kl) / draws
        return total

    return loss


def torch_uncertainty() -> tuple[nn.Module, Loss]:
    """A mixture prior; the KL is left behind on the layer, as in its own ELBOLoss."""
    from torch_uncertainty.layers.bayesian import BayesLinear as Theirs

    layer = Theirs(SIDE, SIDE, prior_sigma_1=0.1, prior_sigma_2=1.5, prior_pi=0.5, sigma_init=-2.5)

    def one(x: Tensor) -> tuple[Tensor, Tensor]:
        output = layer(x)
        return output, layer.log_variational_posterior - layer.log_prior

    return layer, looped(one)


def bayesian_torch() -> tuple[nn.Module, Loss]:
    """A Gaussian prior; the KL is returned, as a mean over weights."""
    from bayesian_torch.layers import LinearReparameterization

    layer = LinearReparameterization(SIDE, SIDE, posterior_rho_init=-2.5)
    return layer, looped(layer)


def blitz() -> tuple[nn.Module, Loss]:
    """A mixture prior; the KL is left behind on the layer, as in its own sample_elbo."""
    from blitz.modules import BayesianLinear

    layer = BayesianLinear(
        SIDE, SIDE, prior_sigma_1=0.1, prior_sigma_2=1.5, prior_pi=0.5, posterior_rho_init=-2.5
    )

    def one(x: Tensor) -> tuple[Tensor, Tensor]:
        output = layer(x)
        return output, layer.log_variational_posterior - layer.log_prior

    return layer, looped(one)


MAKERS: dict[str, Callable[[], tuple[nn.Module, Loss]]] = {
    "bayesdg, mixture, Monte Carlo": lambda: ours("mixture", "monte-carlo"),
    "bayesdg, mixture, quadrature": lambda: ours("mixture", "quadrature"),
    "bayesdg, Gaussian, closed form": lambda: ours("gaussian", "closed-form"),
    "TorchUncertainty": torch_uncertainty,
    "bayesian-torch": bayesian_torch,
    "BLiTZ": blitz,
}


def step(layer: nn.Module, loss: Loss, x: Tensor, draws: int) -> None:
    """Forward and backward."""
    layer.zero_grad()
    loss(x, draws).backward()


def forward(loss: Loss, x: Tensor, draws: int) -> None:
    """Without a graph."""
    with torch.no_grad():
        loss(x, draws)


def inside(device: torch.device, missing: dict[str, str]) -> dict[str, Any]:
    """The measurements; runs in the environment of its own."""
    layers: dict[str, tuple[nn.Module, Loss]] = {}
    for name, make in MAKERS.items():
        if name in missing:
            continue
        try:
            layer, loss = make()
        except Exception as error:  # whatever another library does when it is imported
            missing[name] = f"cannot be used with torch {torch.__version__}: {error}"
            continue
        layers[name] = (layer.to(device), loss)
    for name, why in missing.items():
        print(f"{name} is left out: {why}", flush=True)
    rows = []
    for batch in BATCHES:
        for draws in DRAWS:
            x = torch.randn(batch, SIDE, device=device)
            steps = {n: partial(step, *layers[n], x, draws) for n in layers}
            forwards = {n: partial(forward, layers[n][1], x, draws) for n in layers}
            whole = milliseconds(steps, device, least=5)
            ahead = milliseconds(forwards, device, least=5)
            print(f"\nbatch {batch}, draws {draws}: forward and backward, forward alone, ratio")
            for name in layers:
                both, alone = whole[name], ahead[name]
                like = LIKE.get(name)
                ratio = both / whole[like] if like else None
                rows.append(
                    {"layer": name, "batch": batch, "draws": draws, "ms": round(both, 4),
                     "forward_ms": round(alone, 4), "compared_with": like,
                     "times_slower": ratio and round(ratio, 2)}
                )  # fmt: skip
                slower = f"{ratio:9.1f} x" if ratio else ""
                print(f"{name:34}{both:10.2f} ms{alone:10.2f} ms{slower}", flush=True)
    needs = [need.split("==") for need in OTHERS.values()]
    versions = {name.partition("[")[0]: number for name, number in needs}
    return {
        **about(f"python benchmarks/layers.py --device {device.type}", device),
        "versions": versions,
        "side": SIDE,
        "left_out": missing,
        "rows": rows,
    }


def environment(folder: Path) -> tuple[Path, dict[str, str]]:
    """An interpreter with the other libraries, and those that could not be installed, with why."""
    uv = [shutil.which("uv") or ""]
    if not uv[0]:
        uv = [sys.executable, "-m", "uv"]
    python = folder / "bin" / "python"
    own = [f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "numpy", "pydantic")]
    done = run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
    if done is None:
        done = run([*install, *own])
    if done is not None:
        return Path(sys.executable), dict.fromkeys(OTHERS, f"no environment: {done}")
    missing = {}
    for name, need in OTHERS.items():
        print(f"installing {need}", flush=True)
        if (why := run([*install, *own, need])) is not None:
            missing[name] = f"cannot be installed: {why}"
    return python, missing


def run(command: list[str]) -> str | None:
    """None if it went well, else the last line of what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else said[-1].strip()


def main() -> None:
    """Make the environment, measure in it, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of the CPU; fewer where others compute too")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        keep_memory()
        torch.set_num_threads(arguments.threads or torch.get_num_threads())
        results = inside(chosen_device(arguments.device), json.loads(arguments.inside))
        if arguments.json:
            write(arguments.json, results)
        return
    with tempfile.TemporaryDirectory(prefix="layers-") as folder:
        python, missing = environment(Path(folder) / "environment")
        source = Path(__file__).parents[1] / "src"
        command = [str(python), "-W", "ignore", __file__, "--inside", json.dumps(missing)]
        command += ["--device", arguments.device]
        command += ["--threads", str(arguments.threads)] if arguments.threads else []
        command += ["--json", str(arguments.json)] if arguments.json else []
        sys.exit(subprocess.call(command, env={**os.environ, "PYTHONPATH": str(source)}))


if __name__ == "__main__":
    main()
