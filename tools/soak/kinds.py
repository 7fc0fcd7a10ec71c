"""The kinds of loaders that are soaked, and how one of a kind is made.

Imports reader, and a framework where a kind needs it. A kind is a value; who makes a loader closes
it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import reader
from tools.soak.samples import Items, Shape, Stream, stack

__all__ = ["KINDS", "Kind", "Life", "draw_life", "make_loader"]

MIB = 1 << 20


@dataclass(frozen=True)
class Kind:
    """One kind of loader.

    Attributes:
        face: "own", "torch", "stateful" or "paddle".
        workers: "process", "thread" or "none".
        is_stream: the dataset is iterable.
        framework: of the own face.
        memory: "", "bytes": max_bytes is small, "cgroup": it runs in a small memory cgroup.
    """

    face: str = "own"
    workers: str = "process"
    is_stream: bool = False
    framework: str = "numpy"
    memory: str = ""

    @property
    def has_state(self) -> bool:
        """Whether its loaders can be resumed."""
        return self.face != "torch"


KINDS: dict[str, Kind] = {
    "map-process": Kind(),
    "map-thread": Kind(workers="thread"),
    "map-inline": Kind(workers="none"),
    "stream-process": Kind(is_stream=True),
    "stream-thread": Kind(workers="thread", is_stream=True),
    "stream-inline": Kind(workers="none", is_stream=True),
    "map-max-bytes": Kind(memory="bytes"),
    "stream-max-bytes": Kind(memory="bytes", is_stream=True),
    "map-cgroup": Kind(memory="cgroup"),
    "own-torch": Kind(framework="torch"),
    "own-paddle": Kind(framework="paddle"),
    "torch-process": Kind("torch"),
    "torch-thread": Kind("torch", "thread"),
    "torch-inline": Kind("torch", "none"),
    "torch-stream": Kind("torch", is_stream=True),
    "stateful-process": Kind("stateful"),
    "stateful-thread": Kind("stateful", "thread"),
    "stateful-inline": Kind("stateful", "none"),
    "stateful-stream": Kind("stateful", is_stream=True),
    "paddle-process": Kind("paddle"),
    "paddle-inline": Kind("paddle", "none"),
    "paddle-stream": Kind("paddle", is_stream=True),
}


@dataclass(frozen=True)
class Life:
    """The settings of the loaders of some epochs, also of one that resumes another.

    Attributes:
        shape: of the samples.
        size: samples of a batch.
        order: the indices of an epoch, in the sampler's order; None: the loader shuffles.
        options: the loader's arguments beside these.
        workers: how many there are; none is the same as one.
    """

    shape: Shape
    size: int
    order: tuple[int, ...] | None
    options: dict[str, Any]

    @property
    def workers(self) -> int:
        """How many workers there are; none is the same as one."""
        return max(1, int(self.options["num_workers"]))

    @property
    def places(self) -> int:
        """How many batches make a step."""
        return len(self.options.get("places", ["cpu"]))

    @property
    def in_order(self) -> bool:
        """Whether batches come in their order."""
        return bool(self.options.get("in_order", True))


def draw_life(rng: random.Random, kind: Kind, most_workers: int) -> Life:
    """Return options of a kind's loaders."""
    is_own = kind.face == "own"
    size = rng.choice([1, 2, 4, 4, 7])
    nbytes = rng.choice([16, 16, 600, 5000, 70_000])
    if kind.memory:
        size, nbytes = 4, rng.choice([MIB // 8, MIB // 2, MIB])
    count = rng.randint(5, 60) * size + rng.randrange(size)
    is_shuffled = not kind.is_stream and rng.random() < 0.3
    shape = Shape(
        count,
        nbytes,
        slow=rng.choice([0, 0, 40]),
        raising=0 if is_shuffled else rng.choice([0, 0, 0, 37]),
    )
    options: dict[str, Any] = {"num_workers": 0}
    if kind.workers != "none":
        options["num_workers"] = rng.randint(1, most_workers)
        options["prefetch_factor"] = rng.choice([1, 2, 2, 4])
        options["persistent_workers"] = rng.random() < 0.6
    if kind.workers != "none" and kind.face != "paddle":
        options["worker_type"] = kind.workers
        options["in_order"] = rng.random() < 0.75
        options["worker_retries"] = rng.choice([1, 2, 5])
        options["prefetch_next_epoch"] = options["persistent_workers"] and rng.random() < 0.3
    if is_own and kind.workers == "process" and rng.random() < 0.06:
        options["start_method"] = rng.choice(["forkserver", "spawn"])
    if options["num_workers"] and rng.random() < 0.15:
        options["timeout"] = rng.choice([0.02, 0.1])
    if is_own:
        if rng.random() < 0.3:
            options["collate_fn"] = stack
        options["seed"] = rng.choice([None, None, 1, 2])
        options["framework"] = kind.framework
        options["use_shared_memory"] = rng.random() < 0.9
        if rng.random() < 0.2 and options.get("in_order", True):
            options["places"] = ["cpu", "cpu"]
    if kind.has_state and kind.face != "paddle":
        options["snapshot_every_n_steps"] = rng.choice([1, 1, 3, 0])
    if kind.memory == "bytes":
        options["max_bytes"] = rng.choice([2, 3, 6, 12]) * size * nbytes + MIB
        options.pop("places", None)  # a group is held while the next one is made
    order: tuple[int, ...] | None = None
    if not kind.is_stream and not is_shuffled:
        order = tuple(rng.sample(range(count), count))
    return Life(shape, size, order, options)


def make_loader(kind: Kind, life: Life) -> Any:
    """Make a loader."""
    options = dict(life.options)
    dataset: Any = Stream(life.shape) if kind.is_stream else Items(life.shape)
    if kind.face == "own":
        if life.order is not None:
            options["sampler"] = life.order
        elif not kind.is_stream:
            options["shuffle"] = True
        return reader.DataLoader(dataset, batch_size=life.size, **options)
    if kind.face == "paddle":
        from reader.compat import paddle as face

        if life.order is not None:
            made: Any = [list(life.order[at : at + life.size]) for at in _starts(life)]
            return face.DataLoader(dataset, batch_sampler=made, **options)
        shuffle = not kind.is_stream
        return face.DataLoader(dataset, batch_size=life.size, shuffle=shuffle, **options)
    import torch

    from reader.compat import torch as torch_face

    if kind.is_stream:
        dataset = type("TorchStream", (Stream, torch.utils.data.IterableDataset), {})(life.shape)
    elif life.order is not None:
        options["sampler"] = life.order
    else:
        options["shuffle"] = True
    if not options["num_workers"]:
        options.pop("prefetch_factor", None)
    is_stateful = kind.face == "stateful"
    made = torch_face.StatefulDataLoader if is_stateful else torch_face.DataLoader
    return made(dataset, batch_size=life.size, **options)


def _starts(life: Life) -> range:
    return range(0, life.shape.count, life.size)
