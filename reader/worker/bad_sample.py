"""A sample that fails: how a worker replaces it, and how it describes it to the trainer.

Imports the errors and seeds. The classes are plain data that processes exchange.
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

_MOST_TRIES = 16  # samples that are tried in place of one that fails
_LARGEST_KEY = 200  # characters of a key that is no number


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """The treatment of samples that fail.

    Attributes:
        replaces: whether another sample takes the place of a failed one; if not, the batch goes
            without it.
        count: the length of the dataset, if any sample of it may replace a failed one when none of
            the batch can; 0: only samples of the same batch may, because the user's sampler may
            leave samples out on purpose.
    """

    replaces: bool
    count: int


class BadSample(NamedTuple):
    """A sample that failed.

    Attributes:
        key: its dataset index; of a stream, the number of the draw in its worker.
        row: its place in the batch.
        error: the name of the exception's class.
        text: the text of the exception.
        traceback: the worker's.
        instead: the key of the sample that took its place; None: none did.
    """

    key: Any
    row: int
    error: str
    text: str
    traceback: str
    instead: Any = None


class BadKey(NamedTuple):
    """Replaces a key in a task: the sample is known to be bad and is not fetched.

    Attributes:
        key: of the dataset.
        error: see BadSample.
        text: see BadSample.
        passed: how many substitutes to pass over: a worker hung or died at one of them too.
    """

    key: Any
    error: str
    text: str
    passed: int = 0


class OneByOne:
    """Precedes the keys of a task whose worker died or hung within a call for all samples.

    The keys are fetched one by one, so that the trainer sees the worker's current sample.
    """


def own_keys(keys: list[Any]) -> list[Any]:
    """Return the keys of a task without a leading OneByOne."""
    return keys[1:] if keys and type(keys[0]) is OneByOne else keys


class NothingLeft(Exception):
    """All samples of a batch failed, so there is no batch. Never reaches the user."""


def is_bad(error: BaseException) -> bool:
    """Whether an exception means that a sample is bad, and not the program."""
    is_ours = isinstance(error, (ConfigError, InternalError, MemoryError))
    return isinstance(error, Exception) and not is_ours


def bad_sample(key: Any, row: int, error: BaseException) -> BadSample:
    """Describe a sample that raised an exception."""
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
    """Return the key of another sample, and the result of `take` for it.

    The choice is a function of (seed, epoch, key) and the keys of the batch.

    Args:
        key: of the sample that failed.
        keys: of its batch.
        count: see Tolerance.
        take: fetches a sample.
        error: why the first one failed.
        passed: how many to pass over; see BadKey.

    Raises:
        DatasetError: all that were tried failed.
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


_SALT = 0x5DEECE66D  # distinguishes the generator from the sample's own


def _number(key: Any) -> int:
    """Return a number for a key."""
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
