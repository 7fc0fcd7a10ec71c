"""The floors: the least a Python loader over processes can do, with no feature at all.

One anonymous memory file with a few slots for each forked worker, two plain pipes for each, and
descriptors of sixteen bytes: a batch number and a slot. Workers stack in place, batches come back
round robin, a slot travels back to its worker with a later task, and a batch is the consumer's
only until it asks for the next but one. It checks nothing, notices no death and keeps no state:
it is the bar the loader is held to, not a loader. The streaming floor differs in one thing: it
copies past the cache. Imports numpy, and from reader that copy alone.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DESCRIPTOR = struct.Struct("=qq")  # batch number, slot of the worker
ALIGNMENT = 64


class Layout:
    """Where the fields of a batch lie in a slot, and how samples are written there.

    Attributes:
        is_uncached: Whether samples are copied past the cache.
        split: Turns samples into the columns of their fields.
        join: Gives the fields of a batch the container that the samples came in.
    """

    def __init__(self, sample: Any, batch_size: int, is_uncached: bool = False) -> None:
        self.is_uncached = is_uncached
        self.split: Callable[[list[Any]], Iterable[Sequence[Any]]]
        self.join: Callable[[list[Array]], Any]
        if isinstance(sample, dict):
            keys, parts = list(sample), list(sample.values())
            self.split = lambda samples: [[sample[key] for sample in samples] for key in keys]
            self.join = lambda views: dict(zip(keys, views))
        elif isinstance(sample, tuple):
            parts, self.split, self.join = list(sample), lambda samples: zip(*samples), tuple
        else:
            parts, self.split, self.join = (
                [sample],
                lambda samples: (samples,),
                lambda views: views[0],
            )
        self.batch_size = batch_size
        self.fields: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        end = 0
        for array in map(np.asarray, parts):
            self.fields.append(((batch_size, *array.shape), array.dtype, end))
            end += -(-array.nbytes * batch_size // ALIGNMENT) * ALIGNMENT
        self.nbytes = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE

    def views(self, memory: Any, offset: int) -> list[Array]:
        """Show the fields of the slot that starts at `offset`."""
        return [np.ndarray(shape, dtype, memory, offset + at) for shape, dtype, at in self.fields]

    def stack(self, dataset: Any, start: int, views: list[Array]) -> None:
        """Fetch one batch, in order from sample `start`, and stack it into `views`."""
        samples = [dataset[index] for index in range(start, start + self.batch_size)]
        for column, out in zip(self.split(samples), views):
            if out.ndim > 1 and self.is_uncached:
                # looked up here: an older wheel has none, or none in the room
                room = "memory." if find_spec("reader._core.memory") else ""
                import_module(f"reader._core.{room}copying").stack_uncached(column, out)
            elif out.ndim > 1:
                # The same copies as numpy.stack, without a reshaped view for each sample.
                np.concatenate(column, out=out.reshape(-1, *out.shape[2:]))
            else:
                out[:] = column


class Floor:
    """A pool of forked workers around one arena; iterate it as often as you like.

    Not thread-safe; one iterator at a time, exhausted before the next. Blocks on a pipe only.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        workers: int,
        prefetch: int,
        is_uncached: bool = False,
    ) -> None:
        self.batches = len(dataset) // batch_size
        self.layout = Layout(dataset[0], batch_size, is_uncached)
        # One slot more than tasks in flight: the one the consumer holds.
        self.slots = prefetch + 1
        self.prefetch = prefetch
        size = self.layout.nbytes * self.slots * workers
        fd = os.memfd_create("floor")
        os.ftruncate(fd, size)
        self.memory = mmap.mmap(fd, size)
        os.close(fd)
        self.tasks: list[int] = []
        self.results: list[int] = []
        self.pids: list[int] = []
        self.spare = [list(range(self.slots)) for _ in range(workers)]
        for worker_id in range(workers):
            task_in, task_out = os.pipe()
            result_in, result_out = os.pipe()
            pid = os.fork()
            if pid == 0:
                for end in (*self.tasks, *self.results, task_out, result_in):
                    os.close(end)
                try:
                    self._work(worker_id, dataset, task_in, result_out)
                finally:
                    os._exit(0)
            os.close(task_in)
            os.close(result_out)
            self.tasks.append(task_out)
            self.results.append(result_in)
            self.pids.append(pid)

    def _views(self, worker_id: int, slot: int) -> list[Array]:
        return self.layout.views(self.memory, (worker_id * self.slots + slot) * self.layout.nbytes)

    def _work(self, worker_id: int, dataset: Any, tasks: int, results: int) -> None:
        slots = [self._views(worker_id, slot) for slot in range(self.slots)]
        while task := os.read(tasks, DESCRIPTOR.size):
            number, slot = DESCRIPTOR.unpack(task)
            self.layout.stack(dataset, number * self.layout.batch_size, slots[slot])
            os.write(results, task)

    def _send(self, number: int) -> None:
        worker_id = number % len(self.pids)
        os.write(self.tasks[worker_id], DESCRIPTOR.pack(number, self.spare[worker_id].pop()))

    def __iter__(self) -> Iterator[Any]:
        workers, batches = len(self.pids), self.batches
        ahead = min(self.prefetch * workers, batches)
        for number in range(ahead):
            self._send(number)
        for number in range(batches):
            worker_id = number % workers
            _, slot = DESCRIPTOR.unpack(os.read(self.results[worker_id], DESCRIPTOR.size))
            if number + ahead < batches:
                self._send(number + ahead)
            yield self.layout.join(self._views(worker_id, slot))
            self.spare[worker_id].append(slot)

    def close(self) -> None:
        """End the workers and wait for them. May be called again."""
        while self.tasks:
            os.close(self.tasks.pop())
        while self.pids:
            os.waitpid(self.pids.pop(), 0)
        while self.results:
            os.close(self.results.pop())
