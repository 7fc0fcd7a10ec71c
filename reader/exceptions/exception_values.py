"""Pickle the values of an exception: bounded in size, with exceptions by reference.

Imports `reader.exceptions.exception_class`, and cloudpickle when plain pickle refuses a value.
`reader.exceptions.exception_codec` uses it, and owns the list that the references index.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

from reader.exceptions.exception_class import find_by_name

__all__ = ["TooLarge", "class_by_value", "dump", "load"]


_CLASS_BYTES = 1 << 20  # limit of a class with its code and the globals that it uses


class TooLarge(Exception):
    """A value takes too many bytes."""


class _BoundedFile(io.BytesIO):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    def write(self, chunk: Any, /) -> int:
        if self.tell() + memoryview(chunk).nbytes > self._limit_bytes:
            raise TooLarge
        return super().write(chunk)


class _ByReference:
    """Makes a pickler write references in place of exceptions.

    `position` is an attribute of the pickler, not a closure of its class: only the garbage
    collector frees a class, which would keep the exceptions and their frames alive until then.
    """

    position: Callable[[BaseException], int | None]

    def persistent_id(self, obj: object) -> int | None:
        return self.position(obj) if isinstance(obj, BaseException) else None


class _Pickler(_ByReference, pickle.Pickler):
    pass


@functools.cache
def _cloud_pickler() -> Any:
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    class CloudPickler(_ByReference, cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            # By value, a class of the main module would differ from the trainer's own class.
            if isinstance(obj, type) and find_by_name("__main__", obj.__qualname__) is obj:
                return NotImplemented
            return super().reducer_override(obj)

    return CloudPickler


def dump(value: object, position: Callable[[BaseException], int | None], limit_bytes: int) -> bytes:
    """Pickle `value`, by cloudpickle if plain pickle refuses it.

    Args:
        value: anything.
        position: returns the reference to write in place of an exception in `value`; None: pickle
            the exception itself.
        limit_bytes: limit of the result.

    Raises:
        TooLarge: it is longer; raised before all of it is made.
        BaseException: whatever the code of the user's classes raises.
    """
    try:
        return _dump(_Pickler, value, position, limit_bytes)
    except TooLarge:
        raise
    except BaseException:
        return _dump(_cloud_pickler(), value, position, limit_bytes)


def _dump(kind: Any, value: object, position: Any, limit_bytes: int) -> bytes:
    file = _BoundedFile(limit_bytes)
    pickler = kind(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.position = position
    pickler.dump(value)
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    exceptions: list[BaseException]

    def persistent_load(self, pid: int) -> BaseException:
        return self.exceptions[pid]


def load(pickled: bytes, exceptions: list[BaseException]) -> Any:
    """Unpickle the result of `dump`; references are indices into `exceptions`."""
    unpickler = _Unpickler(io.BytesIO(pickled))
    unpickler.exceptions = exceptions
    return unpickler.load()


def class_by_value(cls: type) -> list[bytes]:
    """Pickle a class with its code, if no import finds it; plain `pickle.loads` reads it.

    The first form refers to bases in the main module by name, so that it gets the trainer's own
    bases; the second includes them, for a trainer with another main module.
    """
    import cloudpickle

    def refer_to_none(_: BaseException) -> None:
        return None

    forms = [_dump(_cloud_pickler(), cls, refer_to_none, _CLASS_BYTES)]
    by_value = bytes(cloudpickle.dumps(cls))
    return forms if by_value in forms else [*forms, by_value]
