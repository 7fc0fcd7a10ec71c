"""Loaders of SPDL and of Grain, which take part where they are installed.

Neither has a DataLoader with PyTorch's arguments, so each is composed here as its documents say,
for the same samples and as many workers. Imports numpy and the floor's layout; SPDL and Grain when
a loader is opened. What is opened is its caller's.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tools.bench.floor import Layout


class BatchMaker:
    """Makes a batch of its number: what a program for SPDL writes itself."""

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.dataset = dataset
        self.layout = Layout(dataset[0], batch_size)

    def __call__(self, number: int) -> Any:
        """Stack the samples of batch `number` in new arrays."""
        layout = self.layout
        arrays = [np.empty(shape, dtype) for shape, dtype, _ in layout.fields]
        layout.stack(self.dataset, number * layout.batch_size, arrays)
        return layout.join(arrays)


def spdl_threads(dataset: Any, batch_size: int, workers: int, prefetch: int) -> Any:
    """Open SPDL's DataLoader, whose threads make batches in this process."""
    return import_module("spdl.dataloader").DataLoader(
        range(len(dataset) // batch_size),
        preprocessor=BatchMaker(dataset, batch_size),
        buffer_size=prefetch * workers,
        num_threads=workers,
        output_order="input",
    )


def spdl_pool(dataset: Any, batch_size: int, workers: int, prefetch: int) -> Any:
    """Open SPDL's pipeline in a process with as many threads, and its pool of shared memory.

    The pool has one writer, so there is one process. A segment holds a batch: those in flight, two
    that the consumer has, and one that is written.
    """
    pipeline = import_module("spdl.pipeline")
    make = BatchMaker(dataset, batch_size)
    ahead = prefetch * workers
    builder = pipeline.PipelineBuilder().add_source(range(len(dataset) // batch_size))
    builder.pipe(make, concurrency=workers, output_order="input").add_sink(ahead)
    return pipeline.run_pipeline_in_subprocess(
        builder.get_config(),
        num_threads=workers,
        buffer_size=ahead,
        mp_context="fork",
        arena=pipeline.SharedMemorySegmentPool(make.layout.nbytes, ahead + 3),
    )


def grain(dataset: Any, batch_size: int, workers: int, prefetch: int) -> Any:
    """Open Grain's DataLoader. Of N workers each makes its batches of every Nth sample."""
    home = import_module("grain")
    # Its workers read flags, which a program that is not Abseil's has not parsed.
    import_module("absl.flags").FLAGS.mark_as_parsed()
    return home.DataLoader(
        data_source=dataset,
        sampler=home.samplers.SequentialSampler(len(dataset)),
        operations=[home.transforms.Batch(batch_size, drop_remainder=True)],
        worker_count=workers,
        worker_buffer_size=prefetch,
        shard_options=home.sharding.NoSharding(),
        # As its documents say of a dataset in memory.
        read_options=home.ReadOptions(num_threads=0, prefetch_buffer_size=0),
    )
