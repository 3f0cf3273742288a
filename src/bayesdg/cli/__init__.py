"""The command line. Imports no torch before a command needs it."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSPC
from typing import Annotated

import typer
from rich.markup import escape

from bayesdg import __version__
from bayesdg.cli.bench import bench
from bayesdg.cli.calibrate import calibrate
from bayesdg.cli.data import data_app
from bayesdg.cli.evaluate import evaluate
from bayesdg.cli.export import export
from bayesdg.cli.failures import failures
from bayesdg.cli.figure import figure
from bayesdg.cli.methods import methods
from bayesdg.cli.predict import predict
from bayesdg.cli.quickstart import quickstart
from bayesdg.cli.report import report
from bayesdg.cli.table import table
from bayesdg.cli.terminal import messages
from bayesdg.cli.train import train
from bayesdg.cli.verify import verify
from bayesdg.cli.watch import watch
from bayesdg.errors import BayesdgError
from bayesdg.names import unknown

app = typer.Typer(
    name="bayesdg",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bayesian domain generalization: image classifiers for domains nobody has seen, "
    "that say how sure they are.",
)
app.command()(quickstart)
app.command()(train)
app.command()(evaluate)
app.command()(failures)
app.command()(export)
app.command()(table)
app.command()(verify)
app.command()(calibrate)
app.command()(predict)
app.command()(report)
app.command()(figure)
app.command()(watch)
app.command()(methods)
app.command()(bench)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """See the app's help."""
    if version:
        typer.echo(f"bayesdg {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code says how it went (see errors.py)."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # a letter the terminal lacks ends no run
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
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise  # the ranks of a run, say, have told how it went
        # `bayesdg ... | head`: whoever read has seen enough. typer makes the second of the first.
        with suppress(OSError):
            sys.stdout.close()
        return 0
    except OSError as error:
        # Beyond what the commands foresee: a full disk, a folder that is gone.
        place = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{place}", 5 if error.errno == ENOSPC else 2)
    except Exception as error:
        # typer's own complaints; where it keeps their class depends on its version.
        if not hasattr(error, "format_message"):
            raise
        # An empty message is the help that stands for a missing command.
        return _fail(_usage_message(error), 2) if error.format_message() else 2


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
        quoted = re.search(r"""(['"])(.*?)\1""", message)
        wanted = quoted.group(2) if quoted else ""
        return unknown("command", wanted, list(context.command.commands))
    full = error.format_message() if hasattr(error, "format_message") else message
    return f"{full.rstrip('.')}; see {getattr(context, 'command_path', 'bayesdg')} --help"
