"""`bayesdg predict`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesdg.cli.data import AsJson, bar
from bayesdg.cli.stored import Device, Draws, Raw, RunFolder, stored_run
from bayesdg.cli.terminal import check_folder, messages
from bayesdg.data.tree import SUFFIXES, shown
from bayesdg.errors import DataError, UsageError
from bayesdg.names import choose

if TYPE_CHECKING:
    from bayesdg.evaluate.recalibration import Uncertainty
    from bayesdg.evaluate.rows import Form
    from bayesdg.tabular import Row, Write
    from bayesdg.training.run import Run


def predict(
    run: RunFolder,
    paths: Annotated[list[Path], typer.Argument(help="Pictures, and folders of them.")],
    draws: Draws = None,
    out: Annotated[
        Path | None, typer.Option(help="A .csv, .jsonl or .parquet file; else standard output.")
    ] = None,
    as_json: AsJson = False,
    top: Annotated[int, typer.Option(min=1, help="How many classes, best first.")] = 1,
    reject_above: Annotated[
        float | None, typer.Option(help="The largest uncertainty that is accepted.")
    ] = None,
    reject_by: Annotated[
        str | None,
        typer.Option(
            help="entropy, aleatoric, epistemic, variation_ratio, energy or error_probability.",
            show_default="entropy",
        ),
    ] = None,
    raw: Raw = False,
    device: Device = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pictures at a time.")] = None,
) -> None:
    """What a run says about new pictures, one row each, and how sure it is.

    A picture that cannot be read is a row with an error. Exit code 0, or 3 if none could be read.
    """
    from bayesdg.tabular import check_table

    if out is not None:
        check_table(out)
        check_folder(out.parent)
        if as_json:
            raise UsageError("--json is for standard output; --out FILE.jsonl writes JSON lines")
    elif sys.stdout is None:
        raise UsageError("standard output is closed; --out FILE writes a table to a file")
    rejecting = _rejecting(reject_above, reject_by)
    ignored: Counter[str] = Counter()
    files = _first_ahead(paths, ignored)
    found = stored_run(run, device, raw)
    form = _form(found, top, rejecting)
    used = found.used_draws(draws, found.recalibration)
    tally = Tally()
    with _opened(out, form, as_json) as write, _bar(paths, out is not None) as show:
        for rows in found.rows(files, form, used, batch_size):
            write(rows)
            tally.add(rows)
            show(tally.pictures)
    where = f"; written to {shown(out)}" if out else ""
    notes = "".join(f", left out {number} ({why})" for why, number in ignored.items())
    messages.print(f"{tally.in_words()}{notes}{where}", markup=False, soft_wrap=True)
    if tally.broken == tally.pictures:
        raise DataError(f"none of the pictures could be read; {tally.first_error}")


@dataclass
class Tally:
    """What was seen."""

    pictures: int = 0
    broken: int = 0
    rejected: int = 0
    first_error: str = ""

    def add(self, rows: Sequence[Row]) -> None:
        """Some more rows."""
        self.pictures += len(rows)
        self.rejected += sum(row["decision"] == "reject" for row in rows)
        errors = [f"{row['path']}: {row['error']}" for row in rows if row["error"]]
        self.broken += len(errors)
        self.first_error = self.first_error or (errors[0] if errors else "")

    def in_words(self) -> str:
        """One line."""
        words = f"{self.pictures:,} picture{'s' * (self.pictures != 1)}"
        words += f", {self.rejected:,} rejected" if self.rejected else ""
        words += f", {self.broken:,} broken, such as {self.first_error}" if self.broken else ""
        return words


def _first_ahead(paths: Sequence[Path], ignored: Counter[str]) -> Iterator[Path]:
    """The files, of which there has to be one before anything else is done."""
    from bayesdg.data.pictures import picture_files, require_there

    require_there(paths)
    files = picture_files(paths, ignored)
    first = next(files, None)
    if first is None:
        left_out = ", ".join(f"{number} {why}" for why, number in ignored.items())
        raise DataError(
            f"no pictures in {', '.join(map(shown, paths))}"
            + (f" (left out: {left_out})" if left_out else "")
            + f"; files with {', '.join(SUFFIXES)} are looked for"
        )
    return chain([first], files)


def _rejecting(above: float | None, by: str | None) -> tuple[Uncertainty, float] | None:
    from typing import get_args

    from bayesdg.evaluate.recalibration import Uncertainty

    if by is not None:
        choose("uncertainty", by, dict.fromkeys(get_args(Uncertainty)))
        if above is None:
            raise UsageError(f"--reject-by {by} needs a threshold: --reject-above U")
    if above is None:
        return None
    if above != above:
        raise UsageError("--reject-above is no number")
    score: Any = by or "entropy"
    return score, above


def _form(run: Run, top: int, rejecting: tuple[Uncertainty, float] | None) -> Form:
    from bayesdg.evaluate.rows import Form

    sets = run.recalibration.sets if run.recalibration else None
    stored = run.recalibration.rejection if run.recalibration else None
    if rejecting is None and stored is not None:
        rejecting = (stored.score, stored.threshold)
    return Form(run.task.classes, top, rejecting, None if sets is None else sets.threshold)


def _opened(out: Path | None, form: Form, as_json: bool) -> AbstractContextManager[Write]:
    from bayesdg.tabular import table_text

    if out is not None:
        return _whole(out, form)
    return nullcontext(table_text(sys.stdout, form.columns, "json" if as_json else "csv"))


@contextmanager
def _whole(out: Path, form: Form) -> Iterator[Write]:
    """What writes to a file that is there whole or not at all, whatever signal ends this."""
    from bayesdg.tabular import table_file
    from bayesdg.training.signals import Signals

    with Signals().heard(), table_file(out, form.columns) as write:
        yield write


@contextmanager
def _bar(paths: Sequence[Path], to_file: bool) -> Iterator[Callable[[int], None]]:
    """What to tell how many are done; rows and a bar on one terminal would mix."""
    from bayesdg.data.pictures import picture_files

    if not messages.is_terminal or not (to_file or not sys.stdout.isatty()):
        yield lambda done: None
        return
    with messages.status("counting"):
        total = sum(1 for _ in picture_files(paths, Counter()))
    with bar("predicting") as show:
        yield lambda done: show(done, total)
