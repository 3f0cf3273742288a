"""Batch norm: over the images of all processes, and with the statistics of other images.

torch's own SyncBatchNorm does not run on a CPU and knows no empty group. Ours is the plain formula,
whose sums travel through `Ranks.sum`, gradients included, so that the number of processes changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bayesdg.errors import UsageError
from bayesdg.ranks import Ranks

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """Batch norm whose batch is spread over processes; alone it is the plain one."""

    def __init__(self, plain: _BatchNorm, ranks: Ranks) -> None:
        super().__init__(
            plain.num_features,
            plain.eps,
            plain.momentum,
            plain.affine,
            plain.track_running_stats,
        )
        # The same tensors, so that an optimiser or a checkpoint that knows them still does.
        self._parameters = plain._parameters
        self._buffers = plain._buffers
        self._forward_hooks = plain._forward_hooks  # style mixing may be one
        self.training = plain.training
        self.ranks = ranks

    def forward(self, x: Tensor) -> Tensor:
        """(R, C, ...) -> the same shape, normalised per channel."""
        if not self.training or self.momentum is None:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            dims = [0, *range(2, x.dim())]
            shape = [1, -1] + [1] * (x.dim() - 2)
            wide = x.float() if x.dtype.itemsize < 4 else x
            num = self.ranks.sum(wide.new_full((), x.numel() / x.shape[1]))
            mean = self.ranks.sum(wide.sum(dims)) / num
            centred = wide - mean.view(shape)
            variance = self.ranks.sum(centred.square().sum(dims)) / num
            self._follow(mean, variance, num)
            y = centred * (variance + self.eps).rsqrt().view(shape)
            if self.weight is not None:
                y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, num: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.momentum is None:
            return
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (num / (num - 1).clamp_min(1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)

    def _check_input_dim(self, input: Tensor) -> None:
        return


def share_batch_norm(module: nn.Module, ranks: Ranks) -> None:
    """Replace every batch norm inside `module`, in place."""
    for name, child in module.named_children():
        if isinstance(child, SharedBatchNorm):
            continue
        if isinstance(child, PLAIN) and type(child) in PLAIN:
            setattr(module, name, SharedBatchNorm(child, ranks))
        elif isinstance(child, _BatchNorm):
            raise UsageError(
                f"the backbone has {type(child).__name__} layers, whose statistics cannot be "
                "shared by several processes; use one process or another backbone"
            )
        else:
            share_batch_norm(child, ranks)


def norms_with_statistics(module: nn.Module) -> list[_BatchNorm]:
    """The batch norms inside `module` that keep statistics."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@contextmanager
def statistics_from(module: nn.Module, show: Callable[[], object]) -> Iterator[None]:
    """Inside, batch norm normalises by the images that `show` sends through `module`.

    Mean and variance are averaged over the batches that are shown, which should be alike: shuffle
    what is sorted. Statistics of a test domain use its images, though not its labels: whatever is
    predicted with them is transductive and has to be called so.
    """
    norms = norms_with_statistics(module)
    kept = [
        (norm, norm.training, norm.momentum, [buffer.clone() for buffer in norm.buffers()])
        for norm in norms
    ]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average, not one that forgets
            norm.train()
        with torch.no_grad():
            show()
        for norm in norms:
            norm.eval()
        yield
    finally:
        for norm, training, momentum, buffers in kept:
            norm.train(training)
            norm.momentum = momentum
            for buffer, before in zip(norm.buffers(), buffers, strict=True):
                buffer.copy_(before)
