"""The decorators of readers beside paddle.reader's: same items, and no hang, spin or leak.

Imports paddle and the face. Tests marked as a demonstration show what paddle.reader 3.3.1
does wrong, and the test after each what we do; what hangs or leaks there is shown beside this file.
"""

from __future__ import annotations

import gc
import importlib
import pickle
import random
import threading
import time
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import paddle.reader
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reader
from reader.compat.paddle.errors import ArgumentError
from tests.peers.program import demonstration

pytestmark = pytest.mark.peer

ours = importlib.import_module("reader.compat.paddle.reader")
batch = importlib.import_module("reader.compat.paddle.batch").batch
THEIRS = SimpleNamespace(**vars(paddle.reader), batch=paddle.batch)
OURS = SimpleNamespace(**vars(ours), batch=batch)


def of(*items: Any) -> Callable[[], Iterator[Any]]:
    def read() -> Iterator[Any]:
        yield from items

    return read


def failing(*items: Any) -> Callable[[], Iterator[Any]]:
    def read() -> Iterator[Any]:
        yield from items
        raise KeyError("mine")

    return read


def until_error(reader: Callable[[], Iterator[Any]]) -> tuple[list[Any], Exception]:
    """Return the items before the error, and the error."""
    found = []
    with pytest.raises(Exception) as caught:  # noqa: PT011
        for item in reader():
            found.append(item)  # noqa: PERF402
    return found, caught.value


def told(act: Callable[[Any], Any], module: Any) -> Any:
    random.seed(3)
    try:
        return act(module)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "act",
    [
        lambda m: list(m.cache(of(1, 2))()) * 2,
        lambda m: list(m.map_readers(lambda a, b: (a, b), of(1, 2, 3), of("a", "b"))()),
        lambda m: list(m.map_readers(str, lambda: [1, 2])()),
        lambda m: list(m.shuffle(of(*range(50)), 7)()),
        lambda m: list(m.shuffle(of(*range(50)), 100)()),
        lambda m: list(m.shuffle(of(*range(5)), 0)()),
        lambda m: list(m.chain(of(1, 2), of(), of(3))()),
        lambda m: list(m.chain()()),
        lambda m: list(m.compose(of((1, 2), (3, 4)), of(5, 6), of([7], [8]))()),
        lambda m: list(m.compose(of(1, 2, 3), of(4), check_alignment=False)()),
        lambda m: list(m.compose()()),
        lambda m: list(m.buffered(of(*range(100)), 3)()),
        lambda m: list(m.buffered(of(1, None, 2), 3)()),
        lambda m: list(m.firstn(of(*range(9)), 4)()),
        lambda m: list(m.firstn(of(*range(3)), 4.0)()),
        lambda m: list(m.firstn(of(*range(3)), 0)()),
        lambda m: sorted(m.xmap_readers(lambda x: x * 2, of(*range(100)), 3, 4)()),
        lambda m: list(m.xmap_readers(lambda x: x * 2, of(*range(100)), 3, 4, True)()),
        lambda m: list(m.batch(of(*range(7)), 3)()),
        lambda m: list(m.batch(of(*range(7)), 3, drop_last=True)()),
        lambda m: list(m.batch(of(*range(7)), 2.7)()),
    ],
)
def test_items_are_paddles(act: Callable[[Any], Any]) -> None:
    theirs = told(act, THEIRS)
    assert not isinstance(theirs, Exception)
    assert told(act, OURS) == theirs


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda m: m.batch(of(1), 0), ValueError),
        (lambda m: m.batch(of(1), -1), ValueError),
        (lambda m: list(m.compose(of(1, 2), of(1))()), ValueError),
        (lambda m: list(m.map_readers(str)()), TypeError),
        (lambda m: list(m.chain([1])()), TypeError),
        (lambda m: list(m.buffered([1], 2)()), TypeError),
        (lambda m: list(m.map_readers(1, of(1))()), TypeError),
        (lambda m: m.multiprocess_reader([]), AssertionError),
        (lambda m: m.multiprocess_reader(of(1)), AssertionError),
    ],
)
@pytest.mark.filterwarnings("ignore:The `ujson` module")
def test_what_paddle_refuses_is_refused_as_paddle_does(
    act: Callable[[Any], Any], kind: type[Exception]
) -> None:
    theirs, own = told(act, THEIRS), told(act, OURS)
    assert isinstance(theirs, kind)
    assert isinstance(own, kind)
    assert isinstance(own, reader.ReaderError)
    if kind is not TypeError:
        assert str(own).startswith(str(theirs))
    assert len(str(own)) > 30


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: ours.buffered(iter([]), 1), reader.ConfigTypeError, r"function itself, not what"),
        (lambda: ours.buffered(of(), "2"), reader.ConfigTypeError, r"size must be an int, got '2'"),
        (lambda: ours.shuffle(of(), 1.5), reader.ConfigTypeError, r"buf_size must be .* got 1\.5"),
        (lambda: ours.firstn(of(), -1), reader.ConfigError, r"n must be 0 or more, got -1"),
        (lambda: ours.xmap_readers(1, of(), 1, 1), reader.ConfigTypeError, r"mapper must be call"),
        (lambda: ours.xmap_readers(str, of(), 0, 1), reader.ConfigError, r"process_num must .* 0"),
        (lambda: ours.xmap_readers(str, of(), 1, 1, 1), reader.ConfigTypeError, r"order must be a"),
        (lambda: ours.compose(of(), 1), reader.ConfigTypeError, r"readers\[1\] must be a reader"),
        (lambda: ours.multiprocess_reader([1]), reader.ConfigTypeError, r"readers\[0\] must be a"),
        (
            lambda: ours.multiprocess_reader([of()], False, -1),
            reader.ConfigError,
            r"queue_size mus",
        ),
        (lambda: ours.multiprocess_reader(of()), ArgumentError, r"pass one reader or more"),
    ],
)
def test_bad_argument_is_refused_when_decorating(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_cache_reads_when_decorating_and_once() -> None:
    calls: list[int] = []

    def read() -> Iterator[int]:
        calls.append(1)
        yield 1

    cached = ours.cache(read)
    assert calls == [1]
    assert [list(cached()), list(cached()), calls] == [[1], [1], [1]]


def test_stop_iteration_of_the_mapped_function_does_not_end_the_reader_silently() -> None:
    def func(item: int) -> int:
        if item == 1:
            raise StopIteration
        return item

    found, error = until_error(ours.map_readers(func, of(0, 1, 2)))
    assert (found, type(error)) == ([0], RuntimeError)
    found, error = until_error(ours.xmap_readers(func, of(0, 1, 2), 1, 2, True))
    assert (found, type(error)) == ([0], reader.DatasetError)
    assert isinstance(error.__cause__, StopIteration)


@demonstration
def test_paddle_ends_silently_where_the_mapped_function_raises_stop_iteration() -> None:
    def func(item: int) -> int:
        raise StopIteration

    assert list(paddle.reader.map_readers(func, of(0, 1, 2))()) == []


def test_misaligned_readers_are_named() -> None:
    found, error = until_error(ours.compose(of(1, 2, 3), of(4, 5)))
    assert found == [(1, 4), (2, 5)]
    assert isinstance(error, ours.ComposeNotAligned)
    assert isinstance(error, paddle.reader.ComposeNotAligned)
    assert "After 2 items each, readers [1] ended and readers [0] went on" in str(error)


@demonstration
def test_paddle_mistakes_none_for_a_misalignment() -> None:
    with pytest.raises(paddle.reader.ComposeNotAligned):
        list(paddle.reader.compose(of(1, None), of(2, 3))())


def test_none_is_an_item_of_compose() -> None:
    assert list(ours.compose(of(1, None), of(2, 3))()) == [(1, 2), (None, 3)]


def taken_by(first: Callable[..., Any]) -> int:
    source = iter(range(10))
    assert list(first(lambda: source, 3)()) == [0, 1, 2]
    return next(source)


@demonstration
def test_paddle_takes_one_item_more_than_the_first_n() -> None:
    assert taken_by(paddle.reader.firstn) == 4


def test_first_n_takes_no_item_more() -> None:
    assert taken_by(ours.firstn) == 3


@demonstration
def test_paddle_drops_the_short_batch_for_a_drop_last_of_zero() -> None:
    assert list(paddle.batch(of(1, 2, 3), 2, drop_last=0)()) == [[1, 2]]  # type: ignore[arg-type]


def test_short_batch_is_kept_for_a_drop_last_of_zero() -> None:
    assert list(batch(of(1, 2, 3), 2, drop_last=0)()) == [[1, 2], [3]]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader-")]


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


THREADED: list[Any] = [
    lambda source: ours.buffered(source, 3),
    lambda source: ours.buffered(source, 0),
    lambda source: ours.xmap_readers(lambda item: item, source, 3, 4),
    lambda source: ours.xmap_readers(lambda item: item, source, 3, 4, True),
    lambda source: ours.xmap_readers(lambda item: item, source, 3, 0, True),
]


@pytest.mark.parametrize("decorate", THREADED)
def test_threads_end_when_the_generator_is_closed_or_collected(decorate: Any) -> None:
    generator = decorate(endless)()
    assert threads() == []  # nothing begins before the first item is asked for
    next(generator)
    assert threads() != []
    generator.close()
    assert threads() == []
    generator = decorate(endless)()
    next(generator)
    del generator
    assert threads() == []
    for _ in decorate(endless)():
        break
    assert threads() == []


@pytest.mark.parametrize("decorate", THREADED)
def test_threads_end_when_a_cycle_with_the_generator_is_collected(decorate: Any) -> None:
    class Cycle(list[Any]):
        pass

    cycle = Cycle()
    cycle.append(cycle)
    cycle.append(decorate(endless)())
    next(cycle[1])
    del cycle
    gc.collect()
    deadline = time.monotonic() + 40
    while threads() and time.monotonic() < deadline:  # the collector does not wait for them
        time.sleep(0.01)
    assert threads() == []


@pytest.mark.parametrize("decorate", THREADED)
def test_readers_generator_is_closed_with_the_decorated_one(decorate: Any) -> None:
    is_closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from endless()
        finally:
            is_closed.set()

    generator = decorate(source)()
    next(generator)
    generator.close()
    assert is_closed.wait(40)


@pytest.mark.parametrize("decorate", THREADED)
def test_items_without_a_truth_value_pass(decorate: Any) -> None:
    items = [np.arange(3), None, paddle.arange(2), np.zeros(0)]
    found = list(decorate(of(*items))())
    assert sorted(map(id, found)) == sorted(map(id, items))


@pytest.mark.parametrize("decorate", THREADED)
def test_error_of_the_reader_comes_after_the_items_before_it(decorate: Any) -> None:
    found, error = until_error(decorate(failing(*range(20))))
    assert (sorted(found), type(error), error.args) == (list(range(20)), KeyError, ("mine",))
    assert threads() == []


def test_error_of_the_mapper_comes_in_the_place_of_its_item() -> None:
    class Mine(OSError):
        pass

    def mapper(item: int) -> int:
        if item == 30:
            raise Mine(5, "five")
        return item

    for process_num in (1, 4):
        ordered = ours.xmap_readers(mapper, endless, process_num, 4, True)
        found, error = until_error(ordered)
        assert (found, type(error), error.args) == (list(range(30)), Mine, (5, "five"))
        found, error = until_error(ours.xmap_readers(mapper, endless, process_num, 4))
        assert (type(error), set(found) & {30}) == (Mine, set())
        assert threads() == []


def test_exit_in_a_background_thread_is_an_error_and_not_an_end() -> None:
    def leave(*_: Any) -> Iterator[int]:
        raise SystemExit(3)
        yield 1

    for made in (ours.buffered(leave, 2), ours.xmap_readers(lambda _: exit(3), of(1), 2, 2)):
        _, error = until_error(made)
        assert isinstance(error, reader.DatasetError)
        assert isinstance(error.__cause__, SystemExit)


def test_error_of_calling_the_reader_is_raised_as_it_is() -> None:
    def refuse() -> Any:
        raise KeyError("at once")

    for made in (ours.buffered(refuse, 2), ours.xmap_readers(str, refuse, 2, 2)):
        found, error = until_error(made)
        assert (found, error.args) == ([], ("at once",))


@pytest.mark.parametrize(
    ("decorate", "ahead"),
    [
        (lambda source: ours.buffered(source, 4), 4),
        (lambda source: ours.xmap_readers(lambda item: item, source, 2, 3), 5),
        (lambda source: ours.xmap_readers(lambda item: item, source, 2, 3, True), 5),
    ],
)
def test_no_more_items_are_read_ahead_than_asked_for(decorate: Any, ahead: int) -> None:
    read = threading.Semaphore(0)

    def counting() -> Iterator[int]:
        for item in endless():
            read.release()
            yield item

    generator = decorate(counting)()
    for _ in range(5):
        next(generator)
    for _ in range(5 + ahead):
        assert read.acquire(timeout=40)
    assert not read.acquire(timeout=0.05)
    generator.close()


def test_mappers_run_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=40)

    def mapper(item: int) -> int:
        meeting.wait()
        return item

    assert sorted(ours.xmap_readers(mapper, of(*range(6)), 3, 4)()) == list(range(6))


def test_item_that_is_ready_does_not_wait_for_the_one_before_it() -> None:
    gate = threading.Event()

    def mapper(item: int) -> int:
        if item == 0:
            gate.wait(40)
        return item

    generator = ours.xmap_readers(mapper, of(0, 1, 2), 2, 4)()
    assert {next(generator), next(generator)} == {1, 2}
    gate.set()
    assert list(generator) == [0]


def test_mapper_does_not_begin_an_item_after_the_consumer_left() -> None:
    begun: list[int] = []

    def mapper(item: int) -> int:
        begun.append(item)
        return item

    generator = ours.xmap_readers(mapper, endless, 2, 50)()
    next(generator)
    generator.close()
    count = len(begun)
    assert threads() == []
    assert len(begun) == count


def test_closing_does_not_wait_for_ever_for_a_reader_that_is_stuck() -> None:
    gate = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        gate.wait(50)

    for made in (ours.buffered(stuck, 3), ours.xmap_readers(lambda item: item, stuck, 2, 3)):
        generator = made()
        assert next(generator) == 1
        begun = time.monotonic()
        generator.close()
        assert time.monotonic() - begun < 40
    gate.set()


@given(
    items=st.lists(st.integers(), max_size=60),
    process_num=st.integers(1, 4),
    buffer_size=st.integers(0, 5),
)
def test_mapped_items_are_those_of_the_reader(
    items: list[int], process_num: int, buffer_size: int
) -> None:
    def mapper(item: int) -> int:
        return item + 1

    wanted = [item + 1 for item in items]
    options = (process_num, buffer_size)
    assert list(ours.xmap_readers(mapper, of(*items), *options, True)()) == wanted
    assert sorted(ours.xmap_readers(mapper, of(*items), *options)()) == sorted(wanted)
    assert list(ours.buffered(of(*items), buffer_size)()) == items


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("use_pipe", [True, False])
def test_items_of_processes_arrive_as_they_were_yielded(use_pipe: bool) -> None:
    items: list[Any] = [
        1, 2.5, "x", b"x", True, (1, (2, [3])), {"k": [1]}, Pair(1, [2]), (), [], np.float32(2),
        np.arange(3), np.zeros((0, 2), "int8"), np.array("text"), {1, 2}, np.array(7), 1j, 2**70,
    ]  # fmt: skip
    made = ours.multiprocess_reader([of(*items), of(*items[:3])], use_pipe)
    found = list(made())
    assert sorted(map(repr, found)) == sorted(map(repr, items + items[:3]))
    assert sorted(str(type(item)) for item in found) == sorted(
        str(type(item)) for item in items + items[:3]
    )
    assert sorted(map(repr, made())) == sorted(map(repr, found))


def test_processes_read_many_items_each_once() -> None:
    sources = [of(*range(start, start + 300)) for start in (0, 1000, 2000)]
    found = list(ours.multiprocess_reader([*sources, of()])())
    assert sorted(found) == [*range(300), *range(1000, 1300), *range(2000, 2300)]
    for start in (0, 1000, 2000):
        assert [item for item in found if start <= item < start + 300] == [
            *range(start, start + 300)
        ]


def test_error_in_a_process_arrives_as_it_was_raised() -> None:
    found, error = until_error(ours.multiprocess_reader([failing(1, 2)]))
    assert (found, type(error).__name__, error.args) == ([1, 2], "KeyError", ("mine",))
    assert isinstance(error, KeyError)
    assert "in read\n" in "".join(traceback.format_exception(error))


class Failed(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


@pytest.mark.parametrize("kind", ["own", "builtin", "system", "exit"])
def test_error_in_a_process_is_caught_as_paddle_raises_it_too(kind: str) -> None:
    errors = {
        "own": Failed("list.txt", 7),
        "builtin": FileNotFoundError(2, "gone", "list.txt"),
        "system": SystemError("mine"),
        "exit": SystemExit(3),
    }

    def read() -> Iterator[int]:
        yield 1
        raise errors[kind]

    found, error = until_error(ours.multiprocess_reader([read]))
    assert found == [1]
    own = reader.DatasetError if kind == "exit" else type(errors[kind])
    for wanted in (SystemError, ValueError, own):
        assert isinstance(error, wanted), repr(error)
    assert type(error).__name__ == own.__name__
    if kind == "own":
        assert error.code == 7  # type: ignore[attr-defined]
    if kind == "builtin":
        assert error.filename == "list.txt"  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(error)) if kind != "own" else error
    assert isinstance(again, own)
    assert isinstance(again, SystemError)
    assert error.__context__ is None
    notes = [note for note in getattr(error, "__notes__", ()) if "raised in" in note]
    assert len(notes) == (0 if kind == "exit" else 1)  # an exit has it with its cause


def test_exception_class_without_multiple_inheritance_arrives_unchanged() -> None:
    class Lonely(RuntimeError):
        def __init_subclass__(cls) -> None:
            raise TypeError("no subclasses")

    def read() -> Iterator[int]:
        yield 1
        raise Lonely("mine")

    found, error = until_error(ours.multiprocess_reader([read]))
    assert (found, type(error)) == ([1], Lonely)


def test_none_in_a_process_is_an_error() -> None:
    found, error = until_error(ours.multiprocess_reader([of(1, None, 2)], use_pipe=False))
    assert found == [1]
    assert isinstance(error, ValueError)
    assert isinstance(error, reader.DatasetError)
    assert str(error).startswith("sample has None! Reader 0 yielded None as item 1")


def test_processes_end_when_the_generator_is_closed_or_collected() -> None:
    for leave in (lambda generator: generator.close(), lambda generator: None):
        generator = ours.multiprocess_reader([endless, endless])()
        next(generator)
        leave(generator)
        del generator  # the ledger looks for what is left
