"""`bayesdg methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from bayesdg.cli.terminal import console

if TYPE_CHECKING:
    from bayesdg.methods import Layer


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
