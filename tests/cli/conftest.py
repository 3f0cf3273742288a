"""One small trained run on pictures, for every command that asks it something."""

import contextlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.cli import main
from bayesdg.data import load_dataset
from bayesdg.presets import preset
from bayesdg.training.train import train
from pictures import make_tree
from worlds import TINY

SMALL = {"data.image_size": 16, "data.cache": False, "engine.device": "cpu"}
CLASSES = ("=cmd()", "cat", "dog")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, for reading; its data lie beside it in `data`."""
    place = tmp_path_factory.mktemp("trained")
    layout = {domain: dict.fromkeys(CLASSES, 12) for domain in ("art", "photo", "sketch")}
    data = make_tree(place / "data", layout)
    settings = preset("default", "bil").replace(TINY | SMALL)
    dataset = load_dataset(str(data), data=settings.data)
    run = train(dataset, settings, targets=["sketch"], out=place / "runs")
    assert run.path is not None
    return run.path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run folder of the test's own."""
    return shutil.copytree(trained, tmp_path / "run")


Answer = tuple[int, str, str]


@pytest.fixture
def bayesdg() -> Callable[..., Answer]:
    """The program in this process: exit code, standard output, standard error."""

    def call(*arguments: object) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    return call
