"""Feeding programs of the generator API: one text, run by paddle 3.3.1 and with its import changed.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares, demonstrated_by, proved_by

pytestmark = pytest.mark.peer

HEAD = """
    import numpy as np
    import paddle
    from paddle.base.reader import DataLoader, PyReader
    from tests.peers.inside import describe, outcome, tell

    def samples():
        for index in range(10):
            yield np.full(2, index, "float32"), np.array([index], "int64")

    def sample_lists():
        for first in range(0, 10, 4):
            yield list(samples())[first : first + 4]

    def batches():
        for some in sample_lists():
            yield np.stack([x for x, _ in some]), np.stack([y for _, y in some])

    def inputs():
        x = paddle.static.data("x", [None, 2], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        return x, y

    def named(steps):
        return [
            describe([dict(sorted(one.items())) if isinstance(one, dict) else one for one in step])
            for step in steps
        ]
"""


def check_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert theirs.result, "there is nothing to compare"
    assert ours.result == theirs.result


STATIC = Story(
    HEAD
    + """
    paddle.enable_static()
    found = {}
    with paddle.static.program_guard(paddle.static.Program()):
        variables = list(inputs())
        for count in (1, 2):
            places = [paddle.CPUPlace()] * count
            for return_list in (False, True):
                for drop_last in (True, False):
                    def loader():
                        return DataLoader.from_generator(
                            feed_list=variables, capacity=4, iterable=True,
                            return_list=return_list, drop_last=drop_last,
                        )
                    for name, made in {
                        "sample": loader().set_sample_generator(samples, 4, places=places),
                        "short": loader().set_sample_generator(samples, 4, False, places),
                        "list": loader().set_sample_list_generator(sample_lists, places=places),
                        "batch": loader().set_batch_generator(batches, places=places),
                    }.items():
                        key = f"{name} {count} {return_list} {drop_last}"
                        found[key] = [named(made) for epoch in range(2)]
    tell(found)
    """
)


@compares(STATIC)
def test_generator_loaders_of_static_graph_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


DYNAMIC = Story(
    HEAD
    + """
    found = []
    for use_multiprocess in (False, True):
        for name, data in (("sample_list", sample_lists), ("batch", batches)):
            loader = DataLoader.from_generator(
                capacity=4, return_list=True, use_multiprocess=use_multiprocess
            )
            getattr(loader, f"set_{name}_generator")(data, places=paddle.CPUPlace())
            found.append([[describe(batch) for batch in loader] for epoch in range(2)])
    loader = DataLoader.from_generator(capacity=4, return_list=True)
    loader.set_sample_generator(samples, 4, False, paddle.CPUPlace())
    found.append([describe(batch) for batch in loader])
    tell(found)
    """
)


@compares(DYNAMIC)
def test_generator_loaders_of_dynamic_graph_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


PYREADER = Story(
    HEAD
    + """
    paddle.enable_static()
    found = []
    with paddle.static.program_guard(paddle.static.Program()):
        variables = list(inputs())
        for return_list in (False, True):
            for name, data, more in (
                ("sample", samples, {"batch_size": 4, "drop_last": False}),
                ("sample_list", sample_lists, {}),
                ("batch", batches, {}),
            ):
                reader = PyReader(variables, 4, iterable=True, return_list=return_list)
                decorate = getattr(reader, f"decorate_{name}_generator")
                decorate(data, places=paddle.CPUPlace(), **more)
                found.append([named(reader()) for epoch in range(2)])
    tell(found)
    """
)


@compares(PYREADER)
def test_pyreader_under_its_older_names_yields_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


FEEDING = """
    paddle.enable_static()

    def train():
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            x, y = inputs()
            loader = %s
            total = paddle.mean(x)
        exe = paddle.static.Executor(paddle.CPUPlace())
        exe.run(startup)
        found = []
        for epoch in range(4):
            loader.start()
            sums = []
            try:
                while len(sums) < 2 or epoch != 1:  # epoch 1 ends early
                    sums.append(float(exe.run(main, fetch_list=[total])[0]))
            except paddle.base.core.EOFException:
                sums.append("EOF")
            loader.reset()
            found.append(sums)
        return found
"""
FROM_GENERATOR = """DataLoader.from_generator(
                feed_list=[x, y], capacity=2, iterable=False
            ).set_batch_generator(batches)"""
OLD_IR = """
    with paddle.pir_utils.OldIrGuard():
        tell(train())
"""
NOT_ITERABLE = Story(HEAD + FEEDING % FROM_GENERATOR + OLD_IR)
NOT_ITERABLE_PYREADER = Story(
    HEAD
    + """
    def make(x, y):
        reader = PyReader([x, y], 2, iterable=False)
        reader.decorate_sample_list_generator(sample_lists)
        return reader
    """
    + FEEDING % "make(x, y)"
    + OLD_IR
)
PIR = Story(HEAD + FEEDING % FROM_GENERATOR + "\n    tell(outcome(train))\n")


@compares(NOT_ITERABLE)
def test_start_run_until_eof_and_reset_are_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(NOT_ITERABLE_PYREADER)
def test_pyreader_starts_and_resets_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@demonstrated_by(PIR)
def test_paddle_fails_with_a_type_error_of_its_own_in_pir_mode(verdict: Verdict) -> None:
    kind, name, text, _ = verdict.result
    assert (kind, name) == ("raised", "TypeError")
    assert "incompatible function arguments" in text


@proved_by(PIR)
def test_loader_that_is_not_iterable_is_refused_in_pir_mode_with_the_remedy(
    verdict: Verdict,
) -> None:
    kind, _, text, kinds = verdict.result
    assert kind == "raised"
    assert "ValueError" in kinds
    assert "OldIrGuard" in text


UNORDERED = Story(
    HEAD.replace("import DataLoader, PyReader", "import DataLoader, keep_data_loader_order")
    + """
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program()):
        variables = list(inputs())
        asked = [keep_data_loader_order()]
        keep_data_loader_order(False)
        asked.append(keep_data_loader_order())
        loader = DataLoader.from_generator(feed_list=variables, capacity=4, drop_last=False)
        loader.set_batch_generator(batches, places=[paddle.CPUPlace()] * 2)
        sizes = [[sorted(feed) for feed in step] for step in loader]
    tell([asked, sizes])
    """
)


@demonstrated_by(UNORDERED)
def test_paddle_yields_empty_dicts_when_the_order_is_not_kept(verdict: Verdict) -> None:
    asked, sizes = verdict.result
    assert asked == [True, False]
    assert [] in [names for step in sizes for names in step]


@proved_by(UNORDERED)
def test_order_is_kept_and_no_place_is_empty_for_any_switch(verdict: Verdict) -> None:
    asked, sizes = verdict.result
    assert asked == [True, False]
    assert sizes == [[["x", "y"], ["x", "y"]], [["x", "y"]]]


GENERATOR_ERROR = Story(
    HEAD
    + """
    def broken():
        yield from list(batches())[:2]
        raise LookupError("no third batch")

    paddle.enable_static()
    seen = []
    with paddle.static.program_guard(paddle.static.Program()):
        loader = DataLoader.from_generator(feed_list=list(inputs()), capacity=4)
        loader.set_batch_generator(broken, places=[paddle.CPUPlace()])
        try:
            for step in loader:
                seen.append(np.array(step[0]["x"]).shape[0])
        except Exception as error:
            tell([type(error).__name__, seen])
    """
)


@demonstrated_by(GENERATOR_ERROR)
def test_paddle_hides_the_error_of_a_generator(verdict: Verdict) -> None:
    assert verdict.result[0] == "SystemError"


@proved_by(GENERATOR_ERROR)
def test_error_of_a_generator_comes_as_it_is_after_the_batches_before_it(verdict: Verdict) -> None:
    assert verdict.result == ["LookupError", [4, 4]]


WRONG_DIMENSION = Story(
    HEAD
    + """
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program()):
        wide = paddle.static.data("wide", [None, 3], "float32")
        loader = DataLoader.from_generator(feed_list=[wide], capacity=4)
        loader.set_batch_generator(
            lambda: iter([[np.zeros((2, 4), "float32")]]), places=[paddle.CPUPlace()]
        )
        tell(outcome(lambda: [np.array(step[0]["wide"]) for step in loader]))
    """
)


@demonstrated_by(WRONG_DIMENSION)
def test_paddle_lets_a_wrong_dimension_pass(verdict: Verdict) -> None:
    assert verdict.result[0] == "returned"


@proved_by(WRONG_DIMENSION)
def test_wrong_dimension_is_refused_by_name(verdict: Verdict) -> None:
    kind, _, text, kinds = verdict.result
    assert kind == "raised"
    assert "ValueError" in kinds
    assert "wide" in text


DATASETS = Story(
    HEAD
    + """
    paddle.enable_static()
    for number in (0, 1):
        with open(f"part-{number}", "w") as file:
            for row in range(4):
                file.write(f"2 {number}.5 {row}.0 1 {row}\\n")
    found = []
    with paddle.static.program_guard(paddle.static.Program()):
        x, y = inputs()
        for kind in ("QueueDataset", "InMemoryDataset"):
            dataset = getattr(paddle.distributed, kind)()
            dataset.init(batch_size=2, thread_num=1, use_var=[x, y], pipe_command="cat")
            dataset.set_filelist(["part-0", "part-1"])
            if kind == "InMemoryDataset":
                dataset.load_into_memory()
            loader = DataLoader.from_dataset(dataset, [paddle.CPUPlace()], drop_last=True)
            steps = [
                [{name: np.array(feed[name]).tolist() for name in sorted(feed)} for feed in step]
                for step in loader
            ]
            found.append(sorted(map(str, steps)))
        found.append(outcome(lambda: DataLoader.from_dataset([1], [paddle.CPUPlace()]))[:2])
    tell(found)
    """,
    attempts=2,
)


@compares(DATASETS)
def test_queue_and_in_memory_datasets_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = (verdict.result for verdict in both)
    assert len(theirs[0]) == 4
    assert ours[:2] == theirs[:2]
    assert theirs[2] == ["raised", "AssertionError"]
    assert ours[2][0] == "raised"
