"""Work for later steps, done while the current one runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def prefetched(make: Callable[[S], T], steps: Iterable[S], depth: int, workers: int) -> Iterator[T]:
    """make(step) for each step, in order, up to `depth` ahead.

    `make` has to be a function of the step alone; then the result is the same for any depth and
    number of workers. An error in it appears where its step is due. Steps are asked for no sooner
    than they are needed, so there may be any number of them.
    """
    remaining = iter(steps)
    if depth == 0 or workers == 0:
        yield from map(make, remaining)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="prefetch") as pool:
        waiting: deque[Future[T]] = deque(
            pool.submit(make, step) for step in islice(remaining, depth)
        )
        try:
            while waiting:
                due = waiting.popleft().result()
                waiting.extend(pool.submit(make, step) for step in islice(remaining, 1))
                yield due
        finally:
            for future in waiting:
                future.cancel()
