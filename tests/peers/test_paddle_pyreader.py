"""PyReader, and programs that read by themselves: Paddle's own queue and ops, without its hangs.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares, demonstrated_by, proved_by
from tests.peers.test_paddle_generator import HEAD

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

READS = """
    def reads(make, count=None, double=True):
        "Return (reader, function that runs the program once) under the old IR."
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            feed_list = inputs()
            reader = make(feed_list, 4, double)
            weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.1))
            hidden = paddle.static.nn.fc(feed_list[0], 4, weight_attr=weight)
            loss = paddle.mean((hidden - paddle.cast(feed_list[1], "float32")) ** 2)
            paddle.optimizer.SGD(0.01).minimize(loss)
        exe = paddle.static.Executor(CPU)
        exe.run(startup)
        return reader, lambda: float(exe.run(main, fetch_list=[loss])[0])

    def py_reader(feed_list, capacity, double):
        return PyReader(feed_list, capacity, double, iterable=False)

    def loader(feed_list, capacity, double):
        return DataLoader.from_generator(feed_list, capacity, double, iterable=False)
"""


def story(text: str, **options: object) -> Story:
    return Story(HEAD + READS + text, **options)  # type: ignore[arg-type]


# ---- the same ----------------------------------------------------------------------------------

ITERABLE = story(
    """
    found = []
    reader = PyReader(capacity=4, return_list=True)
    reader.decorate_sample_list_generator(lists(6, 2))
    for _ in range(2):
        found.append([plain(batch) for batch in reader()])
    reader.decorate_batch_generator(batches(3), CPU)
    found.append([plain(batch) for batch in reader])
    found.append([reader.iterable])
    paddle.enable_static()
    feed_list = inputs()
    for return_list in (False, True):
        reader = PyReader(feed_list, 4, return_list=return_list)
        reader.decorate_sample_generator(samples(7), 2, False, [CPU, CPU])
        found.append([plain(batch) for batch in reader()])
        reader.decorate_sample_list_generator(lists(7, 2), CPU)
        found.append([plain(batch) for batch in reader()])
        reader.decorate_batch_generator(batches(3), CPU)
        found.append([plain(batch) for batch in reader])
        found.append(outcome(reader.start)[1:3])
    found[-1] = [found[-1][0] in ("AssertionError", "ArgumentError"), found[-1][1][:50]]
    found[7] = None
    tell(found)
    """
)


@compares(ITERABLE)
def test_iterable_py_readers_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result


EPOCHS = story(
    """
    paddle.enable_static()
    found = []
    with paddle.pir_utils.OldIrGuard():
        for make in (py_reader, loader):
            for double in (True, False):
                for setter, args in (
                    ("sample_generator", (samples(8), 2)),
                    ("sample_list_generator", (lists(8, 2),)),
                    ("batch_generator", (batches(4),)),
                ):
                    reader, run = reads(make, double=double)
                    prefix = "decorate_" if make is py_reader else "set_"
                    getattr(reader, prefix + setter)(*args)
                    found.append([reader.iterable, reader.queue.capacity()])
                    for _ in range(3):
                        reader.start()
                        try:
                            while True:
                                found.append(run())
                        except paddle.base.core.EOFException as end:
                            found.append([type(end).__name__, str(end)[:25]])
                            reader.reset()
    tell(found)
    """
)


@compares(EPOCHS)
def test_programs_read_epochs_to_the_same_losses_and_the_same_end(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = both
    assert ours.result == theirs.result
    assert sum(type(each) is float for each in ours.result) == 144


EARLY = story(
    """
    paddle.enable_static()

    def endless():
        while True:
            yield from batches(9)()

    with paddle.pir_utils.OldIrGuard():
        reader, run = reads(loader)
        reader.set_batch_generator(endless)
        found = []
        for n in range(50):
            reader.start()
            found += [run() for _ in range(n % 4)]
            reader.reset()
    tell(found)
    """
)


@compares(EARLY)
def test_endless_readers_are_reset_early_and_started_again(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = both
    assert len(ours.result) == 73
    assert ours.result == theirs.result


# ---- better ------------------------------------------------------------------------------------

PIR = story(
    """
    paddle.enable_static()
    tell(outcome(lambda: DataLoader.from_generator(inputs(), 4, iterable=False)))
    """
)


@demonstrated_by(PIR)
def test_paddle_fails_in_pir_mode_with_a_text_about_arguments(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "TypeError"]
    assert "set_dtypes(): incompatible function arguments" in verdict.result[2]


@proved_by(PIR)
def test_pir_mode_is_refused_with_the_remedies(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "ConfigError"]
    for way in ("iterable=True", "OldIrGuard()", "FLAGS_enable_pir_api=0"):
        assert way in verdict.result[2]


FAILING = story(
    """
    paddle.enable_static()

    class Mine(Exception):
        pass

    def failing():
        yield from batches(4)()
        raise Mine("list.txt", 4)

    with paddle.pir_utils.OldIrGuard():
        reader, run = reads(py_reader)
        found = []
        for _ in range(2):
            reader.decorate_batch_generator(failing)
            reader.start()
            time.sleep(0.5)
            seen = 0
            try:
                while True:
                    run()
                    seen += 1
            except Exception as error:
                found.append([seen, type(error).__name__, "queue is killed" in str(error)])
            found.append(outcome(reader.reset)[:3])
    tell(found)
    """
)


@demonstrated_by(FAILING)
def test_paddle_loses_the_generator_s_error_and_the_good_batches(verdict: Verdict) -> None:
    (seen, kind, is_killed), (after, *_), *_ = verdict.result
    assert seen < 4, verdict.story()
    assert (kind, is_killed, after) == ("SystemError", True, "returned")


@proved_by(FAILING)
def test_good_batches_are_read_first_and_reset_raises_the_generator_s_error(
    verdict: Verdict,
) -> None:
    run = [4, "SystemError", True]
    assert verdict.result == [run, ["raised", "Mine", "('list.txt', 4)"]] * 2
    assert verdict.stderr.count("raised an exception after 4 batches") == 2
    assert verdict.stderr.count("Mine: ('list.txt', 4)") == 2


AT_EXIT = story(
    """
    paddle.enable_static()

    def endless():
        while True:
            yield from batches(9)()

    with paddle.pir_utils.OldIrGuard():
        reader, run = reads(loader)
        reader.set_batch_generator(endless)
        reader.start()
        run()
    tell("leaving in the middle of an epoch")
    """
)


@proved_by(AT_EXIT)
def test_program_that_leaves_in_the_middle_of_an_epoch_ends(verdict: Verdict) -> None:
    assert verdict.result == "leaving in the middle of an epoch"
    assert (verdict.exit_code, verdict.left) == (0, [])
    assert "terminate" not in verdict.stderr


TWICE = story(
    """
    paddle.enable_static()
    with paddle.pir_utils.OldIrGuard():
        reader, run = reads(loader)
        found = [outcome(reader.start)[:2]]
        reader.set_batch_generator(batches(2))
        if found[0][0] == "raised":
            reader.start()
            found.append(outcome(reader.start)[:2])
            found.append(len([run(), run()]))
    tell(found)
    """
)


@proved_by(TWICE)
def test_start_without_a_source_or_twice_is_refused(verdict: Verdict) -> None:
    assert verdict.result == [["raised", "ArgumentError"]] * 2 + [2]
