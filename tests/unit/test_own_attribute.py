"""Attributes are read without a trace: no code of the user runs, no dict is made of an object."""

from __future__ import annotations

import functools
import gc
from typing import Any

import pytest

from reader import DataLoader
from reader._core.interpreter.own_attribute import MISSING, note_owned, own_attribute


class Of:
    shared = None
    same = None
    plain = 3

    def __init__(self) -> None:
        self.own = 1
        self.shared = 2  # type: ignore[assignment]
        self.same = None  # as the class has it, and yet its own
        self.__dict__["read"] = 4

    @property
    def computed(self) -> int:
        raise AssertionError("it was run")

    @functools.cached_property
    def kept(self) -> int:
        raise AssertionError("it was run")

    @functools.cached_property
    def read(self) -> int:
        raise AssertionError("it was run")

    def method(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


class Slotted:
    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own = 1


def test_what_an_object_has_is_found_and_what_its_class_has_is_not() -> None:
    value = Of()
    found = {
        name: own_attribute(value, name, MISSING)
        for name in "own shared same plain computed kept read method none".split()
    }
    assert {name: each for name, each in found.items() if each is not MISSING} == {
        "own": 1,
        "shared": 2,
        "same": None,
        "read": 4,
    }
    assert own_attribute(value, "none") is None


@pytest.mark.parametrize("value", [3, None, [1], len, Of, Slotted(), object()])
def test_anything_may_be_asked(value: Any) -> None:
    assert own_attribute(value, "own", "nothing") == "nothing"


class Rows:
    def __init__(self) -> None:
        self.rows = list(range(8))

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.rows[index]


def has_dict(value: object) -> bool:
    """Whether a dict was made of the object's attributes: the collector sees it."""
    return any(type(each) is dict for each in gc.get_referents(value))


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_leaves_no_dict_with_the_dataset(workers: int) -> None:
    dataset, read = Rows(), Rows()
    makes_dict = not has_dict(read)  # before, this Python keeps attributes beside the object
    assert vars(read)
    with DataLoader(dataset, batch_size=2, num_workers=workers) as loader:
        loader.set_epoch(0)
        assert len(list(loader)) == 4
        loader.state_dict()
    if makes_dict and has_dict(read):
        assert not has_dict(dataset)


def test_objects_within_an_object_are_found_with_the_paths_to_them() -> None:
    class Holder:
        datasets = ()  # of the class: not its own

        def __init__(self, dataset: object, *datasets: object) -> None:
            self.dataset = dataset
            self.sampler = None
            if datasets:
                self.datasets = datasets

    def found(value: object, depth: int) -> list[tuple[tuple[object, ...], object]]:
        pairs: list[tuple[tuple[object, ...], object]] = []
        note_owned(pairs, value, (), ("dataset", "sampler"), ("datasets",), depth)
        return pairs

    inner, other = [1], Holder([2])
    outer = Holder(inner, other, 3)
    assert found(outer, 2) == [
        ((), outer),
        (("dataset",), inner),
        (("datasets", 0), other),
        (("datasets", 0, "dataset"), [2]),
        (("datasets", 1), 3),
    ]
    assert found(outer, 1)[2:] == [(("datasets", 0), other), (("datasets", 1), 3)]
    assert found(inner, 8) == [((), inner)]
