"""What a cache is of: the dataset, its version, and the part of a sample that is kept.

Imports the errors. An About never changes; files of entries begin with it, as JSON.
"""

from __future__ import annotations

import copyreg
import dataclasses
import hashlib
import inspect
import json
import pickle
from collections.abc import Iterator
from types import CodeType
from typing import Any

from reader.caching.entry_file import HEAD
from reader.errors import ConfigError

__all__ = ["About", "about_in", "digest_of"]

_FORMAT = 1  # of files of entries
_PROTOCOL = 5


@dataclasses.dataclass(frozen=True)
class About:
    """What a cache is of. Caches of equal ones are one and the same.

    Attributes:
        dataset: the name of its class, or where its files are.
        what: the part of a sample that is kept.
        samples: how many it has.
        version: what the user says that samples depend on, or "".
        digest: of what samples depend on, or "".
    """

    dataset: str
    what: str
    samples: int
    version: str
    digest: str

    def head(self) -> bytes:
        """Return what a file begins with, HEAD bytes of it."""
        told = {"lodreader cache": _FORMAT, **dataclasses.asdict(self)}
        made = json.dumps(told, indent=1).encode()
        if len(made) >= HEAD:
            raise ConfigError(f"the name of a dataset is too long for a cache: {self.dataset!r}")
        return made.ljust(HEAD, b"\n")

    @property
    def key(self) -> str:
        """What distinguishes it from all others."""
        return hashlib.blake2b(self.head(), digest_size=16).hexdigest()


def about_in(head: bytes) -> About:
    """Return what a file is of.

    Raises:
        ValueError: it is no file of entries.
        LookupError: it is one of another format, which the exception holds.
    """
    told = json.loads(head)
    if not isinstance(told, dict) or "lodreader cache" not in told:
        raise ValueError("it is something else")
    found = told.pop("lodreader cache")
    if found != _FORMAT:
        raise LookupError(found, _FORMAT)
    try:
        return About(**told)
    except TypeError as error:
        raise ValueError(str(error)) from error


def digest_of(value: Any) -> str | None:
    """Return a digest of what an object holds and of its class's code.

    None: it cannot be pickled. Code that the class calls has no part in it.
    """
    hashed = hashlib.blake2b(digest_size=16)
    try:
        pickle.Pickler(_Hashed(hashed), _PROTOCOL).dump(_held_by(value))
    except Exception:  # many types
        return None
    for cls in type(value).__mro__:
        for name, member in sorted(vars(cls).items()):
            found = inspect.unwrap(getattr(member, "fget", None) or member)
            code = getattr(getattr(found, "__func__", found), "__code__", None)
            if code is not None:
                hashed.update(repr((name, _content(code))).encode())
    return hashed.hexdigest()


def _held_by(value: Any) -> Any:
    """Return what an object holds. Its class, which perhaps cannot be imported, is left out."""
    reduced = value.__reduce_ex__(_PROTOCOL)
    if isinstance(reduced, str) or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return value
    _, (_, *arguments), *state = reduced
    return arguments, [list(each) if isinstance(each, Iterator) else each for each in state]


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return what code does, without where its text stands."""
    constants = [_content(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code.hex(), code.co_names, code.co_varnames, constants


class _Hashed:
    """A file that keeps nothing of what is written to it but its hash."""

    def __init__(self, hashed: Any) -> None:
        self._hashed = hashed

    def write(self, part: Any) -> int:
        self._hashed.update(part)
        return len(part)
