"""Whose images the statistics of batch norm are of: what there is to choose from. Imports no torch.

Results with other statistics than those that training kept stand beside the ordinary ones, never in
their place: who reads results gets the ordinary ones, unless others are asked for by name. Where
images that are judged were looked at, though not their labels, results are transductive, and
everything that shows them says so. How it is done stands in normalised.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdg.records import TRAINED


@dataclass(frozen=True)
class Statistics:
    """One choice.

    Attributes:
        about: Whose they are.
        is_transductive: Whether images that are judged were looked at.
    """

    about: str
    is_transductive: bool = False


STATISTICS = {
    TRAINED: Statistics("that training kept"),
    "sources": Statistics("of the source domains' training images, computed anew"),
    "own": Statistics("of each domain's own judged images, unlabelled", is_transductive=True),
}


def mark(name: str) -> str:
    """What belongs into the title of whatever shows such results; '' for ordinary ones.

    >>> mark("own")
    'TRANSDUCTIVE (own)'
    """
    if name == TRAINED:
        return ""
    return f"{'TRANSDUCTIVE' if STATISTICS[name].is_transductive else 'statistics'} ({name})"


def explanation(name: str) -> str:
    """The same as a whole line; '' for ordinary ones."""
    title = mark(name)
    return title and f"{title}: batch norm takes the statistics {STATISTICS[name].about}"
