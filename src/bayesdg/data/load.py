"""Data sets by name or by folder."""

from __future__ import annotations

from pathlib import Path

from bayesdg.data.digits import rotated_digits, rotated_mnist
from bayesdg.data.domains import DomainDataset
from bayesdg.data.folders import folder_dataset
from bayesdg.data.known import KNOWN, check_name, data_root
from bayesdg.data.store import Progress
from bayesdg.stages import DataSettings


def load_dataset(
    name: str,
    root: Path | str | None = None,
    data: DataSettings | None = None,
    progress: Progress = lambda done, total: None,
) -> DomainDataset:
    """A data set by its name, or by the path of a folder `domain/class/image`.

    Args:
        name: A name that `bayesdg data list` shows, or a path.
        root: Where named data sets lie; else BAYESDG_DATA, else a folder of the user's.
        data: Settings; the defaults without.
        progress: Is told how many images of a domain are decoded.
    """
    data = data or DataSettings()
    dataset = _loaded(name, root, data, progress)
    return dataset.without(data.exclude).hiding(data.unknown_classes)


def _loaded(
    name: str, root: Path | str | None, data: DataSettings, progress: Progress
) -> DomainDataset:
    check_name(name)
    place = data_root(None if root is None else Path(root))
    known = KNOWN.get(name)
    if known is None:
        return folder_dataset(name, place, data, progress)
    if known.kind == "digits":
        return rotated_digits(data)
    if known.kind == "idx":
        return rotated_mnist(place, data, fashion=name == "rotated-fashion-mnist")
    return folder_dataset(name, place, data, progress)
