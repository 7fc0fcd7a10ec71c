"""Every kind of sample through one program text: paddle.io 3.3.1's batches and ours are the same.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import LIMIT_S, Story, Verdict, compares

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

PROGRAM = """
    import collections
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import describe, tell

    Point = collections.namedtuple("Point", "x y")
    row = lambda index, *shape: np.full(shape or (3,), index, "float32")
    found = {}
    for name, make in {
%s
    }.items():
        loader = make()
        found[name] = [len(loader), *map(describe, loader)]
    tell(found)
"""
TOGETHER = 8  # cases in one program, for its start takes longer than they do


def story(cases: dict[str, str], more: str) -> Story:
    """One program that makes a loader of each case: name to first arguments."""
    lines = (f"    {name!r}: lambda: DataLoader({text}, {more})," for name, text in cases.items())
    return Story(PROGRAM % "\n".join(lines))


def each_of(cases: dict[str, str], more: str, workers: str = "") -> pytest.MarkDecorator:
    """Make the test's claim of each case; its fixture `both` compares them.

    `more`: arguments for both sides of the comparison. `workers`: for a third run, ours.
    """
    names = list(cases)
    found = []
    for first in range(0, len(names), TOGETHER):
        some = {name: cases[name] for name in names[first : first + TOGETHER]}
        marks = [pytest.mark.compares(story(some, more))]
        if workers:
            marks.append(pytest.mark.tells(story(some, workers), LIMIT_S))
        found += [pytest.param(name, id=name, marks=marks) for name in some]
    return pytest.mark.parametrize("kind", found)


def check_same(both: tuple[Verdict, Verdict], kind: str) -> None:
    theirs, ours = (verdict.result[kind] for verdict in both)
    assert len(theirs) > 1, "there is nothing to compare"
    assert ours == theirs


EVERY_DTYPE = (
    "[{dtype: np.array([[i, 1], [0, 2]]).astype(dtype) for dtype in ('bool int8 uint8 int16 int32 "
    "int64 float16 float32 float64 >i4 >f8 complex64 complex128').split()} for i in range(5)]"
)
KINDS = {
    "array of every dtype": EVERY_DTYPE,
    "0-d array": "[np.array(i, 'float32') for i in range(5)]",
    "large array": "[row(i, 100, 700) for i in range(4)]",
    "array in Fortran order": (
        "[np.asfortranarray(np.arange(6.0).reshape(2, 3) + i) for i in range(4)]"
    ),
    "array with strides": "[np.arange(20.0)[::-2] + i for i in range(4)]",
    "array itself": "np.arange(30, dtype='float32').reshape(10, 3)",
    "row of an array": "np.arange(5)",
    "range": "range(5)",
    "int": "[3, -1, 2**40, 0, 5]",
    "float": "[0.5, 1.5, float('inf'), 2.5, -0.0]",
    "mixed int and float": "[1, 2.5, 3, 4, 5.5]",
    "bool": "[True, False, True, True, False]",
    "numpy float32": "[np.float32(i) for i in range(5)]",
    "numpy int32": "[np.int32(i) for i in range(5)]",
    "numpy float16": "[np.float16(i) for i in range(5)]",
    "numpy uint8": "[np.uint8(i) for i in range(5)]",
    "mixed numpy scalars": "[np.float32(1), np.int64(2), 3, 4.5, np.int8(1)]",
    "tuple": "[(row(i), i) for i in range(5)]",
    "tuple of one": "[(row(i),) for i in range(5)]",
    "list": "[[row(i), i, 0.5 * i] for i in range(5)]",
    "namedtuple": "[Point(row(i), np.int64(i)) for i in range(5)]",
    "dict": "[{'x': row(i), 'y': i} for i in range(5)]",
    "dict with its keys in another order": (
        "[{'x': row(i), 'y': i} if i % 2 else {'y': i, 'x': row(i)} for i in range(5)]"
    ),
    "OrderedDict": "[collections.OrderedDict([('y', row(i)), ('x', i)]) for i in range(5)]",
    "defaultdict": "[collections.defaultdict(int, x=row(i)) for i in range(5)]",
    "dict with keys that are no strings": "[{0: row(i), (1, 2): i} for i in range(5)]",
    "array and string": "[(row(i), f'text {i}') for i in range(5)]",
    "array and bytes": "[(row(i), b'bytes %d' % i) for i in range(5)]",
    "array and text with marks": "[(row(i), '') for i in range(5)]",
    "nested": "[{'a': [row(i), {'b': (i, 'text')}], 'c': Point(row(i), [i, i])} for i in range(5)]",
    "range within": "[(row(i), range(i, i + 2)) for i in range(5)]",
}


@each_of(KINDS, "batch_size=2")
def test_batches_of_each_kind_of_sample_are_the_same(
    both: tuple[Verdict, Verdict], kind: str
) -> None:
    check_same(both, kind)


@each_of(KINDS, "batch_size=2, num_workers=2")
def test_batches_of_each_kind_of_sample_are_the_same_from_workers(
    both: tuple[Verdict, Verdict], kind: str
) -> None:
    check_same(both, kind)


UNBATCHED = {
    "array": "[row(i) for i in range(3)]",
    "0-d array": "[np.array(i, 'float32') for i in range(3)]",
    "tuple": "[(row(i), i) for i in range(3)]",
    "list": "[[row(i), 'text', None] for i in range(3)]",
    "namedtuple": "[Point(row(i), i) for i in range(3)]",
    "dict": "[{'x': row(i), 'y': i, 'z': None} for i in range(3)]",
    "OrderedDict": "[collections.OrderedDict([('y', row(i)), ('x', i)]) for i in range(3)]",
    "numpy scalar beside an array": "[(row(i), np.float32(i), np.int64(i)) for i in range(3)]",
    "0-d array beside an array": "[(row(i), np.array(i)) for i in range(3)]",
    "nested": "[{'a': [row(i), {'b': (i, row(i))}], 'c': Point(row(i), {1, 2})} for i in range(3)]",
    "ragged": "[np.arange(i + 1.0) for i in range(3)]",
    "complex beside an array": "[(row(i), 1j, True, b'bytes') for i in range(3)]",
}


@each_of(UNBATCHED, "batch_size=None")
def test_samples_without_batching_are_the_same(both: tuple[Verdict, Verdict], kind: str) -> None:
    check_same(both, kind)


@each_of(UNBATCHED, "batch_size=None, num_workers=2")
def test_samples_without_batching_are_the_same_from_workers(
    both: tuple[Verdict, Verdict], kind: str
) -> None:
    check_same(both, kind)


COLLATED = {
    "array": "lambda batch: np.stack(batch)",
    "list of arrays": "lambda batch: [np.stack(batch), np.array(len(batch))]",
    "tuple": "lambda batch: (np.stack(batch), 'text', 5)",
    "namedtuple": "lambda batch: Point(np.stack(batch), None)",
    "dict": "lambda batch: {'x': np.stack(batch), 'ids': [1, 2], 'z': {'k': np.zeros(1)}}",
    "OrderedDict": "lambda batch: collections.OrderedDict(b=np.stack(batch), a=np.ones(2))",
    "the samples": "lambda batch: batch",
    "numpy scalars": "lambda batch: [batch[0], np.float32(0.5), np.int64(3), np.bool_(True)]",
    "the example of the page": (
        "lambda b: (b[0], 's', 3, [b[0] + 1, {'k': b[0] + 2, 'z': None}], b'q')"
    ),
    "an object": "lambda batch: [np.stack(batch), {3, 4}, slice(1, 2), 2j]",
}


def collated(functions: dict[str, str]) -> dict[str, str]:
    return {name: f"[row(i) for i in range(5)], collate_fn={f}" for name, f in functions.items()}


@each_of(collated(COLLATED), "batch_size=2")
def test_what_collate_fn_returns_comes_the_same(both: tuple[Verdict, Verdict], kind: str) -> None:
    check_same(both, kind)


@each_of(collated(COLLATED), "batch_size=2, num_workers=2")
def test_what_collate_fn_returns_comes_the_same_from_workers(
    both: tuple[Verdict, Verdict], kind: str
) -> None:
    check_same(both, kind)


ALIASES = """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def arrays(batch):
        array = np.arange(3, dtype="float32")
        return [array, array]

    def views(batch):
        array = np.arange(3, dtype="float32")
        return [array[:3], array[:2]]

    def lists(batch):
        inner = [np.arange(3, dtype="float32")]
        return [inner, inner]

    found = {}
    for workers in 0, 2:
        for make in arrays, views, lists:
            for one, other in DataLoader(range(1), collate_fn=make, num_workers=workers):
                is_one = one is other
                one, other = (one[0], other[0]) if make is lists else (one, other)
                one[0] = 9
                found[f"{make.__name__} {workers}"] = [is_one, one is other, other.tolist()]
    tell(found)
"""


@compares(Story(ALIASES))
def test_paddle_makes_a_tensor_and_a_list_of_each_place_and_so_do_we(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = (verdict.result for verdict in both)
    assert len(theirs) == 6
    assert ours == theirs
    assert all(not is_one and kept[0] == 0 for is_one, _, kept in theirs.values())


@compares(story({"alone": "[]", "workers": "[], num_workers=2"}, "batch_size=2"))
def test_empty_dataset_has_no_batch_in_both(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result == {"alone": [0], "workers": [0]}


TENSORS_OF_COLLATE = {
    "tensor of collate_fn": "lambda batch: paddle.to_tensor(np.stack(batch))",
    "tensors of collate_fn": (
        "lambda batch: {'x': paddle.to_tensor(np.stack(batch)), 'n': np.float64(2)}"
    ),
}
# Batches that paddle.io makes only without workers: with workers it fails, tensors in most runs.
WITHOUT_WORKERS = {
    **collated(TENSORS_OF_COLLATE),
    "tensor": "[paddle.to_tensor(row(i)) for i in range(5)]",
    "dict of tensors": "[{'x': paddle.to_tensor(row(i)), 'name': 'n'} for i in range(5)]",
    "array, then tensor": "[row(0), paddle.to_tensor(row(1)), row(2), paddle.to_tensor(row(3))]",
    "0-d tensor": "[paddle.to_tensor(np.float32(i)) for i in range(5)]",
    "int64 tensor and number": "[(paddle.to_tensor([i, i]), i) for i in range(5)]",
    "array without elements": "[(np.zeros((0, 3), 'float32'), i) for i in range(5)]",
}


@each_of(WITHOUT_WORKERS, "batch_size=2", workers="batch_size=2, num_workers=2")
def test_batches_that_paddle_makes_without_workers_come_from_workers_too(
    both: tuple[Verdict, Verdict], verdict: Verdict, kind: str
) -> None:
    check_same(both, kind)
    assert verdict.result[kind] == both[0].result[kind]
