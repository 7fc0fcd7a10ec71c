"""The floor: the least a Python loader over processes can do, with no feature at all.

One anonymous memory file with a few slots for each forked worker, two plain pipes for each, and
descriptors of sixteen bytes: a batch number and a slot. Workers stack in place, batches come back
round robin, a slot travels back to its worker with a later task, and a batch is the consumer's
only until it asks for the next but one. It checks nothing, notices no death and keeps no state:
it is the bar the loader is held to, not a loader. Imports numpy and the works.
"""

from __future__ import annotations

import argparse
import mmap
import os
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tools.bench.touch import as_is, touch
from tools.bench.works import WORKS, MapDataset

Array = np.ndarray[Any, Any]

DESCRIPTOR = struct.Struct("=qq")  # batch number, slot of the worker
ALIGNMENT = 64


class Layout:
    """Where the fields of a batch lie in a slot, and how samples are written there."""

    def __init__(self, sample: Any, batch_size: int) -> None:
        self.keys = list(sample) if isinstance(sample, dict) else None
        self.is_tuple = isinstance(sample, tuple)
        parts = list(sample.values()) if self.keys else sample if self.is_tuple else [sample]
        arrays = [np.asarray(part) for part in parts]
        self.fields: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        end = 0
        for array in arrays:
            self.fields.append(((batch_size, *array.shape), array.dtype, end))
            end += -(-array.nbytes * batch_size // ALIGNMENT) * ALIGNMENT
        self.nbytes = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE

    def views(self, memory: Any, offset: int) -> list[Array]:
        """Show the fields of the slot that starts at `offset`."""
        return [np.ndarray(shape, dtype, memory, offset + at) for shape, dtype, at in self.fields]

    def batch(self, views: list[Array]) -> Any:
        """Give `views` the container the samples came in."""
        if self.keys is not None:
            return dict(zip(self.keys, views))
        return tuple(views) if self.is_tuple else views[0]

    def write(self, samples: Sequence[Any], rows: list[Array]) -> None:
        """Stack `samples` into `rows`, the views of a slot with their first two axes merged."""
        columns: Any
        if self.keys is not None:
            columns = [[sample[key] for sample in samples] for key in self.keys]
        elif self.is_tuple:
            columns = zip(*samples)
        else:
            columns = (samples,)
        for column, (shape, _, _), out in zip(columns, self.fields, rows):
            if len(shape) > 1:
                # The same copies as numpy.stack, without a reshaped view for each sample.
                np.concatenate(column, out=out)
            else:
                out[:] = column

    def rows(self, views: list[Array]) -> list[Array]:
        """Merge the first two axes of each of `views`, as `write` wants them."""
        return [view.reshape(-1, *view.shape[2:]) if view.ndim > 1 else view for view in views]


def make_batch(dataset: MapDataset, layout: Layout, start: int, rows: list[Array]) -> None:
    """Fetch one batch, in order from sample `start`, and stack it into `rows`."""
    size = layout.fields[0][0][0]
    layout.write([dataset[index] for index in range(start, start + size)], rows)


class Floor:
    """A pool of forked workers around one arena; iterate it as often as you like.

    Not thread-safe; one iterator at a time, exhausted before the next. Blocks on a pipe only.
    """

    def __init__(
        self, dataset: MapDataset, batch_size: int, workers: int = 2, prefetch: int = 2
    ) -> None:
        self.batches = len(dataset) // batch_size
        self.layout = Layout(dataset[0], batch_size)
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
        for worker in range(workers):
            task_in, task_out = os.pipe()
            result_in, result_out = os.pipe()
            pid = os.fork()
            if pid == 0:
                for end in (*self.tasks, *self.results, task_out, result_in):
                    os.close(end)
                try:
                    self._work(worker, dataset, task_in, result_out)
                finally:
                    os._exit(0)
            os.close(task_in)
            os.close(result_out)
            self.tasks.append(task_out)
            self.results.append(result_in)
            self.pids.append(pid)

    def _offset(self, worker: int, slot: int) -> int:
        return (worker * self.slots + slot) * self.layout.nbytes

    def _work(self, worker: int, dataset: MapDataset, tasks: int, results: int) -> None:
        layout = self.layout
        size = layout.fields[0][0][0]
        slots = [
            layout.rows(layout.views(self.memory, self._offset(worker, slot)))
            for slot in range(self.slots)
        ]
        while task := os.read(tasks, DESCRIPTOR.size):
            number, slot = DESCRIPTOR.unpack(task)
            make_batch(dataset, layout, number * size, slots[slot])
            os.write(results, task)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        layout, memory, batches = self.layout, self.memory, self.batches
        workers = len(self.pids)
        sent = 0
        while sent < min(self.prefetch * workers, batches):
            worker = sent % workers
            os.write(self.tasks[worker], DESCRIPTOR.pack(sent, self.spare[worker].pop()))
            sent += 1
        for number in range(batches):
            worker = number % workers
            _, slot = DESCRIPTOR.unpack(os.read(self.results[worker], DESCRIPTOR.size))
            spare = self.spare[worker]
            if sent < batches:
                os.write(self.tasks[worker], DESCRIPTOR.pack(sent, spare.pop()))
                sent += 1
            yield layout.batch(layout.views(memory, self._offset(worker, slot)))
            spare.append(slot)

    def close(self) -> None:
        """End the workers and wait for them. May be called again."""
        while self.tasks:
            os.close(self.tasks.pop())
        while self.pids:
            os.waitpid(self.pids.pop(), 0)
        while self.results:
            os.close(self.results.pop())


def main() -> None:
    """Measure the floor alone: ``python -m tools.bench.floor tiny --batches 10000``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("--batches", type=int, default=1000)
    options = parser.parse_args()
    work = WORKS[options.work]
    floor = Floor(work.dataset(options.batches * work.batch_size), work.batch_size)
    try:
        for name in ("cold", "warm", "warm"):
            start, cpu = time.perf_counter(), time.process_time()
            for batch in floor:
                touch(batch, as_is)
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            each = 1e6 / options.batches
            print(f"{name}: {wall * each:.1f} us a batch, {cpu * each:.1f} us of the trainer's CPU")
    finally:
        floor.close()


if __name__ == "__main__":
    main()
