"""GluonNLP's streams: transformations, files, and items made ahead by a thread or a process."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, DataLoader, WorkerDied, get_worker_info
from reader.compat.gluon.datasets import SimpleDataset
from reader.compat.gluon.nlp.prefetching_stream import PrefetchingStream
from reader.compat.gluon.nlp.streams import (
    DatasetStream,
    DataStream,
    SimpleDatasetStream,
    SimpleDataStream,
)
from tests.processes import BOUND_S

KINDS = ("thread", "process")


class Broken(DataStream):
    """Cannot be iterated over."""

    def __iter__(self) -> Iterator[Any]:
        raise OSError("no such corpus")


class Failing(DataStream):
    """Fails after some items."""

    def __iter__(self) -> Iterator[Any]:
        yield from (1, 2)
        raise KeyError("third")


class Draws(DataStream):
    """Random numbers, of the global generators and of the worker's own."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        own = None if worker is None or worker.rng is None else worker.rng.random_generator.random()
        yield random.random(), np.random.rand(), own


class File(SimpleDataset):
    """The words of a file."""

    def __init__(self, path: str, suffix: str = "") -> None:
        super().__init__([word + suffix for word in Path(path).read_text().split()])


# -- transformations -------------------------------------------------------------------------------


def test_a_stream_begins_anew_in_each_iteration() -> None:
    stream = SimpleDataStream([1, 2])
    assert list(zip(stream, stream, strict=True)) == [(1, 1), (2, 2)]
    doubled = stream.transform(lambda item: 2 * item)
    assert list(doubled) == list(doubled) == [2, 4]


def test_the_first_item_decides_whether_items_are_unpacked() -> None:
    pairs = SimpleDataStream([(1, 2), [3, 4]])
    assert list(pairs.transform(lambda a, b: a + b)) == [3, 7]
    assert list(SimpleDataStream([[1], (2, 3)]).transform(len)) == [1, 2]
    assert list(SimpleDataStream([]).transform(len)) == []


def test_items_are_transformed_when_they_are_taken() -> None:
    seen: list[int] = []
    items = iter(SimpleDataStream([1, 2, 3]).transform(seen.append))
    assert seen == []
    next(items)
    assert seen == [1]


def test_the_error_of_a_source_is_raised_when_the_iteration_begins() -> None:
    with pytest.raises(OSError, match="no such corpus"):
        iter(Broken().transform(str).transform(str))


def test_a_function_that_ends_by_stop_iteration_does_not_end_the_stream_silently() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(SimpleDataStream([[1], []]).transform(lambda item: next(iter(item))))


def test_what_cannot_be_called_transforms_nothing() -> None:
    with pytest.raises(ConfigTypeError, match="transformed by a function, got 3"):
        SimpleDataStream([1]).transform(3)  # type: ignore[arg-type]


def test_a_loader_takes_a_stream() -> None:
    stream = SimpleDataStream(range(5)).transform(lambda item: item + 1)
    loader = DataLoader(stream, batch_size=2, num_workers=1, worker_type="thread")
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4], [5]]
    loader.close()


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> str:
    for name in ("b.txt", "a.txt", "c.txt", "d.log"):
        (tmp_path / name).write_text(f"{name[0]}1 {name[0]}2")
    return f"{tmp_path}/*.txt, {tmp_path}/d.*"


def first_words(stream: Any) -> list[str]:
    return [dataset[0] for dataset in stream]


def test_each_file_is_a_dataset(files: str) -> None:
    stream = SimpleDatasetStream(File, files, "sequential", suffix="!")
    assert isinstance(stream, DatasetStream)
    assert first_words(stream) == first_words(stream) == ["a1!", "b1!", "c1!", "d1!"]
    assert [len(dataset) for dataset in stream] == [2, 2, 2, 2]
    assert first_words(SimpleDatasetStream(File, files, file_sampler=[3, 1])) == ["d1", "b1"]


def test_the_home_directory_is_found(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path(files.split(",")[0]).parent))
    assert first_words(SimpleDatasetStream(File, "~/a.txt", "sequential")) == ["a1"]


def test_files_come_in_the_order_that_numpy_draws(files: str) -> None:
    stream = SimpleDatasetStream(File, files)
    wanted = [f"{'abcd'[number]}1" for number in np.random.RandomState(6).permutation(4)]
    np.random.seed(6)
    assert first_words(stream) == wanted
    assert {tuple(first_words(stream)) for _ in range(20)} != {tuple(wanted)}


@pytest.mark.parametrize("kind", KINDS)
def test_files_read_ahead_come_in_an_order_that_the_caller_seeds(files: str, kind: str) -> None:
    stream = PrefetchingStream(SimpleDatasetStream(File, files), 2, kind)

    def order(seed: int) -> list[str]:
        random.seed(seed), np.random.seed(seed)
        found = []
        for dataset in stream:
            found.append(dataset[0])
            np.random.rand()  # the trainer draws as well
        return found

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("pattern", "sampler", "kind", "text"),
    [
        (3, "random", TypeError, "^file_pattern must be str, but got <class 'int'>"),
        ("none*, /none", "random", ValueError, r'^Cannot find any file with path "none\*, /none"'),
        ("", "random", ValueError, "^Cannot find any file"),
        ("{}", "reverse", ValueError, "^file_sampler must be a supported str .*but got .reverse"),
        ("{}", 3, ConfigTypeError, "file_sampler must be an iterable"),
        ("{}", iter([1]), ConfigError, "one-shot iterator"),
    ],
)
def test_files_that_cannot_be_found_are_refused(
    files: str, pattern: Any, sampler: Any, kind: Any, text: str
) -> None:
    pattern = files if pattern == "{}" else pattern
    with pytest.raises(kind, match=text):
        SimpleDatasetStream(File, pattern, sampler)


# -- items made ahead ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ahead", [1, 3])
def test_items_made_ahead_come_in_their_order_and_anew_each_time(kind: str, ahead: int) -> None:
    stream = PrefetchingStream(SimpleDataStream(range(20)).transform(str), ahead, kind.title())
    assert list(stream) == list(stream) == [str(number) for number in range(20)]


def test_items_of_a_thread_are_the_very_objects() -> None:
    items = [object(), None, np.arange(3), [np.ones(2), "text"], {"a": (1, 2.5)}, lambda: 3]
    found = list(PrefetchingStream(items))
    assert all(a is b for a, b in zip(found, items, strict=True))


def test_items_of_a_process_are_equal_in_value_and_type() -> None:
    items: list[Any] = [
        None,
        3,
        (1, "text", b"bytes", [2.5, {"a": {1}}]),
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.zeros((0, 4), np.float32),
        np.asfortranarray(np.arange(40_000.0).reshape(200, 200)),
        np.ma.masked_array([1, 2], [True, False]),
        np.float32(2),
        SimpleDataset(["a", "b"]),
    ]
    found = list(PrefetchingStream(items, 2, "process"))
    for ours, own in zip(found, items, strict=True):
        assert type(ours) is type(own)
        if isinstance(own, np.ndarray):
            assert (ours.dtype, ours.shape) == (own.dtype, own.shape)
            assert np.ma.allequal(ours, own)
        elif isinstance(own, SimpleDataset):
            assert [ours[0], ours[1]] == ["a", "b"]
        else:
            assert ours == own
    found[5] += 1  # it is the user's
    assert found[5][0, 1] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_the_stream_is_raised_by_iter(kind: str) -> None:
    stream = PrefetchingStream(Broken().transform(str), worker_type=kind)
    with pytest.raises(OSError, match="no such corpus"):
        iter(stream)
    with pytest.raises(TypeError, match="not iterable"):
        iter(PrefetchingStream(3, worker_type=kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_an_item_is_raised_in_its_place(kind: str) -> None:
    items = iter(PrefetchingStream(Failing(), 4, kind))
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="third"):
        next(items)
    assert list(items) == []


def test_an_item_that_cannot_be_pickled_is_an_error_in_its_place() -> None:
    items = iter(PrefetchingStream([1, lambda: 3, 2], worker_type="process"))
    assert next(items) == 1
    with pytest.raises(Exception, match=r"(?i)can't pickle|pickle"):
        next(items)
    assert list(items) == [2]


def test_a_process_that_dies_is_an_error() -> None:
    class Dying(DataStream):
        def __iter__(self) -> Iterator[Any]:
            yield 1
            os._exit(3)

    items = iter(PrefetchingStream(Dying(), worker_type="process"))
    assert next(items) == 1
    with pytest.raises(WorkerDied, match="exit code 3"):
        next(items)


@pytest.mark.parametrize("ahead", [1, 3])
def test_no_more_items_are_made_ahead_than_asked_for(ahead: int) -> None:
    made, taken, most = threading.Semaphore(0), 0, 0

    def source() -> Iterator[int]:
        nonlocal most
        for number in range(30):
            most = max(most, number - taken)
            made.release()
            yield number

    for number in PrefetchingStream(source(), ahead):
        taken = number + 1
        if number == 0:
            assert made.acquire(timeout=BOUND_S)
        if number < 30 - ahead:
            assert made.acquire(timeout=BOUND_S)  # while the consumer holds this item
    assert ahead - 1 <= most <= ahead


def test_a_process_is_seeded_by_what_its_caller_draws() -> None:
    random.seed(3), np.random.seed(4)
    (found,) = PrefetchingStream(Draws(), worker_type="process")
    python_seed = random.Random(3).getrandbits(32)
    numpy_seed = np.random.RandomState(4).randint(0, 2**31 - 1)
    own = random.Random(python_seed).random(), np.random.RandomState(numpy_seed).rand()
    assert found == (*own, None)


def test_a_thread_has_generators_of_its_own_that_its_caller_seeds() -> None:
    found = []
    for seed in (3, 3, 4):
        random.seed(seed), np.random.seed(seed)
        found += [drawn[2] for drawn in PrefetchingStream(Draws())]
    assert found[0] == found[1] != found[2]
    expected = np.random.RandomState(4)
    expected.randint(0, 2**31 - 1)
    assert drawn_after_one(4) == expected.rand()


def drawn_after_one(seed: int) -> float:
    """Draw after an iteration began and ended: only its seed was drawn."""
    np.random.seed(seed)
    list(PrefetchingStream([1, 2]))
    return np.random.rand()


@pytest.mark.parametrize("kind", KINDS)
def test_03_an_abandoned_iterator_leaves_nothing_behind(kind: str) -> None:
    for number in PrefetchingStream(SimpleDataStream(range(1000)), 4, kind):
        if number == 3:
            break
    unused = iter(PrefetchingStream(range(1000), 2, kind))
    pair = [iter(PrefetchingStream(range(3), 1, kind)) for _ in range(2)]
    assert list(zip(*pair, strict=True)) == [(0, 0), (1, 1), (2, 2)]
    failing = iter(PrefetchingStream(Failing(), 2, kind))
    with pytest.raises(KeyError):
        list(failing)
    del unused, pair, failing
    gc.collect()  # and the ledger looks for threads, processes and descriptors


def test_an_item_is_freed_when_it_is_dropped() -> None:
    items = iter(PrefetchingStream(SimpleDataStream([{1}, {2}, {3}]).transform(frozenset)))
    kept = weakref.ref(next(items))
    assert kept() is None
    del items


def test_03_a_program_ends_with_iterators_that_live() -> None:
    program = """
from reader.compat.gluon.nlp.prefetching_stream import PrefetchingStream
kept = [iter(PrefetchingStream(range(9**9), 2, kind)) for kind in ("thread", "process")]
print([next(each) for each in kept])
"""
    run = [sys.executable, "-c", program]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[0, 0]\n", "")


def test_streams_can_be_read_ahead_in_turn() -> None:
    inner = PrefetchingStream(SimpleDataStream(range(5)), 2)
    outer = PrefetchingStream(inner.transform(lambda item: item * 2), 2)
    assert list(outer) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"num_prefetch": 0}, ValueError, "^num_prefetch must be greater 0. Got 0"),
        ({"num_prefetch": -1}, ValueError, "^num_prefetch must be greater 0. Got -1"),
        ({"num_prefetch": 1.5}, TypeError, "num_prefetch must be an int"),
        ({"worker_type": "fiber"}, AssertionError, "worker_type must be 'thread' or 'process'"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        PrefetchingStream([1], **options)
