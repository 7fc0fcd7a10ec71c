"""Attributes, copies and iterators that programs read from PyTorch's loader, and from ours.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

import reader.compat.torch as ours
from reader.compat.torch import engine
from tests.datasets import Pids
from tests.names import shown
from tests.peers.torch_parity import check_same, check_same_error
from tests.peers.torch_samples import Counted, Rows, Stream

pytestmark = pytest.mark.peer
ROWS, STREAM = Rows(6), Stream(3)
LOADERS = pytest.mark.parametrize(
    "loader", [data.DataLoader, ours.DataLoader], ids=["theirs", "ours"]
)


ATTRIBUTES = (
    "dataset batch_size sampler batch_sampler drop_last num_workers collate_fn pin_memory timeout "
    "worker_init_fn generator prefetch_factor persistent_workers multiprocessing_context in_order "
    "pin_memory_device _iterator _index_sampler _auto_collation _dataset_kind"
).split()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 3, "shuffle": True},
        {"batch_size": None},
        {"batch_sampler": [[1]]},
        {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "spawn"},
        {"dataset": STREAM, "drop_last": True},
        {"num_workers": 2, "prefetch_factor": 5, "timeout": 3, "in_order": False},
    ],
    ids=shown,
)
def test_attributes_that_programs_read_are_pytorchs(options: dict[str, Any]) -> None:
    def act(loader: Any) -> Any:
        made = loader(**{"dataset": ROWS, **options})
        values = [getattr(made, name) for name in ATTRIBUTES]
        return [
            value if isinstance(value, (int, str, list, type(None))) else type(value).__name__
            for value in values
        ]

    check_same(act)


@LOADERS
@pytest.mark.parametrize(
    "name", "batch_size batch_sampler sampler drop_last dataset persistent_workers".split()
)
def test_attributes_that_pytorch_freezes_are_frozen_with_its_text(loader: Any, name: str) -> None:
    made = loader(ROWS, 2)
    text = f"{name} attribute should not be set after DataLoader is initialized"
    with pytest.raises(ValueError, match=text):
        setattr(made, name, None)
    assert made.dataset is ROWS


def test_attributes_that_pytorch_reads_anew_are_read_anew() -> None:
    def act(loader: Any) -> Any:
        made = loader(ROWS, 2)
        found = [list(made)]
        made.collate_fn = str
        found.append(list(made))
        made.num_workers, made.prefetch_factor = 1, 1
        found.append(list(made))
        made.timeout, made.worker_init_fn, made.in_order = 30, set_first, False
        found.append(list(made))
        made.multiprocessing_context = "fork"
        made.generator = torch.Generator().manual_seed(3)
        found.append([list(made), made.generator.get_state()])
        made.num_workers, made.timeout = 0, 0
        made.pin_memory = False
        made.collate_fn = len
        return [*found, list(made), len(made)]

    check_same(act)


def set_first(worker_id: int) -> None:
    data.get_worker_info().dataset.count = 77


def test_multiprocessing_context_is_checked_when_it_is_assigned() -> None:
    def act(loader: Any) -> Any:
        made = loader(ROWS, num_workers=1)
        made.multiprocessing_context = "nonsense"

    check_same_error(act, "multiprocessing_context option should specify a valid start method in")


def test_loader_is_subscriptable_and_an_instance_of_pytorchs() -> None:
    made = ours.DataLoader(ROWS)
    assert isinstance(made, data.DataLoader)
    assert typing.get_args(ours.DataLoader[int]) == (int,)
    assert isinstance(ours.DataLoader[Any](ROWS), ours.DataLoader)

    class Own(ours.DataLoader[torch.Tensor]):
        """A loader of the user's."""

    assert len(list(Own(ROWS, 3))) == 2
    with pytest.raises(ValueError, match="should not be set after Own is initialized"):
        Own(ROWS).batch_size = 2


def test_representation_is_of_the_same_form() -> None:
    def act(loader: Any) -> Any:
        return repr(loader(ROWS)).partition(" object at 0x")[0].rpartition(".")[2]

    check_same(act)


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_cannot_be_pickled(workers: int) -> None:
    for loader in (data.DataLoader, ours.DataLoader):
        batches = iter(loader(ROWS, num_workers=workers))
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            pickle.dumps(batches)
        del batches


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_are_copied_and_pickled_the_same(again: Any, workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(ROWS, 2, True, num_workers=workers)
        twin = again(made)
        return [list(twin), twin.batch_size, twin.num_workers, list(made)]

    check_same(act)


def test_loader_with_living_persistent_workers_is_not_pickled_with_them() -> None:
    """PyTorch refuses it because of the iterator inside; ours leaves the iterator out."""
    made = ours.DataLoader(ROWS, 3, num_workers=1, persistent_workers=True)
    first = [batch[1].tolist() for batch in made]
    with contextlib.suppress(NotImplementedError):
        twin = pickle.loads(pickle.dumps(made))
        assert [batch[1].tolist() for batch in twin] == first
        twin.close()
    made.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_iterator_shows_its_workers(persistent: bool) -> None:
    for loader in (data.DataLoader, ours.DataLoader):
        made = loader(ROWS, 2, num_workers=2, persistent_workers=persistent)
        batches = iter(made)
        next(batches)
        workers = list(batches._workers)
        assert len(workers) == 2
        assert all(worker.is_alive() and worker.pid > 0 for worker in workers)
        assert [worker.exitcode for worker in workers] == [None, None]
        assert len({worker.pid for worker in workers}) == 2
        assert (made._iterator is batches) is persistent
        batches._shutdown_workers()
        for worker in workers:
            worker.join(40)
        assert not any(worker.is_alive() for worker in workers)
        assert None not in [worker.exitcode for worker in workers]
        del batches, made, workers


def test_workers_are_shown_when_they_are_first_asked_for_after_the_epoch() -> None:
    for loader in (data.DataLoader, ours.DataLoader):
        batches = iter(loader(Pids(6), num_workers=2))
        made_by = [int(batch) for batch in batches]
        assert [worker.pid for worker in batches._workers] == made_by[:2]
        del batches


def test_each_of_two_iterators_shows_the_workers_that_make_its_batches() -> None:
    made = ours.DataLoader(Pids(6), num_workers=1, persistent_workers=True)
    first, second = iter(made), iter(made)
    for batches in (first, second, first, second):
        assert [worker.pid for worker in batches._workers] == [int(next(batches))]
    made.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_profiles_name_batches_as_pytorch_does(workers: int) -> None:
    def act(loader: Any) -> Any:
        with torch.autograd.profiler.profile() as profile:
            list(loader(ROWS, 2, num_workers=workers))
        return [(e.key, e.count) for e in profile.key_averages() if "DataLoader" in e.key]

    check_same(act)


@pytest.mark.parametrize("workers", [0, 1])
def test_attributes_of_iterators_are_pytorchs(workers: int) -> None:
    names = (
        "_dataset_kind _auto_collation _drop_last _num_workers _pin_memory _timeout "
        "_persistent_workers _num_yielded _base_seed"
    )

    def act(loader: Any) -> Any:
        batches = iter(loader(ROWS, 2, num_workers=workers))
        next(batches)
        shown = [getattr(batches, name) for name in names.split()]
        return [*shown, len(batches), iter(batches) is batches, batches._collate_fn.__name__]

    check_same(act)


def test_length_without_one_is_a_type_error() -> None:
    def lengthless(loader: Any) -> Any:
        return len(loader(ROWS, sampler=endless()))

    check_same_error(lengthless, "has no len()")
    check_same_error(lambda loader: len(loader(Stream(3), 2)), "has no len()")


def endless() -> Iterator[int]:
    while True:
        yield 1


def test_lengths_are_the_same() -> None:
    def act(loader: Any) -> Any:
        return [
            len(loader(dataset, batch_size, drop_last=drop_last))
            for dataset in (ROWS, Counted(7, 7), Rows(0))
            for batch_size, drop_last in ((1, False), (4, False), (4, True), (None, False))
        ]

    check_same(act)


@pytest.mark.parametrize("persistent", [False, True])
def test_every_iteration_has_an_iterator_of_its_own(persistent: bool) -> None:
    """PyTorch's persistent loader has one for all, which two loops corrupt."""
    made = ours.DataLoader(ROWS, 2, num_workers=1, persistent_workers=persistent)
    first, second = iter(made), iter(made)
    assert first is not second
    made.close()


OURS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"seed": "a"}, "seed"),
    ({"seed": -1}, "seed"),
    ({"worker_type": "fiber"}, "worker_type"),
    ({"num_workers": 1, "worker_retries": -1}, "worker_retries"),
    ({"num_workers": 1, "max_bytes": 0}, "max_bytes"),
    ({"num_workers": 1, "max_bytes": "much"}, "max_bytes"),
    ({"pin_limit": -1}, "pin_limit"),
    ({"pin_limit": 100}, "pin_limit"),
    ({"prefetch_next_epoch": True}, "prefetch_next_epoch"),
    ({"num_workers": 1, "prefetch_next_epoch": True}, "prefetch_next_epoch"),
    ({"num_workers": 1.5}, "num_workers"),
    ({"num_workers": "2"}, "num_workers"),
]


@pytest.mark.parametrize(("options", "text"), OURS_REFUSED, ids=str)
def test_arguments_of_ours_are_refused_by_name_when_the_loader_is_made(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        ours.DataLoader(ROWS, **options)


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_reports_its_workers_and_counts(persistent: bool) -> None:
    loader = ours.DataLoader(range(12), 4, num_workers=2, persistent_workers=persistent)
    assert (loader.workers(), loader.stats()) == ([], None)
    for done, _ in enumerate(loader, 1):
        assert [worker.worker_id for worker in loader.workers()] == [0, 1]
        assert loader.stats()["batches"] == done
    assert len(loader.workers()) == (2 if persistent else 0)
    assert copy.copy(loader).stats() is None
    loader.close()


def test_options_are_made_again_only_if_an_attribute_changed() -> None:
    made = ours.DataLoader(ROWS)
    maker = engine.EngineMaker()
    before = maker.options(made)
    assert maker.options(made) is before
    for name, value in (("warn_after", 3.0), ("on_error", "skip"), ("timeout", 5), ("seed", 1)):
        setattr(made, name, value)
        after = maker.options(made)
        assert after is not before
        assert getattr(after, name) == value
        before = after


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"collate_fn": list}, [[0, 1], [2, 3], [4, 5]]),
        ({"generator": torch.Generator().manual_seed(3)}, None),
        ({"num_workers": 1}, None),
        ({"in_order": False}, None),
    ],
    ids=shown,
)
def test_a_changed_attribute_takes_effect_in_the_next_epoch(
    change: dict[str, Any], found: Any
) -> None:
    made = ours.DataLoader(range(6), batch_size=2)  # type: ignore[arg-type]
    for _ in range(2):
        assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4, 5]]
    for name, value in change.items():
        setattr(made, name, value)
    again = list(made)
    if found is None:
        found = [[0, 1], [2, 3], [4, 5]]
        again = [batch.tolist() for batch in again]
    assert again == found
    made.batch_sampler.batch_size = 3  # type: ignore[union-attr]
    assert len(list(made)) == 2
