"""What a worker does with a sample that fails, and what it tells the trainer of it.

Imports the errors and seeds. Both classes are plain data that goes between processes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from reader.errors import ConfigError, DatasetError, InternalError, shown
from reader.exceptions.exception_class import guarded, type_name
from reader.exceptions.user_error import traceback_text
from reader.random import seeds
from reader.worker import context

__all__ = [
    "BadKey",
    "BadSample",
    "NothingLeft",
    "OneByOne",
    "Tolerance",
    "bad_sample",
    "is_bad",
    "own_keys",
    "substitute",
]

T = TypeVar("T")

_MOST_TRIES = 16  # samples that are tried in the place of one that fails
_LARGEST_KEY = 200  # characters of a key that is no number


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What becomes of samples that fail.

    Attributes:
        replaces: another sample takes the place; else the batch goes without it.
        count: of the dataset's samples, where any of them may take the place if no other one of
            the batch can; 0: none else, since a sampler of the user's may leave samples out.
    """

    replaces: bool
    count: int


class BadSample(NamedTuple):
    """A sample that failed.

    Attributes:
        key: its dataset index, or of a stream the number of the draw in its worker.
        row: its place in the batch.
        error: the name of the exception's class.
        text: the exception's.
        traceback: of the worker.
        instead: the key of the sample that took its place; None: none did.
    """

    key: Any
    row: int
    error: str
    text: str
    traceback: str
    instead: Any = None


class BadKey(NamedTuple):
    """Stands for a key in a task: the sample is known to be bad, and is not fetched.

    Attributes:
        key: of the dataset.
        error: what is told of it; see BadSample.
        text: likewise.
        passed: how many samples that would take its place are passed over: a worker hung or died at
            one of them, too.
    """

    key: Any
    error: str
    text: str
    passed: int = 0


class OneByOne:
    """Stands before the keys of a task whose worker died or hung within a call for all samples.

    They are fetched each by itself, so that the trainer sees which sample a worker is at.
    """


def own_keys(keys: list[Any]) -> list[Any]:
    """Return the keys of a task without what stands before them."""
    return keys[1:] if keys and type(keys[0]) is OneByOne else keys


class NothingLeft(Exception):
    """All samples of a batch failed, so that there is no batch. It never reaches the user."""


def is_bad(error: BaseException) -> bool:
    """Whether an exception says that a sample is bad, and not that the program is."""
    is_ours = isinstance(error, (ConfigError, InternalError, MemoryError))
    return isinstance(error, Exception) and not is_ours


def bad_sample(key: Any, row: int, error: BaseException) -> BadSample:
    """Return what is told of a sample that raised an exception."""
    return BadSample(
        _plain(key), row, type_name(type(error)), guarded(str, error), traceback_text(error)
    )


def substitute(
    key: Any,
    keys: Sequence[Any],
    count: int,
    take: Callable[[Any], T],
    error: BaseException,
    passed: int = 0,
) -> tuple[Any, T]:
    """Return the key of another sample, and what `take` made of it.

    Which one is a function of (seed, epoch, key) and of the keys of the batch.

    Args:
        key: of the sample that failed.
        keys: of its batch.
        count: see Tolerance.
        take: fetches a sample.
        error: why the first one failed.
        passed: how many are passed over; see BadKey.

    Raises:
        DatasetError: none of those that were tried can be had.
    """
    tried = 0
    for other in _others(key, keys, count):
        if tried == _MOST_TRIES:
            break
        tried += 1
        if tried <= passed:
            continue
        try:
            return _plain(other), take(other)
        except Exception as again:
            if not is_bad(again):
                raise
    found = (
        f"and so did {tried} others that were tried in its place"
        if tried
        else (
            "and its batch has no other one that could take its place: pass a larger batch_size, or"
            " on_error='skip'"
        )
    )
    raise DatasetError(f"sample {shown(key)} failed, {found}: {error!r}") from error


def _others(key: Any, keys: Sequence[Any], count: int) -> Iterator[Any]:
    """Yield keys of other samples in an order that follows from the seed, the epoch and the key."""
    base_seed, epoch = context.loader_task() or (0, 0)
    rng = seeds.sample_rng(base_seed, epoch, _number(key) ^ _SALT)
    others = [other for other in keys if type(other) is not BadKey and other != key]
    for place in rng.permutation(len(others)):
        yield others[place]
    while count > 1:
        other = int(rng.integers(count))
        if other != key:
            yield other


_SALT = 0x5DEECE66D  # the generator of the sample itself is another one


def _number(key: Any) -> int:
    """Return a number that stands for a key."""
    try:
        return operator.index(key)
    except TypeError:
        return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")


def _plain(key: Any) -> Any:
    """Return a key as a number or a text, which any process can read."""
    if key is None or isinstance(key, str):
        return key
    try:
        return operator.index(key)
    except TypeError:
        return guarded(repr, key)[:_LARGEST_KEY]
