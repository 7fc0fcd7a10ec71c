"""Iterable loaders of generators, under Paddle's names: what they yield, refuse and leave."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.base import core

from reader import CollateError, ConfigError, LoDTensor, WorkerDied
from reader.compat.paddle import ArgumentError, PyReader
from reader.compat.paddle.generator import GeneratorLoader, from_generator
from reader.compat.paddle.process_reader import multiprocess_reader
from reader.errors import ConfigTypeError, DatasetError
from reader.frameworks.paddle_version import DenseTensor
from tests.contract.feeding import CPU, inputs
from tests.processes import BOUND_S, wait_until


@pytest.fixture
def static() -> Iterator[None]:
    """Static mode, with a main program of the test's own."""
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            yield
    finally:
        paddle.disable_static()


def samples(count: int) -> Callable[[], Iterator[Any]]:
    return lambda: ((np.full(3, n, np.float64), n) for n in range(count))


def sample_lists(count: int, size: int) -> Callable[[], Iterator[Any]]:
    rows = list(samples(count)())
    return lambda: (rows[n : n + size] for n in range(0, count, size))


def batches(count: int) -> Callable[[], Iterator[Any]]:
    return lambda: (
        (np.full((2, 3), n, np.float32), np.full((2, 1), n, np.int64)) for n in range(count)
    )


def plain(value: Any) -> Any:
    """Batches as nested lists of numbers, for comparing."""
    if isinstance(value, dict):
        return {name: plain(child) for name, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list) else value_of(value)


def value_of(tensor: Any) -> Any:
    return np.array(tensor).tolist()


def first_numbers(loader: Any) -> list[float]:
    """The first number of each batch of a loader with one place."""
    return [float(np.array(batch[0]["x"]).flat[0]) for batch in loader]


# ---- what is yielded -------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [True, False])
def test_sample_generator_and_list_generator_give_equal_batches(
    static: None, process: bool, drop_last: bool
) -> None:
    feed_list = inputs()
    one = from_generator(feed_list, capacity=2, use_multiprocess=process)
    one.set_sample_generator(samples(7), 2, drop_last, CPU)
    other = from_generator(feed_list, capacity=2, use_multiprocess=process)
    other.set_sample_list_generator(sample_lists(6 if drop_last else 7, 2), CPU)
    found = plain(list(one))
    assert found == plain(list(other))
    assert len(found) == (3 if drop_last else 4)
    assert found[1] == [{"x": [[2.0] * 3, [3.0] * 3], "y": [[2], [3]]}]


def test_batch_is_a_list_of_dicts_of_dense_tensors_also_for_one_place(
    static: None, process: bool
) -> None:
    loader = from_generator(inputs(), capacity=2, use_multiprocess=process)
    assert loader.set_batch_generator(batches(2), CPU) is loader
    for batch in loader:
        assert type(batch) is list
        assert [list(feed) for feed in batch] == [["x", "y"]]
        for tensor in batch[0].values():
            assert type(tensor) is DenseTensor
            assert tensor._place().is_cpu_place()
        assert batch[0]["x"].shape() == [2, 3]


def test_return_list_gives_a_list_of_lists_also_for_one_place(static: None, process: bool) -> None:
    loader = from_generator(inputs(), capacity=2, return_list=True, use_multiprocess=process)
    loader.set_batch_generator(batches(2), CPU)
    assert plain(list(loader)) == [[[[[n] * 3] * 2, [[n]] * 2]] for n in range(2)]


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [2, 2]), (False, [2, 2, 1])])
@pytest.mark.parametrize("return_list", [True, False])
def test_places_get_groups_in_order_and_drop_last_is_about_the_group(
    static: None, process: bool, return_list: bool, drop_last: bool, sizes: list[int]
) -> None:
    loader = from_generator(
        inputs(), 2, return_list=return_list, use_multiprocess=process, drop_last=drop_last
    )
    loader.set_batch_generator(batches(5), [CPU, CPU])
    for _ in range(2):
        groups = list(loader)
        assert [len(group) for group in groups] == sizes
        firsts = [part[0] if return_list else part["x"] for group in groups for part in group]
        assert [np.array(first)[0, 0] for first in firsts] == list(range(sum(sizes)))


def test_data_is_converted_and_reshaped_as_declared(static: None, process: bool) -> None:
    x = paddle.static.data("x", [None, 2, 3], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    for setter, generator in (
        ("set_sample_list_generator", lambda: iter([[(list(range(6)), 1.9), (range(6), 2)]])),
        ("set_batch_generator", lambda: iter([(np.arange(12).reshape(2, 6) % 6, [1, 2])])),
    ):
        loader = from_generator([x, y], 2, use_multiprocess=process)
        getattr(loader, setter)(generator, CPU)
        (((feed),),) = list(loader)
        assert (feed["x"].shape(), feed["x"]._dtype()) == ([2, 2, 3], core.VarDesc.VarType.FP32)
        assert value_of(feed["x"])[0] == [[0, 1, 2], [3, 4, 5]]
        assert (feed["y"].shape(), value_of(feed["y"])) == ([2, 1], [[1], [2]])


def test_bfloat16_variable_gets_rounded_numbers_or_the_bits(static: None, process: bool) -> None:
    x = paddle.static.data("x", [None, 2], "bfloat16")
    bits = np.array([[0x3F80, 0x4000]], np.uint16)  # 1 and 2
    loader = from_generator([x], 2, use_multiprocess=process)
    loader.set_batch_generator(lambda: iter([[bits], [np.array([[1.0, 2.0]])]]), CPU)
    for ((feed),) in loader:
        assert feed["x"]._dtype() == core.VarDesc.VarType.BF16
        assert value_of(feed["x"]) == bits.tolist()
    loader.set_sample_generator(lambda: iter([([1.00390625, float("nan")],)]), 1, places=CPU)
    (((feed),),) = list(loader)
    assert value_of(feed["x"]) == [[0x3F80, 0x7FC0]]  # half way: to even


def test_dicts_are_matched_by_name(static: None, process: bool) -> None:
    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_sample_generator(lambda: ({"y": n, "x": [n, n, n]} for n in range(4)), 2, places=CPU)
    assert plain(list(loader))[0] == [{"x": [[0.0] * 3, [1.0] * 3], "y": [[0], [1]]}]
    loader.set_batch_generator(lambda: ({"y": [[n]], "x": [[n] * 3]} for n in range(2)), CPU)
    assert plain(list(loader))[1] == [{"x": [[1.0] * 3], "y": [[1]]}]


def test_array_that_the_generator_uses_again_does_not_change_batches(
    static: None, process: bool
) -> None:
    def generator() -> Iterator[Any]:
        x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.int64)
        for n in range(6):
            x[:], y[:] = n, n
            yield x, y

    loader = from_generator(inputs(), 6, use_multiprocess=process)
    loader.set_batch_generator(generator, CPU)
    assert first_numbers(list(loader)) == list(range(6))


def test_batch_lives_as_long_as_it_is_kept(static: None, process: bool) -> None:
    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(batches(20), CPU)
    kept = list(loader)
    del loader
    gc.collect()
    assert first_numbers(kept) == list(range(20))


def test_arrays_without_elements_pass(static: None, process: bool) -> None:
    x = paddle.static.data("x", [None, 0], "float32")
    loader = from_generator([x], 2, use_multiprocess=process)
    loader.set_batch_generator(lambda: iter([[np.zeros((2, 0), np.float32)]]), CPU)
    (((feed),),) = list(loader)
    assert feed["x"].shape() == [2, 0]


def test_dense_tensor_passes_as_it_is(static: None, process: bool) -> None:
    def generator() -> Iterator[Any]:
        tensor = DenseTensor()
        tensor.set(np.ones((3, 3), np.float32), core.CPUPlace())
        tensor.set_lod([[0, 1, 3]])
        yield tensor, LoDTensor(np.arange(3).reshape(3, 1), [[0, 2, 3]])

    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(generator, CPU)
    (((feed),),) = list(loader)
    assert (value_of(feed["x"]), feed["x"].lod()) == ([[1.0] * 3] * 3, [[0, 1, 3]])
    assert (value_of(feed["y"]), feed["y"].lod()) == ([[0], [1], [2]], [[0, 2, 3]])


# ---- LoD -------------------------------------------------------------------------------------


@pytest.mark.parametrize("setter", ["set_sample_generator", "set_sample_list_generator"])
def test_ragged_samples_are_concatenated_where_the_variable_has_lod(
    old_ir: None, process: bool, setter: str
) -> None:
    word = paddle.static.data("word", [None, 1], "int64", lod_level=1)
    label = paddle.static.data("label", [None, 1], "int64")
    rows = [([1, 2, 3], 0), ([4], 1), ([], 2), (np.array([5, 6]), 3)]
    loader = from_generator([word, label], 2, use_multiprocess=process)
    if setter == "set_sample_generator":
        loader.set_sample_generator(lambda: iter(rows), 4, places=CPU)
    else:
        loader.set_sample_list_generator(lambda: iter([rows]), CPU)
    (((feed),),) = list(loader)
    assert value_of(feed["word"]) == [[1], [2], [3], [4], [5], [6]]
    assert feed["word"].lod() == [[0, 3, 4, 4, 6]]
    assert (value_of(feed["label"]), feed["label"].lod()) == ([[0], [1], [2], [3]], [])


def test_two_levels_of_lod_and_rows_that_are_vectors(old_ir: None, process: bool) -> None:
    x = paddle.static.data("x", [None, 2], "float32", lod_level=2)
    rows = [([[[1, 1], [2, 2]], [[3, 3]]],), ([[[4, 4]]],)]
    loader = from_generator([x], 2, use_multiprocess=process)
    loader.set_sample_list_generator(lambda: iter([rows]), CPU)
    (((feed),),) = list(loader)
    assert value_of(feed["x"]) == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert feed["x"].lod() == [[0, 2, 3], [0, 2, 3, 4]]


def test_sequences_that_are_all_empty_keep_the_declared_width(old_ir: None, process: bool) -> None:
    x = paddle.static.data("x", [None, 2], "float32", lod_level=1)
    loader = from_generator([x], 2, use_multiprocess=process)
    loader.set_sample_list_generator(lambda: iter([[([],), ([],)]]), CPU)
    (((feed),),) = list(loader)
    assert feed["x"].shape() == [0, 2]


def test_sequences_of_unequal_items_are_refused_by_name(old_ir: None) -> None:
    x = paddle.static.data("x", [None, 2], "float32", lod_level=1)
    loader = from_generator([x], 2)
    loader.set_sample_list_generator(lambda: iter([[([[1, 1]],), ([[1, 1, 1]],)]]), CPU)
    with pytest.raises(CollateError, match=r"'x' .lod_level=1. cannot be concatenated"):
        list(loader)


# ---- data that does not fit --------------------------------------------------------------------


BAD_LISTS: dict[str, tuple[Any, type[BaseException], str]] = {
    "shape": ([([1, 2], 0)], CollateError, "Shape not match. What is defined in data layer is"),
    "shape names": (
        [([1, 2], 0)],
        CollateError,
        r"receive \(1, 2\) for variable 'x'",
    ),
    "reshape": ([([[1, 2], [3, 4]], 0)], CollateError, "Reshape error. What is defined in data"),
    "ragged": ([([1, 2, 3], 0), ([1], 0)], CollateError, "'x' are ragged: sample 1 .*has shape"),
    "ragged inside": (
        [([[1], [2, 3]], 0)],
        CollateError,
        "'x' are ragged: sample 0 .*itself",
    ),
    "text": ([("a", 0)], CollateError, "'x' cannot be converted to float32"),
    "too few": ([([1, 2, 3],)], CollateError, r"data \(1\) does not match len\(feed_list\) \(2\)"),
    "too many": ([([1, 2, 3], 0, 0)], CollateError, r"data \(3\) does not match len\(feed_list\)"),
    "number": ([5], CollateError, "sample 0 of the batch is 5 .int., and it must be a tuple"),
    "keys": ([{"x": [1, 2, 3], "z": 0}], CollateError, r"\['x', 'y'\] .*keys \['x', 'z'\]"),
    "empty": ([], CollateError, "an empty list, which is no batch"),
    "no list": (7, CollateError, "yielded 7 .int.; it must yield lists of samples"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_samples_that_do_not_fit_are_refused_after_the_good_batches(
    static: None, process: bool, case: str
) -> None:
    bad, kind, text = BAD_LISTS[case]
    good = [([1, 2, 3], 0)]
    loader = from_generator(inputs(), 4, use_multiprocess=process)
    loader.set_sample_list_generator(lambda: iter([good, good, bad, good]), CPU)
    seen = []
    with pytest.raises(kind, match=text):
        seen.extend(loader)
    assert len(seen) == 2 or seen == []
    got = iter(loader)
    assert [len(next(got)), len(next(got))] == [1, 1]
    with pytest.raises(kind, match=text):
        next(got)
    with pytest.raises(StopIteration):
        next(got)


def dense(array: Any) -> Any:
    tensor = DenseTensor()
    tensor.set(array, core.CPUPlace())
    return tensor


Y = np.zeros((2, 1), np.int64)
BAD_BATCHES: dict[str, tuple[Callable[[], Any], type[BaseException], str]] = {
    "shape": (lambda: (np.zeros((2, 4), np.float32), Y), CollateError, "Shape not match. .*'x'"),
    "lossy": (
        lambda: (np.zeros((2, 3)), np.zeros((2, 1))),
        TypeError,
        "The data type of fed Variable 'y' must be 'int64', but received 'float64'",
    ),
    "dense dtype": (
        lambda: (dense(np.zeros((2, 3))), Y),
        TypeError,
        "The data type of fed Variable 'x' must be 'float32', but received 'float64' in a Dense",
    ),
    "dense shape": (lambda: (dense(np.zeros((2, 4), "f4")), Y), CollateError, "Shape not match"),
    "ragged": (lambda: ([[1, 2], [3]], Y), TypeError, "Failed to convert input data to a regular"),
    "object": (lambda: (object(), Y), TypeError, "Failed to convert input data to a regular"),
    "count": (
        lambda: (Y,),
        ValueError,
        "The sample number of reader's input data and the input number of feed list are not equal",
    ),
    "paddle.batch": (lambda: [([1, 2, 3], 0)] * 3, ValueError, "set_sample_list_generator"),
    "text": (lambda: "xy", ValueError, "must be a tuple or list with one value for each field"),
    "keys": (lambda: {"x": Y}, ValueError, r"feed_list names \['x', 'y'\] .* keys \['x'\]"),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_batches_that_do_not_fit_are_refused(static: None, process: bool, case: str) -> None:
    make, kind, text = BAD_BATCHES[case]
    loader = from_generator(inputs(), 4, use_multiprocess=process)
    loader.set_batch_generator(lambda: iter([make()]), CPU)
    with pytest.raises(kind, match=text) as caught:
        list(loader)
    assert isinstance(caught.value, DatasetError)


# ---- exceptions ------------------------------------------------------------------------------


class Mine(Exception):
    def __init__(self, where: str, number: int) -> None:
        super().__init__(f"{where}:{number}")
        self.number = number


@pytest.mark.parametrize("setter", ["sample", "list", "batch"])
def test_exception_of_the_generator_comes_after_the_good_batches_as_it_was_raised(
    static: None, process: bool, setter: str
) -> None:
    def failing(items: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
        def generator() -> Iterator[Any]:
            for n, item in enumerate(items()):
                if n == (6 if setter == "sample" else 3):
                    raise Mine("list.txt", n)
                yield item

        return generator

    loader = from_generator(inputs(), 8, use_multiprocess=process)
    if setter == "sample":
        loader.set_sample_generator(failing(samples(20)), 2, places=CPU)
    elif setter == "list":
        loader.set_sample_list_generator(failing(sample_lists(20, 2)), CPU)
    else:
        loader.set_batch_generator(failing(batches(20)), CPU)
    for _ in range(2):
        seen = []
        with pytest.raises(Mine) as caught:
            for batch in loader:
                seen.append(batch)  # noqa: PERF402
        assert caught.value.number in (3, 6)
        assert len(seen) == 3
        with pytest.raises(StopIteration):
            next(loader)


def test_exception_in_a_group_of_places_loses_no_batch(static: None, process: bool) -> None:
    def generator() -> Iterator[Any]:
        yield from batches(3)()
        raise Mine("here", 3)

    loader = from_generator(inputs(), 2, use_multiprocess=process, drop_last=False)
    loader.set_batch_generator(generator, [CPU, CPU])
    got = iter(loader)
    assert len(next(got)) == 2
    with pytest.raises(Mine):
        next(got)
    assert value_of(next(got)[0]["y"]) == [[2], [2]]
    with pytest.raises(StopIteration):
        next(got)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_exception_that_would_end_the_program_is_raised_as_an_error(
    static: None, process: bool, error: BaseException
) -> None:
    class Items:
        def __iter__(self) -> Items:
            return self

        def __next__(self) -> Any:
            raise error

    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(Items, CPU)
    with pytest.raises(DatasetError) as caught:
        list(loader)
    assert type(caught.value.__cause__) is type(error)


def test_function_that_returns_no_iterator_is_an_error(static: None, process: bool) -> None:
    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(lambda: 5, CPU)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="not iterable"):
        list(loader)


# ---- epochs and their ends ---------------------------------------------------------------------


def test_loader_is_its_own_iterator_and_iterating_again_begins_anew(
    static: None, process: bool
) -> None:
    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(batches(5), CPU)
    assert loader() is loader
    assert iter(loader) is loader
    next(loader)
    assert first_numbers(loader) == list(range(5))
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(loader)
    assert first_numbers(loader()) == list(range(5))


def test_generator_is_closed_when_the_loop_is_left(static: None) -> None:
    closed: list[int] = []

    def generator() -> Iterator[Any]:
        try:
            while True:
                yield from batches(3)()
        finally:
            closed.append(threading.get_ident())

    loader = from_generator(inputs(), 2)
    loader.set_batch_generator(generator, CPU)
    for _batch in loader:
        break
    loader.close()
    loader.close()
    wait_until(lambda: len(closed) == 1)
    next(iter(loader))
    iter(loader)
    wait_until(lambda: len(closed) == 2)
    next(loader)
    del loader, _batch
    gc.collect()
    wait_until(lambda: len(closed) == 3)
    assert threading.get_ident() not in closed


def test_context_manager_ends_the_epoch(static: None, process: bool) -> None:
    with from_generator(inputs(), 2, use_multiprocess=process) as loader:
        loader.set_batch_generator(batches(9), CPU)
        next(iter(loader))
    with pytest.raises(ArgumentError, match="no epoch is running"):
        next(loader)


def test_abandoned_process_ends(static: None) -> None:
    def generator() -> Iterator[Any]:
        while True:
            yield np.zeros((1, 3)), np.full((1, 1), os.getpid())

    loader = from_generator(inputs(), 2, use_multiprocess=True)
    loader.set_batch_generator(generator, CPU)
    pid = int(np.array(next(iter(loader))[0]["y"])[0, 0])
    assert pid != os.getpid()
    del loader
    gc.collect()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}") or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize("capacity", [1, 4])
@pytest.mark.parametrize("double", [False, True])
def test_capacity_bounds_the_batches_ahead(
    static: None, process: bool, capacity: int, double: bool
) -> None:
    drawn = mmap.mmap(-1, 8)  # shared with a forked process

    def generator() -> Iterator[Any]:
        for batch in batches(100)():
            drawn[0] += 1
            yield batch

    loader = from_generator(inputs(), capacity, double, use_multiprocess=process)
    loader.set_batch_generator(generator, CPU)
    for taken, _ in enumerate(loader, 1):
        most = taken + capacity + (2 if double and not process else 0)
        wait_until(lambda low=taken + capacity: drawn[0] >= low)  # type: ignore[misc]
        threading.Event().wait(0.02)
        assert drawn[0] <= most
        if taken == 3:
            break


def test_source_set_in_an_epoch_is_used_by_the_next_one(static: None) -> None:
    loader = from_generator(inputs(), 2)
    loader.set_batch_generator(batches(3), CPU)
    next(iter(loader))
    loader.set_batch_generator(batches(7), [CPU, CPU])
    assert [len(batch) for batch in loader] == [2, 2, 2]


def test_generator_runs_in_a_thread_of_the_trainer_or_in_one_process(
    static: None, process: bool
) -> None:
    def generator() -> Iterator[Any]:
        for _ in range(3):
            yield np.zeros((1, 3)), np.array([[os.getpid()]])

    loader = from_generator(inputs(), 2, use_multiprocess=process)
    loader.set_batch_generator(generator, CPU)
    pids = {int(np.array(batch[0]["y"])[0, 0]) for batch in loader}
    assert len(pids) == 1
    assert (pids == {os.getpid()}) is not process


def test_process_that_is_killed_is_reported_at_once_after_the_good_batches(static: None) -> None:
    def generator() -> Iterator[Any]:
        yield from batches(3)()
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches(3)()

    loader = from_generator(inputs(), 8, use_multiprocess=True)
    loader.set_batch_generator(generator, CPU)
    for _ in range(2):
        seen = []
        begun = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            seen.extend(float(np.array(batch[0]["x"])[0, 0]) for batch in loader)
        assert time.monotonic() - begun < BOUND_S
        assert seen == [0.0, 1.0, 2.0]


def test_two_concurrent_loaders_do_not_affect_each_other(static: None, process: bool) -> None:
    feed_list = inputs()
    one, other = (from_generator(feed_list, 2, use_multiprocess=process) for _ in range(2))
    one.set_batch_generator(batches(4), CPU)
    other.set_batch_generator(batches(4), CPU)
    for n, (a, b) in enumerate(zip(one, other)):
        assert value_of(a[0]["y"]) == value_of(b[0]["y"]) == [[n], [n]]


# ---- dynamic mode ------------------------------------------------------------------------------


@pytest.mark.parametrize("setter", ["sample", "list", "batch"])
def test_dynamic_mode_yields_lists_of_tensors_as_they_are(process: bool, setter: str) -> None:
    loader = from_generator(capacity=2, return_list=True, use_multiprocess=process)
    if setter == "sample":
        loader.set_sample_generator(samples(4), 2)
    elif setter == "list":
        loader.set_sample_list_generator(sample_lists(4, 2), CPU)
    else:
        rows = [[([2.0 * n] * 3, [2.0 * n + 1] * 3), [2 * n, 2 * n + 1]] for n in range(2)]
        loader.set_batch_generator(lambda: iter(rows), [CPU])
    for _ in range(2):
        found = list(loader)
        assert [type(batch) for batch in found] == [list, list]
        for n, (x, y) in enumerate(found):
            assert isinstance(x, paddle.Tensor)
            assert (x.dtype, x.shape, y.dtype, y.shape) == (
                paddle.float64,
                [2, 3],
                paddle.int64,
                [2],
            )
            assert x.stop_gradient
            assert x.numpy()[:, 0].tolist() == y.numpy().tolist() == [2 * n, 2 * n + 1]


def test_dynamic_mode_takes_tensors_and_does_not_share_them(process: bool) -> None:
    x = paddle.zeros([2, 2], "bfloat16")

    def generator() -> Iterator[Any]:
        for n in range(4):
            value = x if not process else core.eager.Tensor
            if not process:
                paddle.assign(paddle.full([2, 2], n, "bfloat16"), x)
                yield [value]
            else:
                bits = DenseTensor()
                bits.set(np.full((2, 2), np.float32(n).view(np.uint32) >> 16, np.uint16), CPU_CORE)
                yield [bits]

    loader = from_generator(capacity=8, return_list=True, use_multiprocess=process)
    loader.set_batch_generator(generator)
    found = [batch[0] for batch in loader]
    assert {tensor.dtype for tensor in found} == {paddle.bfloat16}
    assert [float(tensor.astype("float32").sum()) / 4 for tensor in found] == [0, 1, 2, 3]


CPU_CORE = core.CPUPlace()


def test_dynamic_mode_refuses_several_places_and_says_what_it_changes() -> None:
    loader = from_generator(capacity=2, return_list=True)
    with pytest.raises(ArgumentError, match="Number of places must be 1 in imperative mode, got 2"):
        loader.set_batch_generator(batches(2), [CPU, CPU])
    with pytest.warns(UserWarning, match="supports iterable mode only. Change to iterable mode"):
        loader = from_generator(capacity=2, iterable=False, return_list=True)
    assert loader.iterable
    with pytest.warns(UserWarning, match="supports returning as list only. Change to return as"):
        from_generator(capacity=2)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ([[(1, 2), (1,)]], "sample 1 of the batch has 1 fields and sample 0 has 2"),
        ([[5]], "must be a tuple or list with one value for each field"),
        ([[([1], 0), ([1, 2], 0)]], "Failed to convert input data to a regular ndarray"),
        ([{}], "must yield lists of samples"),
    ],
)
def test_dynamic_mode_refuses_samples_that_do_not_fit(bad: Any, text: str) -> None:
    loader = from_generator(capacity=2, return_list=True)
    loader.set_sample_list_generator(lambda: iter(bad))
    with pytest.raises(CollateError, match=text):
        list(loader)


# ---- arguments ---------------------------------------------------------------------------------


def test_capacity_must_be_given_and_count_batches() -> None:
    for value in (None, 0):
        with pytest.raises(ValueError, match=r"^Please give value to capacity."):
            from_generator(capacity=value, return_list=True)
    for bad in (-1, 1.5, True, "2"):
        with pytest.raises(ConfigError, match="capacity must be an int of 1 or more, got"):
            from_generator(capacity=bad, return_list=True)  # type: ignore[arg-type]


def test_feed_list_must_be_given_in_static_mode_and_hold_variables(static: None) -> None:
    for empty in (None, []):
        with pytest.raises(ConfigError, match=r"^Feed list must be given under static graph mode"):
            from_generator(empty, 2)
    with pytest.raises(TypeError, match=r"feed_list must be a list of variables .*'x'"):
        from_generator("x", 2)
    with pytest.raises(TypeError, match=r"must hold variables of the program.*'x'"):
        from_generator(["x"], 2)


def test_sources_are_checked_when_they_are_set(static: None) -> None:
    loader = from_generator(inputs(), 2)
    with pytest.raises(AssertionError, match="Data source of DataLoader has not set yet"):
        iter(loader)
    with pytest.raises(AssertionError, match="Places cannot be None when DataLoader is iterable"):
        loader.set_batch_generator(batches(1))
    for size in (0, -2, -0.5):
        with pytest.raises(AssertionError, match="batch_size must be larger than 0, got"):
            loader.set_sample_generator(samples(1), size, places=CPU)
    for bad in (2.5, "2", True):
        with pytest.raises(TypeError, match="batch_size must be an int of 1 or more"):
            loader.set_sample_generator(samples(1), bad, places=CPU)
    with pytest.raises(TypeError, match="must be a function that returns an iterator"):
        loader.set_batch_generator(batches(1)(), CPU)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no device 'tpu:0'"):
        loader.set_batch_generator(batches(1), "tpu")
    with pytest.raises(ValueError, match="The device should not be gpu:0, since PaddlePaddle is"):
        loader.set_batch_generator(batches(1), "gpu:0")


def test_iterable_loader_cannot_be_started_or_reset(static: None) -> None:
    loader = from_generator(inputs(), 2)
    assert isinstance(loader, GeneratorLoader)
    assert loader.iterable
    assert loader.queue is None
    with pytest.raises(AssertionError, match=r"start\(\) cannot be called when DataLoader"):
        loader.start()
    with pytest.raises(AssertionError, match=r"reset\(\) cannot be called when DataLoader"):
        loader.reset()


@pytest.mark.parametrize(("process", "of_reader"), [(False, False), (True, False), (False, True)])
def test_reset_by_paddles_inner_name_leaves_an_epoch_early(process: bool, of_reader: bool) -> None:
    ended = []

    def endless() -> Iterator[Any]:
        try:
            for n in range(10**6):
                yield [np.full((2, 3), n, np.float32)]
        finally:
            ended.append(True)

    if of_reader:
        loader: Any = PyReader(capacity=2, return_list=True)
        loader.decorate_batch_generator(endless, CPU)
    else:
        loader = from_generator(capacity=2, return_list=True, use_multiprocess=process)
        loader.set_batch_generator(endless, CPU)
    loader._reset()  # nothing runs: nothing happens
    for _ in range(2):
        for step, (x,) in enumerate(loader):
            assert float(x[0, 0]) == step
            if step == 3:
                break
        loader._reset()
        loader._reset()
        with pytest.raises(StopIteration):
            next(loader)
    if not process:
        wait_until(lambda: len(ended) == 2)


def test_reset_within_the_loop_ends_it() -> None:
    loader = from_generator(capacity=2, return_list=True)
    loader.set_batch_generator(batches(9), CPU)
    steps = 0
    for _ in loader:
        steps += 1
        if steps == 2:
            loader._reset()
    assert steps == 2
    assert len(list(loader)) == 9


@pytest.mark.parametrize("process", [False, True])
def test_error_of_a_generator_is_caught_as_paddle_raises_it_too(process: bool) -> None:
    def failing() -> Iterator[Any]:
        yield [np.zeros(2, np.float32)]
        raise KeyError("mine")

    loader = from_generator(capacity=2, return_list=True, use_multiprocess=process)
    loader.set_batch_generator(failing, CPU)
    for kind in (SystemError, KeyError):
        seen = []
        with pytest.raises(kind) as caught:
            for step in loader:
                seen.append(step)  # noqa: PERF402
        assert len(seen) == 1
        assert (type(caught.value).__name__, caught.value.args) == ("KeyError", ("mine",))
        assert caught.value.__context__ is None
        text = "".join(traceback.format_exception(caught.value))
        assert "in failing" in text


@pytest.mark.parametrize("process", [False, True])
def test_error_of_a_process_reader_passes_a_loader_as_paddle_raises_it_there(process: bool) -> None:
    def failing() -> Iterator[Any]:
        yield [np.zeros(2, np.float32)]
        raise LookupError("mine")

    loader = from_generator(capacity=2, return_list=True, use_multiprocess=process)
    loader.set_batch_generator(multiprocess_reader([failing]), CPU)
    for kind in (SystemError, LookupError):
        with pytest.raises(kind, match="mine"):
            list(loader)


# ---- training ----------------------------------------------------------------------------------


def train(feed: Callable[[Any, Any, Any, list[Any]], Iterator[Any]]) -> list[float]:
    """Losses of a linear model in static mode; `feed(exe, main, loss, inputs)` yields them."""
    paddle.seed(7)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x, y = inputs()
        hidden = paddle.static.nn.fc(x, 4, weight_attr=paddle.nn.initializer.Constant(0.1))
        loss = paddle.mean((hidden - paddle.cast(y, "float32")) ** 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # paddle warns of its own code there
            paddle.optimizer.SGD(0.01).minimize(loss)
        exe = paddle.static.Executor(CPU)
        exe.run(startup)
        return [float(value) for value in feed(exe, main, loss, [x, y])]


@pytest.mark.parametrize("setter", ["sample", "list", "batch"])
def test_static_training_is_the_same_as_with_feeds_by_hand(
    static: None, process: bool, setter: str
) -> None:
    def by_hand(exe: Any, main: Any, loss: Any, feed_list: list[Any]) -> Iterator[Any]:
        for _ in range(3):
            for rows in sample_lists(8, 2)():
                x = np.stack([row[0] for row in rows]).astype("float32")
                y = np.array([[row[1]] for row in rows])
                yield exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])[0]

    def by_loader(exe: Any, main: Any, loss: Any, feed_list: list[Any]) -> Iterator[Any]:
        loader = from_generator(feed_list, 2, use_multiprocess=process)
        if setter == "sample":
            loader.set_sample_generator(samples(8), 2, places=CPU)
        elif setter == "list":
            loader.set_sample_list_generator(sample_lists(8, 2), CPU)
        else:
            stacked = [
                ([row[0] for row in rows], [[row[1]] for row in rows])
                for rows in sample_lists(8, 2)()
            ]
            loader.set_batch_generator(lambda: iter(stacked), CPU)
        for _ in range(3):
            for data in loader():
                yield exe.run(main, feed=data, fetch_list=[loss])[0]

    wanted = train(by_hand)
    assert train(by_loader) == wanted
    assert wanted[-1] < wanted[3]


@pytest.mark.parametrize("uses_process", [False, True])
def test_a_profile_sees_the_loop_over_a_generator(uses_process: bool) -> None:
    loader = from_generator(capacity=2, use_multiprocess=uses_process, return_list=True)
    with loader.profile() as seen:
        for _ in range(2):  # another source each time
            loader.set_batch_generator(batches(4))
            assert len(list(loader)) == 4
    loader.close()
    assert seen.batches == 8
    assert seen.measured.workers == int(uses_process)
    assert (seen.records["handed_ns"] >= seen.records["delivered_ns"]).all()


def test_a_profile_sees_the_loop_over_a_pyreader() -> None:
    reader = PyReader(capacity=2, return_list=True)
    reader.decorate_batch_generator(batches(4))
    with reader.profile() as seen:
        assert len(list(reader)) == 4
    reader.close()
    assert seen.batches == 4


def test_a_reader_of_a_program_has_no_loop_to_profile(static: None) -> None:
    with getattr(paddle.pir_utils, "OldIrGuard", contextlib.nullcontext)():
        reader = PyReader(inputs(), capacity=2, iterable=False)
        with pytest.raises(ConfigTypeError, match=r"exe\.run reads the batches of"):
            reader.profile().__enter__()
        reader.close()
