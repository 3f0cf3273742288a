"""What a step is computed on: device, precision, processes. Nothing of what is computed.

lightning Fabric does it. A single process on a CPU in 32 bits needs nothing of it, and is spared
the import, which takes longer than a short run.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn

from bayesdg.episodes import Episode
from bayesdg.errors import ProcessLostError, ResourceError, UsageError
from bayesdg.methods.learner import Learner
from bayesdg.objectives import Terms
from bayesdg.ranks import ALONE, Ranks
from bayesdg.settings import Settings
from bayesdg.stages import EngineSettings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# A rank that waits longer for the others gives up: they are gone, or one of them hangs. The first
# rank validates alone, while the others wait, and may take its time.
PATIENCE = timedelta(minutes=30)
# So many sizes of batches are each compiled on their own.
FEW_SIZES = 4


class Engine:
    """Computes terms and gradients of a learner.

    Attributes:
        device: Of this process.
        ranks: The processes that share each episode.
    """

    def __init__(self, settings: Settings) -> None:
        precision, self.settings = settings.training.precision, settings.engine
        kind, index = chosen_device(self.settings)
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if self.settings.processes > 1 and size == 1:
            raise UsageError(
                f"{self.settings.processes} processes have to be started from outside: "
                "bayesdg train --processes does it, torchrun --nproc-per-node does it for a script"
            )
        if settings.episode.batch_size % size:
            raise UsageError(
                f"episode.batch_size is {settings.episode.batch_size}, which {size} processes "
                "cannot share evenly"
            )
        self._fabric: Fabric | None = None
        self.ranks = ALONE
        self.device = torch.device(kind if index is None else f"{kind}:{index}")
        if precision == "bf16":
            _check_bf16(self.device)
        if kind != "cpu" or precision != "32" or size > 1:
            self._fabric = _fabric(kind, index, precision, size)
            self.device = self._fabric.device
            self.ranks = Ranks(self._fabric.global_rank, self._fabric.world_size)
        self._before = torch.backends.cudnn.benchmark
        if self.settings.deterministic:
            _same_bits()
        elif kind == "cuda":
            # Every step has the same few sizes: trying each algorithm once pays.
            torch.backends.cudnn.benchmark = True
        self._forward: nn.Module | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and talks."""
        return self.ranks.rank == 0

    def prepare(self, learner: Learner) -> None:
        """Take a learner that is on the device already; call before its optimiser is made."""
        learner.share_among(self.ranks)
        self._forward = _Forward(learner)
        if self._fabric is not None and self.ranks.size > 1:
            with warnings.catch_warnings(action="ignore"):  # torch 2.15 renames broadcast_buffers
                self._forward = self._fabric.strategy.setup_module(self._forward)

    def compile(self, learner: Learner, num_sizes: float) -> None:
        """Compile what is heavy, if the settings ask for it.

        Convolutions of a fixed size are quicker than those of any size, and take as long to
        compile: worth it where there are few sizes.
        """
        if self.settings.compile:
            # Else the compiler takes the quickest kernel of a trial, which may be another one in
            # the process that goes on.
            options = {"deterministic": True} if self.settings.deterministic else None
            for part in learner.heavy_parts():
                part.compile(dynamic=False if num_sizes <= FEW_SIZES else None, options=options)

    def terms(self, episode: Episode, generator: torch.Generator) -> Terms:
        """The named parts of the loss; of this rank's share, if there are several."""
        assert self._forward is not None, "prepare comes first"
        with self.autocast():
            return Terms(self._forward(episode, generator))

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the run."""
        return nullcontext() if self._fabric is None else self._fabric.autocast()

    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over ranks."""
        if self._fabric is None:
            loss.backward()
        else:
            self._fabric.backward(loss)

    def anywhere(self, flag: Tensor) -> Tensor:
        """Whether a flag on the device is up on any rank; there, too."""
        return flag if self.ranks.size == 1 else self.ranks.sum(flag.float()) > 0

    def any(self, flag: bool) -> bool:
        """Whether a flag of the host is up on any rank; waits for all of them."""
        return bool(self.anywhere(torch.tensor(flag, device=self.device)))

    def peak_memory_gb(self) -> float | None:
        """The most that was in use, on a GPU or else by this process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**30
        try:
            import resource
        except ImportError:  # not on Windows
            return None
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let go of the other processes; without this gloo ends the program with an error."""
        if self.settings.deterministic:
            torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = self._before
        if self.ranks.size > 1 and distributed.is_initialized():
            if error is None:
                distributed.barrier()
            distributed.destroy_process_group()


class _Forward(nn.Module):
    """What DistributedDataParallel wraps: it knows forward alone."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, episode: Episode, generator: torch.Generator) -> dict[str, Tensor]:
        return dict(self.learner.terms(episode, generator).values)


def chosen_device(settings: EngineSettings) -> tuple[str, int | None]:
    """'cpu', 'cuda' or 'mps', and which of several."""
    kind, _, index = settings.device.partition(":")
    if kind == "auto":
        mps = torch.backends.mps.is_available()
        kind = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    if kind == "cuda":
        number = torch.cuda.device_count()
        if number == 0:
            raise UsageError("there is no CUDA device here; use --device auto or cpu")
        if index and int(index) >= number:
            raise UsageError(f"there is no device cuda:{index}; allowed: cuda:0 to {number - 1}")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError("there is no MPS device here; use --device auto or cpu")
    return kind, int(index) if index else None


def device_name(device: torch.device) -> str:
    """What a person calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def explained(error: RuntimeError, settings: Settings, device: torch.device) -> Exception:
    """What a person can do about an error of the device, of torch or of another process."""
    text = str(error)
    # cuBLAS, cuDNN and the driver say it in their own words.
    full = ("CUDA error: out of memory", "ALLOC_FAILED")
    if isinstance(error, torch.OutOfMemoryError) or any(sign in text for sign in full):
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
        return ResourceError(
            f"{device_name(device)} is out of memory ({peak:.1f} GiB were in use); lower one of "
            f"episode.batch_size (now {settings.episode.batch_size}), episode.per_class (now "
            f"{settings.episode.per_class}) or model.draws (now {settings.model.draws})"
        )
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return UsageError(
            f"the backbone cannot be compiled here ({_cause(error)}); leave out --compile "
            "(engine.compile)"
        )
    if " does not have a deterministic implementation" in text:
        return UsageError(
            f"{text.split()[0]}, a part of this run, gives other bits each time on "
            f"{device_name(device)}; leave out --deterministic (engine.deterministic)"
        )
    signs = ("gloo", "NCCL", "Connection", "connection", "Broken pipe", "ProcessGroup")
    if distributed.is_initialized() and any(sign in text for sign in signs):
        return ProcessLostError("another process of this run is gone; this one cannot go on alone")
    return error


def _cause(error: BaseException) -> str:
    """The first line of what torch has wrapped."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        return _cause(inner)
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _fabric(kind: str, index: int | None, precision: str, size: int) -> Fabric:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others deprecate is nothing a user can mend
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning_fabric.strategies.ddp import DDPStrategy

        # Its import has just made it talk, and put a filter for its warnings before ours.
        logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        strategy: str | DDPStrategy = "auto"
        devices: int | list[int] = 1 if index is None else [index]
        if size > 1:
            backend = "nccl" if kind == "cuda" else "gloo"
            # Running statistics are shared by SharedBatchNorm: nothing is left to broadcast.
            strategy = DDPStrategy(
                process_group_backend=backend, timeout=PATIENCE, broadcast_buffers=False
            )
            devices = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        fabric = Fabric(
            accelerator=kind,
            devices=devices,
            num_nodes=max(1, size // devices) if isinstance(devices, int) else 1,
            strategy=strategy,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            plugins=TorchElasticEnvironment() if size > 1 else None,
        )
        fabric.launch()
    return fabric


def _check_bf16(device: torch.device) -> None:
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(
            f"{device_name(device)} does not compute in bf16; use training.precision = 32"
        )


def _same_bits() -> None:
    # Read when the library is first used, so set before.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
