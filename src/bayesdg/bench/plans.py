"""Every experiment of the paper as a value: data sets x targets x methods x settings x seeds.

A plan says what is compared; bench/jobs.py makes runs of it. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Dotted setting names -> values.
Values = Mapping[str, Any]
TOLD = -1
SEEDS = (0, 1, 2, 3, 4)  # print gives deviations and no number of runs; five is the custom


@dataclass(frozen=True)
class Plan:
    """What is compared with what.

    Attributes:
        about: One line.
        methods: Names; see bayesdg methods.
        datasets: Names or folders.
        targets: Domains that are unseen together, one group after another; empty means each
            domain of a folder in turn, and 0 and 90 degrees of a rotated set.
        variants: Name -> the settings that only this one has.
        seeds: One run each.
        preset: What the settings begin with.
        settings: Of all runs, beyond the preset and what a data set needs.
        test_draws: Numbers of weight draws under which a trained run is tested again and timed;
            TOLD stands for that of its settings.
        measures: 'accuracy' trains; 'cost' measures a single step instead.
        paper: The paper's table or figure, for people.
    """

    about: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...] = ("pacs",)
    targets: tuple[tuple[str, ...], ...] = ()
    variants: Mapping[str, Values] = field(default_factory=lambda: {"": {}})
    seeds: tuple[int, ...] = SEEDS
    preset: str = "default"
    settings: Values = field(default_factory=dict)
    test_draws: tuple[int, ...] = ()
    measures: Literal["accuracy", "cost"] = "accuracy"
    paper: str = ""


# What section 4.1 sets for a data set of its own, whatever the plan. ResNet-18 sees digits as it
# sees photographs: enlarged, in three equal channels.
AS_PHOTOGRAPHS = {"data.image_size": 224, "data.channels": 3}
PROTOCOL: Mapping[str, Values] = {
    "office-home": {"episode.per_class": 4},
    "rotated-mnist": AS_PHOTOGRAPHS,
    "rotated-fashion-mnist": AS_PHOTOGRAPHS,
}


def _around(name: str, values: tuple[float, ...]) -> dict[str, Values]:
    """One setting at several values."""
    return {f"{name.partition('.')[2]} {value:g}": {name: value} for value in values}


def _costs(draws: tuple[int, ...]) -> dict[str, Values]:
    """Both ways to combine draws, at several numbers of them."""
    return {
        f"{combine} {num}": {"model.combine": combine, "model.draws": num}
        for combine in ("product", "paired")
        for num in draws
    }


# Appendix C gives the optima 1, 100 and 0.5 and no other value: ours are decades around the
# lambdas and quarters of pi, the others at their optimum. Its lambdas weigh the terms of the
# released code, so the plan begins with that preset.
OPTIMA = {"objective.lambda_phi": 1, "objective.lambda_psi": 100, "model.pi": 0.5}
SENSITIVITY = {
    **_around("objective.lambda_phi", (0.01, 0.1, 1, 10, 100)),
    **_around("objective.lambda_psi", (1, 10, 100, 1000, 10000)),
    **_around("model.pi", (0.1, 0.25, 0.5, 0.75, 0.9)),
}

PLANS: Mapping[str, Plan] = {
    "ablation": Plan("rows a-j on PACS", methods=tuple("abcdefghij"), paper="Table 1"),
    "ablation-full": Plan("rows a-n on PACS", methods=tuple("abcdefghijklmn"), paper="Table D.1"),
    "priors": Plan(
        "the prior N(0, 1) or a scale mixture", methods=("j-standard-prior", "j"), paper="Table 2"
    ),
    "depth": Plan(
        "no phi', a Bayesian one, a Bayesian invariant one",
        methods=("j", "j-deep", "j-deep-invariant"),
        paper="Table 3",
    ),
    "pacs": Plan("the baseline and the method on PACS", methods=("a", "j"), paper="Table 4"),
    "office-home": Plan(
        "the same on Office-Home", methods=("a", "j"), datasets=("office-home",), paper="Table 5"
    ),
    "rotated": Plan(
        "the same on rotated digits, at angles that were trained on and at others",
        methods=("a", "j"),
        datasets=("rotated-mnist", "rotated-fashion-mnist"),
        paper="Table 6",
    ),
    "sensitivity": Plan(
        "lambda_phi, lambda_psi and pi",
        methods=("j",),
        targets=(("cartoon",),),
        variants=SENSITIVITY,
        preset="released",
        settings=OPTIMA,
        paper="Figure C",
    ),
    # Point layers without a phi, then one, two and three Bayesian ones; all of them compare
    # domains, so that every step sees the same images. Appendix F says 128 and 32.
    "cost": Plan(
        "parameters, multiply-adds and memory of 0-3 Bayesian layers",
        methods=("c", "d", "j", "j-deep-invariant"),
        targets=(("photo",),),
        variants=_costs((10, 15, 20)),
        seeds=(0,),
        preset="released",
        measures="cost",
        paper="Table F",
    ),
    "draws": Plan(
        "accuracy, ECE and time against the number of draws at test time",
        methods=("b", "e", "j"),
        test_draws=(0, 1, 2, 5, 10, 20, 50, 100, 200),
    ),
    "uncertainty": Plan(
        "Bayesian rows beside an ensemble, dropout and Laplace's approximation",
        methods=("a", "b", "e", "h", "j", "ensemble", "dropout", "laplace"),
        test_draws=(TOLD,),  # once more than for the records, to time it
    ),
}
