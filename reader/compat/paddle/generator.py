"""Loaders whose data comes from a generator: Paddle's `DataLoader.from_generator` on the engine.

Imports the engine, paddle and the other modules of this face. A loader belongs to the process that
made it and has one live iteration, as Paddle's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import paddle

from reader._core.epoch.handover import Handover, Made
from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.times_log import TimesLog
from reader.compat.paddle.errors import ArgumentError, also_as
from reader.compat.paddle.feeding import FeedingLoader
from reader.compat.paddle.fields import DynamicFields, StaticFields
from reader.compat.paddle.source import (
    Source,
    SourceLoader,
    as_capacity,
    available_places,
    current_place,
)
from reader.compat.paddle.source_engine import make_engine
from reader.engine.engine import Engine
from reader.errors import ConfigError, ConfigTypeError, got
from reader.observe.face import ProfiledFace

__all__ = ["GeneratorLoader", "check_feed_list", "from_generator"]


def from_generator(
    feed_list: Any = None,
    capacity: int | None = None,
    use_double_buffer: bool = True,
    iterable: bool = True,
    return_list: bool = False,
    use_multiprocess: bool = False,
    drop_last: bool = True,
) -> Any:
    """Return a loader whose source is set by one of its `set_..._generator` methods.

    Args:
        feed_list: the variables of a static program; needed in static mode, and not used in dynamic
            mode.
        capacity: how many batches are made ahead; needed.
        use_double_buffer: an iterable loader makes two more batches ahead for each place; a loader
            that is not iterable gets Paddle's double buffer op.
        iterable: False, in static mode: the program itself reads the batches, between `start()` and
            `reset()`; see FeedingLoader. Dynamic mode has iterable loaders only.
        return_list: in static mode: yield a list of the fields for each place, rather than a dict
            by name. Dynamic mode has lists only.
        use_multiprocess: run the generator in its own forked process rather than in a thread.
            Paddle does so in dynamic mode only.
        drop_last: with several places, leave out a last group of batches that is short. For short
            batches see `set_sample_generator`.

    Raises:
        ConfigError: no capacity, no feed_list in static mode, or a mode that cannot work.

    Source: paddle.base.io.DataLoader.from_generator.
    """
    size = as_capacity(capacity)
    if paddle.in_dynamic_mode():
        if not iterable:
            warnings.warn(
                "Please NOTE: DygraphGeneratorLoader supports iterable mode only. Change to"
                " iterable mode.",
                stacklevel=3,
            )
        if not return_list:
            warnings.warn(
                "Please NOTE: DygraphGeneratorLoader supports returning as list only. Change to"
                " return as list.",
                stacklevel=3,
            )
        return GeneratorLoader(
            None, size, use_double_buffer, return_list=True, use_multiprocess=use_multiprocess
        )
    variables = check_feed_list(feed_list)
    if not iterable:
        return FeedingLoader(variables, size, use_double_buffer, use_multiprocess, drop_last)
    return GeneratorLoader(
        variables, size, use_double_buffer, return_list, use_multiprocess, drop_last
    )


def check_feed_list(feed_list: Any) -> list[Any]:
    """Return the variables of a feed_list. ConfigError where there are none."""
    if feed_list is None or (isinstance(feed_list, (list, tuple)) and not feed_list):
        raise ConfigError(
            "Feed list must be given under static graph mode. Pass feed_list=[...] with the"
            " variables that paddle.static.data returned"
        )
    if not isinstance(feed_list, (list, tuple)):
        raise ConfigTypeError(
            f"feed_list must be a list of variables of the program, got {got(feed_list)}"
        )
    return list(feed_list)


class GeneratorLoader(Handover, SourceLoader, ProfiledFace):
    """Yields the batches of a generator; made by `from_generator`.

    `iter(loader)` and `loader()` are the loader itself, as in Paddle: it has one live iteration,
    and iterating again abandons that and starts over. An exception of the generator is raised in
    place of the next batch, and ends the epoch: `except` finds it by its own type, and by
    SystemError, which Paddle raises for it.

    In static mode it yields a list with one entry for each place, also with one place: a dict
    {name: DenseTensor}, or with `return_list` a list of DenseTensors. In dynamic mode it yields a
    list of Tensors.

    Args:
        feed_list: the variables of the static program; None: dynamic mode.
        capacity, use_double_buffer, return_list, use_multiprocess, drop_last: see `from_generator`.
    """

    def __init__(
        self,
        feed_list: list[Any] | None,
        capacity: int,
        use_double_buffer: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> None:
        self._names: tuple[str, ...] | None = None
        if feed_list is None:
            super().__init__(DynamicFields())
        else:
            fields = StaticFields(feed_list)
            super().__init__(fields)
            self._names = fields.names
        self._capacity = capacity
        self._use_double_buffer = bool(use_double_buffer)
        self._return_list = bool(return_list)
        self._use_multiprocess = bool(use_multiprocess)
        self._drop_last = bool(drop_last)
        self._engine: Engine | None = None
        self._times = TimesLog()  # of all sources
        self._places = 0
        self._batches: Any = None  # the iterator of the live iteration; kept when exhausted

    @property
    def iterable(self) -> bool:
        """True."""
        return True

    @property
    def queue(self) -> None:
        """None: batches pass through no queue of Paddle's."""
        return None

    def _set_source(self, source: Source, places: Any) -> None:
        if self._names is None:
            given = current_place() if places is None else places
            if isinstance(given, (list, tuple)) and len(given) != 1:
                raise ArgumentError(
                    f"Number of places must be 1 in imperative mode, got {len(given)}:"
                    f" {got(places)}. Pass one place, or use DataLoader(dataset, places=...)"
                )
        else:
            given = places
            if places is None:
                raise ArgumentError(
                    "Places cannot be None when DataLoader is iterable. Pass places=, such as"
                    " paddle.CPUPlace() or paddle.static.cpu_places(2)"
                )
        parsed = available_places(given)
        engine = make_engine(
            source,
            self._capacity,
            list(parsed),
            self._use_double_buffer,
            self._use_multiprocess,
            self._drop_last,
            self._times,
        )
        # the live iteration keeps the source it began with
        self._engine, self._places = engine, len(parsed)

    def _observed_times(self) -> TimesLog:
        return self._times

    def __call__(self) -> GeneratorLoader:
        """Return the loader itself."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch: calls the generator anew, and abandons the running epoch."""
        if self._engine is None:
            raise ArgumentError(
                "Data source of DataLoader has not set yet: call set_sample_generator,"
                " set_sample_list_generator or set_batch_generator first"
            )
        self.close()
        self._batches = iter(self._engine)
        return self

    def prepare(self) -> None:
        """Make the next step's batches; see Handover. Blocks until they are there."""
        batches = self._batches
        if batches is None:
            raise ArgumentError("no epoch is running: iterate over the loader, iter(loader)")
        try:
            if batches.made is None:
                batches.prepare()
        except StopIteration:
            raise
        except Exception as error:
            if is_interrupt(error):
                raise
            self.made = Made(also_as(error, SystemError), is_error=True)
            return
        value = batches.made.value
        if batches.made.is_error:
            if isinstance(value, Exception):
                value = also_as(value, SystemError)
            self.made = Made(value, is_error=True, step=batches.hand_over)
        else:
            self.made = Made(self._form(value), step=batches.hand_over)

    def _form(self, made: Any) -> Any:
        if self._names is None:
            return made
        group = [made] if self._places == 1 else made
        if self._return_list:
            return group
        return [dict(zip(self._names, fields, strict=True)) for fields in group]

    def start(self) -> None:
        """Refuse: the program does not read from an iterable loader."""
        raise ArgumentError(
            "start() cannot be called when DataLoader is iterable. Iterate over it, or make it with"
            " iterable=False in static mode"
        )

    def reset(self) -> None:
        """Refuse, as `start`."""
        raise ArgumentError(
            "reset() cannot be called when DataLoader is iterable. Iterate over it again, or make"
            " it with iterable=False in static mode"
        )

    def _reset(self) -> None:
        """Leave the epoch early, as Paddle's: `next` then raises StopIteration. Idempotent."""
        self.drop()
        if self._batches is not None:
            self._batches.close()

    def close(self) -> None:
        """Abandon the running epoch and the batches made ahead. Idempotent."""
        self.drop()
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def __enter__(self) -> GeneratorLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
