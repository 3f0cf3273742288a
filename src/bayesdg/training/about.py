"""What a run is, in files: its task, its settings, its name; and whether two runs are the same.

All paths inside a run folder are relative, so it can be moved. Imports no torch before it is asked
for versions.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bayesdg import __version__
from bayesdg.config import difference
from bayesdg.errors import DataError, StoredRunError, UsageError
from bayesdg.records import StartRecord, write_text
from bayesdg.settings import Settings, settings_from
from bayesdg.training.checkpoint import MANIFEST

FORMAT = 1
SETTINGS, RUN, DATA, RECORDS = "settings.json", "run.json", "data.json", "records.jsonl"
CHECKPOINTS = "checkpoints"
WEIGHTS = "weights.safetensors"
# What says where and how fast, not what: a run may go on with other values of these.
WHEREABOUTS: dict[str, Any] = {
    "engine": True,
    "data": {"storage", "memory_limit_gb", "cache", "prefetch", "workers"},
    "training": {"evaluate_target"},
}
# Files that are settings: what counts is what is in them, not where they lie.
FILE_SETTINGS = (("model", "weights"), ("data", "split_file"))


class Task(BaseModel):
    """What the weights of a run were trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    place: str = ""
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    known_classes: tuple[int, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class About(BaseModel):
    """What run.json says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    task: Task
    versions: dict[str, str]
    identity: dict[str, Any] = {}


def identity(settings: Settings) -> dict[str, Any]:
    """The settings that decide what a run computes; files by their content."""
    values: dict[str, Any] = settings.model_dump(mode="json", exclude=WHEREABOUTS)
    for stage, name in FILE_SETTINGS:
        path = values[stage][name]
        if path is not None and Path(path).expanduser().is_file():
            digest = sha256(Path(path).expanduser().read_bytes()).hexdigest()
            values[stage][name] = f"sha256 {digest[:16]}"
    return values


def run_name(dataset: str, targets: Iterable[str], settings: Settings) -> str:
    """A folder name that only the same settings have: data, targets, method, seed, hash.

    What is at its default is no part of the hash: a setting that a later version adds leaves the
    names of older runs as they are.
    """
    special = difference(identity(Settings()), identity(settings))
    code = sha256(json.dumps([dataset, *targets, special]).encode()).hexdigest()[:8]
    return f"{run_family(dataset, targets, settings)}_{code}"


def run_family(dataset: str, targets: Iterable[str], settings: Settings) -> str:
    """The part of the name that runs with other settings share."""
    text = f"{dataset}_{'+'.join(targets)}_{settings.method}_seed{settings.seed}"
    return re.sub(r"[^\w.+-]", "-", text, flags=re.ASCII)[:200]


def is_finished(folder: Path) -> bool:
    """Whether a run was trained to its end here."""
    # In os.path, what cannot be looked at is no file, and no error.
    return all(os.path.isfile(folder / name) for name in (MANIFEST, WEIGHTS))


def versions() -> dict[str, str]:
    """What the numbers of a run depend on."""
    import numpy as np
    import torch

    return {
        "bayesdg": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write_about(folder: Path, settings: Settings, task: Task) -> None:
    """run.json."""
    about = About(task=task, versions=versions(), identity=identity(settings))
    write_text(folder / RUN, about.model_dump_json(indent=2) + "\n")


def compare(path: Path, wanted: Mapping[str, Any], task: Task, data: Mapping[str, str]) -> None:
    """Refuse to go on with something else than was begun."""
    about = read_about(path)
    changes = changes_since(about, wanted)
    if changes:
        raise UsageError(
            f"{path} was begun with other settings: {'; '.join(changes)}; take those, or another "
            "folder (--out)"
        )
    for what in ("classes", "sources", "targets"):
        before, now = getattr(about.task, what), getattr(task, what)
        if before != now:
            gone = [name for name in before if name not in now]
            new = [name for name in now if name not in before]
            parts = [
                f"{word} {', '.join(names)}"
                for word, names in (("gone:", gone), ("new:", new))
                if names
            ]
            raise DataError(
                f"{path} was begun with other {what} ({'; '.join(parts) or 'in another order'}); "
                "bring the data back, or begin anew in another folder (--out)"
            )
    changed = first_difference(read_json(path / DATA), data)
    if changed is not None:
        raise DataError(
            f"{path} was begun with other data: {changed}; bring it back, or begin anew in another "
            "folder (--out)"
        )


def changes_since(about: About, wanted: Mapping[str, Any]) -> list[str]:
    """How the settings of a run differ from those that are wanted now, a line each."""
    return difference(stored_identity(about), wanted)


def stored_identity(about: About) -> dict[str, Any]:
    """The identity of a run as it would be written today."""
    # A setting that is not there was added since; its default means what was done before.
    stored = identity(Settings())
    for stage, values in about.identity.items():
        stored[stage] = {**stored[stage], **values} if isinstance(values, dict) else values
    return stored


def first_difference(stored: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What changed first, for people; None if nothing did."""
    for name in sorted(stored.keys() | now.keys()):
        if stored.get(name) != now.get(name):
            how = "is new" if name not in stored else "is gone" if name not in now else "changed"
            return f"{name} {how}"
    return None


def read_about(folder: Path) -> About:
    """What run.json says, in today's form."""
    content = read_json(folder / RUN)
    found = content.get("format")
    if isinstance(found, int) and found > FORMAT:
        by = content.get("versions")
        writer = by.get("bayesdg", "?") if isinstance(by, dict) else "?"
        raise StoredRunError(
            f"{folder} was written by bayesdg {writer} in format {found}; this is {__version__}, "
            f"which knows formats up to {FORMAT}: upgrade bayesdg"
        )
    try:
        return About.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoredRunError(f"{folder / RUN} is damaged: {where}: {first['msg']}") from None


def read_settings(folder: Path) -> Settings:
    """The settings of a run."""
    try:
        return settings_from(read_json(folder / SETTINGS))
    except UsageError as error:
        raise StoredRunError(f"{folder / SETTINGS}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run folder."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoredRunError(f"no {path.name} in {path.parent}; is it a run folder?") from None
    except (OSError, ValueError) as error:
        raise StoredRunError(
            f"{path} is damaged: {error}; bring it back, or begin anew in another folder"
        ) from None
    if not isinstance(content, dict):
        raise StoredRunError(f"{path} is damaged: it holds no object")
    return content


def now() -> str:
    """UTC, for people; durations and order never come from it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def start_differences(before: StartRecord, after: StartRecord) -> Sequence[str]:
    """What may change the bits between two starts."""
    changes = [
        f"{name} {before.versions.get(name)} -> {version}"
        for name, version in after.versions.items()
        if before.versions.get(name) != version
    ]
    for name in ("device", "processes", "threads", "precision", "compile"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            changes.append(f"{name} {old} -> {new}")
    return changes
