"""Tables as pure functions of records. Imports no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayesdg.errors import UsageError
from bayesdg.records import ResultRecord


@dataclass(frozen=True)
class Cell:
    """A figure over seeds.

    Attributes:
        mean: Over seeds.
        std: Sample standard deviation (ddof 1); None for a single seed, which has none.
        num_seeds: How many.
    """

    mean: float
    std: float | None
    num_seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Cell:
        """Mean and standard deviation of one value per seed.

        >>> Cell.of([1.0, 3.0])
        Cell(mean=2.0, std=1.4142135623730951, num_seeds=2)
        """
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(variance), len(values))


# (metric, role of the domain) -> Cell
Row = dict[tuple[str, str], Cell]


def by_method(results: Iterable[ResultRecord]) -> dict[str, Row]:
    """One row per method: each metric averaged over the domains of a role, then over seeds.

    Domains weigh the same whatever their size. Results with different statistics of batch norm are
    refused: nothing ordinary is averaged with what is transductive.
    """
    results = list(results)
    kinds = sorted({result.statistics for result in results})
    if len(kinds) > 1:
        raise UsageError(
            f"results with the statistics {' and '.join(kinds)} would be mixed; give those of one"
        )
    per_seed: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for result in results:
        for metric, value in result.metrics.items():
            per_seed[result.method, metric, result.role, result.seed].append(value)
    per_cell: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (method, metric, role, _), values in per_seed.items():
        per_cell[method, metric, role].append(math.fsum(values) / len(values))
    rows: dict[str, Row] = defaultdict(dict)
    for (method, metric, role), values in per_cell.items():
        rows[method][metric, role] = Cell.of(values)
    return dict(rows)
