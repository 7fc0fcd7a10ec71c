"""Datasets and functions that tests share: at module level, so that a spawned worker finds them.

Imports the public package, numpy and the standard library. Objects here hold paths, numbers and
functions alone and pickle plainly; a `Wire` on the other side (tests/processes.py) hears them.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import faulthandler
import hashlib
import os
import random
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from reader import get_worker_info, sample_rng

# ---- talking to the test through FIFOs -----------------------------------------------------


def tell(path: str, text: str) -> None:
    """Send a line to the test that keeps the FIFO open."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)


def listen(path: str) -> bytes:
    """Block until the test writes; each listener reads one byte."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1)
    finally:
        os.close(fd)


def first_time(path: str) -> bool:
    """Whether this is the first call with this path; true for one caller alone."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


# ---- datasets ------------------------------------------------------------------------------


class Wrapped:
    """Keeps another dataset in `dataset`; has no epoch itself."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


class Rows:
    """(array of `width` float32, each equal to the index; the index): easy to check anywhere."""

    def __init__(self, count: int = 64, width: int = 8) -> None:
        self.count = count
        self.width = width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return np.full(self.width, index, np.float32), index


class PidRows(Rows):
    """Rows with the pid of the process that made them: (array, index, pid)."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, int]:  # type: ignore[override]
        return (*super().__getitem__(index), os.getpid())


class Calls:
    """Samples that `function(index)` makes."""

    def __init__(self, function: Callable[[int], Any], count: int = 16) -> None:
        self.function = function
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


class Large(Calls):
    """Samples of `nbytes` bytes each."""

    def __init__(self, count: int, nbytes: int) -> None:
        super().__init__(lambda _: np.ones(nbytes, np.uint8), count)


class Indices:
    """Each sample is its index."""

    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Pids(Indices):
    """Each sample is the pid of the process that made it."""

    def __getitem__(self, index: int) -> int:
        return os.getpid()


class Fails(Indices):
    """Each sample is its index, and that of the index `at` is an error."""

    def __init__(self, at: int, count: int) -> None:
        super().__init__(count)
        self.at = at

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            raise ZeroDivisionError("of the user")
        return index


class NoLength:
    """Each sample is its key; there is no length."""

    def __getitem__(self, key: Any) -> Any:
        return key


class Slow(Rows):
    """Rows that take `seconds` each, without computing."""

    def __init__(self, seconds: float, count: int) -> None:
        super().__init__(count)
        self.seconds = seconds

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        threading.Event().wait(self.seconds)
        return super().__getitem__(index)


class At(Rows):
    """Rows, but before the sample `at` is made, `action(index)` is called (each time)."""

    def __init__(self, at: int, action: Callable[[int], Any], count: int = 64) -> None:
        super().__init__(count)
        self.at = at
        self.action = action

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index == self.at:
            self.action(index)
        return super().__getitem__(index)


class Stuck(Rows):
    """Rows, but the first to make sample `at` says "pid" on one FIFO and blocks on another."""

    def __init__(
        self, at: int, says: str, hears: str, once: str | None = None, count: int = 64
    ) -> None:
        super().__init__(count)
        self.at = at
        self.says = says
        self.hears = hears
        self.once = once

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index == self.at and (self.once is None or first_time(self.once)):
            tell(self.says, str(os.getpid()))
            listen(self.hears)
        return super().__getitem__(index)


class Writes:
    """Samples that write a file each, as a cache does; `at` waits for the test in the middle."""

    at = 5  # in the second batch of four; a worker makes it when the first was taken
    count = 16

    def __init__(self, folder: str, says: str, hears: str) -> None:
        self.folder, self.says, self.hears = folder, says, hears

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        name = os.path.join(self.folder, str(index))
        mine = f"{name}.{os.getpid()}"
        os.close(os.open(f"{mine}.lock", os.O_CREAT | os.O_WRONLY))
        try:
            os.close(os.open(f"{mine}.part", os.O_CREAT | os.O_WRONLY))
            if index == self.at:
                tell(self.says, str(os.getpid()))
                listen(self.hears)
            os.rename(f"{mine}.part", f"{name}.npy")
        finally:
            os.unlink(f"{mine}.lock")
        return index


class WritesStream:
    """The same as a stream; writes "over" when its generator is closed."""

    def __init__(self, *args: str) -> None:
        self.samples = Writes(*args)

    def __iter__(self) -> Iterator[int]:
        try:
            for index in range(self.samples.count):
                yield self.samples[index]
        finally:
            path = os.path.join(self.samples.folder, "over")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


class HugeOnce(Stuck):
    """Reports its pid and returns at once: a long copy of `nbytes` into a slot follows."""

    def __init__(self, at: int, says: str, once: str, nbytes: int, count: int = 8) -> None:
        super().__init__(at, says, "", once, count)
        self.large = np.ones(nbytes, np.uint8)

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        if index == self.at and self.once is not None and first_time(self.once):
            tell(self.says, str(os.getpid()))
        return self.large


class Killer(Rows):
    """Rows, but whoever makes one of the samples `at` gets a signal, or ends by itself."""

    def __init__(
        self,
        at: set[int],
        signum: int = signal.SIGKILL,
        exitcode: int | None = None,
        once: str | None = None,
        count: int = 64,
    ) -> None:
        super().__init__(count)
        self.at = at
        self.signum = signum
        self.exitcode = exitcode
        self.once = once

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index in self.at and (self.once is None or first_time(f"{self.once}-{index}")):
            faulthandler.disable()  # of the test's run; a worker has its own, and would print
            if self.exitcode is not None:
                os._exit(self.exitcode)
            os.kill(os.getpid(), self.signum)
        return super().__getitem__(index)


class Augmented:
    """Random augmentation from random, numpy and sample_rng."""

    def __init__(self, count: int = 40, once: str | None = None, kill_at: int = -1) -> None:
        self.count = count
        self.once = once
        self.kill_at = kill_at

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.kill_at and self.once is not None and first_time(self.once):
            os.kill(os.getpid(), signal.SIGKILL)
        return {
            "index": index,
            "python": random.random(),
            "numpy": np.random.standard_normal(3),
            "keyed": sample_rng(index).normal(size=2),
            "text": f"{index}-{random.randrange(1000)}",
        }


class TorchAugmented(Augmented):
    """The same from torch's generator."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        return {"torch": torch.rand(2), **super().__getitem__(index)}


class InfoRows(Rows):
    """The worker info at each sample: (index, id or -1, num_workers or -1, seed)."""

    def __getitem__(self, index: int) -> tuple[int, int, int, str]:  # type: ignore[override]
        found = get_worker_info()
        if found is None:
            return index, -1, -1, ""
        assert len(found.dataset) == self.count
        return index, found.id, found.num_workers, str(found.seed)


class Batched(Rows):
    """A dataset that is asked for whole batches."""

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("__getitem__ was called beside __getitems__")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        return [Rows.__getitem__(self, index) for index in indices]


class Unloadable(Rows):
    """Pickles, and refuses to be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse_to_load, (self.count,)


def refuse_to_load(count: int) -> Any:
    raise LookupError(f"the file of {count} samples is not there")


class Unpicklable(Rows):
    """Holds an object that cannot be pickled."""

    def __init__(self, count: int = 8) -> None:
        super().__init__(count)
        self.lock = threading.Lock()


# ---- containers ----------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Box:
    image: Any
    label: Any
    name: str = ""


@dataclasses.dataclass(frozen=True)
class FrozenBox:
    image: Any
    label: Any


class Colour(enum.Enum):
    RED = 1


class OddError(Exception):
    """An exception with its own constructor, attributes, and no pickle support."""

    def __init__(self, path: str, *, line: int) -> None:
        super().__init__(f"{path}:{line}")
        self.path = path
        self.line = line


class StuckError(Exception):
    """An exception that holds an object that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()
        self.text = text


class UnpicklableResult:
    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("this object stays here")


# ---- functions for collate_fn, worker_init_fn and At -----------------------------------------


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def never_returns(path: str) -> Callable[[int], Any]:
    return _Listen(path)


class _Listen:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, _: int) -> None:
        listen(self.path)


class Raise:
    """An action, worker_init_fn or collate_fn that raises the result of `make`."""

    def __init__(self, make: Callable[[], BaseException], only: int | None = None) -> None:
        self.make = make
        self.only = only

    def __call__(self, value: Any) -> None:
        if self.only is None or value == self.only:
            raise self.make()


# ---- looking at batches ----------------------------------------------------------------------


def feed(digest: Any, value: Any) -> None:
    """Hash a batch: types, dtypes, shapes, bytes and order of keys."""
    digest.update(type(value).__name__.encode() + b"|")
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, collections.abc.Mapping):
        for key, child in value.items():
            digest.update(repr(key).encode() + b":")
            feed(digest, child)
    elif isinstance(value, (list, tuple)):
        digest.update(struct.pack("q", len(value)))
        for child in value:
            feed(digest, child)
    else:
        digest.update(repr(value).encode())


def digest_of(batches: Any) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        feed(digest, batch)
    return digest.hexdigest()


def check_rows(batch: Any, indices: Any) -> None:
    """Check a stacked batch of Rows."""
    rows, labels = batch[0], batch[1]
    indices = list(indices)
    assert np.asarray(labels).tolist() == indices
    rows = np.asarray(rows)
    assert rows.shape[0] == len(indices)
    assert (rows == np.array(indices, rows.dtype)[:, None]).all()
