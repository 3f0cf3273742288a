"""Where training pixels wait: on the device, in memory, or on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bayesdg.data.domains import Images, ImageSet, Rows
from bayesdg.data.rotated import Turned
from bayesdg.errors import ResourceError
from bayesdg.stages import DataSettings

# Images are copied this many at a time, so that copying needs no second copy of all.
CHUNK = 256


def placed(
    sets: Mapping[str, ImageSet], device: torch.device, data: DataSettings
) -> dict[str, ImageSet]:
    """The same images, as near to the device as they fit.

    'auto' takes the device if all fit into what it may hold, else leaves them where they are:
    memory, or a file from which the system keeps in memory what it can.
    """
    # Turned images weigh little and are turned where they are used: a device that rounds otherwise
    # than another must not be met by chance.
    sets = {name: _turned_on(device, images) for name, images in sets.items()}
    needed = sum(num_bytes(images) for images in sets.values())
    storage = data.storage
    if storage == "auto":
        limit = data.memory_limit_gb
        room = free_bytes(device) // 2 if limit is None else int(limit * 2**30)
        storage = "device" if needed <= room else "disk"
    if storage == "disk":
        return dict(sets)
    goal = device if storage == "device" else torch.device("cpu")
    if needed > free_bytes(goal):
        raise ResourceError(
            f"the training pixels need {needed / 2**30:.1f} GiB, {goal} has "
            f"{free_bytes(goal) / 2**30:.1f} free; use data.storage = disk or a smaller "
            "data.image_size"
        )
    return {name: replace(s, images=_copied(s.images, goal)) for name, s in sets.items()}


def _turned_on(device: torch.device, images: ImageSet) -> ImageSet:
    held = images.images
    if isinstance(held, Turned):
        return replace(images, images=held.to(device))
    if isinstance(held, Rows) and isinstance(held.images, Turned):
        return replace(images, images=replace(held, images=held.images.to(device)))
    return images


def num_bytes(images: ImageSet) -> int:
    """Of the pixels, in the form in which they wait."""
    held = images.images
    if len(images) == 0:
        return 0
    if isinstance(held, Turned):
        return held.upright.nbytes
    first = held[torch.zeros(1, dtype=torch.int64)]
    return first.nbytes * len(images)


def free_bytes(device: torch.device) -> int:
    """What the device, or this machine, has to give."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        try:
            with open("/proc/meminfo", encoding="ascii") as file:
                fields = dict(line.split(":") for line in file)
            return int(fields["MemAvailable"].split()[0]) * 1024
        except (OSError, KeyError, ValueError):
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**33  # unknown: assume a small laptop


def _copied(images: Images, device: torch.device) -> Images:
    if isinstance(images, Turned):
        return images
    if isinstance(images, Tensor):
        return images.to(device)
    num = images.shape[0]
    first = images[torch.zeros(1, dtype=torch.int64)]
    copy = torch.empty((num, *first.shape[1:]), dtype=first.dtype, device=device)
    for index in torch.arange(num).split(CHUNK):
        copy[int(index[0]) : int(index[-1]) + 1] = images[index].to(device)
    return copy
