"""The data sets that have a name: where they are looked for, what they should hold.

Imports no torch. Any other folder `domain/class/image` works by its path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bayesdg.errors import UsageError
from bayesdg.names import unknown


@dataclass(frozen=True)
class Known:
    """What is published about a data set.

    Attributes:
        kind: How it is read.
        about: One line.
        folder: Below the root; '' for what needs no files.
        page: Where a person gets it.
        layout: What has to lie in the folder.
        domains: Published names; empty for rotations.
        aliases: Other spellings on disk -> the published name.
        counts: Published number of images by domain and class, or by domain alone under ''.
        num_classes: Published.
    """

    kind: Literal["digits", "idx", "folder"]
    about: str
    folder: str = ""
    page: str = ""
    layout: str = ""
    domains: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    num_classes: int = 10


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def _pacs(*numbers: int) -> dict[str, int]:
    return dict(zip(PACS_CLASSES, numbers, strict=True))


# Of rotated sets; every angle is a domain.
SOURCE_ANGLES = (15, 30, 45, 60, 75)
TARGET_ANGLES = (0, 90)
IDX_FILES = tuple(
    f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
)
IDX_LAYOUT = "raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz"

KNOWN = {
    "rotated-digits": Known(
        "digits", "scikit-learn's digits at 15-75 degrees, targets 0 and 90; nothing to download"
    ),
    "rotated-mnist": Known(
        "idx", "2,000 MNIST images at 15-75 degrees, targets 0 and 90", "MNIST",
        "bayesdg data get rotated-mnist", IDX_LAYOUT,
    ),
    "rotated-fashion-mnist": Known(
        "idx", "10,000 Fashion-MNIST images at 15-75 degrees, targets 0 and 90", "FashionMNIST",
        "bayesdg data get rotated-fashion-mnist", IDX_LAYOUT,
    ),
    "pacs": Known(
        "folder", "photo, art painting, cartoon, sketch; 9,991 images of 7 classes", "PACS",
        "https://domaingeneralization.github.io",
        "DOMAIN/CLASS/IMAGE, and the official lists as splits/DOMAIN_{train,crossval}_kfold.txt",
        ("art_painting", "cartoon", "photo", "sketch"),
        {"art": "art_painting", "art-painting": "art_painting", "Art_painting": "art_painting"},
        {
            "art_painting": _pacs(379, 255, 285, 184, 201, 295, 449),
            "cartoon": _pacs(389, 457, 346, 135, 324, 288, 405),
            "photo": _pacs(189, 202, 182, 186, 199, 280, 432),
            "sketch": _pacs(772, 740, 753, 608, 816, 80, 160),
        },
        7,
    ),
    "office-home": Known(
        "folder", "art, clipart, product, real world; 15,588 images of 65 classes", "OfficeHome",
        "https://www.hemanthdv.org/officeHomeDataset.html",
        "DOMAIN/CLASS/IMAGE with the domains Art, Clipart, Product and Real World (or RealWorld)",
        ("Art", "Clipart", "Product", "Real World"),
        {
            "RealWorld": "Real World", "Real_World": "Real World", "Real": "Real World",
            "real_world": "Real World", "art": "Art", "clipart": "Clipart", "product": "Product",
        },
        {"Art": {"": 2427}, "Clipart": {"": 4365}, "Product": {"": 4439}, "Real World": {"": 4357}},
        65,
    ),
}  # fmt: skip
# Names under which people unpack them.
OTHER_FOLDERS = {
    "pacs": ("pacs", "kfold", "pacs_data"),
    "office-home": ("office_home", "office-home", "OfficeHomeDataset_10072016", "OfficeHome_v1"),
}


def check_name(name: str) -> None:
    """Refuse what is neither a name nor a folder."""
    if name in KNOWN or (name and expanded(name).is_dir()):
        return
    summary = f"{', '.join(KNOWN)}, or the path of a folder DOMAIN/CLASS/IMAGE"
    if name and expanded(name).exists():
        raise UsageError(f"{name} is a file and no data set; allowed: {summary}")
    raise UsageError(unknown("data set", name, KNOWN, summary=summary))


def data_root(root: Path | None = None) -> Path:
    """Where data sets are looked for: --root, else BAYESDG_DATA, else a folder of the user's."""
    if root is not None:
        return expanded(root)
    configured = os.environ.get("BAYESDG_DATA")
    return expanded(configured) if configured else user_cache() / "data"


def expanded(path: Path | str) -> Path:
    """With '~' replaced; an unknown user is a usage error."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such user's home folder") from None


def user_cache() -> Path:
    """The user's folder for things that can be made again."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return expanded(os.environ.get("BAYESDG_CACHE") or base / "bayesdg")


def place_of(name: str, root: Path) -> Path:
    """The folder of a named data set, under whichever of its names it is there."""
    candidates = [KNOWN[name].folder, *OTHER_FOLDERS.get(name, ())]
    for candidate in candidates:
        if (root / candidate).is_dir():
            return root / candidate
    return root / KNOWN[name].folder


def is_present(name: str, root: Path) -> bool:
    """Whether its folder, or each of its files, is there; nothing is opened."""
    kind, place = KNOWN[name].kind, place_of(name, root)
    if kind == "idx":
        raw = place / "raw"
        return all((raw / f).is_file() or (raw / f"{f}.gz").is_file() for f in IDX_FILES)
    return kind == "digits" or place.is_dir()
