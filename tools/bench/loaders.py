"""How a contestant's loader is opened on a row: the same dataset and the same arguments for all.

Each face is used as its documents say. Runs in a contestant's process: frameworks are imported
when a loader is opened. This module owns no state; what it opens is its caller's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from tools.bench import peers
from tools.bench.floor import Floor, Layout
from tools.bench.rows import (
    ENGINE,
    GRAIN,
    OURS,
    PADDLE_FACE,
    PREFETCH,
    SPDL_POOL,
    SPDL_THREADS,
    STREAMING,
    TAKE,
    TORCH_FACE,
    Contestant,
    Row,
)
from tools.bench.works import Bank

MADE = 256  # tensors
INPUT = "x"  # the static program's name of its input

COMPOSED = {
    SPDL_THREADS.name: peers.spdl_threads,
    SPDL_POOL.name: peers.spdl_pool,
    GRAIN.name: peers.grain,
}


class Only:
    """Iterates a loader that has no ``close``, and holds the only reference to it."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def close(self) -> None:
        """Drop the loader, which ends its workers."""
        self.loader = None
        gc.collect()


class Taken:
    """Rows of a table that `numpy.take` gathers in this thread, in a shuffled order: a floor."""

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.columns = dataset.columns
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        order = np.random.default_rng().permutation(len(self.columns[0]))
        for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
            keys = order[start : start + self.batch_size]
            yield [column.take(keys, axis=0) for column in self.columns]

    def close(self) -> None:
        """Do nothing: it has no workers."""


class Tensors(Bank):
    """A dataset's samples as torch tensors, made once and handed out in turn."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(len(dataset))
        convert = import_module("torch.utils.data").default_convert
        self.tensors = [convert(dataset[index]) for index in range(min(len(dataset), MADE))]

    def __getitem__(self, index: int) -> Any:
        return self.tensors[index % len(self.tensors)]


def stream_of(face: str, dataset: Any, batch_size: int) -> Any:
    """Return the samples of `dataset` as a stream; of N workers each has every Nth batch."""
    faces = {PADDLE_FACE: "paddle.io", TORCH_FACE: "torch.utils.data"}
    home = import_module(faces.get(face, face))

    class Stream(home.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            worker = home.get_worker_info()
            first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
            for start in range(first * batch_size, len(dataset), step * batch_size):
                for index in range(start, start + batch_size):
                    yield dataset[index]

    return Stream()


def _side_by_side(face: str, columns: list[Any]) -> Any:
    """Return the dataset that the documents of a face give for arrays of a row for each sample."""
    if face in (TORCH_FACE, "torch.utils.data"):
        torch = import_module("torch")
        return torch.utils.data.TensorDataset(*map(torch.from_numpy, columns))
    # Paddle's, too: its workers fail on Paddle's own tensors
    return import_module(face).TensorDataset(columns)


def _options_of(face: str, row: Row) -> dict[str, Any]:
    """Return the arguments that `face` needs besides the row's own."""
    if face in (PADDLE_FACE, "paddle.io"):
        place = import_module("paddle").CPUPlace()
        return {"places": place if row.places == 1 else [place] * row.places}
    if row.options["num_workers"] == 0:
        has_tensors = face == ENGINE and row.samples == "tensors"
        return {"framework": "torch"} if has_tensors else {}
    return {"start_method" if face == ENGINE else "multiprocessing_context": "fork"}


def loader_maker(
    row: Row, contestant: Contestant, dataset: Any, **options: Any
) -> Callable[[], Any]:
    """Return the function that makes the contestant's bare DataLoader."""
    face = contestant.face
    samples: Any = dataset
    if row.samples == "stream":
        samples = stream_of(face, dataset, row.work.batch_size)
    elif row.samples == "columns":
        samples = _side_by_side(face, dataset.columns)
    elif row.samples == "tensors":
        samples = Tensors(dataset)
    given = {"batch_size": row.work.batch_size, **row.options, **_options_of(face, row), **options}
    return partial(import_module(face).DataLoader, samples, **given)


def open_loader(row: Row, contestant: Contestant, dataset: Any, **options: Any) -> Any:
    """Return the contestant's loader on the row's kind of samples of `dataset`; close it after."""
    face, size = contestant.face, row.work.batch_size
    if contestant.name == TAKE.name:
        return Taken(dataset, size)
    if face == "":
        is_uncached = contestant.name == STREAMING.name
        return Floor(dataset, size, row.options["num_workers"], PREFETCH, is_uncached)
    if contestant.name in COMPOSED:
        compose = COMPOSED[contestant.name]
        return Only(compose(dataset, size, row.options["num_workers"], PREFETCH))
    loader = loader_maker(row, contestant, dataset, **options)()
    return loader if hasattr(loader, "close") else Only(loader)


def open_stateful(row: Row, contestant: Contestant) -> Any:
    """Open the contestant's StatefulDataLoader on the numbers below its `samples`, shuffled."""
    same: dict[str, Any] = {"batch_size": row.work.batch_size, "shuffle": True}
    if contestant.name == OURS:
        same["seed"] = 1
    else:
        same["generator"] = import_module("torch").Generator().manual_seed(1)
    return import_module(contestant.face).StatefulDataLoader(range(contestant.samples), **same)


class Program:
    """A static program that reads eight numbers of its feed, and its executor."""

    def __init__(self, row: Row) -> None:
        import paddle

        paddle.enable_static()
        shape = Layout(row.work.dataset(1)[0], row.work.batch_size).fields[0][0]
        self.program = paddle.static.Program()  # type: ignore[no-untyped-call,unused-ignore]
        with paddle.static.program_guard(self.program):
            self.input = paddle.static.data(INPUT, [None, *shape[1:]], "float32")
            self.output = self.input[(0,) * (len(shape) - 1)][:8].mean()
        self.executor = paddle.static.Executor(paddle.CPUPlace())

    def open(self, row: Row, contestant: Contestant, dataset: Any) -> Any:
        """Return steps fed by the contestant's loader on `dataset`; close them after."""
        feeding = {"feed_list": [self.input], "return_list": False}
        return Steps(self, open_loader(row, contestant, dataset, **feeding))


class Steps:
    """Runs a program on each feed of a loader, and yields None."""

    def __init__(self, program: Program, feeds: Any) -> None:
        self.program = program
        self.feeds = feeds
        self.close = feeds.close

    def __iter__(self) -> Iterator[tuple[()]]:
        program = self.program
        for feeds in self.feeds:
            # For several places a step has a feed for each; Paddle has a list for one, too.
            for feed in feeds if isinstance(feeds, list) else (feeds,):
                program.executor.run(program.program, feed=feed, fetch_list=[program.output])
            yield ()
