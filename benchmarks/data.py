"""How fast pixels come: our store and augmentation against a DataLoader, in one run.

The DataLoader is what the field uses: PIL decodes a JPEG, torchvision crops, flips, jitters and
normalises it, one worker process per core. Ours decodes once, keeps bytes, and changes a batch at
a time on the device. Both deliver augmented float batches of 352 images at 224 pixels, the size of
an episode (128 + 2 x 7 x 16).

    python benchmarks/data.py FOLDER --json results/speed/data-cpu.json

FOLDER is domain/class/image with at least three domains, such as PACS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import nn

from bayesdg.chance import stream
from bayesdg.data import load_dataset
from bayesdg.data.augment import augment
from bayesdg.data.placing import placed
from bayesdg.data.tree import read_tree
from bayesdg.episodes import EpisodeSampler
from bayesdg.models.backbones import build_backbone
from bayesdg.settings import Settings
from bayesdg.stages import AugmentationSettings, DataSettings, ModelSettings
from bayesdg.training.loop import episodes

BATCH, PER_CLASS = 128, 16
IMAGES = 352


class Files(torch.utils.data.Dataset[torch.Tensor]):
    """The DataLoader's side: one file, decoded and changed each time it is asked for."""

    def __init__(self, folder: Path) -> None:
        from torchvision.transforms import v2

        tree = read_tree(folder)
        self.paths = [tree.root / entry.path for entry in tree.entries]
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(224, scale=(0.8, 1.2), ratio=(3 / 4, 4 / 3)),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB"))


def loader_batches(folder: Path, device: torch.device) -> Iterator[torch.Tensor]:
    """Batches of a DataLoader with all cores, on the device."""
    files = Files(folder)
    sampler = torch.utils.data.RandomSampler(files, replacement=True, num_samples=10**7)
    loader = torch.utils.data.DataLoader(
        files, batch_size=IMAGES, sampler=sampler, num_workers=os.cpu_count() or 1,
        pin_memory=device.type == "cuda", persistent_workers=True,
    )  # fmt: skip
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def our_batches(folder: Path, device: torch.device, storage: str) -> Iterator[torch.Tensor]:
    """Augmented episodes as the training loop gets them."""
    data = DataSettings(storage=storage)  # type: ignore[arg-type]
    dataset = load_dataset(str(folder), data=data)
    names = list(dataset.domains)[:3]
    train = placed({name: dataset.domains[name].train for name in names}, device, data)
    sampler = EpisodeSampler(train, BATCH, PER_CLASS, "episode")
    settings = Settings(data=data).replace({"training.steps": 10**6})
    mean, std = (torch.tensor(x, device=device).view(-1, 1, 1) for x in (dataset.mean, dataset.std))
    for _, episode in episodes(sampler, settings, device, "photo"):
        yield (episode.images - mean) / std  # the network does this, the DataLoader did it


def images_per_second(
    batches: Iterator[torch.Tensor], device: torch.device, seconds: float
) -> float:
    """After five batches to warm up."""
    for _ in range(5):
        next(batches)
    wait(device)
    start, images = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        images += len(next(batches))
    wait(device)
    return images / (time.perf_counter() - start)


def milliseconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of a piece of work, after warming up."""
    for _ in range(max(2, repeats // 5)):
        work()
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training_step(device: torch.device, num: int) -> Callable[[], None]:
    """A ResNet-18 step in bf16, channels last, eager, on ready-made images."""
    backbone, width = build_backbone(ModelSettings(pretrained=False), 3)
    network = nn.Sequential(backbone, nn.Linear(width, 7)).to(
        device, memory_format=torch.channels_last
    )
    optimiser = torch.optim.Adam(network.parameters(), fused=device.type == "cuda")
    images = torch.rand(num, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(7, (num,), device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def main() -> None:
    """Print a table; write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    repeats = 50 if device.type == "cuda" else 3

    speed = {
        "DataLoader, PIL, torchvision": images_per_second(
            loader_batches(arguments.folder, device), device, arguments.seconds
        )
    }
    for storage in ("device", "disk"):
        batches = our_batches(arguments.folder, device, storage)
        speed[f"bayesdg, pixels on {storage}"] = images_per_second(
            batches, device, arguments.seconds
        )
        batches.close()  # type: ignore[attr-defined]
    reference = speed["DataLoader, PIL, torchvision"]
    for name, value in speed.items():
        print(f"{name:34}{value:12,.0f} images/s{value / reference:10.1f} x")

    pixels = torch.randint(256, (IMAGES, 3, 224, 224), dtype=torch.uint8, device=device)
    settings = AugmentationSettings()
    chance = stream(0, "augmentation", 1, device)
    ours = milliseconds(lambda: augment(pixels, settings, chance), device, repeats)
    num = IMAGES if device.type == "cuda" else 32
    step = milliseconds(training_step(device, num), device, repeats) * IMAGES / num
    print(f"augmentation of {IMAGES} images {ours:10.2f} ms")
    print(f"ResNet-18 step, bf16, eager    {step:10.2f} ms; share {100 * ours / step:.1f}%")
    if arguments.json:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        about = {
            "command": f"python benchmarks/data.py FOLDER --device {device}",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{name}, {os.cpu_count()} cores",
            "torch": torch.__version__,
            "images_per_second": speed,
            "augmentation_ms": ours,
            "resnet18_bf16_step_ms": step,
            "augmentation_share": ours / step,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
