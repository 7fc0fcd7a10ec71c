"""The user's generator as a source of batches, and the base class of both loaders of generators.

Imports the fields and the errors of this face, and IterableDataset. A source is immutable and may
be iterated any number of times; a loader owns its current source.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import numbers
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from paddle.base import framework

from reader.checks import as_int
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.fields import Fields
from reader.compat.paddle.slots import Field
from reader.data.iterable import IterableDataset
from reader.errors import ConfigError, ConfigTypeError, got
from reader.frameworks import check_places
from reader.places import Place, parse_places

__all__ = [
    "GeneratorDataset",
    "Source",
    "SourceLoader",
    "as_capacity",
    "available_places",
    "current_place",
    "set_place",
]

# typed here, as paddle's own are not
current_place: Callable[[], Any] = framework._current_expected_place
set_place: Callable[[Any], None] = framework._set_expected_place

_REMEDY = "places='{}' was given: pass a place that there is, or paddle.CPUPlace()"
_Self = TypeVar("_Self", bound="SourceLoader")
_Reader = Callable[[], Iterable[Any]]


def available_places(given: Any) -> tuple[Place, ...]:
    """Return the places that were given; ConfigError: one of them is not there."""
    parsed = parse_places(given)
    check_places("paddle", parsed, _REMEDY)
    return parsed


class SourceKind(enum.Enum):
    """The kind of item that the user's generator yields."""

    SAMPLES = "single samples"
    SAMPLE_LISTS = "lists of samples"
    BATCHES = "ready-made batches"


@dataclasses.dataclass(frozen=True)
class Source:
    """A function of the user that returns an iterator, and how its items become batches.

    Attributes:
        reader: called once per epoch.
        kind: what its iterator yields.
        fields: splits samples and batches into fields.
        batch_size: how many single samples make a batch.
        drop_last: leave out a last batch of single samples that is short.
    """

    reader: _Reader
    kind: SourceKind
    fields: Fields
    batch_size: int = 1
    drop_last: bool = True

    def batches(self) -> Iterator[list[Field]]:
        """Yield the fields of one batch after the other, for one epoch."""
        if self.kind is SourceKind.SAMPLES:
            yield from self._batches_of_samples()
        elif self.kind is SourceKind.SAMPLE_LISTS:
            for samples in self.reader():
                yield self.fields.stack(samples)
        else:
            for batch in self.reader():
                yield self.fields.take(batch)

    def _batches_of_samples(self) -> Iterator[list[Field]]:
        samples: list[Any] = []
        for sample in self.reader():
            samples.append(sample)
            if len(samples) == self.batch_size:
                yield self.fields.stack(samples)
                samples = []
        if samples and not self.drop_last:
            yield self.fields.stack(samples)


class GeneratorDataset(IterableDataset[list[Field]]):
    """A source as the engine iterates it: in a thread of the trainer, or in a worker process.

    Args:
        source: where the batches come from.
        place: paddle's current place while the user's generator runs.
    """

    def __init__(self, source: Source, place: Any) -> None:
        self.source = source
        self.place = place

    def __iter__(self) -> Iterator[list[Field]]:
        # each thread has its own current place: give the user's generator that of the trainer
        set_place(self.place)
        # as in Paddle, an exception of the generator ends the epoch, and no error reports the rest:
        # a chain only looks exhausted after it, where a generator would be seen as dead
        return chain(self.source.batches())


class SourceLoader(abc.ABC):
    """Base class of loaders of generators: the three ways to set the source.

    Args:
        fields: splits what generators yield into fields.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    @abc.abstractmethod
    def _set_source(self, source: Source, places: Any) -> None:
        """Replace the source, from the next epoch on."""

    def set_sample_generator(
        self: _Self, reader: _Reader, batch_size: Any, drop_last: bool = True, places: Any = None
    ) -> _Self:
        """Take single samples from `reader` and make batches of them.

        Args:
            reader: returns an iterator of samples, called once per epoch. A sample is a tuple or
                list with one value for each variable of feed_list, or a dict by name.
            batch_size: samples in a batch, 1 or more.
            drop_last: leave out a last batch that is short.
            places: where batches go; needed by an iterable loader of static mode.

        Returns:
            The loader.

        Raises:
            ArgumentError: a batch size less than 1, or places that cannot work.
            ConfigTypeError: a `reader` that cannot be called.
        """
        if isinstance(batch_size, numbers.Real) and batch_size <= 0:
            raise ArgumentError(f"batch_size must be larger than 0, got {got(batch_size)}")
        size = as_int("batch_size", batch_size, low=1, remedy="It counts samples.")
        kind = SourceKind.SAMPLES
        self._set(Source(reader, kind, self._fields, size, bool(drop_last)), places)
        return self

    def set_sample_list_generator(self: _Self, reader: _Reader, places: Any = None) -> _Self:
        """Take lists of samples from `reader`, as `paddle.batch` makes them; each is a batch.

        Arguments, result and exceptions are those of `set_sample_generator`.
        """
        self._set(Source(reader, SourceKind.SAMPLE_LISTS, self._fields), places)
        return self

    def set_batch_generator(self: _Self, reader: _Reader, places: Any = None) -> _Self:
        """Take ready-made batches from `reader`: one array or DenseTensor for each variable.

        The generator may use yielded arrays again; they are copied once. Arguments, result and
        exceptions are those of `set_sample_generator`.
        """
        self._set(Source(reader, SourceKind.BATCHES, self._fields), places)
        return self

    def _set(self, source: Source, places: Any) -> None:
        if not callable(source.reader):
            raise ConfigTypeError(
                f"a generator of {source.kind.value} must be a function that returns an iterator,"
                f" since each epoch calls it anew, got {got(source.reader)}; pass the function"
                " itself, without calling it"
            )
        self._set_source(source, places)


def as_capacity(value: Any) -> int:
    """Return the capacity of a loader. ConfigError if it is not 1 or more."""
    if not value:
        raise ConfigError(
            "Please give value to capacity. It is how many batches are made ahead, 1 or more, got"
            f" {got(value)}"
        )
    remedy = "It is how many batches are made ahead."
    return as_int("capacity", value, low=1, remedy=remedy)
