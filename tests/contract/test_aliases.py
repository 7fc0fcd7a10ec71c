"""An object that a collate_fn puts at two places stays one object in the user's batch."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from reader import CollateError, DataLoader
from reader._core.batch.structure import NodeKind, flatten
from tests.datasets import Box, FrozenBox, Point

pytestmark = pytest.mark.timeout(120)
KINDS = pytest.mark.parametrize(
    "kind",
    [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 1, "worker_type": "thread"}],
    ids=["none", "process", "thread"],
)
FRAMEWORKS = pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])


def row() -> Any:
    return np.arange(6.0)


def first(make: Any, framework: str, kind: dict[str, Any]) -> Any:
    """The first batch of a loader whose collate_fn makes it."""
    with DataLoader(
        range(2), batch_size=2, collate_fn=lambda samples: make(), framework=framework, **kind
    ) as loader:
        return next(iter(loader))


def set_first(array: Any, number: int) -> None:
    array[(0,) * array.ndim] = number


@KINDS
@FRAMEWORKS
def test_an_array_at_two_places_stays_one(framework: str, kind: dict[str, Any]) -> None:
    def make() -> Any:
        array = row()
        return {"x": array, "y": [array, "a"], "z": Box(array, 1), "w": row()}

    batch = first(make, framework, kind)
    assert batch["x"] is batch["y"][0] is batch["z"].image
    set_first(batch["x"], 9)
    assert [float(each[0]) for each in (batch["y"][0], batch["z"].image, batch["w"])] == [9, 9, 0]


@KINDS
@FRAMEWORKS
@pytest.mark.parametrize(
    "container",
    [
        lambda x: [x],
        lambda x: {"x": x},
        lambda x: (x, 1),
        lambda x: Point(x, 1),
        lambda x: Box(x, 1),
        lambda x: FrozenBox(x, 1),
        lambda x: collections.OrderedDict(x=x),
    ],
    ids=["list", "dict", "tuple", "namedtuple", "dataclass", "frozen", "OrderedDict"],
)
def test_a_container_at_two_places_stays_one(
    container: Any, framework: str, kind: dict[str, Any]
) -> None:
    def make() -> Any:
        one = container(row())
        return {"x": one, "y": [one], "z": container(row())}

    batch = first(make, framework, kind)
    assert batch["x"] is batch["y"][0]
    assert batch["x"] is not batch["z"]
    assert type(batch["x"]) is type(make()["x"])


@KINDS
@FRAMEWORKS
def test_lists_and_dicts_within_themselves_arrive_so(framework: str, kind: dict[str, Any]) -> None:
    def make() -> Any:
        made: list[Any] = [row(), {}]
        made += [made, made]
        made[1]["back"] = (made, made[1])
        return made

    batch = first(make, framework, kind)
    assert batch[2] is batch
    assert batch[3] is batch
    assert batch[1]["back"][0] is batch
    assert batch[1]["back"][1] is batch[1]
    assert len(batch) == 4
    assert batch[0].tolist() == row().tolist()


@KINDS
@FRAMEWORKS
def test_a_list_without_arrays_within_itself_arrives_so(
    framework: str, kind: dict[str, Any]
) -> None:
    def make() -> Any:
        inner: list[Any] = ["a"]
        made = [inner, row(), inner]
        inner += [inner, inner]
        return made

    batch = first(make, framework, kind)
    assert batch[0] is batch[2]
    assert batch[0][1] is batch[0]
    assert batch[0][2] is batch[0]
    assert batch[1].tolist() == row().tolist()


@KINDS
@FRAMEWORKS
@pytest.mark.parametrize("container", [lambda x: (x,), lambda x: Box(x, 1)])
def test_other_containers_within_themselves_are_refused(
    container: Any, framework: str, kind: dict[str, Any]
) -> None:
    def make() -> Any:
        inner: list[Any] = [row()]
        inner.append(container(inner))
        return inner[1]

    with pytest.raises(CollateError, match="contains itself and is no plain list or dict"):
        first(make, framework, kind)


@KINDS
def test_an_array_on_two_to_the_40th_paths_is_visited_once(kind: dict[str, Any]) -> None:
    def make() -> Any:
        made: Any = [row()]
        for _ in range(40):
            made = [made, made]
        return made

    batch = first(make, "numpy", kind)
    for _ in range(40):
        assert batch[0] is batch[1]
        batch = batch[0]
    assert batch[0].tolist() == row().tolist()


@KINDS
def test_views_of_an_array_are_copies_as_in_its_pickle(kind: dict[str, Any]) -> None:
    def make() -> Any:
        array = row()
        return array[:4], array[2:]

    one, other = first(make, "numpy", kind)
    one[2] = 9
    assert other[0] == 2


@KINDS
def test_deeper_nesting_than_100_levels_is_refused(kind: dict[str, Any]) -> None:
    def make() -> Any:
        made: Any = row()
        for _ in range(101):
            made = [made]
        return [made, made]

    with pytest.raises(CollateError, match="nested deeper than 100 levels"):
        first(make, "numpy", kind)


def test_batches_of_one_form_keep_their_own_aliases() -> None:
    def make(samples: list[int]) -> Any:
        one = [row()]
        return [one, one if samples[0] % 2 else [row()]]

    with DataLoader(range(9), batch_size=1, collate_fn=make, num_workers=1) as loader:
        assert [batch[0] is batch[1] for batch in loader] == [bool(i % 2) for i in range(9)]


def test_what_is_at_two_places_is_sent_once() -> None:
    array, a_list = row(), [row(), 1]
    flat = flatten([array, a_list, array, a_list], keeps_aliases=True)
    assert len(flat.fields) == 2
    assert flat.structure.kind == NodeKind.GRAPH
    assert flat.structure.paths() == (["[0]", "[1][0]"], ["[1][1]"])
    again = pickle.loads(pickle.dumps(flat.structure))
    assert again == flat.structure
    assert hash(again) == hash(flat.structure)
    assert (
        repr(again) == "list([0]: field 0, [1]: list([0]: field 1, [1]: object 0), [2]: field 0,"
        " [3]: container 1 again)"
    )
    for structure in (again, again.plain(), again.listed()):
        one, two, three, four = structure.restore(flat.fields, flat.objects)
        assert one is three
        assert two is four
    tree = flatten([array, a_list, array, a_list]).structure
    assert tree != flat.structure
    assert len(tree.paths()[0]) == 4


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 32, 33, 200])
def test_one_alias_among_many_fields_is_found(count: int) -> None:
    rows = [row() for _ in range(count)]
    assert flatten(rows, keeps_aliases=True).structure.kind == NodeKind.LIST
    for place in {0, count // 2, count - 1}:
        flat = flatten([*rows, rows[place]], keeps_aliases=True)
        assert len(flat.fields) == count
        found = flat.structure.restore(flat.fields, flat.objects)
        assert found[-1] is found[place]
    base = torch.arange(10 * count + 10)
    views = [base[10 * n : 10 * n + 10] for n in range(count)]
    assert len(flatten(views, exact=True).fields) == count
    if count > 1:
        views[-1] = base[5:12]
        assert flatten(views, exact=True).fields == []
