"""`bayesdg train`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesdg.cli.data import Root, SkipBad
from bayesdg.cli.results import print_results, print_validation
from bayesdg.cli.terminal import TrainingProgress, check_folder, messages
from bayesdg.data.known import KNOWN, check_name, expanded
from bayesdg.errors import UsageError
from bayesdg.names import choose

if TYPE_CHECKING:
    from bayesdg.settings import Settings

ENGINE, LOOK = "Engine", "Looking at the target"


def train(
    dataset: Annotated[
        str, typer.Argument(help="A name that `bayesdg data list` shows, or a folder.")
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(help="The unseen domain; repeatable. Rotated sets have 0 and 90."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="See bayesdg methods; bil without.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="default, paper or released; default without.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps; 10,000 without.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all chance; 0 without.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A timm name or small-cnn; resnet18 without.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the backbone, instead of timm's hub.")
    ] = None,
    no_pretrained: Annotated[
        bool, typer.Option("--no-pretrained", help="Begin with random weights.")
    ] = False,
    root: Root = None,
    skip_bad: SkipBad = False,
    single_source: Annotated[
        bool, typer.Option("--single-source", help="Train on one domain, without invariance.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML, YAML or JSON, such as a settings.json.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for run folders.")] = Path("runs"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Only go on with a run; never begin one.")
    ] = False,
    evaluate_target: Annotated[
        bool,
        typer.Option(
            "--evaluate-target", help="Test on the target when done.", rich_help_panel=LOOK
        ),
    ] = False,
    watch_target: Annotated[
        bool,
        typer.Option(
            "--watch-target",
            help="Record the target's accuracy along the way, too; it decides nothing.",
            rich_help_panel=LOOK,
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=ENGINE)
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="32 or bf16; 32 without.", rich_help_panel=ENGINE)
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="That share each episode.", rich_help_panel=ENGINE)
    ] = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Compile the backbone.", rich_help_panel=ENGINE)
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Same bits on a GPU, too.", rich_help_panel=ENGINE),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves, too.", rich_help_panel=ENGINE)
    ] = False,
) -> None:
    """Train on all domains but the target; the same command again goes on, or says it is done."""
    check_name(dataset)
    if dataset in KNOWN and (domains := KNOWN[dataset].domains):
        if not target:
            raise UsageError(
                f"{dataset} has no target of its own; name one with --target: {', '.join(domains)}"
            )
        for name in target:
            choose("domain", name, dict.fromkeys(domains), where=dataset)
    look = "along" if watch_target else "end" if evaluate_target else None
    settings = chosen_settings(
        config,
        {
            "method": method, "preset": preset, "seed": seed, "training.steps": steps,
            "model.backbone": backbone, "model.weights": weights,
            "model.pretrained": False if no_pretrained else None,
            "data.bad_images": "skip" if skip_bad else None,
            "episode.single_source": True if single_source else None,
            "training.precision": precision, "training.evaluate_target": look,
            "engine.device": device, "engine.processes": processes,
            "engine.compile": True if compile_ else None,
            "engine.deterministic": True if deterministic else None,
            "engine.tensorboard": True if tensorboard else None,
        },
        set_ or [],
    )  # fmt: skip
    out = expanded(out)
    check_folder(out)
    if settings.engine.processes > 1 and "RANK" not in os.environ:
        sys.exit(_launch(settings.engine.processes, out))  # the ranks have said how it went
    _train(dataset, target, root, settings, out, resume)


def chosen_settings(config: Path | None, options: dict[str, Any], texts: list[str]) -> Settings:
    """The preset, then the file, then the options, then --set; the later one wins."""
    from bayesdg.presets import preset

    values = given_settings(config, options, texts)
    base = preset(values.pop("preset", "default"), values.pop("method", "bil"))
    return base.replace(values)


def given_settings(
    config: Path | None, options: dict[str, Any], texts: list[str]
) -> dict[str, Any]:
    """Dotted names -> values: the file, then the options, then --set; the later one wins."""
    from bayesdg.config import assignments, read_config

    given = {name: value for name, value in options.items() if value is not None}
    return {**(read_config(config) if config else {}), **given, **assignments(texts)}


def _train(
    dataset: str,
    target: list[str] | None,
    root: Path | None,
    settings: Settings,
    out: Path,
    resume: bool,
) -> None:
    with messages.status("loading torch"):
        from bayesdg.cli.data import bar
        from bayesdg.data import load_dataset
        from bayesdg.training.about import run_name
        from bayesdg.training.resume import require_begun
        from bayesdg.training.signals import Signals
        from bayesdg.training.train import train as train_run

    first = os.environ.get("RANK", "0") == "0"
    with Signals().heard() as signals:
        with bar("decoding") as decoding:
            loaded = load_dataset(dataset, root, settings.data, decoding)
        if resume:
            require_begun(out, loaded, target, settings)
        for note in loaded.notes if first else ():
            messages.print(f"note: {note}", markup=False, highlight=False)
        path = out / run_name(loaded.name, loaded.split(target).targets, settings)
        progress = TrainingProgress()
        with progress:
            run = train_run(loaded, settings, target, out, progress.watch(settings, path), signals)
    if not first:
        return
    if not progress.begun:
        messages.print(f"done before; to train anew, remove {run.path}", markup=False)
    print_validation(run)
    if run.results:
        print_results(run.results)
    typer.echo(f"written to {run.path}")
    if not run.results:
        look = f"bayesdg evaluate {shlex.quote(str(run.path))}"
        typer.echo(f"the target was not looked at; {look} does it")


def _launch(num: int, out: Path) -> int:
    from bayesdg.training.launch import launch

    # The program may have been started as `bayesdg`, as a module or from a test.
    command = [sys.executable, "-m", "bayesdg", *sys.argv[1:]]
    logs = out / f"ranks-of-{os.getpid()}"
    return launch(command, num, logs, lambda line: messages.print(line, markup=False))
