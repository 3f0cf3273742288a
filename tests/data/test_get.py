"""`bayesdg data get` against a server on this machine: whole, cut, replaced by a page.

Bad-input scenario 64.
"""

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from bayesdg.cli import main
from bayesdg.data import load_dataset
from bayesdg.data.known import IDX_FILES
from bayesdg.stages import DataSettings
from pictures import idx_bytes

PAGE = b"<!DOCTYPE html><title>Please sign in</title>"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served in place of MNIST's mirrors, with the checksums of what it holds."""
    folder = tmp_path / "served"
    folder.mkdir()
    rng = np.random.default_rng(0)
    resources = []
    for name in IDX_FILES:
        num = 60 if name.startswith("train") else 20
        array = np.arange(num) % 10 if "labels" in name else rng.integers(0, 256, (num, 28, 28))
        content = gzip.compress(idx_bytes(array))
        (folder / f"{name}.gz").write_bytes(content)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        resources.append((f"{name}.gz", md5))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    yield folder
    server.shutdown()
    server.server_close()


def test_what_is_downloaded_can_be_loaded(served: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    assert main(["data", "get", "rotated-mnist", "--root", str(root)]) == 0
    dataset = load_dataset("rotated-mnist", root, DataSettings(subset=40))
    assert [len(getattr(dataset.domains["0"], p)) for p in ("train", "val", "test")] == [36, 4, 20]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-50]),
        lambda file: file.write_bytes(PAGE),
    ],
    ids=["cut", "page"],
)
def test_what_is_not_whole_is_told_and_fetched_again(
    served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    root, last = tmp_path / "data", served / f"{IDX_FILES[-1]}.gz"
    whole = last.read_bytes()
    spoil(last)
    assert main(["data", "get", "rotated-mnist", "--root", str(root)]) == 3
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("bayesdg: MNIST could not be downloaded to")
    last.write_bytes(whole)
    assert main(["data", "get", "rotated-mnist", "--root", str(root)]) == 0
    load_dataset("rotated-mnist", root, DataSettings(subset=40))
