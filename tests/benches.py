"""Benches small enough for a test: a tiny folder of pictures, and an engine without processes."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

from bayesdg.bench.jobs import narrowed
from bayesdg.bench.plans import Plan
from bayesdg.bench.work import main
from pictures import make_tree

DOMAINS = ("art", "cartoon", "photo", "sketch")
# Every run with these takes a fraction of a second.
MINIATURE: dict[str, object] = {
    "model.backbone": "small-cnn",
    "model.pretrained": False,
    "data.image_size": 16,
    "data.cache": False,
    "episode.batch_size": 6,
    "episode.per_class": 2,
    "training.steps": 2,
    "training.evaluate_every": 1,
    "prediction.draws": 2,
    "engine.device": "cpu",
}


def tiny_pacs(root: Path) -> Path:
    """Four domains of three classes."""
    classes = dict.fromkeys(("dog", "horse", "house"), 4)
    return make_tree(root / "tiny-pacs", dict.fromkeys(DOMAINS, classes))


def miniature(
    plan: Plan,
    dataset: Path | str,
    targets: Sequence[Sequence[str]] = (),
    seeds: Sequence[int] = (0,),
    methods: Sequence[str] = (),
    **more: object,
) -> Plan:
    """The plan on a small data set, in a few steps."""
    varied = {name for values in plan.variants.values() for name in values}
    values = {n: v for n, v in {**MINIATURE, **more}.items() if n not in varied}
    return narrowed(plan, values, [str(dataset)], targets, methods, seeds)


class Here:
    """An engine that does a job at once, in this process.

    Attributes:
        begun: The jobs it was given, in order.
    """

    jobs = 1

    def __init__(self, folder: Path) -> None:
        self.begun: list[str] = []
        self._folder = folder
        self._codes: dict[str, int] = {}

    def start(self, name: str, log: Path) -> None:
        self.begun.append(name)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self._codes[name] = main([str(self._folder), name])
        with log.open("a") as file:
            file.write(said.getvalue())

    def ended(self) -> dict[str, int]:
        codes, self._codes = self._codes, {}
        return codes

    def leave(self) -> None:
        pass
