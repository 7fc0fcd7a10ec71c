"""PyReader: the generator loaders under their older names.

Imports the loaders of this face. A PyReader owns one loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reader._core.epoch.handover import Handover, Made
from reader._core.wire.times_log import TimesLog
from reader.compat.paddle.generator import from_generator
from reader.engine.engine import Engine
from reader.engine.face import engine_of
from reader.errors import ConfigTypeError
from reader.observe.face import ProfiledFace

__all__ = ["PyReader"]

_Reader = Callable[[], Iterable[Any]]


class PyReader(Handover, ProfiledFace):
    """Read the batches of a generator: `DataLoader.from_generator` under older names.

    Args:
        feed_list, capacity, use_double_buffer, iterable, return_list: see `from_generator`.

    Raises:
        ConfigError: as `from_generator`.

    Source: paddle.base.io.PyReader.
    """

    def __init__(
        self,
        feed_list: Any = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        self._loader = from_generator(feed_list, capacity, use_double_buffer, iterable, return_list)

    @property
    def iterable(self) -> bool:
        """Whether the program iterates over it, rather than calling `start` and `reset`."""
        return bool(self._loader.iterable)

    @property
    def queue(self) -> Any:
        """Paddle's blocking queue, if the reader is not iterable; else None."""
        return self._loader.queue

    def _observed_engine(self) -> Engine | None:
        return engine_of(self._loader)

    def _observed_times(self) -> TimesLog:
        if not self.iterable:
            raise ConfigTypeError(
                "profile takes a loader that is iterated over, and exe.run reads the batches of"
                " this one: make it with iterable=True"
            )
        times: TimesLog = self._loader._observed_times()
        return times

    def decorate_sample_generator(
        self, sample_generator: _Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """Take single samples: see `set_sample_generator` of the loaders."""
        self._loader.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: _Reader, places: Any = None) -> None:
        """Take lists of samples: see `set_sample_list_generator` of the loaders."""
        self._loader.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: _Reader, places: Any = None) -> None:
        """Take ready-made batches: see `set_batch_generator` of the loaders."""
        self._loader.set_batch_generator(reader, places)

    def start(self) -> None:
        """Begin an epoch of a reader that is not iterable: see FeedingLoader."""
        self._loader.start()

    def reset(self) -> None:
        """End an epoch of a reader that is not iterable: see FeedingLoader."""
        self._loader.reset()

    def _reset(self) -> None:
        """Leave the epoch early, whichever kind of reader it is."""
        self.drop()
        self._loader._reset()

    def close(self) -> None:
        """Abandon the running epoch. Idempotent."""
        self.drop()
        self._loader.close()

    def __call__(self) -> PyReader:
        """Return the reader itself."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch of an iterable reader, which is its own iterator."""
        self.drop()
        iter(self._loader)
        return self

    def prepare(self) -> None:
        """Make the next step's batches; see Handover."""
        loader = self._loader
        if not self.iterable:
            next(loader)  # refuses
        if loader.made is None:
            loader.prepare()
        made = loader.made
        self.made = Made(made.value, is_error=made.is_error, step=loader.hand_over)
