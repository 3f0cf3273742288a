"""How small tensors, such as indices, get to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """The same on the device; a GPU fetches it by itself, and nobody waits for it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
