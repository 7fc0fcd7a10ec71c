"""Objects at two places of a batch: the torch face beside PyTorch's own queue."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as PeerLoader

from reader.compat.torch import DataLoader
from tests.peers.torch_values import queued

pytestmark = pytest.mark.timeout(120)
EPOCH = {"dataset": range(2), "batch_size": 2}


class Holder:
    """An object that a batch holds, with a tensor of its own or of the batch."""

    def __init__(self, held: Any) -> None:
        self.held = held


class Pair(collections.namedtuple("Pair", "x y")):
    """A container with more than its children: it is pickled as a whole."""


def row() -> torch.Tensor:
    return torch.arange(12.0)


def a_tensor(samples: Any) -> Any:
    found = row()
    return {"input": found, "labels": found, "n": 1}


def an_empty_tensor(samples: Any) -> Any:
    found = torch.empty(0)
    return {"input": found, "labels": found}


def an_array(samples: Any) -> Any:
    found = np.arange(300)
    return found, [found]


def views_of_an_array(samples: Any) -> Any:
    found = np.arange(300)
    return found[:200], found[100:]


def containers(samples: Any) -> Any:
    a_list, a_dict = [row(), "a"], {"x": row()}
    a_tuple = (a_list, a_dict)
    return [a_list, a_tuple, a_dict, a_tuple, a_list]


def lists_of_texts(samples: Any) -> Any:
    names = ["a", "b"]
    return row(), names, {"names": names}


def a_list_within_itself(samples: Any) -> Any:
    made: list[Any] = [row(), {}]
    made[1]["back"] = made
    return [*made, made, made]


def a_list_within_itself_without_tensors(samples: Any) -> Any:
    made: list[Any] = ["a"]
    made += [made, made, made]
    return row(), made


def a_tuple_within_itself(samples: Any) -> Any:
    made: list[Any] = [row()]
    made.append((made, row()))
    return made[1]


def a_lattice(samples: Any) -> Any:
    """2 to the 40th paths to the tensor."""
    made: Any = [row()]
    for _ in range(40):
        made = [made, made]
    return made


def views(samples: Any) -> Any:
    found = row()
    return found[:8], found[4:]


def windows(samples: Any) -> Any:
    """As a language model's collate_fn makes them."""
    tokens = torch.arange(40).reshape(4, 10)
    return {"input": tokens[:, :-1], "labels": tokens[:, 1:]}


def pieces_of_one_tensor(samples: Any) -> Any:
    return row().split(4)


def small_views_of_a_large_tensor(samples: Any) -> Any:
    found = torch.arange(1 << 21)
    return [found[i * 1000 + k : i * 1000 + k + 9] for i in range(3) for k in (0, 5)]


def views_of_other_types_and_strides(samples: Any) -> Any:
    found = row()
    return [found, found.view(torch.int32), found.reshape(3, 4).t(), found[::3], found.view(4, 3)]


def a_leaf_and_its_values(samples: Any) -> Any:
    found = row().requires_grad_()
    return found, found.detach(), torch.nn.Parameter(found.detach())


def an_object_with_the_tensor(samples: Any) -> Any:
    found = row()
    return {"x": found, "of": Holder(found)}


def an_object_with_a_view(samples: Any) -> Any:
    found = row()
    return {"x": found, "of": Holder([found[3:]])}


def an_object_with_a_list_and_an_array(samples: Any) -> Any:
    a_list, array = [row()], np.arange(5)
    return {"x": a_list, "y": array, "of": Holder([a_list, array])}


def a_subclass_of_a_container(samples: Any) -> Any:
    found = Pair(row(), row())
    return collections.OrderedDict(x=found), found, found.x


def nothing_twice(samples: Any) -> Any:
    return {"x": row(), "y": [row(), torch.ones(2, 3).t()], "of": Holder(row())}


def fifty_rows(samples: Any) -> Any:
    rows = [{"x": row(), "y": row()} for _ in range(50)]
    return [*rows, rows[7], rows[49]["y"]]


MADE: list[Callable[[Any], Any]] = [
    a_tensor,
    an_empty_tensor,
    an_array,
    views_of_an_array,
    containers,
    lists_of_texts,
    a_list_within_itself,
    a_list_within_itself_without_tensors,
    a_tuple_within_itself,
    a_lattice,
    views,
    windows,
    pieces_of_one_tensor,
    small_views_of_a_large_tensor,
    views_of_other_types_and_strides,
    a_leaf_and_its_values,
    an_object_with_the_tensor,
    an_object_with_a_view,
    an_object_with_a_list_and_an_array,
    a_subclass_of_a_container,
    nothing_twice,
    fifty_rows,
]
EACH = pytest.mark.parametrize("make", MADE)


def walk(value: Any, path: str, places: dict[int, str], told: list[Any], leaves: list[Any]) -> None:
    """Describe the object at each place, or name the earlier place of the same object."""
    if id(value) in places and not isinstance(value, (int, str)):
        told.append((path, "is", places[id(value)]))
        return
    places[id(value)] = path
    told.append((path, type(value).__name__))
    if isinstance(value, (torch.Tensor, np.ndarray)):
        leaves.append(value)
        told[-1] += (str(value.dtype), tuple(value.shape))
        if isinstance(value, torch.Tensor):
            told[-1] += (value.stride(), value.requires_grad, value.tolist())
    elif isinstance(value, dict):
        for key in value:
            walk(value[key], f"{path}[{key!r}]", places, told, leaves)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            walk(part, f"{path}[{number}]", places, told, leaves)
    elif isinstance(value, Holder):
        walk(value.held, f"{path}.held", places, told, leaves)
    else:
        told[-1] += (value,)


def shown(batch: Any) -> list[Any]:
    """A batch's types and values, which places are one object, and which leaves a write changes."""
    told: list[Any] = []
    leaves: list[Any] = []
    walk(batch, "batch", {}, told, leaves)
    for number, leaf in enumerate(leaves):
        before = [str(other.tolist()) for other in leaves]
        with torch.no_grad():
            leaf[...] = 1000 + number
        told.append([str(other.tolist()) != old for other, old in zip(leaves, before, strict=True)])
    return told


@EACH
def test_workers_keep_aliases_as_the_queue_of_pytorch_does(make: Any) -> None:
    loader = DataLoader(**EPOCH, num_workers=1, collate_fn=make)  # type: ignore[arg-type]
    assert shown(next(iter(loader))) == shown(queued(make(None)))


@EACH
def test_without_workers_the_batch_is_what_collate_fn_returned_as_in_pytorch(make: Any) -> None:
    ours = DataLoader(**EPOCH, collate_fn=make)  # type: ignore[arg-type]
    theirs = PeerLoader(**EPOCH, collate_fn=make)  # type: ignore[arg-type]
    assert shown(next(iter(ours))) == shown(next(iter(theirs)))


def test_samples_without_batching_keep_aliases() -> None:
    samples = [make(None) for make in (a_tensor, views, a_lattice)]
    loader = DataLoader(samples, batch_size=None, num_workers=1, collate_fn=_as_it_is)  # type: ignore[arg-type]
    for found, sample in zip(loader, samples, strict=True):
        assert shown(found) == shown(queued(sample))


def _as_it_is(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize(
    "make",
    [
        make
        for make in MADE
        if not any(word in make.__name__ for word in ("object", "array", "class"))
    ],
)
def test_worker_threads_keep_aliases(make: Any) -> None:
    """Without a pickle there is nothing to find tensors within objects by, nor views of arrays."""
    loader = DataLoader(  # type: ignore[arg-type]
        **EPOCH, num_workers=1, worker_type="thread", collate_fn=make
    )
    assert shown(next(iter(loader))) == shown(make(None))


def test_batches_of_one_form_keep_their_own_aliases() -> None:
    """Aliases of one batch say nothing about the next batch of the same form."""

    def make(samples: list[int]) -> Any:
        one = [row()]
        return [one, one if samples[0] % 2 else [row()], one[0][2:] if samples[0] % 3 else row()]

    loader = DataLoader(range(12), batch_size=1, num_workers=2, collate_fn=make)  # type: ignore[arg-type]
    for number, batch in enumerate(loader):
        assert shown(batch) == shown(queued(make([number])))


def test_views_of_a_large_tensor_are_sent_without_its_rest() -> None:
    """PyTorch moves the whole storage into shared memory; ours sends the range of the views."""
    loader = DataLoader(**EPOCH, num_workers=1, collate_fn=small_views_of_a_large_tensor)  # type: ignore[arg-type]
    batch = next(iter(loader))
    assert all(part.untyped_storage().nbytes() < 1000 for part in batch)


def test_views_far_apart_in_a_large_tensor_are_sent_each_alone() -> None:
    """If they overlap and cover little of the range, sharing would send all of it."""

    def make(samples: Any) -> Any:
        whole = torch.arange(1_000_000.0).reshape(1000, 1000)
        return [whole[5:8].t(), whole[:, 3]]

    loader = DataLoader(range(1), num_workers=1, collate_fn=make)  # type: ignore[arg-type]
    one, other = next(iter(loader))
    assert one.untyped_storage().nbytes() + other.untyped_storage().nbytes() < 20_000
    assert one[3, 0] == other[5] == 5003


def _nested(samples: Any) -> Any:
    made: Any = [row()]
    for _ in range(100_000):
        made = [made]
    return made


def test_a_batch_that_pickle_cannot_follow_says_so() -> None:
    loader = DataLoader(**EPOCH, num_workers=1, collate_fn=_nested)  # type: ignore[arg-type]
    with pytest.raises(
        Exception, match=r"nested deeper than pickle follows .* flatten it, or send"
    ):
        next(iter(loader))
