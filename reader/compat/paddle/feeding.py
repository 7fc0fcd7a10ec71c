"""The loader from which a static program itself reads: start(), exe.run without feed, reset().

Imports paddle, the other modules of this face and, for a process, the engine. The ops it adds
belong to the program, and the queue to the scope; the loader owns the epoch that fills the queue.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import paddle
from paddle.base import core, framework
from paddle.base.layers.io import monkey_patch_reader_methods

from reader._core.interpreter.signals import interrupt_after
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.feeding_epoch import FeedingEpoch
from reader.compat.paddle.fields import StaticFields
from reader.compat.paddle.source import Source, SourceLoader, current_place
from reader.compat.paddle.source_engine import make_engine
from reader.engine.engine import Engine
from reader.errors import ConfigError
from reader.frameworks.paddle_version import DenseTensor, init_queue
from reader.log import log as _log

__all__ = ["FeedingLoader"]

_numbers = itertools.count()  # names are unique in the process: the scope outlives any name guard
_patch_reader: Any = monkey_patch_reader_methods


class FeedingState(enum.Enum):
    """READY -> FEEDING by start(), and back by reset(); CLOSED by close(), until start()."""

    READY = "ready"
    FEEDING = "feeding"
    CLOSED = "closed"


class FeedingLoader(SourceLoader):
    """Feeds the read op of a program of the old IR; made by `from_generator(iterable=False)`.

    The loader appends ops to the default main program that read from a queue. Between `start()` and
    `reset()` a thread runs the generator and fills the queue; `exe.run` without feed takes a batch
    each time and raises `paddle.base.core.EOFException` at the end. `reset()` may also come early.

    If the generator raises, `exe.run` first reads the batches before it, and then fails as Paddle's
    does ("Blocking queue is killed because the data reader raises an exception"). The logger
    "reader" logs the exception once, with its traceback, `error` has it, and `reset()` raises it.

    Batches are read in the order of the generator, whatever `keep_data_loader_order` says.

    Args:
        feed_list: the variables that each run reads, of the default main program.
        capacity: how many batches wait in the queue at most.
        use_double_buffer: add Paddle's double buffer op, which holds two more batches.
        use_multiprocess: run the generator in its own forked process; a thread only fills the
            queue.
        drop_last: passed to the read op, for programs on several devices.

    Raises:
        ConfigError: PIR mode, or a variable of another program.
    """

    def __init__(
        self,
        feed_list: list[Any],
        capacity: int,
        use_double_buffer: bool = True,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> None:
        if framework.in_pir_mode():
            raise ConfigError(
                "iterable=False does not work in PIR mode, the default of paddle 3: PIR has no ops"
                " that read from a queue. Pass iterable=True and use exe.run(feed=...) with what"
                " the loader yields; or make and run program and loader under"
                " paddle.pir_utils.OldIrGuard() or with FLAGS_enable_pir_api=0"
            )
        super().__init__(StaticFields(feed_list))
        self._capacity = capacity
        self._use_multiprocess = bool(use_multiprocess)
        self._queue = _add_read_ops(feed_list, capacity, bool(use_double_buffer), bool(drop_last))
        self._source: Source | None = None
        self._state = FeedingState.READY
        self._epochs: list[FeedingEpoch] = []  # the live one; shared with the finalizer
        self._error: BaseException | None = None
        self._finalizer = weakref.finalize(self, _stop_all, self._epochs, self._queue)

    @property
    def iterable(self) -> bool:
        """False."""
        return False

    @property
    def queue(self) -> Any:
        """Paddle's blocking queue, which the program reads from."""
        return self._queue

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the current or the last epoch early; or None."""
        return self._epochs[0].error if self._epochs else self._error

    def _set_source(self, source: Source, places: Any) -> None:
        if places is not None:
            _log.info("places would be omitted when DataLoader is not iterable")
        self._source = source

    def __call__(self) -> FeedingLoader:
        """Return the loader itself, as Paddle's."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Refuse: the program reads the batches."""
        raise ArgumentError(
            "DataLoader is not iterable. Call start(), exe.run(program) until EOFException, and"
            " reset(); or make it with iterable=True"
        )

    def __next__(self) -> Any:
        """Refuse, as `__iter__`."""
        return self.__iter__()

    def start(self) -> None:
        """Begin an epoch: from now on a thread fills the queue. Returns at once.

        Raises:
            ArgumentError: no source was set, or `reset()` has not ended the previous epoch.
        """
        if self._source is None:
            raise ArgumentError(
                "Data source of DataLoader has not set yet: call set_sample_generator,"
                " set_sample_list_generator or set_batch_generator before start()"
            )
        if self._state is FeedingState.FEEDING:
            raise ArgumentError(
                "start() was called a second time without reset(): call reset() first, also after"
                " EOFException"
            )
        if self._state is FeedingState.CLOSED:
            self._queue.reset()
        make_batches = self._source.batches
        if self._use_multiprocess:
            engine = make_engine(self._source, self._capacity, use_multiprocess=True)
            make_batches = functools.partial(_copied, engine)
        epoch = FeedingEpoch(self._queue, make_batches, current_place())
        with interrupt_after():
            self._error = None
            self._epochs.append(epoch)
            self._state = FeedingState.FEEDING
            epoch.start()

    def reset(self) -> None:
        """End the epoch, at its end or before, and make the queue ready for the next `start()`.

        Waits until the generator yields its next item, 5 s at most. Idempotent.

        Raises:
            Exception: what the generator raised, if that stopped the program.
        """
        epoch = self._epochs[0] if self._epochs else None
        if epoch is not None:
            epoch.close()  # Ctrl-C ends the waiting: the next call waits again
            self._error = epoch.error
        self._queue.reset()
        self._epochs.clear()
        self._state = FeedingState.READY
        if epoch is not None and epoch.error is not None and epoch.is_killed:
            raise epoch.error

    def _reset(self) -> None:
        """The same as `reset`: Paddle's name for either kind of loader."""
        self.reset()

    def close(self) -> None:
        """End the epoch and empty the queue, without raising the epoch's error. Idempotent."""
        if self._state is FeedingState.FEEDING:
            self._error = self.error
            self._state = FeedingState.CLOSED
        _stop_all(self._epochs, self._queue)


def _copied(engine: Engine) -> Iterator[list[Any]]:
    """Yield an epoch's batches in paddle's own memory.

    The double buffer keeps batches beyond the end of an epoch: in the engine's memory, they would
    keep that of an ended worker alive.
    """
    with contextlib.closing(iter(engine)) as batches:
        for fields in batches:
            yield [_own(field) for field in fields]


def _own(field: Any) -> Any:
    """Copy a DenseTensor with its LoD; return other fields, and empty ones, as they are."""
    if not isinstance(field, DenseTensor) or 0 in field.shape():
        return field
    place = core.Place()  # 2.6 takes no other class here
    place.set_place(core.CPUPlace())
    copied = field._copy(place)
    copied.set_lod(field.lod())
    return copied


def _stop_all(epochs: list[FeedingEpoch], queue: Any) -> None:
    """Stop the thread that fills the queue, and empty the queue."""
    with interrupt_after():
        while epochs:
            epochs[-1].stop()
            queue.reset()
            queue.close()  # a program that still reads finds the end
            epochs.clear()


def _add_read_ops(
    feed_list: list[Any], capacity: int, use_double_buffer: bool, drop_last: bool
) -> Any:
    """Append the ops that read `feed_list` from a new queue to the main program; return the queue.

    The queue always keeps the order of several devices; with Paddle's other queue it is random.
    """
    program: Any = paddle.static.default_main_program()
    for variable in feed_list:
        if variable.block.program is not program:
            raise ConfigError(
                f"variable '{variable.name}' of feed_list is not in the default main program, to"
                " which the read op is added. Make the loader inside paddle.static.program_guard("
                "...) with the program of the variable"
            )
    number = next(_numbers)
    block = program.current_block()
    queue_name = f"reader_feeding_queue_{number}"
    queue = init_queue(paddle.static.global_scope().var(queue_name), capacity, True)
    shapes = [list(variable.shape) for variable in feed_list]
    reader = block.create_var(name=f"reader_feeding_{number}")
    block.append_op(
        type="create_py_reader",
        inputs={"blocking_queue": [queue_name]},
        outputs={"Out": [reader]},
        attrs={
            "shape_concat": [size for shape in shapes for size in shape],
            "ranks": [len(shape) for shape in shapes],
            "lod_levels": [variable.lod_level for variable in feed_list],
            "dtypes": [int(variable.dtype) for variable in feed_list],
            "need_check_feed": [int(variable.desc.need_check_feed()) for variable in feed_list],
        },
    )
    reader.desc.set_dtypes([variable.dtype for variable in feed_list])
    reader.persistable = True
    reader.stop_gradient = True
    if use_double_buffer:
        buffered = block.create_var(name=f"reader_feeding_buffer_{number}")
        block.append_op(
            type="create_double_buffer_reader",
            inputs={"UnderlyingReader": reader},
            outputs={"Out": [buffered]},
        )
        reader = _patch_reader(buffered)
    block.append_op(
        type="read",
        inputs={"Reader": [reader]},
        outputs={"Out": feed_list},
        attrs={"drop_last": drop_last},
    )
    return queue
