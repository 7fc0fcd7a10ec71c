"""Datasets and functions that hold objects that only a starting process can be given.

Imports NumPy, the standard library and other datasets of tests: what a spawned worker imports.
"""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from tests.datasets import Rows

COUNT = 16


class Primitives(Rows):
    """Rows; each made row is noted in every shared object of `context`."""

    def __init__(self, context: Any) -> None:
        super().__init__(COUNT)
        self.value = context.Value("i", 0)
        self.raw = context.RawArray("i", COUNT)
        self.array = context.Array("i", COUNT)
        self.lock = context.Lock()
        self.event = context.Event()
        self.told, self.tells = context.Pipe(duplex=False)
        self.queue = context.Queue()

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in vars(self).items() if name != "told"}

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with self.lock:
            self.raw[index] += 1
            self.tells.send(index)
        with self.value.get_lock():
            self.value.value += 1
        self.array[index] += 1
        self.queue.put(index)
        self.event.set()
        return super().__getitem__(index)

    def close(self) -> None:
        self.told.close()
        self.tells.close()
        self.queue.close()
        self.queue.join_thread()


class Held(Rows):
    """Rows that hold a thing."""

    def __init__(self, thing: Any) -> None:
        super().__init__(COUNT)
        self.thing = thing


class Marks(Held):
    """Rows whose maker leaves a mark in a shared tensor, in each of its views, and in another."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        for tensor in self.thing:
            tensor[index] += 1
        return super().__getitem__(index)


class Names:
    """A worker_init_fn that counts the workers begun."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __call__(self, worker_id: int) -> None:
        with self.count.get_lock():
            self.count.value += 1


class Collates:
    """A collate_fn that reports through a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def __call__(self, samples: list[Any]) -> Any:
        self.sock.send(b"%d" % len(samples))
        return [np.array(column) for column in zip(*samples, strict=True)]


class SendsToAll:
    """A collate_fn that sends each of many sockets its number."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self.socks = socks

    def __call__(self, samples: list[Any]) -> Any:
        for n, sock in enumerate(self.socks):
            sock.send(b"%d" % n)
        return len(samples)
