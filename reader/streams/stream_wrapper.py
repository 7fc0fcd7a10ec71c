"""The base classes of iterable datasets that wrap others, of their iterators and of resuming.

Imports `reader.data`, the draw of `reader._core.wire.local_channel`, and the worker's context and
shard tracker. An iterator here belongs to one worker and is used in its thread; the wrapped
datasets, whose states it takes, are the user's.
"""

from __future__ import annotations

import abc
import copy
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from reader._core.interpreter.signals import draw_into
from reader.checks import described, has_method, refuse_text
from reader.data.iterable import IterableDataset, is_dead, is_iterable_dataset
from reader.data.shard_items import is_indexed, shard_items
from reader.data.wrapped import set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, DatasetError, StateError, got
from reader.orders.base_sampler import has_state
from reader.worker.context import get_worker_info
from reader.worker.shard_tracker import lose_track

__all__ = ["SourceIterator", "StreamWrapper", "WrapperIterator", "as_stream", "read_state"]

_REMEDY = "Load a state that was saved with the same dataset."
StateDict = Callable[[], dict[str, Any]]
LoadStateDict = Callable[[dict[str, Any]], None]


def as_stream(taker: str, stream: Any) -> Any:
    """Return `stream` if each epoch can iterate over it again. Otherwise ConfigError."""
    refuse_text(f"{taker} takes a stream", stream)
    if is_iterable_dataset(stream):
        return stream
    if isinstance(stream, Mapping):
        raise ConfigTypeError(
            f"{taker} takes a stream, got {got(stream)}, whose items are its keys. Pass"
            " list(d.values()) or list(d.items())."
        )
    if isinstance(stream, Iterator):
        raise ConfigError(
            f"{taker} takes a stream with a fresh iterator for each epoch, got the one-shot"
            f" iterator {got(stream)}. Pass a list of it, or an IterableDataset whose __iter__"
            " makes it."
        )
    if isinstance(stream, type) or not has_method(stream, "__iter__"):
        raise ConfigTypeError(
            f"{taker} takes a stream, which is an object with __iter__, got {got(stream)}. Pass an"
            " IterableDataset, such as one whose __iter__ returns reader.shard(dataset)."
        )
    return stream


def read_state(state: Any, **kinds: type) -> list[Any]:
    """Return the values in the state of a wrapping iterator. StateError: it is no such state.

    Args:
        state: the state.
        kinds: the type of each value, by its name; an int is 0 or more.
    """
    for name, kind in kinds.items():
        value: Any = state.get(name) if isinstance(state, dict) else None
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise StateError(
                f"{name} in the state of an iterator must be of type {kind.__name__}, got"
                f" {got(value)}. {_REMEDY}"
            )
    return [state[name] for name in kinds]


class StreamWrapper(IterableDataset[Any]):
    """Base class of iterable datasets that make their samples from others'.

    It has a state, that of the wrapped datasets, if all have one.

    Args:
        datasets: the wrapped ones, checked.
    """

    __repr__ = described

    def __init__(self, datasets: list[Any]) -> None:
        self.datasets = datasets

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the wrapped datasets that have `set_epoch`."""
        set_epoch_of(epoch, *self.datasets)

    @property
    def state_dict(self) -> StateDict:
        """Return the states of the wrapped datasets; exists only if all have one."""
        _check_state(all(map(has_state, self.datasets)))
        return self._save

    @property
    def load_state_dict(self) -> LoadStateDict:
        """Load a result of `state_dict`; exists if that does."""
        _check_state(all(map(has_state, self.datasets)))
        return self._load

    def _save(self) -> dict[str, Any]:
        return {"datasets": [dataset.state_dict() for dataset in self.datasets]}

    def _load(self, state: dict[str, Any]) -> None:
        (saved,) = read_state(state, datasets=list)
        _check_count(saved, self.datasets)
        for dataset, each in zip(self.datasets, saved, strict=True):
            dataset.load_state_dict(each)


class WrapperIterator(Iterator[Any], abc.ABC):
    """Base class of the iterators of a StreamWrapper.

    It has a state if all its sources have one. Otherwise a loader that resumes draws all samples
    again. A signal may interrupt `__next__` of a subclass; the next call then does the same again.
    So it keeps the samples that it drew, and advances by its last assignments, which no signal
    interrupts.

    Args:
        datasets: the wrapped ones; each is iterated over by one of `sources`.
        names: names of the datasets, for messages; empty: they have none.
    """

    def __init__(self, datasets: list[Any], names: Sequence[str] = ()) -> None:
        lose_track()
        named = zip_longest(datasets, names)
        self.sources = [SourceIterator(dataset, name) for dataset, name in named]

    @property
    def state_dict(self) -> StateDict:
        """Return the iterator's state; exists only if all sources have a state."""
        _check_state(all(source.has_state for source in self.sources))
        return self._save

    @property
    def load_state_dict(self) -> LoadStateDict:
        """Continue at a saved state; exists if `state_dict` does."""
        _check_state(all(source.has_state for source in self.sources))
        return self._load

    @abc.abstractmethod
    def _save(self) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _load(self, state: dict[str, Any]) -> None: ...

    def _load_sources(self, saved: list[Any], *others: list[Any]) -> None:
        """Load the states of all sources; `others` must have one entry for each source too."""
        for each in (saved, *others):
            _check_count(each, self.sources)
        for source, each in zip(self.sources, saved, strict=True):
            source.load(each)


class _Phase(enum.Enum):
    OPEN = "open"
    BROKEN = "broken"  # an exception ended the user's generator; an error must say so
    OVER = "over"


class SourceIterator:
    """Iterates over one wrapped dataset.

    Its state is that of the dataset and of the dataset's iterator, if they have one. Wrappers that
    hold samples back make checkpoints, to go back to one and draw the samples again.

    Attributes:
        has_state: whether it has a state.
        errors: how many exceptions it raised.
    """

    def __init__(self, dataset: Any, name: str | None = None) -> None:
        info = get_worker_info()
        self._dataset = dataset
        kind = type(dataset).__name__
        self._name = kind if name is None else f"source {name!r} ({kind})"
        self._is_shared = info is not None and info.worker_type == "thread" and info.num_workers > 1
        # None: the dataset divides its items among workers itself, or there are no workers
        self._share: tuple[int, int] | None = None
        if info is not None and info.num_workers > 1 and is_indexed(dataset):
            self._share = info.num_workers, info.id
        self.errors = 0
        # the last two: (key, state, errors before)
        self._checkpoints: list[tuple[int, Any, int]] = []
        self.begin()

    def begin(self) -> None:
        """Start the dataset again."""
        self._phase = _Phase.OVER
        dataset = self._dataset
        items: Any
        if self._share is None:
            items = iter(dataset)
        else:
            items = shard_items(dataset, [self._share], contiguous=False)
        is_itself = items is dataset
        if is_itself and self._is_shared:
            raise DatasetError(
                f"__iter__ of {self._name} returns the dataset itself, and the worker"
                " threads would draw from one iterator; make __iter__ a generator function, or"
                " pass worker_type='process' or num_workers=0"
            )
        # threads share the dataset: its state is not one thread's
        self._keeps_dataset = has_state(dataset) and not (self._is_shared or is_itself)
        self._keeps_items = has_state(items)
        self.has_state = self._keeps_dataset or self._keeps_items
        self._items = items
        self._phase = _Phase.OPEN

    def draw(self, samples: list[Any], count: int) -> bool:
        """Draw until a list has `count` samples, or none is left; return whether it has them.

        No signal is handled between drawing a sample and keeping it.
        """
        if self._phase is _Phase.OPEN:
            try:
                draw_into(samples, self._items, count)
            except BaseException as error:
                if is_dead(self._items):
                    self._phase = _Phase.BROKEN
                self.errors += isinstance(error, Exception)
                raise
            if len(samples) < count:
                self._phase = _Phase.OVER  # an iterator called again may start over
        elif self._phase is _Phase.BROKEN:
            self._phase = _Phase.OVER
            self.errors += 1
            raise DatasetError(
                f"the exception raised before has ended the generator of {self._name}, which cannot"
                " continue: its remaining samples in this epoch are lost. Catch exceptions inside"
                " the generator, or let __iter__ return an object whose __next__ can be called"
                " again after an exception"
            )
        return len(samples) >= count

    def state(self) -> dict[str, Any]:
        """Return its state."""
        found: dict[str, Any] = {"phase": self._phase.value}
        if self._keeps_dataset:
            found["dataset"] = self._dataset.state_dict()
        if self._keeps_items:
            found["iterator"] = self._items.state_dict()
        return found

    def load(self, state: Any) -> None:
        """Continue at a saved state. Passes on exceptions of the user's code."""
        (phase,) = read_state(state, phase=str)
        if phase not in {each.value for each in _Phase}:
            known = ", ".join(repr(each.value) for each in _Phase)
            raise StateError(
                f"'phase' in the state of an iterator must be one of {known}, got {phase!r}."
                f" {_REMEDY}"
            )
        if "dataset" in state and self._keeps_dataset:
            self._dataset.load_state_dict(state["dataset"])
            self.begin()
        if "iterator" in state:
            if not self._keeps_items:
                raise StateError(
                    "the state was saved with an iterator that has a state, and"
                    f" {type(self._items).__name__} here has no load_state_dict. {_REMEDY}"
                )
            self._items.load_state_dict(state["iterator"])
        self._phase = _Phase(phase)

    def checkpoint(self, key: int) -> None:
        """Make a checkpoint here, unless the newest one has the same key. The last two are kept."""
        if not self.has_state or (self._checkpoints and self._checkpoints[-1][0] == key):
            return
        state = None  # of the beginning
        with suppress(AttributeError):  # some objects have no state before their first sample
            state = copy.deepcopy(self.state())
        self._checkpoints = [*self._checkpoints[-1:], (key, state, self.errors)]

    def older_checkpoint(self) -> dict[str, Any] | None:
        """Return the checkpoint before the newest, or the only one; None: there is none."""
        if not self._checkpoints:
            return None
        key, state, errors = self._checkpoints[0]
        return {"key": key, "state": state, "errors": self.errors - errors}

    def go_back(self, checkpoint: dict[str, Any]) -> tuple[int, int]:
        """Go to a checkpoint; return its key, and how many exceptions were raised behind it."""
        key, errors = read_state(checkpoint, key=int, errors=int)
        state = checkpoint.get("state")
        # a copy of its own, whatever a dataset does with the state
        self._checkpoints = [(key, copy.deepcopy(state), 0)]
        self.errors = 0
        if state is not None:
            self.load(state)
        return key, errors

    def draw_again(self, samples: list[Any], count: int, errors: int) -> None:
        """Draw until a list has `count` samples, past the first `errors` exceptions."""
        while len(samples) < count:
            try:
                if not self.draw(samples, count):
                    raise StateError(
                        f"{self._name} ends before the place where the state was saved. {_REMEDY}"
                    )
            except StateError:
                raise
            except Exception:
                if self.errors > errors:
                    raise

    def pass_errors(self, samples: list[Any], errors: int) -> None:
        """Pass the exceptions, of `errors` in all, that were raised behind the last sample."""
        count = len(samples) + 1
        while self.errors < errors and self._phase is not _Phase.OVER:
            with suppress(Exception):
                if self.draw(samples, count):
                    return  # this time there was none


def _check_state(has_it: bool) -> None:
    if not has_it:
        raise AttributeError("a wrapped dataset has no state")


def _check_count(saved: list[Any], wrapped: list[Any]) -> None:
    if len(saved) != len(wrapped):
        raise StateError(
            f"the state is that of {len(saved)} wrapped datasets, and there are {len(wrapped)}"
            f" here. {_REMEDY}"
        )
