"""The objective as named terms: what is computed is decided here, how much it weighs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Terms:
    """Scalars by name; the same names appear in settings, records and tables.

    >>> import torch
    >>> Terms({"nll": torch.tensor(2.0), "kl": torch.tensor(3.0)}).total({"kl": 0.1, "nll": 1.0})
    tensor(2.3000)
    """

    values: Mapping[str, Tensor]

    def total(self, weights: Mapping[str, float]) -> Tensor:
        """The weighted sum; every term needs a weight, so that none is dropped by a typo."""
        missing = self.values.keys() - weights.keys()
        if missing:
            raise KeyError(f"no weight for the terms {', '.join(sorted(missing))}")
        return sum(
            (weights[name] * value for name, value in self.values.items()),
            start=next(iter(self.values.values())).new_zeros(()),
        )

    def numbers(self) -> dict[str, float]:
        """The values as plain numbers, for a record; waits for the device."""
        return {name: float(value.detach()) for name, value in self.values.items()}
