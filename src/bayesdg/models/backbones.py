"""From images to one feature vector each: timm's networks by name, or a small one of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.names import unknown
from bayesdg.stages import ModelSettings

SMALL_CNN = "small-cnn"
# `resnet18` alone would be timm's newer recipe; the field compares with torchvision's weights.
SAME_WEIGHTS_AS_THE_FIELD = {"resnet18": "resnet18.tv_in1k", "resnet50": "resnet50.tv_in1k"}
# A classifier head in a weights file, under the names that are in use; ours is built anew.
HEAD_PREFIXES = ("fc.", "head.", "classifier.", "head_dist.")


class SmallCNN(nn.Module):
    """Three convolutions and an average, for small images without pretrained weights."""

    num_features = 128
    early_layers = ("layers.3", "layers.7")  # the ends of the first two blocks

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
    base, _, tag = name.partition(".")
    if not timm.is_model(base):
        known = [SMALL_CNN, *timm.list_models()]
        summary = f"{SMALL_CNN} and all of timm.list_models()"
        raise UsageError(unknown("backbone", settings.backbone, known, summary=summary))
    variants = timm.list_pretrained(f"{base}.*")
    if tag and name not in variants:
        raise UsageError(unknown("backbone", name, [base, *variants]))
    from_hub = settings.pretrained and settings.weights is None
    if from_hub:
        _check_hub(name)
    network = timm.create_model(name, pretrained=from_hub, num_classes=0, in_chans=in_channels)
    return _with_weights(network, settings), _width(network)


def _check_hub(name: str) -> None:
    """Say at once when weights are neither stored here nor in reach; timm would retry for 50 s."""
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    entry = timm.get_pretrained_cfg(name)
    repository = getattr(entry, "hf_hub_id", None)
    if not repository:
        raise UsageError(
            f"timm has no pretrained weights for {name}; start from random ones "
            "(--no-pretrained, model.pretrained = false)"
        )
    if any(
        isinstance(try_to_load_from_cache(repository, file), str)
        for file in ("model.safetensors", "pytorch_model.bin")
    ):
        return
    if not constants.is_offline_mode() and _answers(constants.ENDPOINT):
        return
    # Where timm names the file its weights were made from, its name ends in a checksum.
    address = getattr(entry, "url", None) or ""
    checksum = re.search(r"-([0-9a-f]{8,64})\.\w+$", address)
    such_as = f" such as {address}, whose sha256 begins {checksum[1]}," if checksum else ""
    raise UsageError(
        f"no pretrained weights for {name}: model.safetensors of {repository} is not in "
        f"{constants.HF_HUB_CACHE} and the hub is out of reach; connect to the network once, give "
        f"a weights file (--weights, model.weights){such_as} or start from random ones "
        "(--no-pretrained, model.pretrained = false)"
    )


def _answers(endpoint: str) -> bool:
    """Whether a connection can be made, directly or through a proxy, within three seconds."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(endpoint, timeout=3):
            return True
    except HTTPError:
        return True
    except (OSError, ValueError):
        return False


def _width(network: nn.Module) -> int:
    """Features per image; some networks widen them once more after the last stage."""
    return cast(int, getattr(network, "head_hidden_size", None) or network.num_features)


def _with_weights(network: nn.Module, settings: ModelSettings) -> nn.Module:
    if settings.weights is not None:
        load_weights(network, settings.weights)
    return network


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill a backbone from a safetensors or torch file; nothing in the file is ever executed.

    A classifier head is left aside; every other tensor has to fit. Half precision is cast.
    """
    own = network.state_dict()
    found = read_tensors(path)
    # Some backbones have layers of their own under the name of a head.
    state = {k: v for k, v in found.items() if k in own or not k.startswith(HEAD_PREFIXES)}
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
