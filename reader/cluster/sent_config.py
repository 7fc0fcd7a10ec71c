"""The config of workers in the cluster's object store: put there once, opened by each.

Imports Ray where it is used, the pickled configs and node_files. The lander puts it there and keeps
the references; a worker keeps none.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from reader.cluster.node_files import node_files
from reader.processes.remote_config import open_remote
from reader.sharing.memory_file import Bytes, MemoryFile, Part
from reader.worker.loop import WorkerConfig

__all__ = ["SentConfig", "put_config"]

_CHUNK_NBYTES = 64 << 20  # at a time in a node's store, which may be small


@dataclasses.dataclass(frozen=True)
class SentConfig:
    """A RemoteConfig whose files are objects of the store.

    Attributes:
        name: of the files that the workers of a node share; nobody can guess it.
        data: the pickle.
        sizes: see RemoteConfig.
        files: for each file its number of bytes and the references to its content, in order.
    """

    name: str
    data: bytes
    sizes: Sequence[int]
    files: Sequence[tuple[int, Sequence[Any]]]

    def unpickled(self) -> WorkerConfig:
        """Return the config, in a worker. Passes on exceptions of `open_remote` and the cluster."""
        fds = node_files(self.name, len(self.files), self._make) if self.files else []
        return open_remote(self.data, fds, self.sizes)

    def _make(self) -> list[int]:
        """Make this node's copies of the files."""
        made = [_file(nbytes, chunks) for nbytes, chunks in self.files]
        return [os.dup(file.fd) for file in made]


def put_config(data: bytes, fds: Sequence[int], sizes: Sequence[int]) -> SentConfig:
    """Put the files of a RemoteConfig into the store, from which each node gets its copy."""
    files = []
    for fd in fds:
        nbytes = os.fstat(fd).st_size
        files.append((nbytes, _put(fd, nbytes)))
    return SentConfig(secrets.token_hex(16), data, sizes, files)


def _put(fd: int, nbytes: int) -> list[Any]:
    import ray

    if not nbytes:
        return []
    # unmapped with the last array, which an older Ray keeps for a while
    content = np.frombuffer(mmap.mmap(fd, nbytes, access=mmap.ACCESS_READ), np.uint8)
    begins = range(0, nbytes, _CHUNK_NBYTES)
    return [ray.put(content[at : at + _CHUNK_NBYTES]) for at in begins]


def _file(nbytes: int, chunks: Sequence[Any]) -> MemoryFile:
    import ray

    def write(out: Bytes) -> None:
        at = 0
        for chunk in chunks:
            part = ray.get(chunk)
            out[at : at + len(part)] = part
            at += len(part)

    return MemoryFile.made_of([Part(nbytes, write)])
