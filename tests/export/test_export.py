"""Exported files, asked by onnxruntime and torch, against the run itself."""

import errno
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdg.cli import main
from bayesdg.data import DomainDataset
from bayesdg.errors import NumericError, UsageError
from bayesdg.evaluate.predict import predict_images
from bayesdg.evaluate.recalibration import Recalibration, Rejecting
from bayesdg.export import export
from bayesdg.export.export import as_floats, export_run
from bayesdg.export.formats import FORMATS
from bayesdg.export.frozen import OUTPUTS, Frozen
from bayesdg.methods.learner import Ensemble, build_learner
from bayesdg.settings import Settings
from bayesdg.training.run import Run
from bayesdg.training.train import train

MakeSettings = Callable[..., Settings]
needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, FORMATS["onnx"].needs)), reason="needs the extra export"
)
IMAGES = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def make_run(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> Callable[[str], Run]:
    return lambda method: train(tiny_dataset, tiny_settings(method, {"model.members": 2}))


def asked_by_onnxruntime(path: Path, images: Tensor) -> dict[str, np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"images": images.numpy()}), strict=True))


def assert_same_answers(found: dict[str, np.ndarray], run: Run) -> None:
    expected = run.predict(IMAGES)
    for name, values in found.items():
        assert values.dtype == np.float32
        assert values == pytest.approx(getattr(expected, name), abs=1e-5), name


@needs_onnx
@pytest.mark.parametrize(
    "method",
    [
        "bil",
        pytest.param("erm", marks=pytest.mark.slow),
        pytest.param("dropout", marks=pytest.mark.slow),
        pytest.param("ensemble", marks=pytest.mark.slow),
        pytest.param(
            "laplace",
            marks=[pytest.mark.slow, pytest.mark.skipif(not find_spec("laplace"), reason="extra")],
        ),
        pytest.param("j-deep-invariant", marks=pytest.mark.slow),
    ],
)
def test_onnxruntime_answers_as_the_run_does(
    make_run: Callable[[str], Run], tmp_path: Path, method: str
) -> None:
    """All outputs, for more images than the graph was traced with, every time the same."""
    run = make_run(method)
    done = export_run(run, tmp_path / "run.onnx", real=IMAGES[:3])
    assert (done.num_random, done.num_real) == (5, 3)
    assert done.largest_difference < 1e-5
    found = asked_by_onnxruntime(done.path, IMAGES)
    assert_same_answers(found, run)
    again = asked_by_onnxruntime(done.path, IMAGES)
    assert all((found[name] == again[name]).all() for name in OUTPUTS)
    assert found["entropy"] == pytest.approx(found["aleatoric"] + found["epistemic"], abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["run.onnx"]  # one file, no data beside


@needs_onnx
def test_the_onnx_file_says_what_it_is_and_has_the_backbone_once(
    make_run: Callable[[str], Run], tmp_path: Path
) -> None:
    """As many convolutions as the small CNN has, however many draws."""
    import onnx

    run = make_run("bil")
    done = export_run(run, tmp_path / "run.onnx", draws=20)
    model = onnx.load(done.path)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about["classes"]) == ["low", "mean", "high"]
    assert json.loads(about["image_shape"]) == [1, 8, 8]
    assert json.loads(about["draws"]) == 20
    assert json.loads(about["temperature"]) is None
    assert about["bayesdg_version"] == "0.1.0"
    assert "float32 in 0..1" in about["input"]
    assert str(tmp_path) not in str(about)
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param == "n"
    assert [dim.dim_value for dim in shape[1:]] == [1, 8, 8]
    assert [output.name for output in model.graph.output] == list(OUTPUTS)
    found = [node.op_type for node in model.graph.node].count("Conv")
    assert found == sum(isinstance(module, nn.Conv2d) for module in run.learner.modules())


def test_torch_files_answer_as_the_run_does(make_run: Callable[[str], Run], tmp_path: Path) -> None:
    run = make_run("bil")
    done = export_run(run, tmp_path / "run.pt2", "torch", real=IMAGES[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extra = {"bayesdg.json": ""}
        program = torch.export.load(done.path, extra_files=extra)
    answers = program.module()(IMAGES)
    assert_same_answers(dict(zip(OUTPUTS, map(np.asarray, answers), strict=True)), run)
    assert json.loads(extra["bayesdg.json"])["classes"] == ["low", "mean", "high"]


def test_a_file_of_a_calibrated_run_has_its_temperature_and_tells_its_thresholds(
    make_run: Callable[[str], Run], tmp_path: Path
) -> None:
    """By hand from the file of the same run without: p^(1/T), scaled to sum to 1."""
    run = make_run("bil")
    rejecting = Rejecting(score="entropy", threshold=0.5, wanted="risk 0.1", coverage=0.8, risk=0.1)
    fit = Recalibration(
        weights="", draws=4, domains=("near",), num_images=9, temperature=0.5, rejection=rejecting
    )
    calibrated = replace(run, recalibration=fit)
    export_run(run, tmp_path / "raw.pt2", "torch")
    done = export_run(calibrated, tmp_path / "run.pt2", "torch")
    extra = {"bayesdg.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = torch.export.load(tmp_path / "raw.pt2").module()(IMAGES)
        found = torch.export.load(done.path, extra_files=extra).module()(IMAGES)
    sharper = raw[0] ** 2 / (raw[0] ** 2).sum(-1, keepdim=True)
    torch.testing.assert_close(found[0], sharper)
    for plain, other in zip(raw[1:], found[1:], strict=True):
        torch.testing.assert_close(plain, other)
    assert_same_answers(dict(zip(OUTPUTS, map(np.asarray, found), strict=True)), calibrated)
    about = json.loads(extra["bayesdg.json"])
    assert about["temperature"] == 0.5
    assert about["rejection"] == rejecting.model_dump()
    assert "sets" not in about
    with pytest.raises(UsageError, match="recalibrated for 4 draws, not for 3"):
        export_run(calibrated, tmp_path / "other.pt2", "torch", draws=3)


def test_the_run_itself_is_left_as_it_was(make_run: Callable[[str], Run], tmp_path: Path) -> None:
    run = make_run("bil")
    run.learner.train()
    export_run(run, tmp_path / "run.pt2", "torch")
    assert run.learner.training
    assert all(parameter.requires_grad for parameter in run.learner.parameters())


@pytest.mark.parametrize("method", ["bil", "dropout", "laplace", "ensemble"])
def test_a_frozen_bank_is_that_of_predict(tiny_settings: MakeSettings, method: str) -> None:
    learner = build_learner(tiny_settings(method), 3, 1)
    expected = predict_images(learner, IMAGES, draws=6)
    frozen = Frozen(learner, 6)
    for _ in range(2):
        found = dict(zip(OUTPUTS, frozen(IMAGES), strict=True))
        for name, values in found.items():
            assert values.numpy() == pytest.approx(getattr(expected, name), abs=1e-5)
    assert isinstance(learner, Ensemble) == (method == "ensemble")


def test_the_energy_is_that_of_the_logits_under_each_draw(tiny_settings: MakeSettings) -> None:
    """- mean over draws of log sum_k e^(logit k), in double precision; whatever the temperature."""
    learner = build_learner(tiny_settings("bil"), 3, 1).eval()
    frozen = Frozen(learner, 6, temperature=2.0)
    with torch.no_grad():
        logits = learner.answer(IMAGES, frozen.bank).logits.double().numpy()
        found = frozen(IMAGES)[OUTPUTS.index("energy")].numpy()
    assert logits.shape == (6, 7, 3)
    assert found == pytest.approx(-np.log(np.exp(logits).sum(-1)).mean(0), rel=1e-5)


@pytest.mark.parametrize("output", ["probabilities", "energy"])
@pytest.mark.parametrize("wrong", [1e-3, float("nan")])
def test_a_file_that_answers_otherwise_is_not_kept(
    make_run: Callable[[str], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: float,
    output: str,
) -> None:
    """Writing is as always; the first file, which was right, stays."""
    run = make_run("erm")
    before = export_run(run, tmp_path / "run.pt2", "torch").path.read_bytes()
    plain = Frozen.forward

    def otherwise(frozen: Frozen, images: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(OUTPUTS, plain(frozen, images), strict=True)
        return tuple(value * (1 + wrong) if name == output else value for name, value in pairs)

    monkeypatch.setattr(Frozen, "forward", otherwise)
    with pytest.raises(NumericError, match="answers otherwise than the run") as caught:
        export_run(run, tmp_path / "run.pt2", "torch")
    assert caught.value.exit_code == 4
    with pytest.raises(NumericError):
        export_run(run, tmp_path / "other.pt2", "torch")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt2"]
    assert (tmp_path / "run.pt2").read_bytes() == before


def full(path: Path, content: bytes) -> None:
    path.touch()
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_written_is_told_in_one_line(
    make_run: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("bil")
    with pytest.raises(UsageError, match="unknown format 'onx'; did you mean 'onnx'"):
        export_run(run, tmp_path / "run.onnx", "onx")
    with pytest.raises(UsageError, match=r"the name of a torch file ends in \.pt2"):
        export_run(run, tmp_path / "run.onnx", "torch")
    with monkeypatch.context() as patch:
        patch.setattr(export, "MOST_BYTES", 1000)
        with pytest.raises(UsageError, match=r"4 draws make a file .* take fewer \(--draws\)"):
            export_run(run, tmp_path / "run.pt2", "torch")
    (tmp_path / "a file").touch()
    with pytest.raises(OSError, match="File exists|Not a directory"):
        export_run(run, tmp_path / "a file" / "run.pt2", "torch")
    (tmp_path / "a file").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            export_run(run, tmp_path / "run.pt2", "torch")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"needs .*onnxscript.*pip install 'bayesdg\[export\]'"):
        export_run(run, tmp_path / "run.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bytes_become_the_floats_that_the_file_takes() -> None:
    assert as_floats(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx(
        [0, 0.2, 1]
    )


@needs_onnx
@pytest.mark.slow
def test_the_command_writes_beside_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bayesdg.data import load_dataset
    from bayesdg.presets import small_images

    values = {"training.steps": 2, "training.evaluate_target": "never", "prediction.draws": 6}
    dataset = load_dataset("rotated-digits")
    run = train(dataset, small_images("default", "bil").replace(values), out=tmp_path)
    assert run.path is not None
    assert main(["export", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert f"written to {run.path / 'exported' / 'draws-6.onnx'}" in out
    assert "5 random and 20 real images" in out
    images = dataset.domains["90"].test.images[torch.arange(50)]
    found = asked_by_onnxruntime(run.path / "exported" / "draws-6.onnx", as_floats(images))
    expected = run.predict(images)
    assert found["probabilities"] == pytest.approx(expected.probabilities, abs=1e-4)
    assert main(["export", str(run.path), "--format", "onx"]) == 2
    assert main(["export", str(tmp_path / "nothing")]) == 6
