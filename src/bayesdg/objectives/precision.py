"""Statistics are computed in float32 or better, whatever precision the network runs in."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """x, upcast if it comes from half precision."""
    return x.float() if x.dtype.itemsize < 4 else x


def no_autocast(like: Tensor) -> torch.autocast:
    """A context in which matrix products on the device of `like` keep their precision."""
    return torch.autocast(like.device.type, enabled=False)
