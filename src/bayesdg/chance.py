"""Where random numbers come from: one independent stream for each purpose and step.

A stream is a function of (seed, purpose, step) alone. So no two purposes share numbers, and a step
draws the same whatever was drawn before it, in whatever order steps are prepared.
"""

from __future__ import annotations

from hashlib import sha256

import torch


def stream_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A seed that no other purpose or step has.

    >>> stream_seed(0, "episode", 1) == stream_seed(0, "episode", 1)
    True
    >>> len({stream_seed(s, p, t) for s in (0, 1) for p in ("a", "b") for t in (0, 1)})
    8
    """
    digest = sha256(f"{seed}/{purpose}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def stream(
    seed: int, purpose: str, step: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator at the beginning of its stream."""
    return torch.Generator(device).manual_seed(stream_seed(seed, purpose, step))
