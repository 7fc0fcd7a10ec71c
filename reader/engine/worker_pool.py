"""WorkerPool: worker processes that several loaders share.

Imports the shared processes and the checks. It belongs to the process that made it, and its loaders
keep it alive.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from reader.checks import as_byte_count, as_int
from reader.config import PoolOption, check_workers
from reader.engine.backends.grace import grace_of
from reader.engine.backends.shared_workers import SharedWorkers
from reader.engine.face import as_grace

__all__ = ["WorkerPool"]


class WorkerPool(PoolOption):
    """Worker processes for several loaders: one start, and one limit on memory.

    Pass it to each loader as `pool=`. The processes start when the first of the loaders is iterated
    over, and stay until `close`, or until the pool and its loaders are dropped. A worker makes one
    batch of each loader that waits for one, in turns; each loader finds the worker as it left it:
    `get_worker_info`, the global random state, its own copy of the dataset. What a loader delivers
    is what it delivers with workers of its own.

    Make the loaders before the first is iterated over: under fork the workers then inherit their
    datasets. One that is made later is sent to the workers, pickled.

    Args:
        num_workers: of the processes, 1 or more.
        start_method: "fork", "forkserver" or "spawn"; None: Python's own default.
        max_bytes: limit of the shared memory for the batches of all loaders together, of which each
            that was made before the first is iterated over is sure of a quarter of an even share;
            None: what the machine has.

    Raises:
        ConfigError: an argument that cannot work.

    >>> from reader import DataLoader
    >>> with WorkerPool(2) as pool:
    ...     train = DataLoader(list(range(6)), batch_size=3, pool=pool)
    ...     test = DataLoader(list(range(10, 14)), batch_size=2, pool=pool)
    ...     for one, other in zip(train, test):
    ...         print(one, other)
    [0 1 2] [10 11]
    [3 4 5] [12 13]
    """

    def __init__(
        self,
        num_workers: int,
        *,
        start_method: Literal["fork", "forkserver", "spawn"] | None = None,
        max_bytes: int | None = None,
    ) -> None:
        remedy = "A pool of no workers makes nothing."
        self.num_workers = as_int("num_workers", num_workers, low=1, remedy=remedy)
        if max_bytes is not None:
            remedy = "None lets the shared memory of batches grow as needed."
            max_bytes = as_byte_count("max_bytes", max_bytes, low=1, remedy=remedy)
        check_workers("process", start_method, self.num_workers)
        self.start_method: str | None = start_method
        self.max_bytes = max_bytes
        self._processes = SharedWorkers(self.num_workers, start_method, max_bytes)

    @property
    def _shared(self) -> SharedWorkers:
        """The processes, for the engines of the loaders."""
        return self._processes

    @property
    def pids(self) -> list[int]:
        """The pids of the worker processes, in the order of their numbers."""
        return self._processes.pids

    def close(self, grace: float | None = None) -> None:
        """Close the workers and wait; batches that you hold stay valid. Idempotent.

        Iterators of its loaders raise then; iterating over one anew starts new workers.

        Args:
            grace: seconds for workers to finish the samples that they are at, as in
                `DataLoader.close`; None: 5.

        Raises:
            ConfigError, ConfigTypeError: `grace` is no such number.
        """
        self._processes.close(as_grace(grace))

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(grace_of(kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.num_workers, self.start_method, self.max_bytes)

    def __repr__(self) -> str:
        return f"WorkerPool({self.num_workers})"


def _made(num_workers: int, start_method: Any, max_bytes: int | None) -> WorkerPool:
    return WorkerPool(num_workers, start_method=start_method, max_bytes=max_bytes)
