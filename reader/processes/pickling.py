"""Pickle the config of workers, once for all of them, with its descriptors.

Imports multiprocessing's pickling of its own primitives and the pickler of the main module, and
looks for torch in `sys.modules`. The trainer's starter owns a `PickledConfig`. Its descriptors are
duplicates: a worker that replaces another gets them even if the user has closed the originals.
"""

from __future__ import annotations

import contextlib
import copyreg
import errno
import functools
import inspect
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import context, reduction
from pathlib import Path
from types import FunctionType
from typing import Any

from reader._core.interpreter.signals import Finalized, interrupt_after, is_interrupt
from reader.errors import ConfigError, shown
from reader.processes.main_module import ByReference, ByValue, is_imported
from reader.worker.loop import WorkerConfig

__all__ = [
    "NotFound",
    "PickledConfig",
    "not_found",
    "pickle_config",
    "pickle_value",
    "unpickle_config",
]

_PROTOCOL = 5

_received: dict[int, int] = {}  # in a worker, while it unpickles: its descriptors by index


class PickledConfig(Finalized):
    """A pickled config.

    Attributes:
        data: the pickle.
        fds: the descriptors in it, by index, which this object owns.
        modules: names of modules that code in the pickle uses.
    """

    def __init__(self) -> None:
        self.data = b""
        self.fds: list[int] = []
        self.modules: list[str] = []

    def add(self, fd: int) -> int:
        """Duplicate a descriptor; returns its index."""
        self.fds.extend(map(os.dup, (fd,)))  # an interrupt between dup and append would leak it
        return len(self.fds) - 1

    def take(self) -> bytes:
        """Return the pickle, and keep only the descriptors."""
        data, self.data = self.data, b""
        return data

    def close(self) -> None:
        """Close the descriptors; workers that were started have their own."""
        with interrupt_after():
            while self.fds:
                os.close(self.fds.pop())

    def finalize(self) -> None:
        """Close the descriptors that an interrupt left open."""
        self.close()


def pickle_config(config: WorkerConfig, remedy: str = "use start_method='fork'") -> PickledConfig:
    """Pickle a config as multiprocessing pickles the arguments of a process.

    So a dataset may hold objects that a process can get only at its start: values, arrays, locks,
    events, queues and connections of multiprocessing, sockets and shared torch tensors. Classes and
    functions that workers cannot import are pickled with their code: lambdas, local ones, and those
    of a main module without a file.

    Args:
        config: to pickle.
        remedy: named in the error, besides opening unpicklable objects in the worker; "": none.

    Raises:
        ConfigError: neither pickle nor cloudpickle can pickle it.
        OSError: the system refuses descriptors.
    """
    try:
        return pickle_value(config, pickle.Pickler if is_imported() else ByReference)
    except Exception as error:
        if is_interrupt(error):
            raise
    try:
        return pickle_value(config, ByValue)
    except Exception as error:
        if is_interrupt(error):
            raise
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        for name, part in config.of_user.items():
            try:
                pickle_value(part, ByValue).close()
            except Exception as its_error:
                if is_interrupt(its_error):
                    raise
                raise ConfigError(
                    f"the {name}, {shown(part)}, cannot be sent to worker processes:"
                    f" {its_error}{_at_fault(part)}. Open files, locks and connections"
                    " lazily in the worker (in __getitem__ or worker_init_fn)"
                    f"{remedy and ', or ' + remedy}"
                ) from its_error
        raise ConfigError(f"the dataset cannot be sent to worker processes: {error}") from error


def _at_fault(part: Any) -> str:
    """Name the variable or attribute that cannot be pickled, if one can be found."""
    with_code: list[Any] = []
    with contextlib.suppress(Exception):
        pickle_value(part, ByValue, with_code).close()
    for user in [*reversed(with_code), part]:
        for kind, name, value in _uses(user):
            try:
                pickle_value(value, ByValue).close()
            except Exception:
                has_name = isinstance(user, (type, FunctionType))
                whose = f", which {user.__qualname__} uses" if has_name else ""
                return f" (the {kind} {name!r}{whose})"
    return ""


def _uses(user: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (kind, name, value) of the objects that a function, a class or an object refers to."""
    if isinstance(user, FunctionType):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            used = inspect.getclosurevars(user)
            for name, value in used.globals.items():
                yield "global", name, value
            for name, value in used.nonlocals.items():
                if name != "__class__":
                    yield "variable", name, value
        return
    for name, value in list(getattr(user, "__dict__", {}).items()):
        is_plain = not (name.startswith("__") or name == "_abc_impl" or hasattr(value, "__get__"))
        if is_plain:
            yield "attribute", name, value


def unpickle_config(
    data: bytes | bytearray, fds: Sequence[int], buffers: Sequence[memoryview] = ()
) -> WorkerConfig:
    """Unpickle a config, in the worker's main thread. The object that takes a descriptor owns it.

    Args:
        data: of a PickledConfig.
        fds: this process's own duplicates of its descriptors; unused ones are closed.
        buffers: buffers that were kept out of the pickle.

    Raises:
        NotFound: this process cannot import a class or function that the config names.
    """
    _received.update(enumerate(fds))
    try:
        config: WorkerConfig = _Unpickler(io.BytesIO(data), buffers=buffers).load()
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


class NotFound(Exception):
    """A worker cannot import a class or function of its config; see `not_found`.

    Args:
        module: its module in the trainer.
        name: its qualified name there.
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(module, name)
        self.module = module
        self.name = name


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            raise NotFound(module, name) from error


def not_found(error: NotFound) -> ConfigError:
    """Return the trainer's exception for a NotFound of a worker: the trainer knows the module."""
    module, name = error.module, error.name
    found = sys.modules.get(module)
    path = getattr(found, "__file__", None)
    why = f"importing {module} there raised {error.__cause__!r}"
    remedy = "see that each process can import it"
    if module == "__main__" and not is_imported():
        why = (
            "the main module is not a file that they can import, and"
            f" {name} cannot be pickled by value"
        )
        remedy = "define it in a module of its own"
    elif module == "__main__":
        why = "the main module did not define it when they ran it"
        remedy = 'define it above `if __name__ == "__main__":`'
    elif found is not None and path is None and getattr(found, "__spec__", None) is None:
        why = f"module {module} was made at run time and has no file"
        remedy = "put it into a file that can be imported"
    elif path is not None and not Path(path).exists():
        why = f"the file of module {module}, {path}, does not exist any more"
        remedy = "keep it until the workers have started"
    made = ConfigError(
        f"worker processes cannot find {module}.{name}, which the dataset, the collate_fn or the"
        f" worker_init_fn needs: {why}. To solve this, {remedy}, or use start_method='fork'"
    )
    made.__cause__ = error.__cause__
    return made


class _Spawning:
    """Stands for the process that will be started while its arguments are pickled."""

    DupFd = _SentFd

    def __init__(self, config: PickledConfig) -> None:
        self.duplicate_for_child = config.add


def pickle_value(
    value: Any,
    kind: type[pickle.Pickler],
    with_code: list[Any] | None = None,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> PickledConfig:
    """Pickle a value.

    Args:
        value: the value.
        kind: of the pickler, ByReference or ByValue.
        with_code: list to which ByValue adds the functions and classes that it meets.
        buffer_callback: as in `pickle`.
    """
    pickled = PickledConfig()
    spawning: Any = _Spawning(pickled)
    made = io.BytesIO()
    reducers: dict[type, Callable[[Any], Any]] = _reducers()
    if kind is ByValue:
        reducers.update(ByValue.dispatch_table)
    # a new class, since the attribute of cloudpickle's class would hide one of the instance
    pickler: Any = type("_Pickler", (kind,), {"dispatch_table": reducers})(
        made, _PROTOCOL, buffer_callback=buffer_callback
    )
    before: Any = context.get_spawning_popen()
    context.set_spawning_popen(spawning)
    try:
        pickler.dump(value)
    except BaseException:
        pickled.close()
        raise
    finally:
        context.set_spawning_popen(before)
        if with_code is not None:
            with_code += pickler.with_code
    pickled.data = made.getvalue()
    pickled.modules = sorted(getattr(pickler, "modules", ()))
    return pickled


def _reducers() -> dict[type, Callable[[Any], Any]]:
    """Return multiprocessing's additional reducers, by type.

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
