"""How a frozen learner is written to a file, and how that file answers: ONNX, and torch's own."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from bayesdg.evaluate.arrays import Floats
from bayesdg.export.frozen import OUTPUTS, Frozen

About = Mapping[str, object]
Answers = Callable[[Tensor], list[Floats]]
# Extra file in a .pt2.
ABOUT = "bayesdg.json"


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Attributes:
        suffix: Of its name.
        needs: Modules of the extra `export`.
        write: Of a traced program, and what is to be known of it, to a path.
        read: What the file at a path answers, as whoever receives it would ask.
    """

    suffix: str
    needs: tuple[str, ...]
    write: Callable[[ExportedProgram, About, Path], None]
    read: Callable[[Path], Answers]


def traced(frozen: Frozen, image_shape: tuple[int, ...]) -> ExportedProgram:
    """The computation, for any number of images."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        # Of two: for one, torch would take the number for a constant.
        images = torch.rand(2, *image_shape, generator=torch.Generator().manual_seed(0))
        return torch.export.export(frozen, (images,), dynamic_shapes=({0: Dim.DYNAMIC},))


def _write_onnx(program: ExportedProgram, about: About, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and onnxscript about themselves
        found = torch.onnx.export(
            program,
            input_names=["images"],
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: "n"},),
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    assert found is not None
    for name, value in about.items():
        found.model.metadata_props[name] = value if isinstance(value, str) else json.dumps(value)
    found.save(str(path), external_data=False)


def _read_onnx(path: Path) -> Answers:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(list(OUTPUTS), {"images": images.numpy()})


def _write_torch(program: ExportedProgram, about: About, path: Path) -> None:
    content = io.BytesIO()  # torch itself meets a full disk with a traceback
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, content, extra_files={ABOUT: json.dumps(about, indent=1)})
    path.write_bytes(content.getvalue())


def _read_torch(path: Path) -> Answers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.export.load(path).module()

    def answers(images: Tensor) -> list[Floats]:
        with torch.no_grad():
            return [np.asarray(output) for output in module(images)]

    return answers


FORMATS = {
    "onnx": Format(".onnx", ("onnx", "onnxruntime", "onnxscript"), _write_onnx, _read_onnx),
    "torch": Format(".pt2", (), _write_torch, _read_torch),
}
