"""A digest of a dataset: of what it holds, and of the code of its classes.

Imports NumPy and the standard library; tensors are known where their library is imported. The same
program on the same data gives the same digest in every process.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from reader.sharing.memory_file import MemoryFile

__all__ = ["digest_of", "program_digest"]

_PROTOCOL = 5
_PLAIN = (str, bytes, int, float, bool, complex, tuple, frozenset, type(None))


def digest_of(value: Any, seen: frozenset[type] = frozenset()) -> str | None:
    """Return a digest of what an object holds and of its classes' code; None: it has none.

    Of a file that is mapped the path, size and time count. Functions that the code calls, and
    modules that it uses, have no part in it. Classes in `seen` have been digested already: one may
    hold objects of its own, as an enumeration does.
    """
    hashed = hashlib.blake2b(digest_size=16)
    try:
        _digest(value, hashed, seen)
    except Exception:  # many types: it cannot be pickled, or is too deep
        return None
    return hashed.hexdigest()


def program_digest() -> str:
    """Return a digest of the program that runs: ranks of one start have the same."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = Path(path).read_bytes() if path else repr(sys.orig_argv).encode()
    except OSError:  # such as a notebook's cell
        text = b""
    told = (Path.cwd(), sys.argv, path, hashlib.blake2b(text, digest_size=8).digest())
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()


def _digest(value: Any, hashed: Any, seen: frozenset[type]) -> None:
    pickler = _Pickler(_Hashed(hashed), hashed, seen)
    pickler.dump(_held_by(value))
    found = {part: None for cls in [type(value), *pickler.classes] for part in cls.__mro__}
    inner = seen.union(found)
    for part in found:
        if part not in seen:
            _digest_class(part, hashed, inner)


class _Hashed:
    """A file that keeps nothing of what is written to it but its hash."""

    def __init__(self, hashed: Any) -> None:
        self._hashed = hashed

    def write(self, part: Any) -> int:
        self._hashed.update(part)
        return len(part)


class _Pickler(pickle.Pickler):
    """Pickles in the same way in every process; `classes` are those of the objects within."""

    def __init__(self, file: Any, hashed: Any, seen: frozenset[type]) -> None:
        super().__init__(
            file, _PROTOCOL, buffer_callback=lambda buffer: hashed.update(buffer.raw())
        )
        self._hashed = hashed
        self._seen = seen
        self.classes: dict[type, None] = {}

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for an object whose pickle is not the same everywhere, or is large."""
        kind = type(value)
        if kind in (str, int, float, tuple, list, dict, bytes, bool, type(None)):
            return None
        if kind in (set, frozenset):
            return kind.__name__, sorted(digest_of(item, self._seen) or "" for item in value)
        if kind is np.memmap and value.filename is not None:
            found = Path(value.filename).stat()
            return str(value.filename), found.st_size, found.st_mtime_ns, value.offset, value.shape
        if kind is MemoryFile:
            for part in value.parts:
                self._hashed.update(part)
            return "memory", value.nbytes
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            array = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            self._hashed.update(array)
            return "torch", str(value.dtype), tuple(value.shape)
        if kind.__module__.partition(".")[0] not in sys.stdlib_module_names and not isinstance(
            value, (type, FunctionType)
        ):
            self.classes[kind] = None
        if isinstance(value, (FunctionType, type)) and value.__module__.startswith("__m"):
            # of the main module, which other processes know by another name
            if isinstance(value, FunctionType):
                return repr((value.__qualname__, _function(value, self._seen)))
            return value.__qualname__
        return None


def _held_by(value: Any) -> Any:
    """Return what an object holds. Its class, which perhaps cannot be imported, is left out."""
    reduced = value.__reduce_ex__(_PROTOCOL)
    if isinstance(reduced, str) or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return value
    _, (_, *arguments), *state = reduced
    return arguments, [list(each) if isinstance(each, Iterator) else each for each in state]


def _digest_class(cls: type, hashed: Any, seen: frozenset[type]) -> None:
    """Add what a class's attributes are, and what its methods do, with defaults and closures."""
    if cls.__module__ in ("builtins", "abc", "typing"):
        return
    for name, member in sorted(vars(cls).items()):
        if isinstance(member, property):
            member = member.fget
        if isinstance(member, (staticmethod, classmethod, MethodType, functools.partial)):
            member = getattr(member, "__func__", None) or member.func  # type: ignore[union-attr]
        member = inspect.unwrap(member) if callable(member) else member
        if isinstance(member, FunctionType):
            hashed.update(repr((name, *_function(member, seen))).encode())
        elif isinstance(member, (*_PLAIN, list, dict, set)) and not name.startswith("__"):
            hashed.update(repr((name, digest_of(member, seen))).encode())


def _function(function: FunctionType, seen: frozenset[type]) -> tuple[Any, ...]:
    """Return what a function does, with its defaults and its closure."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    held = [function.__defaults__, function.__kwdefaults__, *cells]
    told = [digest_of(each, seen) for each in held if not isinstance(each, type)]
    return _content(function.__code__), told


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return what code does, without where its text stands."""
    constants = [_constant(each) for each in code.co_consts]
    return code.co_code.hex(), code.co_names, code.co_varnames, constants


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return value
