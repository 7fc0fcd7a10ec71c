"""The config of workers, pickled once for all of them, with the descriptors in it.

Imports multiprocessing's pickling of its own primitives and cloudpickle, and looks for torch in
`sys.modules`. The trainer's starter owns a `PickledConfig`. Its descriptors are duplicates: a
worker that replaces another gets them even if the user has closed the originals.
"""

from __future__ import annotations

import copyreg
import errno
import functools
import io
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from multiprocessing import context, reduction
from typing import Any

import cloudpickle

from reader._core.signals import Finalized, interrupt_after, is_interrupt
from reader.errors import ConfigError, shown
from reader.workers.loop import WorkerConfig

__all__ = ["PickledConfig", "pickle_config", "unpickle_config"]

_PROTOCOL = 5
_FROM_USER = ("dataset", "collate_fn", "worker_init_fn")

_received: dict[int, int] = {}  # in a worker that unpickles: its descriptors by index


class PickledConfig(Finalized):
    """A pickled config.

    Attributes:
        data: the pickle.
        fds: the descriptors in it, by index, which this object owns.
    """

    def __init__(self) -> None:
        self.data = b""
        self.fds: list[int] = []

    def add(self, fd: int) -> int:
        """Duplicate a descriptor; returns its index."""
        self.fds.extend(map(os.dup, (fd,)))  # an interrupt in between would leave it open
        return len(self.fds) - 1

    def close(self) -> None:
        """Close the descriptors; workers that were started have their own."""
        with interrupt_after():
            while self.fds:
                os.close(self.fds.pop())

    def finalize(self) -> None:
        """Close what an interrupt left open."""
        self.close()


def pickle_config(config: WorkerConfig) -> PickledConfig:
    """Pickle what workers are given, as multiprocessing pickles the arguments of a process.

    So a dataset may hold what a process can be given only at its start: values, arrays, locks,
    events, queues and connections of multiprocessing, sockets and shared torch tensors.

    Raises:
        ConfigError: neither pickle nor cloudpickle can pickle it.
        OSError: the system refuses descriptors.
    """
    try:
        return _pickle(config, pickle.Pickler)
    except Exception as error:
        if is_interrupt(error):
            raise
    try:
        return _pickle(config, cloudpickle.Pickler)
    except Exception as error:
        if is_interrupt(error):
            raise
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        for name in _FROM_USER:
            try:
                _pickle(getattr(config, name), cloudpickle.Pickler).close()
            except Exception as its_error:
                if is_interrupt(its_error):
                    raise
                raise ConfigError(
                    f"the {name}, {shown(getattr(config, name))}, cannot be sent to worker"
                    f" processes: {its_error}. Open files, locks and connections lazily in the"
                    " worker (in __getitem__ or worker_init_fn), or use start_method='fork'"
                ) from its_error
        raise ConfigError(f"the dataset cannot be sent to worker processes: {error}") from error


def unpickle_config(data: bytes | bytearray, fds: Sequence[int]) -> WorkerConfig:
    """Unpickle a config, in the worker's main thread. The object that takes a descriptor owns it.

    Args:
        data: of a PickledConfig.
        fds: this process's own duplicates of its descriptors; those that nothing takes are closed.
    """
    _received.update(enumerate(fds))
    try:
        config: WorkerConfig = pickle.loads(data)
    finally:
        while _received:
            os.close(_received.popitem()[1])
    return config


class _SentFd:
    """A descriptor within a pickle; its number in the worker is another one."""

    def __init__(self, index: int) -> None:
        self._index = index

    def detach(self) -> int:
        return _received.pop(self._index)


class _Spawning:
    """Stands in for the process that will be started, while its arguments are pickled."""

    DupFd = _SentFd

    def __init__(self, config: PickledConfig) -> None:
        self.duplicate_for_child = config.add


def _pickle(value: Any, pickler: type[pickle.Pickler]) -> PickledConfig:
    pickled = PickledConfig()
    spawning: Any = _Spawning(pickled)
    made = io.BytesIO()
    reducers: dict[type, Callable[[Any], Any]] = _reducers()
    if pickler is cloudpickle.Pickler:
        reducers.update(pickler.dispatch_table)
    # a new class, since the attribute of cloudpickle's class would hide one of the instance
    kind = type("_Pickler", (pickler,), {"dispatch_table": reducers})
    before: Any = context.get_spawning_popen()
    context.set_spawning_popen(spawning)
    try:
        kind(made, _PROTOCOL).dump(value)
    except BaseException:
        pickled.close()
        raise
    finally:
        context.set_spawning_popen(before)
    pickled.data = made.getvalue()
    return pickled


def _reducers() -> dict[type, Callable[[Any], Any]]:
    """Return the reducers that multiprocessing has beyond those of pickle, by type.

    A torch tensor that the user shared is shared with the workers, any other is copied. PyTorch
    would move each one into shared memory, at one descriptor each.
    """
    forking: Any = reduction.ForkingPickler
    found: dict[type, Callable[[Any], Any]] = dict(copyreg.dispatch_table)
    torch = sys.modules.get("torch")
    for kind, reduce in dict(forking._extra_reducers).items():
        library = kind.__module__.partition(".")[0]
        if kind is functools.partial or library == "paddle":
            continue  # pickle alone keeps a partial's attributes; paddle's count their readers
        if library == "torch" and torch is not None:
            if issubclass(kind, torch.Tensor):
                reduce = functools.partial(_reduce_tensor, reduce)
            elif kind is torch.UntypedStorage:
                reduce = functools.partial(_reduce_storage, reduce)
            elif issubclass(kind, torch.storage.TypedStorage):
                reduce = functools.partial(_reduce_typed, reduce)
        found[kind] = reduce
    return found


def _reduce_tensor(share: Callable[[Any], Any], value: Any) -> Any:
    is_plain = value.layout is sys.modules["torch"].strided and not (
        value.is_quantized or value.is_nested or value.is_conj() or value.is_neg()
    )
    if is_plain and value.is_leaf and value.is_cpu and value.is_shared():
        return share(value)
    return value.__reduce_ex__(_PROTOCOL)


def _reduce_typed(share: Callable[[Any], Any], value: Any) -> Any:
    return share(value) if _is_shared(value._untyped_storage) else value.__reduce_ex__(_PROTOCOL)


def _reduce_storage(share: Callable[[Any], Any], value: Any) -> Any:
    if not _is_shared(value):
        return value.__reduce_ex__(_PROTOCOL)
    if sys.modules["torch"].multiprocessing.get_sharing_strategy() == "file_system":
        # torch's own reducer counts references in flight: each pickle could be loaded only once
        return _open_storage, (type(value), *value._share_filename_cpu_())
    return share(value)


def _is_shared(storage: Any) -> bool:
    return storage.device.type == "cpu" and bool(storage.is_shared())


def _open_storage(kind: Any, manager: Any, handle: Any, nbytes: int) -> Any:
    return kind._new_shared_filename_cpu(manager, handle, nbytes)
