"""A digest of a dataset: of its content, and of its classes' attributes and code.

Imports NumPy and the standard library; tensors are handled if their library is imported. The same
program on the same data gives the same digest in every process.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from reader.sharing.memory_file import MemoryFile

__all__ = ["digest_of", "program_digest"]

_PROTOCOL = 5
_PLAIN = (str, bytes, int, float, bool, complex, tuple, frozenset, type(None), list, dict, set)
_KNOWN = (*_PLAIN, np.ndarray, np.generic, np.dtype, PurePath, functools.partial)
# attributes that the interpreter gives to a class: they add nothing to methods and attributes
_MACHINERY = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.BuiltinFunctionType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
    *(types.MethodWrapperType, types.DynamicClassAttribute),
)
_METHODS = (
    *(FunctionType, MethodType, staticmethod, classmethod, property, functools.cached_property),
    *(functools.partialmethod, functools.singledispatchmethod, functools._lru_cache_wrapper),
)
_INSTALLED = ("site-packages", "dist-packages")

# by id: functions and classes that are digested already, with their numbers: they may refer to
# themselves
Seen = dict[int, tuple[int, Any]]


def digest_of(value: Any) -> str | None:
    """Return a digest of an object's content and of its classes; None: it has none.

    All attributes of the user's classes count; of classes of installed packages, methods and plain
    attributes. For a mapped file its path, size and time count. Functions that the code calls and
    modules that it uses do not count.
    """
    try:
        return _digest(value, {})
    except Exception:  # of many types: it cannot be pickled, or is too deep
        return None


def program_digest() -> str:
    """Return a digest of the program that runs: ranks of one start have the same."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = Path(path).read_bytes() if path else repr(sys.orig_argv).encode()
    except OSError:  # such as a notebook's cell
        text = b""
    facts = (Path.cwd(), sys.argv, path, hashlib.blake2b(text, digest_size=8).digest())
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _digest(value: Any, seen: Seen) -> str:
    """Return a digest, or raise the exception that prevents it."""
    hashed = hashlib.blake2b(digest_size=16)
    pickler = _Pickler(_Hashed(hashed), hashed, seen)
    pickler.dump(_held_by(value))
    for cls in [type(value), *pickler.classes]:
        for part in cls.__mro__:
            if id(part) not in seen:
                seen[id(part)] = len(seen), part
                _digest_class(part, hashed, seen)
    return hashed.hexdigest()


class _Hashed:
    """A file that keeps only the hash of the written bytes."""

    def __init__(self, hashed: Any) -> None:
        self._hashed = hashed

    def write(self, part: Any) -> int:
        self._hashed.update(part)
        return len(part)


class _Pickler(pickle.Pickler):
    """Pickles the same way in every process; `classes` are those of the pickled objects."""

    def __init__(self, file: Any, hashed: Any, seen: Seen) -> None:
        super().__init__(
            file, _PROTOCOL, buffer_callback=lambda buffer: hashed.update(buffer.raw())
        )
        self._hashed = hashed
        self._seen = seen
        self.classes: dict[type, None] = {}

    def persistent_id(self, value: Any) -> Any:
        """Return a substitute for an object whose pickle is large or differs between processes."""
        kind = type(value)
        if kind in (str, int, float, tuple, list, dict, bytes, bool, type(None)):
            return None
        if kind in (set, frozenset):  # their order differs from run to run
            return kind.__name__, sorted(_digest(item, dict(self._seen)) for item in value)
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
        if isinstance(value, type):
            if _is_users(value.__module__):
                self.classes[value] = None
            return "class", _name(value)
        if isinstance(value, FunctionType):
            is_told = value.__module__.startswith("__m") or not _is_importable(value)
            return repr(_function(value, self._seen)) if is_told else None
        if kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
            self.classes[kind] = None
        return None


def _held_by(value: Any) -> Any:
    """Return an object's content without its class, which may not be importable."""
    if isinstance(value, (type, FunctionType)):
        return value
    reduced = value.__reduce_ex__(_PROTOCOL)
    if isinstance(reduced, str) or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return value
    _, (_, *arguments), *state = reduced
    return arguments, [list(each) if isinstance(each, Iterator) else each for each in state]


def _digest_class(cls: type, hashed: Any, seen: Seen) -> None:
    """Add a class's attributes, and its methods' code with defaults and closures."""
    if cls.__module__ in ("builtins", "abc", "typing"):
        return
    is_users = _is_users(cls.__module__)
    for name, member in sorted(vars(cls).items()):
        is_machinery = name.startswith(("__", "_abc_")) and not isinstance(member, _METHODS)
        if is_machinery or isinstance(member, _MACHINERY):
            continue
        is_known = isinstance(member, (*_METHODS, *_KNOWN))
        try:
            facts = _member(member, seen) if is_users or is_known else None
        except Exception:  # many types
            if is_users:
                raise
            facts = None  # packages hold locks and the like; samples do not depend on them
        hashed.update(repr((name, facts)).encode(errors="surrogatepass"))


def _member(member: Any, seen: Seen) -> Any:  # noqa: PLR0911  one for each kind
    """Return what distinguishes an attribute of a class from others."""
    if isinstance(member, (staticmethod, classmethod, MethodType)):
        return _member(member.__func__, seen)
    if isinstance(member, property):
        return _member(member.fget, seen)
    if isinstance(member, functools.cached_property):
        return _member(member.func, seen)
    if isinstance(member, functools._lru_cache_wrapper):
        return _member(member.__wrapped__, seen)
    if isinstance(member, functools.singledispatchmethod):
        kinds = member.dispatcher.registry.items()
        return [(_name(kind), _member(function, seen)) for kind, function in kinds]
    if isinstance(member, (functools.partial, functools.partialmethod)):
        held = [member.args, sorted(member.keywords.items())]
        return _member(member.func, seen), _digest(held, seen)
    if isinstance(member, FunctionType):
        return _function(member, seen)
    if isinstance(member, ModuleType):
        return member.__name__
    if type(member).__module__ == "typing":  # a type variable has no pickle
        return repr(member)
    return _digest(member, seen)


def _function(function: FunctionType, seen: Seen) -> tuple[Any, ...]:
    """Return a function's code, with its defaults and closure."""
    if id(function) in seen:
        return "as before", seen[id(function)][0]
    seen[id(function)] = len(seen), function
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    facts = []
    for each in (function.__defaults__, function.__kwdefaults__, *cells):
        try:
            facts.append(_member(each, seen))
        except Exception:  # many types
            if _is_users(function.__globals__.get("__name__", "")):
                raise
    return function.__qualname__, _content(function.__code__), facts


def _is_importable(function: FunctionType) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


@functools.cache
def _is_users(module: str) -> bool:
    """Whether a module belongs neither to Python nor to any installed package."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "reader":
        return False
    path = getattr(sys.modules.get(module, sys.modules.get(top)), "__file__", None)
    return path is None or not set(_INSTALLED).intersection(Path(path).parts)


def _name(cls: type) -> str:
    """Return a class's name, the same in the trainer and in processes that it starts."""
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    return f"{module}.{cls.__qualname__}"


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return the content of code, without its place in the source text."""
    constants = [_constant(each) for each in code.co_consts]
    return code.co_code.hex(), code.co_names, code.co_varnames, constants


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return value
