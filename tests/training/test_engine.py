"""What is computed on: refused before anything is computed, explained when it fails."""

from collections.abc import Callable

import pytest
import torch
from torch import distributed, nn

from bayesdg.errors import ProcessLostError, ResourceError, UsageError
from bayesdg.settings import Settings
from bayesdg.training.engine import Engine, explained

CPU = torch.device("cpu")


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of before bf16."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")


@pytest.mark.usefixtures("old_gpu")
def test_73_a_precision_that_the_device_lacks_is_refused() -> None:
    settings = Settings().replace({"engine.device": "cuda", "training.precision": "bf16"})
    with pytest.raises(UsageError, match=r"Old GPU does not .* bf16; use training.precision = 32"):
        Engine(settings)


@pytest.mark.usefixtures("old_gpu")
def test_a_device_number_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UsageError, match="no device cuda:1; allowed: cuda:0 to 0"):
        Engine(Settings().replace({"engine.device": "cuda:1"}))


def test_a_device_that_is_not_there_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "mps"):
        with pytest.raises(UsageError, match="device here; use --device auto or cpu"):
            Engine(Settings().replace({"engine.device": name}))


def test_processes_are_started_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UsageError, match=r"2 processes have to be started.*--processes.*torchrun"):
        Engine(Settings().replace({"engine.processes": 2, "engine.device": "cpu"}))


def test_an_episode_that_cannot_be_shared_evenly_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="batch_size is 128, which 3 processes cannot share"):
        Engine(Settings().replace({"engine.processes": 3, "engine.device": "cpu"}))


def test_19_an_error_of_the_connection_is_another_process_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = RuntimeError("[../gloo/transport/tcp/pair.cc:525] Connection closed by peer")
    assert explained(lost, Settings(), CPU) is lost  # nobody else was there
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    told = explained(lost, Settings(), CPU)
    assert isinstance(told, ProcessLostError)
    assert "another process of this run is gone" in str(told)
    other = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert explained(other, Settings(), CPU) is other


def test_22_an_error_of_memory_names_the_three_settings() -> None:
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
    ):
        told = explained(error, Settings(), CPU)
        assert isinstance(told, ResourceError)
        for name in ("episode.batch_size (now 128)", "episode.per_class (now 16)", "model.draws"):
            assert name in str(told)


def test_what_cannot_be_compiled_names_the_option() -> None:
    """As torch tells of a machine without a compiler."""

    def backend(graph: object, inputs: object) -> Callable[..., object]:
        raise FileNotFoundError("no compiler found\nhere")

    class Part(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    part = Part()
    part.compile(backend=backend)
    with pytest.raises(RuntimeError) as caught:
        part(torch.ones(2, 3))
    told = explained(caught.value, Settings(), CPU)
    assert isinstance(told, UsageError)
    assert "cannot be compiled here (no compiler found); " in str(told)
    assert str(told).endswith("leave out --compile (engine.compile)")
    assert "\n" not in str(told)


def test_an_operation_without_same_bits_names_the_option() -> None:
    """The words of torch for operations that it refuses in deterministic mode."""
    error = RuntimeError(
        "kthvalue CUDA does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this"
    )
    told = explained(error, Settings(), CPU)
    assert isinstance(told, UsageError)
    assert "kthvalue" in str(told)
    assert str(told).endswith("leave out --deterministic (engine.deterministic)")


@pytest.mark.parametrize(("num_sizes", "dynamic"), [(1, False), (4, False), (5, None)])
def test_few_sizes_of_batches_are_each_compiled_on_their_own(
    num_sizes: int, dynamic: bool | None
) -> None:
    asked = []

    class Part(nn.Module):
        def compile(self, **options: object) -> None:
            asked.append(options)

    class Parts:
        def heavy_parts(self) -> list[nn.Module]:
            return [Part()]

    changes = {"engine.device": "cpu", "engine.compile": True}
    with Engine(Settings().replace(changes)) as engine:
        engine.compile(Parts(), num_sizes)  # type: ignore[arg-type]
    assert asked == [{"dynamic": dynamic, "options": None}]
    with Engine(Settings().replace({"engine.device": "cpu"})) as engine:
        engine.compile(Parts(), num_sizes)  # type: ignore[arg-type]
    assert len(asked) == 1


def test_the_same_bits_are_asked_of_the_compiler_too() -> None:
    """Of the real one: an option that it does not know is an error."""
    layer = nn.Linear(3, 5)

    class Parts:
        def heavy_parts(self) -> list[nn.Module]:
            return [layer]

    changes = {"engine.device": "cpu", "engine.compile": True, "engine.deterministic": True}
    with Engine(Settings().replace(changes)) as engine:
        engine.compile(Parts(), 1)  # type: ignore[arg-type]
        compiled = layer._compiled_call_impl
    assert compiled.get_compiler_config()["deterministic"]
