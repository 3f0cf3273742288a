"""How the default rate of the method dropout was chosen: on source domains alone.

Training sees rotated digits at 30, 45 and 60 degrees; what is compared are accuracy and NLL on the
validation images at 15 and 75 degrees. 0 and 90 degrees are not touched.

    python benchmarks/dropout_rate.py --out results/dropout-rate.json
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

import torch

from bayesdg.data import DomainDataset, load_dataset
from bayesdg.presets import small_images
from bayesdg.training.judge import validate
from bayesdg.training.train import train

TARGETS, HELD_OUT = ("0", "90"), ("15", "75")
RATES, SEEDS = (0.1, 0.2, 0.5), (0, 1, 2)


def held_out(dataset: DomainDataset, rate: float, seed: int) -> dict[str, float]:
    """Metrics on validation images of domains that were not trained on."""
    changes = {"model.dropout": rate, "training.evaluate_target": "never"}
    settings = small_images("default", "dropout", seed).replace(changes)
    run = train(dataset, settings, HELD_OUT)
    val = {name: dataset.domains[name].val for name in HELD_OUT}
    found = validate(run.learner, val, settings.prediction.draws) or {}
    return {name: mean(m[name] for m in found.values()) for name in ("accuracy", "nll")}


def main() -> None:
    """Print a table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    dataset = load_dataset("rotated-digits").without(TARGETS)
    rows = []
    for rate in RATES:
        found = [held_out(dataset, rate, seed) for seed in SEEDS]
        row = {"rate": rate, **{name: [f[name] for f in found] for name in ("accuracy", "nll")}}
        rows.append(row)
        accuracy, nll = mean(row["accuracy"]), mean(row["nll"])
        print(f"rate {rate}: accuracy {accuracy:.3f}, NLL {nll:.3f}", flush=True)
    if out is not None:
        about = {
            "command": "python benchmarks/dropout_rate.py",
            "machine": f"{platform.machine()}, one thread, torch {torch.__version__}",
            "date": datetime.now(UTC).date().isoformat(),
            "seeds": list(SEEDS),
        }
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
