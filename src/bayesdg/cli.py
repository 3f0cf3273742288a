"""The command line. Imports no torch before a command needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bayesdg import __version__
from bayesdg.errors import BayesdgError, UsageError
from bayesdg.names import unknown

if TYPE_CHECKING:
    from bayesdg.methods import Layer
    from bayesdg.records import StepRecord
    from bayesdg.settings import Settings
    from bayesdg.tables import Row

app = typer.Typer(
    name="bayesdg",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bayesian domain generalization: image classifiers for domains nobody has seen, "
    "that say how sure they are.",
)
console = Console()
messages = Console(stderr=True)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """See the app's help."""
    if version:
        typer.echo(f"bayesdg {__version__}")
        raise typer.Exit


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    method: Annotated[
        list[str] | None, typer.Option(help="A method; repeatable. Default: erm and bil.")
    ] = None,
    preset: Annotated[str, typer.Option(help="default, paper or released.")] = "default",
) -> None:
    """Train the baseline and the Bayesian method on real digits, about a minute.

    scikit-learn's handwritten digits, turned by 15 to 75 degrees, are five source domains; 0 and
    90 degrees are never seen in training. Nothing is downloaded.
    """
    from bayesdg.methods import get_method
    from bayesdg.settings import PRESETS
    from bayesdg.tables import by_method

    methods = tuple(dict.fromkeys(method or ("erm", "bil")))
    for name in methods:
        get_method(name)
    if preset not in PRESETS:
        raise UsageError(unknown("preset", preset, PRESETS))
    _check_folder(out)

    with messages.status("loading torch"):
        from bayesdg.quickstart import run_quickstart
    progress = _Progress(len(methods) * seeds)
    with progress:
        results, folders = run_quickstart(
            out, methods, range(seed, seed + seeds), preset, progress.watch
        )
    reused = len(folders) - progress.begun
    if reused:
        messages.print(f"{reused} of {len(folders)} runs were done before and are shown again")
    last = f"-{seed + seeds - 1}" if seeds > 1 else ""
    title = f"rotated-digits, preset {preset}, seed{'s' if last else ''} {seed}{last}"
    console.print(_method_table(title, by_method(results)))
    console.print(
        "in: test images at 15, 30, 45, 60, 75 degrees; out: at 0 and 90, unseen in training\n"
        "weights chosen by accuracy on validation images of the source domains",
        style="dim",
    )
    console.print(f"\nwritten to {escape(str(out))}: settings, records and weights of each run")
    console.print("\nnext")
    console.print("  bayesdg quickstart --seeds 5      is the difference there for every seed?")
    console.print("  bayesdg methods                   every row of the paper's ablations")
    shown = escape(str(folders[-1]))
    console.print(f'  python -c "import bayesdg as bd; print(bd.load_run({shown!r}).results[-1])"',
                  soft_wrap=True)  # fmt: skip


@app.command()
def methods() -> None:
    """List the methods: which layers are Bayesian, which are made invariant."""
    from bayesdg.methods import METHODS

    table = Table(title="B: Bayesian, I: invariant across domains", title_justify="left")
    for column in ("name", "psi", "phi", "phi'", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    for name, row in METHODS.items():
        layers = (row.psi, row.phi, row.phi_prime)
        ticks = ["" if layer is None else _ticks(layer) for layer in layers]
        table.add_row(name, *ticks, row.about)
    console.print(table)


def _ticks(layer: Layer) -> str:
    return f"{'B' if layer.bayes else '-'} {'I' if layer.invariant else '-'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code says how it went (see errors.py)."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=arguments, prog_name="bayesdg", standalone_mode=False)
        exit_code = result if isinstance(result, int) else 0
        # typer turns Ctrl-C into this number without a word.
        return _fail("stopped", exit_code) if exit_code == 130 else exit_code
    except BayesdgError as error:
        return _fail(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("stopped", 130)
    except BrokenPipeError:
        # `bayesdg ... | head`: whoever read has seen enough.
        with suppress(OSError):
            sys.stdout.close()
        return 0
    except typer.TyperException as error:
        # An empty message is the help that stands for a missing command.
        return _fail(_usage_message(error), 2) if error.message else 2


def _fail(message: str, exit_code: int) -> int:
    one_line = " ".join(message.split())
    messages.print(f"bayesdg: {escape(one_line)}", soft_wrap=True, highlight=False)
    return exit_code


def _usage_message(error: Exception) -> str:
    """typer's complaint with the nearest match and the allowed names, in one line."""
    context = getattr(error, "ctx", None)
    known: list[str] = []
    if context is not None:
        known = [name for p in context.command.params for name in p.opts if name.startswith("--")]
    message = str(getattr(error, "message", error))
    if message.startswith("No such option"):
        return unknown("option", getattr(error, "option_name", ""), [*known, "--help"])
    if message.startswith("No such command") and context is not None:
        wanted = message.split("'")[1]
        return unknown("command", wanted, list(context.command.commands))
    full = error.format_message() if hasattr(error, "format_message") else message
    return f"{full}; see bayesdg {getattr(context, 'info_name', '')} --help"


def _check_folder(folder: Path) -> None:
    """Before the work, not after it: can results be written there?"""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"--out {folder} cannot be written to ({error.strerror}); give another folder"
        ) from None


def _method_table(title: str, rows: dict[str, Row]) -> Table:
    """Accuracy, NLL and ECE in and out of distribution, the best of each column in bold."""
    columns = [
        (metric, role) for metric in ("accuracy", "nll", "ece") for role in ("source", "target")
    ]
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for metric, role in columns:
        label = {"accuracy": "accuracy %", "nll": "NLL", "ece": "ECE %"}[metric]
        table.add_column(f"{label}\n{'in' if role == 'source' else 'out'}", justify="right")
    best = {
        column: (max if column[0] == "accuracy" else min)(row[column].mean for row in rows.values())
        for column in columns
    }
    for method, row in rows.items():
        cells = []
        for column in columns:
            scale, digits = (1, 3) if column[0] == "nll" else (100, 1)
            cell = row[column]
            text = f"{cell.mean * scale:.{digits}f}"
            if cell.std is not None:
                text += f" ± {cell.std * scale:.{digits}f}"
            is_best = len(rows) > 1 and cell.mean == best[column]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(method, *cells)
    return table


class _Progress:
    """A bar with the remaining time per run; plain lines where no terminal listens."""

    def __init__(self, num_runs: int) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.num_runs = num_runs
        self.begun = 0
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"), console=messages, disable=not messages.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> _Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def watch(self, settings: Settings) -> Callable[[StepRecord], None]:
        """Begin a bar for a run and return what moves it."""
        self.begun += 1
        steps = settings.training.steps
        name = f"{settings.method} seed {settings.seed}"
        bar = self._bars.add_task(escape(name), total=steps, note="")

        def advance(record: StepRecord) -> None:
            note = f"loss {record.loss:.2f}"
            if record.source_val is not None:
                mean = sum(record.source_val.values()) / len(record.source_val)
                note += f"  source validation {100 * mean:.1f}%"
                if not messages.is_terminal:
                    messages.print(
                        f"{name}: step {record.step} of {steps}, {note}", highlight=False
                    )
            self._bars.update(bar, completed=record.step, note=note)

        return advance
