"""`bayesdg data`: what there is, whether it is sound, what it looks like, how to get it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from bayesdg.cli.terminal import check_folder, console, messages
from bayesdg.data.known import KNOWN, check_name, data_root, is_present, place_of
from bayesdg.errors import DataError, UsageError
from bayesdg.names import choose

if TYPE_CHECKING:
    from bayesdg.data.check import Report

data_app = typer.Typer(no_args_is_help=True, help="Data sets: list, check, show, get.")
Root = Annotated[
    Path | None, typer.Option(help="Where data sets lie; else BAYESDG_DATA, else your cache.")
]
Name = Annotated[str, typer.Argument(help="A name from the list, or a folder DOMAIN/CLASS/IMAGE.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without broken images.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data for a program.")]


@data_app.command("list")
def list_data(root: Root = None, as_json: AsJson = False) -> None:
    """What is known, where it would be looked for, and how to get it."""
    place = data_root(root)
    rows = [
        {
            "name": name,
            "present": is_present(name, place),
            "place": "" if known.kind == "digits" else str(place_of(name, place)),
            "about": known.about,
            "get": known.page,
            "layout": known.layout,
        }
        for name, known in KNOWN.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        state = "present" if row["present"] else "missing"
        typer.echo(f"{row['name']:24}{state}   {row['about']}")
        if row["place"]:
            typer.echo(f"{'':24}at      {row['place']}")
        if not row["present"]:
            typer.echo(f"{'':24}get     {row['get']}")
            typer.echo(f"{'':24}holds   {row['layout']}")
    typer.echo(f"\nroot: {place}  (--root or BAYESDG_DATA for another)")
    typer.echo("any folder DOMAIN/CLASS/IMAGE works by its path")


@data_app.command()
def check(
    name: Name,
    root: Root = None,
    skip_bad: SkipBad = False,
    split_file: Annotated[
        Path | None, typer.Option(help="CSV with path, domain, class, split.")
    ] = None,
    write_manifest: Annotated[
        bool, typer.Option("--write-manifest", help="Write manifest.sha256 into the folder.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open every image; exit code 3 when training would not be safe."""
    from bayesdg.settings import settings_from

    check_name(name)
    wanted = {"bad_images": "skip" if skip_bad else "error", "split_file": split_file}
    data = settings_from({"data": wanted}).data
    kind = KNOWN[name].kind if name in KNOWN else "folder"
    if kind == "folder":
        from bayesdg.data.check import check_folder

        with bar("checking") as progress:
            report = check_folder(name, data_root(root), data, progress, write_manifest)
    else:
        if skip_bad or split_file or write_manifest:
            raise UsageError(
                f"{name} has no files of its own; --skip-bad, --split-file and --write-manifest "
                "are for folders"
            )
        report = _check_rotated(name, data_root(root))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), indent=1))
    else:
        _print_report(report)
    if report.unsafe:
        raise DataError(f"{name} is not safe to train on: {'; '.join(report.unsafe)}")


@data_app.command()
def show(
    name: Name,
    root: Root = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("contact-sheet.png"),
    columns: Annotated[int, typer.Option(min=1, max=100, help="Pictures per domain.")] = 10,
    augmented: Annotated[bool, typer.Option("--augmented", help="As training sees them.")] = False,
    image_size: Annotated[int | None, typer.Option(min=8, help="Side in pixels.")] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Write a contact sheet, a PNG with one row per domain."""
    from bayesdg.settings import settings_from
    from bayesdg.stages import AugmentationSettings

    check_name(name)
    check_folder(out.parent)
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; give the name of a picture, such as {out}.png")
    with messages.status("loading torch"):
        from bayesdg.data import load_dataset
        from bayesdg.data.sheet import contact_sheet
    wanted = {"bad_images": "skip" if skip_bad else "error", "image_size": image_size}
    data = settings_from({"data": wanted}).data
    with bar("decoding") as progress:
        dataset = load_dataset(name, root, data, progress)
    if augmented and dataset.augmentation == "none":
        typer.echo(f"training does not augment {dataset.name}; shown as it is")
        augmented = False
    sheet = contact_sheet(dataset, columns, AugmentationSettings() if augmented else None)
    sheet.save(out, format="PNG")
    typer.echo(f"written to {out}")


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from the list.")],
    root: Root = None,
    archive: Annotated[
        Path | None, typer.Option(help="Unpack this zip or tar instead of downloading.")
    ] = None,
) -> None:
    """Download a data set, or unpack one you have downloaded."""
    known = choose("data set", name, KNOWN)
    place = data_root(root)
    if known.kind == "digits":
        typer.echo(f"{name} is part of scikit-learn; there is nothing to get")
        return
    target = place / known.folder
    if archive is not None:
        from bayesdg.data.archives import unpack

        check_folder(place, "--root")
        unpack(archive, target)
    elif known.kind == "idx":
        if not is_present(name, place):
            check_folder(place, "--root")
        _download_idx(known.folder, place)
    else:
        raise UsageError(
            f"{name} cannot be downloaded by a program; get it from {known.page}, then "
            f"bayesdg data get {name} --archive FILE, or unpack it to {target}"
        )
    typer.echo(f"{name} is at {target}; bayesdg data check {name} looks at all of it")


def _download_idx(folder: str, place: Path) -> None:
    """Through torchvision, which compares checksums."""
    from http.client import HTTPException

    with messages.status("loading torchvision"):
        from torchvision import datasets

        from bayesdg.data.archives import unless_of_the_disk
    try:
        getattr(datasets, folder)(str(place), download=True)
    except (AssertionError, LookupError, TypeError, ValueError):  # what torchvision says to it
        raise DataError(
            f"what is in {place / folder / 'raw'} is damaged; remove it, and the same command gets "
            "it anew"
        ) from None
    except (OSError, HTTPException, RuntimeError) as error:
        unless_of_the_disk(error, place)
        raise DataError(
            f"{folder} could not be downloaded to {place}: {error}; is there a network?"
        ) from None


def _check_rotated(name: str, root: Path) -> Report:
    """Rotated sets have no files of their own: load them and count."""
    from bayesdg.data import load_dataset
    from bayesdg.data.check import Report

    dataset = load_dataset(name, root)
    counts = {
        domain.name: {
            f"{part} {label}": int((getattr(domain, part).labels == index).sum())
            for part in ("train", "val", "test")
            for index, label in enumerate(dataset.classes)
        }
        for domain in dataset.domains.values()
    }
    return Report(name, counts, {}, {}, {}, [], [], [], [])


def _print_report(report: Report) -> None:
    classes = list(next(iter(report.counts.values())))
    table = Table(title=escape(report.name), title_justify="left", box=None)
    # Many classes do not fit beside each other: then they go below each other.
    table.add_column("class")
    for domain in report.counts:
        table.add_column(escape(domain), justify="right")
    for label in classes:
        numbers = [row[label] for row in report.counts.values()]
        table.add_row(escape(label), *(str(n) if n else "[bold red]0[/bold red]" for n in numbers))
    totals = [sum(row.values()) for row in report.counts.values()]
    table.add_row("[bold]all[/bold]", *(f"[bold]{n}[/bold]" for n in totals))
    console.print(table)
    console.print(f"{sum(totals)} images", highlight=False)
    _print_some("broken", [f"{path}: {why}" for path, why in report.broken.items()])
    kinds: dict[str, int] = {}
    for oddities in report.odd.values():
        for oddity in oddities:
            kinds[oddity.split(":")[0]] = kinds.get(oddity.split(":")[0], 0) + 1
    for kind, number in kinds.items():
        path, oddity = next(
            (p, o) for p, odd in report.odd.items() for o in odd if o.split(":")[0] == kind
        )
        detail = oddity.partition(": ")[2]
        typer.echo(f"{kind}: {number} images, such as {path}{detail and f' ({detail})'}")
    for reason, number in report.ignored.items():
        typer.echo(f"ignored, {reason}: {number}")
    _print_some("same content", [" = ".join(group) for group in report.duplicates])
    _print_some("look alike", [" ~ ".join(group) for group in report.look_alikes])
    for warning in report.warnings:
        typer.echo(f"note: {warning}")


def _print_some(heading: str, lines: list[str], most: int = 20) -> None:
    for line in lines[:most]:
        typer.echo(f"{heading}: {line}")
    if len(lines) > most:
        typer.echo(f"{heading}: and {len(lines) - most} more (--json has all)")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; nothing where no terminal listens."""
    from rich.progress import Progress

    with Progress(console=messages, disable=not messages.is_terminal, transient=True) as bars:
        bar = bars.add_task(what)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
