"""The decorators of `paddle.reader` that read ahead in threads: `buffered` and `xmap_readers`.

Imports `reader.checks` and `reader.exceptions.user_error`. A generator owns its threads: they end
when it ends, is closed or is collected. They share only SimpleQueues with it, whose `put` takes no
Python lock, so that the garbage collector may collect a generator at any point of any thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, NoReturn

import numpy as np

from reader._core.interpreter.signals import interrupt_after
from reader.checks import as_bool, as_int
from reader.errors import ConfigTypeError, got, start_thread
from reader.exceptions.user_error import as_user_error

__all__ = ["as_count", "as_reader", "buffered", "xmap_readers"]

JOIN_S = 0.5  # how long a closed generator waits for user code that still runs

_STOP = object()

# (number of the item, value, errors). The list holds one error at most. Raising it empties the
# list, so that no frame in the error's own traceback keeps the error alive.
_Result = tuple[int, Any, list[BaseException]]


class _Flow:
    """The queues between the consumer, one thread that reads, and threads that map.

    A permit stands for one item in flight: the reading thread takes one before it reads, and the
    consumer releases it when it takes the item. The last result is the end: its number counts
    all items, and its value is _STOP.
    """

    def __init__(self, capacity: int) -> None:
        self.permits: SimpleQueue[object] = SimpleQueue()
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.results: SimpleQueue[_Result] = SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.is_unbounded = capacity <= 0
        self.is_closed = False  # written by the consumer alone
        for _ in range(max(capacity, 1)):
            self.permits.put(None)

    def add_thread(self, name: str, target: Callable[..., None], *args: Any) -> None:
        """Add a daemon thread, which starts with the others; the program does not wait for it."""
        self.threads.append(threading.Thread(target=target, args=args, name=name, daemon=True))

    def close(self) -> None:
        """Stop the threads. Waits JOIN_S for each at most: it may be in user code."""
        with interrupt_after():
            self.is_closed = True
            self.permits.put(_STOP)
            for _ in self.threads:
                self.tasks.put(_STOP)
        me = threading.current_thread()
        for thread in self.threads:
            if thread is not me and thread.ident is not None:
                thread.join(JOIN_S)


class _Owner:
    """An object in the frame of a generator; its finalizer runs when that or the program ends."""


def buffered(reader: Callable[[], Iterable[Any]], size: int) -> Callable[[], Iterator[Any]]:
    """Read up to `size` items ahead, in another thread, and yield them in their order.

    An error of the reader is raised after the items before it.

    Args:
        reader: called in the thread of the consumer; what it returns is iterated in another.
        size: how many items are read ahead; 0 or less: no limit.
    """
    as_reader("reader", reader)
    capacity = as_count("size", size)

    def ahead() -> Iterator[Any]:
        flow = _Flow(capacity)
        flow.add_thread("reader-buffered", _read, iter(reader()), flow, flow.results)
        return _consume(flow, is_ordered=True)

    return _lazily(ahead)


def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Callable[[], Iterable[Any]],
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Callable[[], Iterator[Any]]:
    """Yield what `mapper` makes of the items, called in `process_num` threads.

    An error of the mapper is raised in place of its item, and one of the reader after all items
    before it; either ends the generator.

    Args:
        mapper: called with one item; by several threads at a time.
        reader: called in the thread of the consumer; what it returns is iterated in another.
        process_num: how many threads map, 1 or more.
        buffer_size: how many items may wait beside those being mapped; 0 or less: no limit.
        order: keep the order of the reader; else an item comes as soon as it is mapped.
    """
    as_reader("reader", reader)
    if not callable(mapper):
        raise ConfigTypeError(f"mapper must be callable, got {got(mapper)}. Pass the function.")
    workers = as_int("process_num", process_num, low=1, remedy="It is how many threads map.")
    capacity = as_count("buffer_size", buffer_size)
    is_ordered = as_bool("order", order)

    def mapped() -> Iterator[Any]:
        flow = _Flow(capacity + workers if capacity > 0 else 0)
        flow.add_thread("reader-xmap-read", _read, iter(reader()), flow, flow.tasks)
        for number in range(workers):
            flow.add_thread(f"reader-xmap-{number}", _map, mapper, flow)
        return _consume(flow, is_ordered)

    return _lazily(mapped)


def _lazily(begin: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    """Return a generator function, so that nothing runs before the first `next()`."""

    def generate() -> Iterator[Any]:
        yield from begin()

    return generate


def _read(items: Iterator[Any], flow: _Flow, out: SimpleQueue[_Result]) -> None:
    """Emit the items, one for each permit; then the end, with the error that ended them."""
    number = 0
    errors: list[BaseException] = []
    while flow.permits.get() is not _STOP and not flow.is_closed:
        try:
            item = next(items)
        except StopIteration:
            break
        except BaseException as error:  # of any kind: the consumer raises it
            errors.append(error)
            break
        out.put((number, item, []))
        del item  # this thread keeps nothing while it waits
        number += 1
        if flow.is_unbounded:
            flow.permits.put(None)
    flow.results.put((number, _STOP, errors))


def _map(mapper: Callable[[Any], Any], flow: _Flow) -> None:
    """Map one item after the other, until the generator is closed."""
    while (task := flow.tasks.get()) is not _STOP and not flow.is_closed:
        try:
            flow.results.put((task[0], mapper(task[1]), []))
        except BaseException as error:  # of any kind: the consumer raises it
            flow.results.put((task[0], None, [error]))
        del task  # this thread keeps nothing while it waits


def _consume(flow: _Flow, is_ordered: bool) -> Iterator[Any]:
    """Start the threads and yield the results: in the order of their numbers, or as they come."""
    owner = _Owner()
    close = weakref.finalize(owner, flow.close)
    early: dict[int, _Result] = {}
    count = 0
    end: _Result | None = None
    try:
        for thread in flow.threads:
            start_thread(thread, "a thread that reads ahead")
        while end is None or count < end[0]:
            result = flow.results.get()
            if result[1] is _STOP:
                end = result
                continue
            number = result[0]
            early[number] = result
            while (place := count if is_ordered else number) in early:
                result = early.pop(place)
                if result[2]:
                    _raise(result[2])
                count += 1
                flow.permits.put(None)
                yield result[1]
        if end[2]:
            _raise(end[2])
    finally:
        close()


def _raise(errors: list[BaseException]) -> NoReturn:
    raise as_user_error(errors.pop())


def as_reader(name: str, reader: Any) -> Callable[[], Iterable[Any]]:
    """Return `reader` if it can be called. ConfigTypeError if not."""
    if not callable(reader):
        raise ConfigTypeError(
            f"{name} must be a reader, a function without arguments that returns an iterable, got"
            f" {got(reader)}. Pass the generator function itself, not what it returns."
        )
    return reader  # type: ignore[no-any-return]


def as_count(name: str, value: Any) -> int:
    """Return `value` as an int; a float that is a whole number passes, as in Paddle."""
    if isinstance(value, (int, np.integer)) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise ConfigTypeError(f"{name} must be an int, got {got(value)}. Pass a whole number.")
