"""Records as TensorBoard's curves, for who asks; records.jsonl remains the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesdg.records import Record, StepRecord


@contextmanager
def mirrored(
    watch: Callable[[Record], None], folder: Path, step: int
) -> Iterator[Callable[[Record], None]]:
    """`watch`, and curves below folder/tensorboard; those beyond `step` are taken back."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1) as writer:

        def both(record: Record) -> None:
            watch(record)
            if isinstance(record, StepRecord):
                for name, value in scalars(record).items():
                    writer.add_scalar(name, value, record.step)

        yield both


def scalars(record: StepRecord) -> dict[str, float]:
    """The numbers of a record by the names of their curves."""
    found = {f"terms/{name}": value for name, value in record.terms.items()}
    found |= {"loss": record.loss, "learning_rate": record.learning_rate}
    found |= {"gradient": record.gradient, "speed/images_per_second": record.images_per_second}
    found |= {f"health/{name}": value for name, value in (record.health or {}).items()}
    looks = {
        "val": record.source_val,
        "target": record.target_test,
        "target_val": record.target_val,
        "source_test": record.source_test,
    }
    for part, metrics in looks.items():
        for domain, values in (metrics or {}).items():
            found |= {f"{part}_{metric}/{domain}": value for metric, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}
