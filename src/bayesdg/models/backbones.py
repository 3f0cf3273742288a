"""From images to one feature vector each: timm's networks by name, or a small one of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.names import unknown
from bayesdg.settings import ModelSettings

SMALL_CNN = "small-cnn"
# `resnet18` alone would be timm's newer recipe; the field compares with torchvision's weights.
SAME_WEIGHTS_AS_THE_FIELD = {"resnet18": "resnet18.tv_in1k", "resnet50": "resnet50.tv_in1k"}
# A classifier head in a weights file, under the names that are in use; ours is built anew.
HEAD_PREFIXES = ("fc.", "head.", "classifier.", "head_dist.")


class SmallCNN(nn.Module):
    """Three convolutions and an average, for small images without pretrained weights."""

    num_features = 128

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_block(in_channels, 32), nn.MaxPool2d(2), *_block(32, 64), nn.MaxPool2d(2),
            *_block(64, self.num_features), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """(R, C, H, W) -> (R, num_features)."""
        return cast(Tensor, self.layers(images))


def _block(in_channels: int, out_channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    ]


def build_backbone(settings: ModelSettings, in_channels: int) -> tuple[nn.Module, int]:
    """The backbone and the number of features it returns."""
    if settings.backbone == SMALL_CNN:
        small = SmallCNN(in_channels)
        return _with_weights(small, settings), small.num_features

    import timm  # seconds, and only here

    name = SAME_WEIGHTS_AS_THE_FIELD.get(settings.backbone, settings.backbone)
    if not timm.is_model(name.split(".")[0]):
        near = [SMALL_CNN, *timm.list_models()]
        hint = (
            unknown("backbone", settings.backbone, near).split("; allowed")[0].split("allowed")[0]
        )
        raise UsageError(f"{hint.rstrip()} allowed: {SMALL_CNN} and all of timm.list_models()")
    from_hub = settings.pretrained and settings.weights is None
    try:
        network = timm.create_model(name, pretrained=from_hub, num_classes=0, in_chans=in_channels)
    except (OSError, RuntimeError, ValueError) as error:
        if not from_hub:
            raise
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"no pretrained weights for {name}: {reason}; connect to the network once, give a "
            "weights file (model.weights) or start from random weights (model.pretrained=false)"
        ) from error
    return _with_weights(network, settings), cast(int, network.num_features)


def _with_weights(network: nn.Module, settings: ModelSettings) -> nn.Module:
    if settings.weights is not None:
        load_weights(network, settings.weights)
    return network


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill a backbone from a safetensors or torch file; nothing in the file is ever executed.

    A classifier head is left aside; every other tensor has to fit. Half precision is cast.
    """
    state = {key: value for key, value in read_tensors(path).items() if not _is_head(key)}
    own = network.state_dict()
    # Old files lack the batch counters of batch norm, which no inference uses.
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    extra = [key for key in state if key not in own]
    misfit = [key for key in state if key in own and state[key].shape != own[key].shape]
    for what, keys in (("lacks", missing), ("has unknown", extra), ("has misshapen", misfit)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise StoredRunError(
                f"{path} does not fit {type(network).__name__}: it {what} {keys[0]}{more}; "
                "is it a file for this backbone?"
            )
    network.load_state_dict({key: value.to(own[key].dtype) for key, value in state.items()}, False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pt or .pth file by name."""
    if not path.is_file():
        raise UsageError(f"no weights file at {path}")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise StoredRunError(f"{path} is not a whole safetensors file: {error}") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    # torch reports damage with a dozen types, and its text advises to switch the safety off.
    except Exception as error:
        raise StoredRunError(
            f"{path} is no safe torch file of tensors ({type(error).__name__}); "
            "save the state_dict alone, or as .safetensors"
        ) from None
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    return _plain_tensors(path, content)


def _plain_tensors(path: Path, content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise StoredRunError(f"{path} holds no table of tensors")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def _is_head(key: str) -> bool:
    return key.startswith(HEAD_PREFIXES)
