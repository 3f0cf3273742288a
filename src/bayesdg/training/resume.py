"""Which run a command would go on with, and why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bayesdg.data import DomainDataset
from bayesdg.errors import StoredRunError, UsageError
from bayesdg.settings import Settings
from bayesdg.training.about import (
    RUN,
    changes_since,
    identity,
    read_about,
    run_family,
    run_name,
)


def require_begun(
    out: Path, dataset: DomainDataset, targets: Iterable[str] | None, settings: Settings
) -> None:
    """UsageError unless there is a run with these settings; it tells how the nearest differs."""
    names = tuple(dataset.split(targets).targets)
    name = run_name(dataset.name, names, settings)
    if (out / name / RUN).exists():
        return
    wanted = identity(settings)
    nearest: tuple[int, str, list[str]] | None = None
    for path in sorted(out.glob(f"{run_family(dataset.name, names, settings)}_*")):
        try:
            changes = changes_since(read_about(path), wanted)
        except StoredRunError:
            continue
        if nearest is None or len(changes) < nearest[0]:
            nearest = (len(changes), path.name, changes)
    if nearest is None:
        raise UsageError(
            f"nothing to resume: {out} has no run {name}; leave out --resume to begin it"
        )
    raise UsageError(
        f"nothing to resume with these settings; {out / nearest[1]} was begun with others: "
        f"{'; '.join(nearest[2])}; take those, or leave out --resume to begin a new run"
    )
