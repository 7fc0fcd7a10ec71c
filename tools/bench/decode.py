"""Decode alone: two processes that fetch their half of the samples and hand nothing on.

What remains of a loader when transport, order and collation cost nothing, and so the bar of a
work that is nothing but decoding. Imports only the works.
"""

from __future__ import annotations

import os
import struct
import time

from tools.bench.works import MapDataset

GO = struct.Struct("=q")  # batches of the epoch to decode


class DecodeAlone:
    """Two forked processes that decode every second batch each, on command.

    Blocks until both are done. One caller at a time.
    """

    def __init__(self, dataset: MapDataset, batch_size: int, workers: int = 2) -> None:
        self.batches = len(dataset) // batch_size
        self.tasks: list[int] = []
        self.results: list[int] = []
        self.pids: list[int] = []
        for worker in range(workers):
            task_in, task_out = os.pipe()
            result_in, result_out = os.pipe()
            pid = os.fork()
            if pid == 0:
                for end in (*self.tasks, *self.results, task_out, result_in):
                    os.close(end)
                try:
                    while task := os.read(task_in, GO.size):
                        (batches,) = GO.unpack(task)
                        for number in range(worker, batches, workers):
                            for index in range(number * batch_size, (number + 1) * batch_size):
                                dataset[index]
                        os.write(result_out, task)
                finally:
                    os._exit(0)
            os.close(task_in)
            os.close(result_out)
            self.tasks.append(task_out)
            self.results.append(result_in)
            self.pids.append(pid)

    def run(self, batches: int) -> float:
        """Decode `batches` batches and return the microseconds of wall time for each."""
        start = time.perf_counter_ns()
        for task in self.tasks:
            os.write(task, GO.pack(batches))
        for result in self.results:
            os.read(result, GO.size)
        return (time.perf_counter_ns() - start) / batches / 1e3

    def close(self) -> None:
        """End both processes and wait for them. May be called again."""
        while self.tasks:
            os.close(self.tasks.pop())
        while self.pids:
            os.waitpid(self.pids.pop(), 0)
        while self.results:
            os.close(self.results.pop())
