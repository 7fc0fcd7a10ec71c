"""Loaders that a static program reads by itself: epochs, early ends, errors, leftovers."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.base import core

from reader import CollateError, ConfigError, WorkerDied
from reader.compat.paddle import ArgumentError, feeding_epoch
from reader.compat.paddle.feeding import FeedingLoader
from reader.compat.paddle.generator import from_generator
from reader.errors import DatasetError
from tests.contract.feeding import CPU, inputs
from tests.ledger import Ledger, settle
from tests.processes import BOUND_S, wait_until

Generator = Callable[[], Iterator[Any]]


def batches(count: int) -> Generator:
    return lambda: (
        (np.full((2, 3), n, np.float64), np.full((2, 1), n, np.int64)) for n in range(count)
    )


def endless() -> Iterator[Any]:
    n = 0
    while True:
        yield np.full((1, 3), n), np.full((1, 1), n)
        n += 1


class Program:
    """A program that reads from a loader and returns the first number it read."""

    def __init__(self, capacity: int = 3, **options: Any) -> None:
        feed_list = inputs()
        self.loader: Any = from_generator(feed_list, capacity, iterable=False, **options)
        self.fetched = [paddle.scale(feed_list[0], 1.0)]
        self.main = paddle.static.default_main_program()
        self.exe = paddle.static.Executor(CPU)
        self.exe.run(paddle.static.default_startup_program())

    def run(self) -> float:
        return float(self.exe.run(self.main, fetch_list=self.fetched)[0].flat[0])

    def epoch(self) -> list[float]:
        """What one epoch reads, from start() to reset()."""
        seen = []
        self.loader.start()
        try:
            while True:
                seen.append(self.run())
        except core.EOFException:
            self.loader.reset()
        return seen


def feeding_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "reader-feeding"]


# ---- epochs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [True, False])
def test_epochs_end_with_eof_and_begin_anew(old_ir: None, process: bool, double: bool) -> None:
    program = Program(use_double_buffer=double, use_multiprocess=process)
    ops = [op.type for op in program.main.global_block().ops]
    buffer = ["create_double_buffer_reader"] if double else []
    assert ops[:-1] == ["create_py_reader", *buffer, "read"]
    assert program.loader.set_batch_generator(batches(5)) is program.loader
    for _ in range(4):
        assert program.epoch() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert feeding_threads() == []


def test_epoch_without_batches_ends_at_once(old_ir: None) -> None:
    program = Program()
    program.loader.set_batch_generator(batches(0))
    assert [program.epoch(), program.epoch()] == [[], []]


def test_end_is_raised_again_until_reset(old_ir: None) -> None:
    program = Program()
    program.loader.set_batch_generator(batches(1))
    program.loader.start()
    program.run()
    for _ in range(3):
        with pytest.raises(core.EOFException):
            program.run()
    program.loader.reset()
    assert program.epoch() == [0.0]


@pytest.mark.parametrize("setter", ["sample", "list", "batch"])
def test_training_reads_the_same_from_each_setter(old_ir: None, process: bool, setter: str) -> None:
    rows = [(np.full(3, n / 4), n) for n in range(8)]
    lists = [rows[n : n + 2] for n in range(0, 8, 2)]
    stacked = [([row[0] for row in two], [[row[1]] for row in two]) for two in lists]

    def losses(is_fed: bool) -> list[float]:
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # paddle warns of its own code there
            x, y = inputs()
            loader = from_generator([x, y], 2, iterable=False, use_multiprocess=process)
            weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.1))
            hidden = paddle.static.nn.fc(x, 4, weight_attr=weight)
            loss = paddle.mean((hidden - paddle.cast(y, "float32")) ** 2)
            paddle.optimizer.SGD(0.01).minimize(loss)
        exe = paddle.static.Executor(CPU)
        exe.run(startup)
        found = []
        if setter == "sample":
            loader.set_sample_generator(lambda: iter(rows), 2)
        elif setter == "list":
            loader.set_sample_list_generator(lambda: iter(lists))
        else:
            loader.set_batch_generator(lambda: iter(stacked))
        for _ in range(3):
            loader.start()
            try:
                while True:
                    found.append(float(exe.run(main, fetch_list=[loss])[0]))
            except core.EOFException:
                loader.reset()
        return found

    found = losses(True)
    assert len(found) == 12
    assert found[-1] < found[3]
    weight, bias, wanted = np.full((3, 4), 0.1), np.zeros(4), []
    for _ in range(3):
        for two in lists:
            x, y = np.stack([row[0] for row in two]), np.array([[row[1]] for row in two])
            error = x @ weight + bias - y
            wanted.append((error**2).mean())
            weight -= 0.01 * x.T @ error * 2 / error.size
            bias -= 0.01 * error.sum(0) * 2 / error.size
    assert found == pytest.approx(wanted, rel=1e-4)


def test_ragged_samples_reach_the_program_with_their_lod(old_ir: None, process: bool) -> None:
    word = paddle.static.data("word", [None, 1], "int64", lod_level=1)
    loader = from_generator([word], 2, iterable=False, use_multiprocess=process)
    out = paddle.scale(word, 1)
    exe = paddle.static.Executor(CPU)
    loader.set_sample_list_generator(lambda: iter([[([1, 2],), ([3],)]]))
    loader.start()
    found = exe.run(fetch_list=[out], return_numpy=False)[0]
    assert (np.array(found).tolist(), found.lod()) == ([[1], [2], [3]], [[0, 2, 3]])
    loader.reset()


def test_array_that_the_generator_uses_again_does_not_change_batches(
    old_ir: None, process: bool
) -> None:
    def generator() -> Iterator[Any]:
        x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.int64)
        for n in range(6):
            x[:] = n
            yield x, y

    program = Program(8, use_multiprocess=process)
    program.loader.set_batch_generator(generator)
    assert program.epoch() == list(range(6))


def test_two_programs_read_each_from_its_own_loader(old_ir: None) -> None:
    programs = []
    for count in (2, 3):
        with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            programs.append(Program())
        programs[-1].loader.set_batch_generator(batches(count))
    for program in programs:
        program.loader.start()
    assert [program.run() for program in programs] == [0.0, 0.0]
    assert [program.run() for program in programs] == [1.0, 1.0]
    for program in programs:
        program.loader.reset()


# ---- early ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [True, False])
def test_endless_generator_is_reset_early_50_times(old_ir: None, double: bool) -> None:
    program = Program(use_double_buffer=double)
    program.loader.set_batch_generator(endless)
    program.loader.start()
    program.run()
    program.loader.reset()
    before = Ledger.take()
    begun = time.monotonic()
    for n in range(50):
        program.loader.start()
        assert [program.run() for _ in range(n % 5)] == list(range(n % 5))
        program.loader.reset()
    assert time.monotonic() - begun < BOUND_S
    assert feeding_threads() == []
    assert settle(before) == []


def test_process_is_reset_early_and_ends(old_ir: None) -> None:
    program = Program(use_multiprocess=True)
    program.loader.set_batch_generator(endless)
    before = Ledger.take()
    for n in range(5):
        program.loader.start()
        assert [program.run() for _ in range(n)] == list(range(n))
        program.loader.reset()
    assert settle(before) == []


def test_epoch_that_no_run_took_from_is_reset(old_ir: None) -> None:
    calls: list[int] = []

    def generator() -> Iterator[Any]:
        calls.append(1)
        yield from batches(2)()

    program = Program()
    program.loader.set_batch_generator(generator)
    for _ in range(3):
        program.loader.start()
        program.loader.reset()
        program.loader.reset()
    assert calls == []  # the program never ran: the generator was not called
    assert program.epoch() == [0.0, 1.0]
    program.loader.start()
    program.loader.reset()
    assert program.epoch() == [0.0, 1.0]


def test_generator_is_closed_in_its_thread_when_the_epoch_ends_early(old_ir: None) -> None:
    closed: list[str] = []

    def generator() -> Iterator[Any]:
        try:
            yield from endless()
        finally:
            closed.append(threading.current_thread().name)

    program = Program()
    program.loader.set_batch_generator(generator)
    program.loader.start()
    program.run()
    program.loader.reset()
    assert closed == ["reader-feeding"]


def test_stuck_generator_is_abandoned_and_pushes_nothing(
    old_ir: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeding_epoch, "_JOIN_S", 0.05)
    gate, came = threading.Event(), threading.Event()

    def stuck() -> Iterator[Any]:
        yield np.full((1, 3), -1), np.zeros((1, 1), int)
        came.set()
        gate.wait(BOUND_S)
        yield np.full((1, 3), -2), np.zeros((1, 1), int)

    program = Program()
    program.loader.set_batch_generator(stuck)
    program.loader.start()
    assert program.run() == -1
    assert came.wait(BOUND_S)
    with caplog.at_level(logging.WARNING, "reader"):
        program.loader.reset()
    assert "did not yield its next item within 0.05 s" in caplog.text
    program.loader.set_batch_generator(endless)
    program.loader.start()
    assert program.run() == 0
    gate.set()
    assert [program.run() for _ in range(20)] == list(range(1, 21))
    program.loader.reset()
    wait_until(lambda: not feeding_threads())


def test_loader_that_is_dropped_ends_its_thread(old_ir: None) -> None:
    closed = threading.Event()

    def generator() -> Iterator[Any]:
        try:
            yield from endless()
        finally:
            closed.set()

    program = Program()
    program.loader.set_batch_generator(generator)
    program.loader.start()
    program.run()
    del program.loader
    gc.collect()
    assert closed.wait(BOUND_S)
    wait_until(lambda: not feeding_threads())
    with pytest.raises(core.EOFException):
        program.run()


def test_close_ends_the_epoch_and_the_loader_can_be_started_again(
    old_ir: None, process: bool
) -> None:
    program = Program(use_multiprocess=process)
    program.loader.set_batch_generator(endless)
    program.loader.start()
    program.run()
    program.loader.close()
    program.loader.close()
    wait_until(lambda: not feeding_threads())
    program.loader.start()
    assert program.run() == 0
    program.loader.reset()


# ---- errors --------------------------------------------------------------------------------------


class Mine(Exception):
    pass


def failing_after(count: int, error: BaseException) -> Generator:
    def generator() -> Iterator[Any]:
        yield from batches(count)()
        raise error

    return generator


@pytest.mark.parametrize("double", [True, False])
def test_good_batches_are_read_before_the_run_fails_and_reset_raises_the_error(
    old_ir: None, process: bool, double: bool, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(8, use_double_buffer=double, use_multiprocess=process)
    for _ in range(2):
        program.loader.set_batch_generator(failing_after(4, Mine("list.txt", 4)))
        caplog.clear()
        program.loader.start()
        assert [program.run() for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(SystemError, match="Blocking queue is killed because the data reader"):
            program.run()
        with pytest.raises(Exception, match=r"."):  # the double buffer has a text of its own
            program.run()
        assert isinstance(program.loader.error, Mine)
        with pytest.raises(Mine) as caught:
            program.loader.reset()
        assert caught.value.args == ("list.txt", 4)
        assert "after 4 batches" in caught.value.__notes__[-1]
        records = [each for each in caplog.records if each.name == "reader"]
        assert [each.levelname for each in records] == ["ERROR"]
        assert "raised an exception after 4 batches" in records[0].getMessage()
        assert records[0].exc_info is not None
        assert records[0].exc_info[1] is caught.value
        program.loader.reset()
        assert program.loader.error is caught.value
        program.loader.set_batch_generator(batches(3))
        assert program.epoch() == [0.0, 1.0, 2.0]
        assert program.loader.error is None
        caplog.clear()  # a record keeps its traceback, which keeps the engine of its frames


def test_failed_run_is_the_context_of_the_error_that_reset_raises(old_ir: None) -> None:
    program = Program()
    program.loader.set_batch_generator(failing_after(0, Mine("early")))
    program.loader.start()
    with pytest.raises(Mine) as caught:
        try:
            program.run()
        finally:
            program.loader.reset()
    assert isinstance(caught.value.__context__, SystemError)


def test_error_after_the_last_used_batch_is_logged_and_not_raised(
    old_ir: None, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(8)
    program.loader.set_batch_generator(failing_after(6, Mine("later")))
    program.loader.start()
    assert program.run() == 0.0
    wait_until(lambda: program.loader.error is not None)
    program.loader.reset()
    assert "raised an exception after 6 batches" in caplog.text
    assert isinstance(program.loader.error, Mine)
    program.loader.set_batch_generator(batches(1))
    assert program.epoch() == [0.0]


def test_data_that_does_not_fit_fails_the_run_in_its_place(old_ir: None) -> None:
    program = Program()
    bad = [(np.zeros((2, 3)), np.zeros((2, 1), int)), (np.zeros((2, 4)), np.zeros((2, 1), int))]
    program.loader.set_batch_generator(lambda: iter(bad))
    program.loader.start()
    assert program.run() == 0.0
    with pytest.raises(SystemError, match="Blocking queue is killed"):
        program.run()
    with pytest.raises(CollateError, match=r"Shape not match. .*variable 'x'"):
        program.loader.reset()


def test_exception_that_would_end_the_program_is_raised_as_an_error(old_ir: None) -> None:
    program = Program()
    program.loader.set_batch_generator(failing_after(1, SystemExit(3)))
    program.loader.start()
    assert program.run() == 0.0
    with pytest.raises(SystemError):
        program.run()
    with pytest.raises(DatasetError) as caught:
        program.loader.reset()
    assert type(caught.value.__cause__) is SystemExit


def test_process_that_is_killed_fails_the_run_after_the_good_batches(
    old_ir: None, caplog: pytest.LogCaptureFixture
) -> None:
    def generator() -> Iterator[Any]:
        yield from batches(3)()
        os.kill(os.getpid(), 9)
        yield from batches(3)()

    program = Program(use_multiprocess=True)
    program.loader.set_batch_generator(generator)
    program.loader.start()
    assert [program.run() for _ in range(3)] == [0.0, 1.0, 2.0]
    begun = time.monotonic()
    with pytest.raises(SystemError):
        program.run()
    assert time.monotonic() - begun < BOUND_S
    with pytest.raises(WorkerDied, match="SIGKILL"):
        program.loader.reset()
    caplog.clear()


# ---- arguments -----------------------------------------------------------------------------------


def test_pir_mode_is_refused_with_the_remedies() -> None:
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            with pytest.raises(
                ConfigError, match=r"PIR mode.*iterable=True.*OldIrGuard.*FLAGS_ena"
            ):
                from_generator(inputs(), 2, iterable=False)
            assert paddle.static.default_main_program().global_block().ops[2:] == []
    finally:
        paddle.disable_static()


def test_variables_of_another_program_are_refused(old_ir: None) -> None:
    feed_list = inputs()
    with (
        paddle.static.program_guard(paddle.static.Program()),
        pytest.raises(ConfigError, match="'x' of feed_list is not in the default"),
    ):
        from_generator(feed_list, 2, iterable=False)


def test_calls_in_the_wrong_order_are_refused(
    old_ir: None, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program()
    loader = program.loader
    assert isinstance(loader, FeedingLoader)
    assert loader.iterable is False
    assert loader.queue.capacity() == 3
    assert loader() is loader
    with pytest.raises(AssertionError, match="Data source of DataLoader has not set yet"):
        loader.start()
    for function in (iter, next):
        with pytest.raises(AssertionError, match="DataLoader is not iterable"):
            function(loader)
    with caplog.at_level(logging.INFO, "reader"):
        loader.set_batch_generator(batches(2), CPU)
    assert "places would be omitted when DataLoader is not iterable" in caplog.text
    loader.start()
    with pytest.raises(ArgumentError, match=r"call reset.. first"):
        loader.start()
    assert [program.run(), program.run()] == [0.0, 1.0]
    loader.reset()
    assert program.epoch() == [0.0, 1.0]


def test_order_is_kept_whatever_the_switch_says(old_ir: None) -> None:
    from reader.compat.paddle import keep_data_loader_order

    keep_data_loader_order(False)
    try:
        program = Program()
        program.loader.set_batch_generator(batches(9))
        assert program.epoch() == list(range(9))
    finally:
        keep_data_loader_order(True)
