"""Structure: whatever is flattened comes back, container types included."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import DataLoader, LoDTensorArray
from reader._core.batch.structure import flatten, restore
from tests.datasets import Box, Calls, FrozenBox, Point

ARRAYS = st.builds(
    lambda shape, kind: np.arange(int(np.prod(shape))).astype(kind).reshape(shape),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["f4", "i8", "u1", "c8", ">i2", "M8[s]"]),
)
OBJECTS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.integers()), st.none())


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(children, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        st.dictionaries(KEYS, children, max_size=4),
        st.dictionaries(st.text(max_size=2), children, max_size=3).map(collections.OrderedDict),
        st.tuples(children, children).map(lambda pair: Point(*pair)),
        st.tuples(children, children).map(lambda pair: Box(*pair)),
        st.tuples(children, children).map(lambda pair: FrozenBox(*pair)),
    )


VALUES = st.recursive(st.one_of(ARRAYS, OBJECTS), containers, max_leaves=15)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype.newbyteorder("=") == other.dtype.newbyteorder("=")
            and one.shape == other.shape
            and bool((one == other).all())
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (Box, FrozenBox)):
        return same(vars(one), vars(other))
    return bool(one == other)


@given(VALUES)
def test_restore_undoes_flatten(value: Any) -> None:
    fields, objects, structure = flatten(value)
    assert all(isinstance(field, np.ndarray) for field in fields)
    assert same(structure.restore(fields, objects), value)
    assert same(restore(structure, fields, objects), value)


@given(VALUES)
def test_structure_survives_pickle_and_compares_equal(value: Any) -> None:
    fields, objects, structure = flatten(value)
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure
    assert hash(again) == hash(structure)
    assert same(again.restore(fields, objects), value)
    assert flatten(value).structure == structure


@given(VALUES)
def test_lod_tensor_array_restores_a_batch(value: Any) -> None:
    batch = LoDTensorArray.from_batch(value)
    assert len(batch) == len(flatten(value).fields)
    assert same(batch.restore(), value)
    names, others = flatten(value).structure.paths()
    assert len(names) == len(batch)
    assert len(set(names)) == len(names)
    assert len(others) == len(flatten(value).objects)


@settings(max_examples=40)
@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from([0, 1]))
def test_any_batch_of_a_collate_fn_arrives_whole(values: list[Any], workers: int) -> None:
    with DataLoader(
        Calls(values.__getitem__, len(values)), batch_size=None, num_workers=workers
    ) as loader:
        found = list(loader)
    assert len(found) == len(values)
    for one, value in zip(found, values, strict=True):
        assert same(one, value)


def test_container_that_contains_itself_is_refused() -> None:
    made: list[Any] = [np.ones(1)]
    made.append(made)
    with pytest.raises(ValueError, match="contains itself"):
        flatten(made)


def test_value_that_appears_twice_is_no_cycle() -> None:
    shared = [np.ones(1)]
    fields, _, structure = flatten((shared, shared))
    assert len(fields) == 2
    assert same(structure.restore(fields), (shared, shared))
