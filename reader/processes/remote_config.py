"""The config of workers on other machines: its pickle, and memory files with its large parts.

Imports the pickling, and the memory files of `reader.share`. The trainer's pool owns a
RemoteConfig; a worker opens its own copies of the files. Each worker maps the arrays copy-on-write:
its own changes stay private, and unchanged pages exist once on its machine.
"""

from __future__ import annotations

import functools
import mmap
import os
import pickle
from collections.abc import Sequence

import numpy as np

from reader._core.interpreter.signals import is_interrupt
from reader.errors import ConfigError
from reader.processes.main_module import ByValue
from reader.processes.pickling import (
    PickledConfig,
    pickle_config,
    pickle_value,
    unpickle_config,
)
from reader.sharing.memory_file import MemoryFile, is_shared_memory, padded, part_of
from reader.worker.loop import WorkerConfig

__all__ = ["RemoteConfig", "open_remote", "pickle_remote"]

_LARGE_NBYTES = 1 << 16  # arrays of this many bytes or more are in a file
_MOST_FILES = 200  # fewer descriptors than a message may have


class RemoteConfig:
    """The config of workers on other machines, in the trainer.

    Attributes:
        data: the pickle, with code of the main module.
        fds: of the files, owned by this object: those of `reader.share`, then one with all arrays.
        sizes: of the arrays, in bytes; empty: there is no file of them.
    """

    def __init__(self, pickled: PickledConfig, arrays: Sequence[memoryview]) -> None:
        self._pickled = pickled
        self.data = pickled.data
        self.sizes = [view.nbytes for view in arrays]
        if arrays:
            parts = [part_of(np.frombuffer(view, np.uint8)) for view in arrays]
            memory = MemoryFile.made_of(parts)
            pickled.add(memory.fd)
        self.fds = pickled.fds

    def close(self) -> None:
        """Close the files; workers have their own."""
        self._pickled.close()


def pickle_remote(config: WorkerConfig) -> RemoteConfig:
    """Pickle the config of workers on other machines.

    Raises:
        ConfigError: it cannot be pickled, holds a descriptor that is useless on another machine, or
            there is no memory for a copy of its arrays.
    """
    arrays: list[memoryview] = []
    stays = functools.partial(_stays, arrays)
    try:
        pickled = pickle_value(config, ByValue, buffer_callback=stays)
    except Exception as error:
        if is_interrupt(error):
            raise
        arrays.clear()
        pickled = pickle_config(config)  # its error names the culprit
    try:
        others = sum(not is_shared_memory(fd) for fd in pickled.fds)
        if others:
            raise ConfigError(
                f"the dataset holds {others} descriptors of this machine (locks, queues, sockets or"
                " shared tensors), and workers on other machines cannot have them. Open them lazily"
                " in the worker; arrays, lists and dicts go there, also those of reader.share"
            )
        if len(pickled.fds) > _MOST_FILES:
            raise ConfigError(
                f"the dataset holds {len(pickled.fds)} objects of reader.share, and workers on"
                f" other machines can have {_MOST_FILES}. Share fewer and larger ones: one list"
            )
        return RemoteConfig(pickled, arrays)
    except BaseException:
        pickled.close()
        raise


def _stays(arrays: list[memoryview], buffer: pickle.PickleBuffer) -> bool:
    """Whether a buffer stays within the pickle; otherwise add it to `arrays`."""
    try:
        view = buffer.raw()
    except BufferError:  # it has gaps
        return True
    if view.nbytes < _LARGE_NBYTES:
        return True
    arrays.append(view)
    return False


def open_remote(data: bytes, fds: Sequence[int], sizes: Sequence[int]) -> WorkerConfig:
    """Unpickle a config in a worker, which may change all of its objects.

    Args:
        data: of a RemoteConfig.
        fds: this process's own descriptors of its files, in order; they are closed, or owned by
            unpickled objects.
        sizes: of the arrays.

    Raises:
        OSError: the system refuses to map a file.
        NotFound: this process cannot import a class or function that the config names.
    """
    own, buffers = list(fds), []
    if sizes:
        file = own.pop()
        try:
            # private to this process: a page is copied when it is first written to
            memory = mmap.mmap(file, sum(map(padded, sizes)), access=mmap.ACCESS_COPY)
        finally:
            os.close(file)
        content, at = memoryview(memory), 0
        for nbytes in sizes:
            buffers.append(content[at : at + nbytes])
            at += padded(nbytes)
    return unpickle_config(data, own, buffers)
