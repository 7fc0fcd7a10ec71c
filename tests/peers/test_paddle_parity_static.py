"""Static graph: the result of one iteration, and its use by the executor, in paddle and here.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

HEAD = """
    import numpy as np
    import paddle
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import describe, outcome, tell

    class Rows(Dataset):
        def __init__(self, count=8):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            return np.full(2, index, "float32"), np.array([index], "int64")

    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [None, 2], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        total = x.sum() + 100.0 * y.astype("float32").sum()
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)

    def named(feeds):  # the names of paddle's own feeds come in any order
        return describe([dict(sorted(feed.items())) for feed in feeds])

    def run(feed):
        return float(exe.run(main, feed=feed, fetch_list=[total])[0])

    two = [paddle.CPUPlace(), paddle.CPUPlace()]
    found = []
    for num_workers in (0, 2):
        for persistent_workers in (False, True)[: num_workers or 1]:
            more = dict(num_workers=num_workers, persistent_workers=persistent_workers)
            found.append(list(program(more)))
    tell(found)
"""


def story(text: str) -> Story:
    """A story in whose middle stands `text`, the body of `program(more)`."""
    lines = "\n".join("        " + line for line in text.strip("\n").splitlines())
    body = f"\n    def program(more):\n{lines}\n"
    text = HEAD.replace("\n    found = []\n", body + "\n    found = []\n", 1)
    return Story(text, attempts=3)


def check_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert theirs.result[0], "there is nothing to compare"
    assert ours.result == theirs.result


@compares(
    story(
        """
loader = DataLoader(Rows(), feed_list=[x, y], batch_size=3, return_list=False, **more)
for _ in range(2):
    for feed in loader:
        yield named(feed), run(feed), run(feed[0])
"""
    )
)
def test_feed_of_one_place_is_taken_by_the_executor_as_it_is(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


@compares(
    story(
        """
loader = DataLoader(Rows(), feed_list=[x, y], batch_size=3, return_list=True, **more)
for batch in loader:
    yield describe(batch), run({"x": batch[0], "y": batch[1]})
for batch in DataLoader(Rows(), batch_size=3, **more):
    yield describe(batch), run({"x": batch[0], "y": batch[1]}), outcome(lambda: run(batch))[:2]
"""
    )
)
def test_list_of_one_place_is_a_structure_of_dense_tensors(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(
    story(
        """
loader = DataLoader(
    Rows(), feed_list=[x, y], places=two, batch_size=1, return_list=False, **more
)
for feeds in loader:
    yield named(feeds), [run(feed) for feed in feeds], outcome(lambda: run(feeds))[:2]
"""
    )
)
def test_feed_of_two_places_is_a_list_of_two(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(
    story(
        """
loader = DataLoader(Rows(), feed_list=[x, y], places=two, batch_size=3, **more)
for batches in loader:
    yield describe(batches), [run({"x": batch[0], "y": batch[1]}) for batch in batches]
"""
    )
)
def test_list_of_two_places_is_a_list_of_two_structures(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(
    story(
        """
import warnings
warnings.simplefilter("ignore")
for count in (1, 4, 5, 11):
    for args in (dict(places=two), dict(places=two * 2), dict(places=["cpu"] * 3)):
        loader = DataLoader(
            Rows(count), feed_list=[x, y], batch_size=2, return_list=False, **args, **more
        )
        yield len(loader), [named(feeds) for feeds in loader]
"""
    )
)
def test_groups_of_several_places_and_their_lengths_are_the_same(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


@compares(
    story(
        """
class Dicts(Rows):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"x": image, "y": label}

loader = DataLoader(Dicts(), feed_list=[x, y], batch_size=3, return_list=False, **more)
for feed in loader:
    yield named(feed), run(feed)
for batch in DataLoader(Dicts(), feed_list=[x, y], batch_size=3, **more):
    yield describe(batch), run(batch)
"""
    )
)
def test_dict_samples_in_the_order_of_feed_list_are_the_same(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


@compares(
    story(
        """
class Nested(Rows):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"a": [image, {"b": label, "name": f"sample {index}"}], "c": (index, 0.5)}

for batch in DataLoader(Nested(), batch_size=3, **more):
    yield describe(batch)
for batch in DataLoader(Nested(), batch_size=None, **more):
    yield describe(batch)
"""
    )
)
def test_structures_in_static_graph_are_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(
    story(
        """
loader = DataLoader(Rows(), feed_list=[x, y], batch_size=3, return_list=False, **more)
for (feed,) in loader:
    field = feed["x"]
    yield (
        field.shape(), str(field._place()), str(field._dtype()), np.array(field).tolist(),
        field.lod(), type(field).__name__, type(feed).__name__, sorted(feed),
    )
"""
    )
)
def test_dense_tensor_answers_what_programs_ask_it(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(
    story(
        """
import warnings
warnings.simplefilter("ignore")
loader = DataLoader(
    [np.full((2, 2), index, "float32") for index in range(4)],
    feed_list=[x], batch_size=None, return_list=False, **more,
)
for feed in loader:
    yield named(feed)
"""
    )
)
def test_samples_without_batching_are_fed_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)
