"""Weights from files and from timm's hub, and files that should not be trusted."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bayesdg.errors import StoredRunError, UsageError
from bayesdg.models.backbones import SmallCNN, build_backbone, load_weights
from bayesdg.stages import ModelSettings


@pytest.fixture
def trained() -> SmallCNN:
    torch.manual_seed(1)
    network = SmallCNN(1)
    network(torch.randn(4, 1, 8, 8))
    return network


def save(network: torch.nn.Module, path: Path, **extra: torch.Tensor) -> Path:
    tensors = {**network.state_dict(), **extra}
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
def test_weights_file_fills_the_backbone_and_its_head_is_left_aside(
    trained: SmallCNN, tmp_path: Path, name: str
) -> None:
    head = {"fc.weight": torch.zeros(5, 128)}
    path = save(trained, tmp_path / name, **head)
    settings = ModelSettings(backbone="small-cnn", weights=path)
    backbone, width = build_backbone(settings, in_channels=1)
    assert width == 128
    for key, value in trained.state_dict().items():
        assert torch.equal(backbone.state_dict()[key], value)


def test_half_precision_and_wrappers_are_understood(trained: SmallCNN, tmp_path: Path) -> None:
    state = {f"module.{key}": value.half() for key, value in trained.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "wrapped.pt")
    fresh = SmallCNN(1)
    load_weights(fresh, tmp_path / "wrapped.pt")
    assert fresh.layers[0].weight.dtype == torch.float32
    torch.testing.assert_close(
        fresh.layers[0].weight, trained.layers[0].weight, atol=1e-3, rtol=1e-3
    )


class Bomb:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


def test_nothing_in_a_weights_file_is_executed(tmp_path: Path) -> None:
    fuse = tmp_path / "exploded"
    torch.save({"weight": Bomb(fuse)}, tmp_path / "evil.pt")
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Bomb(fuse)))
    for name in ("evil.pt", "evil.pth"):
        with pytest.raises(StoredRunError, match="no safe torch file") as caught:
            load_weights(SmallCNN(1), tmp_path / name)
        assert "weights_only=False" not in str(caught.value)
    assert not fuse.exists()


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\0" * 100, b"PK\3\4 cut"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_damaged_files_are_named(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(content)
    with pytest.raises(StoredRunError, match="damaged"):
        load_weights(SmallCNN(1), path)


def test_files_for_another_network_are_named(trained: SmallCNN, tmp_path: Path) -> None:
    path = save(SmallCNN(3), tmp_path / "rgb.pt")
    with pytest.raises(StoredRunError, match=r"has misshapen layers\.0\.weight; is it a file for"):
        load_weights(SmallCNN(1), path)
    torch.save({"other": torch.zeros(1)}, path)
    with pytest.raises(StoredRunError, match=r"lacks layers\.0\.weight and \d+ more"):
        load_weights(SmallCNN(1), path)
    path = save(trained, tmp_path / "more.pt", surplus=torch.zeros(1))
    with pytest.raises(StoredRunError, match="has unknown surplus"):
        load_weights(SmallCNN(1), path)
    torch.save([1, 2], path)
    with pytest.raises(StoredRunError, match="holds no table of tensors"):
        load_weights(SmallCNN(1), path)
    with pytest.raises(UsageError, match="no weights file at"):
        load_weights(SmallCNN(1), tmp_path / "absent.pt")


def test_unknown_backbone_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        build_backbone(ModelSettings(backbone="resnet81"), 3)
    assert "did you mean 'resnet" in str(caught.value)
    assert "small-cnn and all of timm.list_models()" in str(caught.value)


def test_timm_backbone_without_weights() -> None:
    settings = ModelSettings(backbone="resnet18", pretrained=False)
    backbone, width = build_backbone(settings, in_channels=3)
    assert width == 512
    assert backbone(torch.zeros(2, 3, 64, 64)).shape == (2, 512)


OFFLINE = """
import time, timm, torch
from pathlib import Path
from safetensors.torch import save_file
from bayesdg.errors import UsageError
from bayesdg.models.backbones import build_backbone
from bayesdg.stages import ModelSettings

start = time.monotonic()
try:
    build_backbone(ModelSettings(), 3)
except UsageError as error:
    assert "no pretrained weights for resnet18.tv_in1k" in str(error), error
    assert "--weights, model.weights" in str(error), error
    assert "--no-pretrained, model.pretrained" in str(error), error
    assert chr(10) not in str(error)
else:
    raise AssertionError("there are no weights yet")
assert time.monotonic() - start < 5

torch.manual_seed(0)
original = timm.create_model("resnet18", pretrained=False)
snapshot = Path(HUB, "models--timm--resnet18.tv_in1k", "snapshots", "0123")
snapshot.mkdir(parents=True)
save_file(original.state_dict(), snapshot / "model.safetensors")
refs = snapshot.parent.parent / "refs"
refs.mkdir()
(refs / "main").write_text("0123")
backbone, _ = build_backbone(ModelSettings(), 3)
assert torch.equal(backbone.layer4[1].conv2.weight, original.layer4[1].conv2.weight)
print("loaded")
"""


def test_pretrained_weights_come_from_timms_hub_and_their_absence_is_explained(
    tmp_path: Path,
) -> None:
    """In a process of its own, because the hub reads its settings when it is imported."""
    hub = tmp_path / "hub"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub)}
    script = f"HUB = {str(hub)!r}\n{OFFLINE}"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "loaded", done.stderr


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "ghostnet_050", "convnext_atto"])
def test_the_width_is_that_of_the_features_and_own_weights_fit(name: str, tmp_path: Path) -> None:
    """Networks whose last stage is widened, or that keep layers of theirs under 'head.'."""
    settings = ModelSettings(backbone=name, pretrained=False)
    backbone, width = build_backbone(settings, 3)
    assert backbone.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, width)
    load_weights(backbone, save(backbone, tmp_path / "own.safetensors"))


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'resnet18.tv_in1k'.*resnet18.a1_in1k"):
        build_backbone(ModelSettings(backbone="resnet18.tv_in1", pretrained=False), 3)


UNREACHABLE = """
import time
from bayesdg.errors import UsageError
from bayesdg.models.backbones import build_backbone
from bayesdg.stages import ModelSettings
import timm

start = time.monotonic()
try:
    build_backbone(ModelSettings(), 3)
except UsageError as error:
    assert "the hub is out of reach" in str(error), error
    assert time.monotonic() - start < 5
    print("refused")
"""


def test_a_missing_network_is_told_within_five_seconds(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path)}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", UNREACHABLE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "refused", done.stderr


@pytest.mark.data
def test_reconstructed_imagenet_weights_fit() -> None:
    """BAYESDG_WEIGHTS names a torchvision-layout ResNet-18 file."""
    path = os.environ.get("BAYESDG_WEIGHTS")
    if not path:
        pytest.skip("set BAYESDG_WEIGHTS to a ResNet-18 weights file")
    backbone, width = build_backbone(ModelSettings(weights=Path(path)), 3)
    with torch.no_grad():
        features = backbone.eval()(torch.randn(2, 3, 224, 224))
    assert features.shape == (2, width)
    assert torch.isfinite(features).all()
