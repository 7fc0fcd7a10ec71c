"""Marks: which datasets are told the epoch, where they are found, and which number they get."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from reader.data.epochs import apply_marks, epoch_marks


class Told:
    def __init__(self, **attributes: Any) -> None:
        self.calls: list[int] = []
        self.__dict__.update(attributes)

    def set_epoch(self, epoch: int) -> None:
        self.calls.append(epoch)


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("dataset",)


@pytest.mark.parametrize("name", ["epoch", "_epoch"])
def test_own_epoch_of_a_dataset_comes_before_that_of_the_loader(name: str) -> None:
    assert epoch_marks(Told(**{name: 7}), 2) == [((), 7)]
    assert epoch_marks(Told(**{name: 0}), 2) == [((), 0)]


@pytest.mark.parametrize("value", [None, "spring", 1.5, True, print])
def test_epoch_that_is_no_int_leaves_that_of_the_loader(value: Any) -> None:
    assert epoch_marks(Told(epoch=value), 2) == [((), 2)]
    assert epoch_marks(Told(), 2) == [((), 2)]


@pytest.mark.parametrize("dataset", [Holder(), [1, 2], range(3), None, {}, object(), Slotted()])
def test_dataset_without_set_epoch_has_no_mark(dataset: Any) -> None:
    assert epoch_marks(dataset, 2) == []
    apply_marks(dataset, [])


def test_inner_datasets_are_found_and_told_the_epoch_outermost_first() -> None:
    made = Told(
        epoch=1,
        dataset=Holder(datasets=[Told(epoch=2), Holder(dataset=Told(epoch=3)), range(3)]),
        datasets=(Told(),),
    )
    marks = epoch_marks(made, 9)
    assert marks == [
        ((), 1),
        (("dataset", "datasets", 0), 2),
        (("dataset", "datasets", 1, "dataset"), 3),
        (("datasets", 0), 9),
    ]
    assert pickle.loads(pickle.dumps(marks)) == marks
    other = copy.deepcopy(made)
    apply_marks(other, marks)
    assert other.calls == [1]
    assert other.dataset.datasets[0].calls == [2]
    assert other.dataset.datasets[1].dataset.calls == [3]
    assert other.datasets[0].calls == [9]
    assert made.calls == []


def test_dataset_that_holds_itself_is_told_the_epoch_a_few_times_at_most() -> None:
    made = Told(epoch=4)
    made.dataset = made  # type: ignore[attr-defined]
    marks = epoch_marks(made, 0)
    assert 1 <= len(marks) <= 20
    apply_marks(made, marks)
    assert set(made.calls) == {4}


def test_set_epoch_that_is_no_method_is_not_called() -> None:
    assert epoch_marks(Holder(set_epoch=None), 1) == []
    assert epoch_marks(Holder(set_epoch=3, epoch=1), 1) == []


def test_class_of_a_dataset_is_not_told_the_epoch() -> None:
    assert epoch_marks(Told, 1) == []
