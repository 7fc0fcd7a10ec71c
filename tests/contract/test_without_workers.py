"""Without workers the loop's own thread makes each batch: its context, its memory, its frames."""

from __future__ import annotations

import contextvars
import dataclasses
import os
import signal
import sqlite3
import threading
import time
import traceback
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from reader import (
    CollateError,
    DataLoader,
    IterableDataset,
    LoadTimeout,
    ReaderError,
    concat_ragged,
    get_worker_info,
)
from reader._core.memory.arena import ledger
from tests.datasets import Calls
from tests.streams import Sharded

THREAD = {"num_workers": 1, "worker_type": "thread"}
COLLATES = [None, np.stack]
name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Record:
    x: Any
    name: str


class Array(np.ndarray[Any, Any]):
    pass


class Numbers(IterableDataset[Any]):
    """Eight numbers; an iterator that can go on after an exception."""

    def __init__(self, before: Any = lambda number: None) -> None:
        self.before = before
        self.next = 0

    def __iter__(self) -> Any:
        self.next = 0
        return self

    def __next__(self) -> Any:
        if self.next == 8:
            raise StopIteration
        self.before(self.next)
        self.next += 1
        return np.int64(self.next - 1)


class Made(IterableDataset[Any]):
    """Three samples, each made when it is drawn."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __iter__(self) -> Any:
        return map(self.make, range(3))


@pytest.mark.parametrize("collate_fn", COLLATES)
@pytest.mark.parametrize("is_stream", [False, True], ids=["map", "stream"])
def test_dataset_runs_in_the_thread_that_asks_and_not_before(
    collate_fn: Any, is_stream: bool
) -> None:
    seen: list[int] = []

    def note(number: int) -> np.int64:
        seen.append(threading.get_ident())
        return np.int64(number)

    dataset: Any = Numbers(note) if is_stream else Calls(note, 8)
    batches = iter(DataLoader(dataset, batch_size=4, collate_fn=collate_fn))
    assert next(batches).tolist() == [0, 1, 2, 3]
    assert seen == [threading.get_ident()] * 4
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(next(batches)))
    thread.start()
    thread.join()
    assert others[0].tolist() == [4, 5, 6, 7]
    assert seen[4:] == [thread.ident] * 4


def test_dataset_sees_and_changes_the_context_of_the_loop() -> None:
    def visit(index: int) -> str:
        before = name.get()
        name.set(f"sample {index}")
        return before

    token = name.set("loop")
    try:
        batches = iter(DataLoader(Calls(visit, 4), batch_size=2))
        assert next(batches) == ["loop", "sample 0"]
        assert name.get() == "sample 1"
        name.set("again")
        assert next(batches) == ["again", "sample 2"]
    finally:
        name.reset(token)


def test_worker_threads_run_in_a_copy_of_the_context_that_made_the_iterator() -> None:
    def visit(index: int) -> str:
        before = name.get()
        name.set("worker")
        return before

    token = name.set("loop")
    try:
        with DataLoader(Calls(visit, 2), num_workers=2, worker_type="thread") as loader:
            assert list(loader) == [["loop"], ["loop"]]
            assert name.get() == "loop"
            name.set("later")  # each epoch starts threads of its own
            assert list(loader) == [["later"], ["later"]]
    finally:
        name.reset(token)


def test_error_state_of_numpy_holds_in_the_dataset() -> None:
    loader = DataLoader(Calls(lambda _: np.float64(1) / np.float64(0), 1))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        next(iter(loader))
    with np.errstate(divide="ignore"):
        assert next(iter(loader)).tolist() == [np.inf]


def test_grad_mode_of_torch_holds_in_the_dataset_and_collate_fn() -> None:
    torch = pytest.importorskip("torch")
    loader = DataLoader(
        Calls(lambda _: torch.is_grad_enabled(), 1),
        collate_fn=lambda samples: (*samples, torch.is_grad_enabled()),
    )
    with torch.no_grad():
        assert next(iter(loader)) == (False, False)
    assert next(iter(loader)) == (True, True)


def test_connection_that_belongs_to_the_thread_of_the_loop_can_be_used() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table t (id integer, word text)")
        connection.executemany("insert into t values (?, ?)", [(0, "a"), (1, "b")])
        query = "select word from t where id = ?"
        dataset = Calls(lambda index: connection.execute(query, (index,)).fetchone()[0], 2)
        assert list(DataLoader(dataset, batch_size=2)) == [["a", "b"]]
    connection.close()


def test_10_traceback_leads_from_the_loop_to_the_line_that_raised() -> None:
    def fail(index: int) -> Any:
        raise KeyError(f"no sample {index}")

    with pytest.raises(KeyError) as caught:
        next(iter(DataLoader(Calls(fail, 1))))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0] == "test_10_traceback_leads_from_the_loop_to_the_line_that_raised"
    assert frames[-1] == "fail"


# -- what a collate_fn returns --------------------------------------------------------------------


def described(value: Any) -> Any:
    """Return types, layouts and values of a batch, to be compared."""
    if isinstance(value, dict):
        return type(value), [(key, described(value[key])) for key in value]
    if isinstance(value, (list, tuple)):
        return type(value), [described(part) for part in value]
    if isinstance(value, Record):
        return Record, described(value.x), value.name
    if hasattr(value, "lod"):
        return type(value), value.lod, value.numpy().tolist()
    if isinstance(value, np.ndarray):
        flags = value.flags
        its = (value.dtype, value.dtype.byteorder, value.shape, flags.c_contiguous, flags.writeable)
        return type(value), its, value.tobytes() if not value.dtype.hasobject else value.tolist()
    if hasattr(value, "requires_grad"):
        strides = value.stride() if value.numel() else ()
        its = (value.dtype, value.shape, strides, value.requires_grad)
        return type(value), its, value.tolist()
    return type(value), value


def shapes_of_batches(library: Any) -> dict[str, Any]:
    """Return what makes a batch of each form; `library`: torch, or None."""
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    frozen = np.arange(3)
    frozen.flags.writeable = False
    made: dict[str, Any] = {
        "array": lambda: grid.copy(),
        "dict": lambda: {"x": grid + 1, 5: [grid * 2, "text", None]},
        "ordered": lambda: OrderedDict(b=grid + 1, a=(1, 2.5, True)),
        "namedtuple": lambda: Pair(grid + 1, {"deep": (np.arange(2),)}),
        "dataclass": lambda: Record(grid + 1, "one"),
        "no arrays": lambda: {"words": ["a", "b"], "n": 3},
        "none": lambda: None,
        "text": lambda: "text",
        "scalars": lambda: [np.float32(1), np.int64(2), np.bool_(True)],
        "empty": lambda: (np.empty((0, 3)), [], {}, ()),
        "zero-d": lambda: {"x": np.array(3.5)},
        "reversed": lambda: grid[::-1, ::2],
        "fortran": lambda: np.asfortranarray(grid),
        "big-endian": lambda: grid.astype(">f4"),
        "read-only": lambda: frozen,
        "subclass": lambda: grid.view(Array),
        "strings": lambda: np.array(["a", "bcd"]),
        "dates": lambda: np.array(["2020-01-01"], "M8[D]"),
        "records": lambda: np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        "objects": lambda: np.array([{}, None], object),
        "masked": lambda: [np.ma.masked_array([1, 2], [True, False])],
        "complex": lambda: np.array([1 + 2j]),
        "half": lambda: np.ones(2, np.float16),
    }
    if library is not None:
        made |= {
            "tensors": lambda: {"x": library.arange(3), "y": [library.ones(2, 2)]},
            "transposed": lambda: library.arange(6).reshape(2, 3).T,
            "gradient": lambda: library.ones(2, requires_grad=True),
            "parameter": lambda: library.nn.Parameter(library.ones(2)),
            "conjugate": lambda: library.tensor([1 + 2j]).conj(),
            "bfloat16": lambda: library.ones(3, dtype=library.bfloat16),
            "row": lambda: library.ones(3, 2)[1],
        }
    return made


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
def test_06_result_of_collate_fn_arrives_as_from_a_worker_thread(framework: str) -> None:
    pytest.importorskip(framework)
    torch = pytest.importorskip("torch")
    for form, make in shapes_of_batches(None if framework == "paddle" else torch).items():
        if framework == "numpy" and form == "bfloat16":
            continue  # needs another library
        got = []
        for workers in ({"num_workers": 0}, THREAD):
            with DataLoader(
                range(1), framework=framework, collate_fn=lambda _, make=make: make(), **workers
            ) as loader:
                got.append(repr(described(next(iter(loader)))))
        assert got[0] == got[1], form


def test_06_ragged_result_arrives_with_its_lod() -> None:
    rows = [np.arange(n) for n in (3, 1)]
    batch = next(iter(DataLoader(rows, batch_size=2, collate_fn=concat_ragged)))
    assert (batch.numpy().tolist(), batch.lod) == ([0, 1, 2, 0], [[0, 3, 4]])


def test_batch_that_contains_itself_in_a_tuple_is_refused() -> None:
    def knot(samples: list[Any]) -> Any:
        samples.append((np.zeros(2), samples))
        return samples[-1]

    with pytest.raises(CollateError, match="contains itself and is no plain list or dict"):
        next(iter(DataLoader(range(2), collate_fn=knot)))


def test_batch_that_is_nested_too_deep_is_refused() -> None:
    def knot(samples: list[Any]) -> Any:
        for _ in range(101):
            samples = [samples]
        return samples

    with pytest.raises(CollateError, match="nested deeper than 100 levels"):
        next(iter(DataLoader(range(2), collate_fn=knot)))


@pytest.mark.parametrize("is_stream", [False, True], ids=["map", "stream"])
def test_arrays_that_only_the_batch_refers_to_are_not_copied(is_stream: bool) -> None:
    torch = pytest.importorskip("torch")
    places: list[int] = []

    def collate(_: Any) -> Any:
        made = {"a": np.ones(4), "t": (torch.ones(4), torch.ones(4)), "v": np.ones(4).reshape(2, 2)}
        tensors: Any = made["t"]
        places[:] = [made["a"].ctypes.data, *(t.data_ptr() for t in tensors)]  # type: ignore[attr-defined]
        places.append(made["v"].ctypes.data)  # type: ignore[attr-defined]
        return made

    dataset: Any = Numbers() if is_stream else range(8)
    batch = next(iter(DataLoader(dataset, collate_fn=collate, framework="torch")))
    found = [batch["a"].data_ptr(), *(t.data_ptr() for t in batch["t"]), batch["v"].data_ptr()]
    assert found == places


@pytest.mark.parametrize("is_stream", [False, True], ids=["map", "stream"])
def test_sample_that_nothing_else_refers_to_is_not_copied(is_stream: bool) -> None:
    """Without batching a sample is the batch; one that shares its memory is copied."""
    torch = pytest.importorskip("torch")
    kept = torch.zeros(6)
    # an older torch does not say who else has a tensor's memory, and each is copied
    is_told = hasattr(torch._C, "_storage_Use_Count")
    ways: dict[str, tuple[Any, bool]] = {
        "array": (lambda: np.ones(4), True),
        "pair": (lambda: (np.ones(4), 1), True),
        "tensor": (lambda: torch.ones(4), is_told),
        "field": (lambda: {"x": torch.ones(4)}, is_told),
        "reshaped array": (lambda: np.ones(4).reshape(2, 2), True),
        "array's tensor": (lambda: torch.from_numpy(np.ones(4)), False),
        "kept tensor": (lambda: kept, False),
        "row": (lambda: kept[:4], False),
        "detached": (lambda: kept.detach(), False),
        "buffer": (lambda: np.frombuffer(b"12345678"), False),
        "kept pair": (kept_value((np.ones(4), torch.ones(4))), False),
        "kept dict": (kept_value({"x": torch.ones(4)}), False),
        "kept list": (kept_value({"x": [np.ones(4)]}), False),
        "kept record": (kept_value(Record(np.ones(4), "one")), False),
        "kept named pair": (kept_value(Pair(torch.ones(4), 1)), False),
        "record": (lambda: Pair(torch.ones(4), {"x": np.ones(2)}), is_told),
    }
    for name, (make, is_same) in ways.items():
        places: list[int] = []

        def sample(_: int, make: Any = make, places: list[int] = places) -> Any:
            made = make()
            places.append(address(made))
            return made

        dataset: Any = Made(sample) if is_stream else Calls(sample, 3)
        collates = [None, lambda sample: sample, lambda sample: {"of": sample}]
        # a collated tensor that shares memory without being a view keeps sharing it
        for collate in collates if name not in ("array's tensor", "detached") else [None]:
            places.clear()
            loader = DataLoader(dataset, batch_size=None, collate_fn=collate, framework="torch")
            found = [address(batch) for batch in loader]
            assert [a == b for a, b in zip(found, places, strict=True)] == [is_same] * 3, name


def kept_value(value: Any) -> Any:
    """Return a function that returns the same value each time."""
    return lambda: value


def address(value: Any) -> int:
    """Where the first array or tensor of a sample lies."""
    while isinstance(value, (dict, tuple, list, Record)):
        if isinstance(value, Record):
            value = value.x
        else:
            value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return int(value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr())


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_02_change_of_a_batch_changes_no_dataset(framework: str) -> None:
    torch = pytest.importorskip("torch")
    arrays, tensors = np.zeros((4, 3)), torch.zeros(4, 3)
    kept = np.zeros(3)
    ways: list[dict[str, Any]] = [
        {"batch_size": None},
        {"batch_size": 2},
        {"batch_size": None, "collate_fn": lambda sample: sample},
        {"collate_fn": lambda samples: samples[0]},
        {"collate_fn": lambda samples: {"samples": samples}},
        {"collate_fn": lambda _: [kept, kept]},
    ]
    for options in ways:
        for dataset in (arrays, tensors, list(arrays), list(tensors), Numbers()):
            for batch in DataLoader(dataset, framework=framework, **options):
                parts = [batch]
                while parts:
                    part = parts.pop()
                    if isinstance(part, (dict, list)):
                        parts += part.values() if isinstance(part, dict) else part
                    elif isinstance(part, np.ndarray) or torch.is_tensor(part):
                        part += 1
    assert not arrays.any()
    assert not tensors.any()
    assert not kept.any()


# -- interrupts, ends, memory ---------------------------------------------------------------------


@pytest.mark.parametrize("collate_fn", COLLATES)
def test_04_ctrl_c_in_a_stream_loses_no_sample(collate_fn: Any) -> None:
    at = [2, 5, 5]

    def interrupt(number: int) -> None:
        if at and at[0] == number:
            at.pop(0)
            signal.raise_signal(signal.SIGINT)

    batches = iter(DataLoader(Numbers(interrupt), batch_size=4, collate_fn=collate_fn))
    found: list[int] = []
    interrupts = 0
    while True:
        try:
            found += next(batches).tolist()
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert (found, interrupts, at) == (list(range(8)), 3, [])


def test_04_batch_that_took_too_long_is_reported_and_then_delivered() -> None:
    batches = iter(DataLoader(Calls(lambda i: time.sleep(0.02) or i, 2), timeout=0.01))
    with pytest.raises(LoadTimeout, match=r"the thread that iterates .* made it in"):
        next(batches)
    assert next(batches).tolist() == [0]


def test_dataset_that_asks_its_own_iterator_gets_an_error() -> None:
    made: list[Any] = []
    batches = iter(DataLoader(Calls(lambda _: next(made[0]), 2)))
    made.append(batches)
    with pytest.raises(ReaderError, match="a loader of its own"):
        next(batches)


@pytest.mark.parametrize("who", ["the dataset", "another thread"])
def test_close_while_a_batch_is_made_ends_the_epoch_when_the_sample_is_there(who: str) -> None:
    def close(index: int) -> int:
        if index == 2 and who == "the dataset":
            loader.close()
        elif index == 2:
            thread = threading.Thread(target=loader.close)
            thread.start()
            thread.join()  # it waits for nobody
        return index

    loader = DataLoader(Calls(close, 8), batch_size=4)
    before = ledger()
    batches = iter(loader)
    with pytest.raises(ReaderError, match="was closed after 0 batches"):
        next(batches)
    assert ledger() == before


def test_iterator_with_an_arena_is_refused_in_a_fork_and_goes_on_in_the_parent() -> None:
    batches = iter(DataLoader(np.arange(8), batch_size=4))
    first = next(batches)
    pid = os.fork()
    if pid == 0:
        try:
            next(batches)
        except ReaderError as error:
            os._exit(0 if "iter(loader), after the fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert [first.tolist(), next(batches).tolist()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_03_memory_without_workers_has_no_descriptor_and_is_freed_by_close() -> None:
    before, files = ledger(), len(os.listdir("/proc/self/fd"))
    loader = DataLoader(np.zeros((8, 100)), batch_size=4)
    for _ in range(3):
        for batch in loader:
            assert batch.shape == (4, 100)
            assert len(os.listdir("/proc/self/fd")) == files
    assert ledger()["arenas"] == before["arenas"] + 1
    del batch
    loader.close()
    assert ledger() == before
    assert len(list(loader)) == 2
    seen = weakref.ref(loader)
    del loader
    assert seen() is None
    assert ledger() == before


def test_two_concurrent_streams_keep_their_own_shares() -> None:
    loaders = [DataLoader(Sharded(count), batch_size=2) for count in (8, 6)]
    firsts = [next(batches) for batches in [iter(loader) for loader in loaders]]
    assert [first.tolist() for first in firsts] == [[0, 1], [0, 1]]
    for loader, wanted in zip(loaders, [[2, 3, 4, 5, 6, 7], [2, 3, 4, 5]], strict=True):
        again = DataLoader(loader.dataset, batch_size=2, **THREAD)
        again.load_state_dict(loader.state_dict())
        with again:
            assert np.concatenate(list(again)).tolist() == wanted


def test_a_loader_within_a_worker_has_no_worker_info_of_its_own() -> None:
    def inner(_: int) -> Any:
        loader = DataLoader(Calls(lambda _: get_worker_info() is None, 2), batch_size=2)
        inside = next(iter(loader)).tolist()
        info = get_worker_info()
        return [*inside, info is not None and info.id == 0]

    with DataLoader(Calls(inner, 1), batch_size=None, **THREAD) as loader:
        assert next(iter(loader)) == [True, True, True]


def test_lists_of_a_batch_sampler_stay_when_a_dataset_changes_its_keys() -> None:
    class Sorting:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, key: int) -> int:
            raise AssertionError("samples are fetched many at once")

        def __getitems__(self, keys: list[int]) -> list[int]:
            keys.sort()
            return [keys.pop(0) for _ in range(len(keys))]

    order = [[3, 1], [2, 0], [7, 4]]
    loader = DataLoader(Sorting(), batch_sampler=order)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[1, 3], [0, 2], [4, 7]]
    assert order == [[3, 1], [2, 0], [7, 4]]


def test_the_wait_for_a_sample_that_raises_is_counted() -> None:
    def get(index: int) -> int:
        if index == 2:
            threading.Event().wait(0.02)
            raise LookupError(index)
        return index

    loader = DataLoader(Calls(get, 4), batch_size=1)
    batches = iter(loader)
    next(batches)
    next(batches)
    with pytest.raises(LookupError):
        next(batches)
    assert loader.stats()["last_wait_s"] >= 0.02
    assert next(batches).tolist() == [3]
    assert loader.stats()["last_wait_s"] < 0.02
