"""from_generator, iterable: the same as Paddle's where that is right, and better where it is not.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares, demonstrated_by, proved_by

pytestmark = pytest.mark.peer

HEAD = """
    import os, sys, threading, time, warnings
    import numpy as np
    import paddle
    from paddle.base import core
    from tests.peers.generators import load, plain
    from tests.peers.inside import children, excess, held, outcome, tell

    DataLoader, PyReader = load("paddle.io")
    CPU = paddle.CPUPlace()
    warnings.simplefilter("ignore")

    def samples(count):
        return lambda: ((np.full(3, n, "float64"), n) for n in range(count))

    def lists(count, size):
        rows = list(samples(count)())
        return lambda: (rows[n : n + size] for n in range(0, count, size))

    def batches(count):
        return lambda: (
            (np.full((2, 3), n, "float32"), np.full((2, 1), n, "int64")) for n in range(count)
        )

    def inputs():
        x = paddle.static.data("x", [None, 3], "float32")
        return [x, paddle.static.data("y", [None, 1], "int64")]
"""


def story(text: str, **options: object) -> Story:
    return Story(HEAD + text, **options)  # type: ignore[arg-type]


# ---- the same ----------------------------------------------------------------------------------

STATIC_YIELDS = story(
    """
    paddle.enable_static()
    feed_list = inputs()
    found = []
    for return_list in (False, True):
        for places in ([CPU], [CPU, CPU], "cpu", CPU):
            for drop_last in (True, False):
                for setter, args in (
                    ("set_sample_generator", (samples(7), 2, True)),
                    ("set_sample_generator", (samples(7), 2, False)),
                    ("set_sample_list_generator", (lists(7, 2),)),
                    ("set_batch_generator", (batches(5),)),
                ):
                    loader = DataLoader.from_generator(
                        feed_list, 4, return_list=return_list, drop_last=drop_last
                    )
                    assert getattr(loader, setter)(*args, places=places) is loader
                    assert loader() is loader and iter(loader) is loader
                    found.append([plain(batch) for batch in loader])
                    found.append([plain(batch) for batch in loader()])
    tell(found)
    """
)


@compares(STATIC_YIELDS)
def test_static_loaders_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(ours.result) == 128
    assert ours.result == theirs.result


CONVERSION = story(
    """
    paddle.enable_static()
    x = paddle.static.data("x", [None, 2, 3], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    rows = [(np.arange(6), 1.9), (np.arange(6, dtype="uint8"), True), (np.ones(6), 2)]
    found = []
    loader = DataLoader.from_generator([x, y], 4)
    loader.set_sample_list_generator(lambda: iter([rows, rows[:1]]), CPU)
    found.append([plain(batch) for batch in loader])
    loader.set_sample_generator(lambda: iter(rows), 2, False, CPU)
    found.append([plain(batch) for batch in loader])
    tell(found)
    """
)


@compares(CONVERSION)
def test_samples_are_converted_and_reshaped_alike(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result


LOD = story(
    """
    paddle.enable_static()
    found = []
    with paddle.pir_utils.OldIrGuard():
        word = paddle.static.data("word", [None, 1], "int64", lod_level=1)
        deep = paddle.static.data("deep", [None, 2], "float32", lod_level=2)
        label = paddle.static.data("label", [None, 1], "int64")
        rows = [([1, 2, 3], [[[1, 1], [2, 2]], [[3, 3]]], 0), ([4], [[[4, 4]]], 1)]
        loader = DataLoader.from_generator([word, deep, label], 4)
        loader.set_sample_list_generator(lambda: iter([rows, rows[1:]]), CPU)
        found.append([plain(batch) for batch in loader])
        loader.set_sample_generator(lambda: iter(rows * 2), 3, False, CPU)
        found.append([plain(batch) for batch in loader])
    tell(found)
    """
)


@compares(LOD)
def test_ragged_samples_have_the_same_lod(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result


DYNAMIC_YIELDS = story(
    """
    found = []
    for setter, args in (
        ("set_sample_generator", (samples(7), 2, True)),
        ("set_sample_generator", (samples(7), 2, False)),
        ("set_sample_list_generator", (lists(7, 2),)),
        ("set_batch_generator", (batches(5),)),
    ):
        for places in (None, CPU, [CPU], "cpu"):
            for multi in (False, True):
                loader = DataLoader.from_generator(
                    capacity=4, return_list=True, use_multiprocess=multi
                )
                getattr(loader, setter)(*args, places=places)
                for _ in range(2):
                    found.append([plain(batch) for batch in loader()])
                    found.append([tensor.stop_gradient for batch in loader for tensor in batch])
    tell(found)
    """
)


@compares(DYNAMIC_YIELDS)
def test_dynamic_loaders_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(ours.result) == 128
    assert ours.result == theirs.result


REFUSALS = story(
    """
    make = DataLoader.from_generator
    found = [outcome(lambda: make()), outcome(lambda: make(capacity=0))]
    loader = make(capacity=2, return_list=True)
    found += [
        outcome(lambda: loader.set_batch_generator(batches(1), [CPU, CPU])),
        outcome(lambda: loader.set_sample_generator(samples(1), 0)),
        outcome(lambda: iter(make(capacity=2))),
    ]
    paddle.enable_static()
    feed_list = inputs()
    loader = make(feed_list, 2)
    found += [
        outcome(lambda: make(None, 2)),
        outcome(lambda: make([], 2)),
        outcome(lambda: loader.set_batch_generator(batches(1))),
        outcome(lambda: loader.set_sample_generator(samples(1), -1, places=CPU)),
        outcome(lambda: loader.set_batch_generator(batches(1), "gpu:0")),
        outcome(lambda: iter(make(feed_list, 2))),
        outcome(lambda: loader.start()),
        outcome(lambda: loader.reset()),
    ]
    tell(found)
    """
)


@compares(REFUSALS)
def test_refusals_have_the_same_types_and_begin_with_the_same_texts(
    both: tuple[Verdict, Verdict],
) -> None:
    for theirs, ours in zip(both[0].result, both[1].result, strict=True):
        assert ours[0] == theirs[0] == "raised"
        assert theirs[1] in ours[3], (theirs, ours)
        assert ours[2].startswith(theirs[2].rstrip(".")), (theirs, ours)


FEED = story(
    """
    paddle.enable_static()
    found = []
    for return_list in (False, True):
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            feed_list = inputs()
            weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.1))
            hidden = paddle.static.nn.fc(feed_list[0], 4, weight_attr=weight)
            loss = paddle.mean((hidden - paddle.cast(feed_list[1], "float32")) ** 2)
            paddle.optimizer.SGD(0.01).minimize(loss)
        exe = paddle.static.Executor(CPU)
        exe.run(startup)
        loader = DataLoader.from_generator(feed_list, 4, return_list=return_list)
        for setter, args in (
            ("set_sample_generator", (samples(8), 2)),
            ("set_sample_list_generator", (lists(8, 2),)),
            ("set_batch_generator", (batches(4),)),
        ):
            getattr(loader, setter)(*args, places=CPU)
            for data in loader:
                feed = dict(zip("xy", data[0])) if return_list else data
                found.append(float(exe.run(main, feed=feed, fetch_list=[loss])[0]))
    tell(found)
    """
)


@compares(FEED)
def test_programs_fed_by_the_loaders_train_to_the_same_losses(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = both
    assert len(ours.result) == 24
    assert ours.result == theirs.result


# ---- better ------------------------------------------------------------------------------------

WRONG_SHAPE = story(
    """
    paddle.enable_static()
    loader = DataLoader.from_generator(inputs(), 4)
    loader.set_sample_list_generator(lambda: iter([[(np.zeros(4), 0)] * 2]), CPU)
    tell(outcome(lambda: [batch[0]["x"].shape() for batch in loader]))
    """
)


@demonstrated_by(WRONG_SHAPE)
def test_paddle_passes_a_wrong_dimension_on(verdict: Verdict) -> None:
    assert verdict.result[0] == "returned", verdict.story()
    assert "[['int', '2'], ['int', '4']]" in str(verdict.result)


@proved_by(WRONG_SHAPE)
def test_wrong_dimension_is_an_error_that_names_the_variable(verdict: Verdict) -> None:
    kind, _, text, _ = verdict.result
    assert kind == "raised"
    assert text.startswith("Shape not match. What is defined in data layer is (-1, 3), but receive")
    assert "'x'" in text


FAILING = """
    paddle.enable_static()

    class Mine(Exception):
        pass

    def generator():
        yield from batches(7)()
        {trouble}

    loader = DataLoader.from_generator(inputs(), 8)
    loader.set_batch_generator(generator, CPU)
    seen = []
    try:
        for batch in loader:
            time.sleep(0.2)  # what is queued is lost when the queue is killed
            seen.append(float(np.array(batch[0]["x"])[0, 0]))
        tell(["ended", "", seen])
    except Exception as error:
        tell([type(error).__name__, str(error), seen])
"""

ERROR = story(FAILING.format(trouble='raise Mine("list.txt", 7)'))
RAGGED = story(
    """
    paddle.enable_static()
    loader = DataLoader.from_generator(inputs(), 4)
    loader.set_sample_list_generator(lambda: iter([[([1, 2, 3], 0), ([1, 2], 0)]]), CPU)
    tell(outcome(lambda: list(loader)))
    """
)


@demonstrated_by(ERROR)
def test_paddle_loses_the_type_of_the_generator_s_error_and_good_batches(verdict: Verdict) -> None:
    kind, text, seen = verdict.result
    assert kind == "SystemError"
    assert "Blocking queue is killed because the data reader raises an exception" in text
    assert len(seen) < 7, verdict.story()


@proved_by(ERROR)
def test_error_of_the_generator_comes_after_the_good_batches_with_its_type(
    verdict: Verdict,
) -> None:
    assert verdict.result == ["Mine", "('list.txt', 7)", [float(n) for n in range(7)]]
    assert "Traceback" not in verdict.stderr


@demonstrated_by(RAGGED)
def test_paddle_hides_why_ragged_samples_were_refused(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "SystemError"], verdict.story()


@proved_by(RAGGED)
def test_ragged_samples_are_refused_by_name(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "CollateError"]
    assert "variable 'x' are ragged: sample 1 of the batch" in verdict.result[2]
    assert "lod_level=1" in verdict.result[2]


NO_ORDER = story(
    """
    paddle.enable_static()
    if DataLoader.__module__.startswith("paddle."):
        from paddle.base.reader import keep_data_loader_order
    else:
        from reader.compat.paddle import keep_data_loader_order
    keep_data_loader_order(False)
    found = []
    for _ in range(20):
        loader = DataLoader.from_generator(inputs(), 4, drop_last=False)
        loader.set_batch_generator(batches(5), [CPU, CPU])
        for group in loader:
            for feed in group:
                found.append([sorted(feed), int(np.array(feed["y"])[0, 0]) if feed else None])
        paddle.static.default_main_program()
        feed_list = None
        paddle.static.switch_main_program(paddle.static.Program())
    tell([keep_data_loader_order(), found])
    """.replace("paddle.static.switch_main_program(paddle.static.Program())", "break")
)


@demonstrated_by(NO_ORDER)
def test_paddle_yields_empty_dicts_when_order_is_not_kept(verdict: Verdict) -> None:
    assert [[], None] in verdict.result[1], verdict.story()


@proved_by(NO_ORDER)
def test_order_is_kept_and_no_dict_is_empty_for_any_switch(verdict: Verdict) -> None:
    assert verdict.result == [False, [[["x", "y"], n] for n in range(5)]]


SHORT_SAMPLE = story(
    """
    paddle.enable_static()
    loader = DataLoader.from_generator(inputs(), 4)
    loader.set_sample_generator(lambda: iter([([1, 2, 3], 0, "lost")] * 2), 2, places=CPU)
    tell(outcome(lambda: [sorted(batch[0]) for batch in loader]))
    """
)


@demonstrated_by(SHORT_SAMPLE)
def test_paddle_drops_fields_beyond_the_feed_list(verdict: Verdict) -> None:
    assert verdict.result[0] == "returned"


@proved_by(SHORT_SAMPLE)
def test_fields_beyond_the_feed_list_are_an_error(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "CollateError"]
    assert "data (3) does not match len(feed_list) (2)" in verdict.result[2]


BY_NAME = story(
    """
    paddle.enable_static()
    loader = DataLoader.from_generator(inputs(), 4)
    rows = [{"y": [n], "x": [n, n, n]} for n in range(4)]
    loader.set_sample_list_generator(lambda: iter([rows]), CPU)
    tell(outcome(lambda: [plain(batch) for batch in loader]))
    """
)


@demonstrated_by(BY_NAME)
def test_paddle_cannot_feed_dict_samples(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "SystemError"], verdict.story()


@proved_by(BY_NAME)
def test_dict_samples_are_fed_by_name(verdict: Verdict) -> None:
    assert verdict.result[0] == "returned", verdict.story()


KILLED_CHILD = story(
    """
    def generator():
        yield from batches(2)()
        os.kill(os.getpid(), 9)
        yield from batches(2)()

    loader = DataLoader.from_generator(capacity=4, return_list=True, use_multiprocess=True)
    loader.set_batch_generator(generator)
    seen = []
    begun = time.monotonic()
    try:
        for batch in loader:
            seen.append(float(batch[0][0, 0]))
        tell(["ended", seen, time.monotonic() - begun])
    except Exception as error:
        tell([type(error).__name__, seen, time.monotonic() - begun])
    """
)


@demonstrated_by(KILLED_CHILD, hang_s=8.0)
def test_paddle_waits_for_a_killed_process_or_loses_its_batches(verdict: Verdict) -> None:
    if not verdict.is_hung:
        assert verdict.exit_code != 0 or verdict.result[0] == "SystemError", verdict.story()


@proved_by(KILLED_CHILD)
def test_killed_process_is_reported_at_once_after_its_batches(verdict: Verdict) -> None:
    kind, seen, wall_s = verdict.result
    assert (kind, seen) == ("WorkerDied", [0.0, 1.0])
    assert wall_s < 20


ABANDONED = story(
    """
    paddle.enable_static()
    feed_list = inputs()

    def endless():
        while True:
            yield from batches(9)()

    def use():
        loader = DataLoader.from_generator(feed_list, 4)
        loader.set_batch_generator(endless, CPU)
        for batch in loader:
            break

    use()
    before = held()
    for _ in range(5):
        use()
    tell(excess(before, 1.0))
    os._exit(0)
    """
)


@demonstrated_by(ABANDONED)
def test_paddle_leaves_threads_behind_an_abandoned_loop(verdict: Verdict) -> None:
    assert verdict.result.get("threads", 0) >= 5, verdict.story()


@proved_by(ABANDONED)
def test_abandoned_loop_leaves_nothing(verdict: Verdict) -> None:
    assert verdict.result == {}


ARRAYS_FROM_A_PROCESS = story(
    """
    def generator():
        for n in range(3):
            yield np.full((64, 1000), n, "float32"), np.full((64, 1), n)

    loader = DataLoader.from_generator(capacity=4, return_list=True, use_multiprocess=True)
    loader.set_batch_generator(generator)
    tell([[float(x.sum()), float(y.sum())] for _ in range(2) for x, y in loader])
    """
)


@compares(ARRAYS_FROM_A_PROCESS)
def test_arrays_come_from_a_process_alike(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result == [[64000.0 * n, 64.0 * n] for n in (0, 1, 2)] * 2
    assert ours.left == []
