"""`bayesdg verify`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesdg.cli.data import AsJson
from bayesdg.cli.terminal import console
from bayesdg.errors import StoredRunError

if TYPE_CHECKING:
    from bayesdg.evaluate.verify import Verdict


def verify(
    folder: Annotated[Path, typer.Argument(help="A run folder, or a folder of them.")],
    as_json: AsJson = False,
) -> None:
    """Recompute every reported figure from stored predictions; do the records agree?

    Figures that were recorded along the way, during training, have no stored predictions.
    """
    from bayesdg.evaluate.verify import require_agreement
    from bayesdg.evaluate.verify import verify as verify_run
    from bayesdg.stored_runs import find_runs

    runs, unread = find_runs(folder)
    if not runs and not unread:
        raise StoredRunError(f"no run in {folder}; give a folder that bayesdg has written runs to")
    verdicts = {}
    for run in runs:
        # Two copies of a run have the same name.
        name = run.path.name if run.path == folder else str(run.path.relative_to(folder))
        verdicts[name] = verdict = verify_run(run)
        if as_json:
            continue
        _say(f"{name}: {_in_words(verdict)}")
        for problem in verdict.problems:
            _say(f"    {problem}")
    if as_json:
        found = {name: dataclasses.asdict(verdict) for name, verdict in verdicts.items()}
        typer.echo(json.dumps({"runs": found, "unread": unread}, indent=1))
    else:
        for problem in unread:
            _say(problem)
    require_agreement(verdicts, unread)


def _in_words(verdict: Verdict) -> str:
    agreed = []
    if verdict.num_exact:
        agreed.append(f"{verdict.num_exact:,} figures agree to the last bit")
    if verdict.num_rounded:
        agreed.append(f"{verdict.num_rounded:,} within rounding in single precision")
    return ", ".join(agreed) or ("not confirmed" if verdict.problems else "nothing was evaluated")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
