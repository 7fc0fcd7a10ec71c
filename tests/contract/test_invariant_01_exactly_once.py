"""Every sample the sampler names reaches the user once, in sampler order (2.1)."""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    BatchSampler,
    ConfigTypeError,
    DataLoader,
    Dataset,
    RandomSampler,
    get_worker_info,
)
from tests.datasets import Batched, Calls, InfoRows, Rows, check_rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
def test_01_each_sample_once_in_order_over_epochs(
    each_cell: dict[str, Any], persistent: bool
) -> None:
    with DataLoader(Rows(50), batch_size=8, persistent_workers=persistent, **each_cell) as loader:
        assert len(loader) == 7
        for _ in range(3 if persistent else 1):
            batches = list(loader)
            assert len(batches) == 7
            for n, batch in enumerate(batches):
                check_rows(batch, range(8 * n, min(50, 8 * n + 8)))


def test_01_drop_last_drops_the_short_batch_alone(cell: dict[str, Any]) -> None:
    with DataLoader(Rows(50), batch_size=8, drop_last=True, **cell) as loader:
        assert len(loader) == 6
        assert [batch[1].tolist() for batch in loader] == [
            list(range(8 * n, 8 * n + 8)) for n in range(6)
        ]
    with DataLoader(Rows(7), batch_size=8, drop_last=True, **cell) as loader:
        assert len(loader) == len(list(loader)) == 0


def test_01_empty_dataset_gives_an_empty_epoch(cell: dict[str, Any]) -> None:
    for shuffle in (False, True):
        with DataLoader(Rows(0), batch_size=8, shuffle=shuffle, **cell) as loader:
            assert len(loader) == 0
            for _ in range(2):
                assert list(loader) == []


def test_01_shuffled_epochs_hold_each_sample_once_and_differ(cell: dict[str, Any]) -> None:
    with DataLoader(Rows(50), batch_size=8, shuffle=True, **cell) as loader:
        orders = [np.concatenate([batch[1] for batch in loader]).tolist() for _ in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_06_seeded_shuffle_is_the_same_in_another_loader(cell: dict[str, Any]) -> None:
    found = []
    for _ in range(2):
        with DataLoader(Rows(50), batch_size=8, shuffle=True, seed=3, **cell) as loader:
            found.append([[batch[1].tolist() for batch in loader] for _ in range(2)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "sampler",
    [
        [5, 5, 3, 0, 49],
        (4, 2, 0),
        range(49, -1, -7),
        np.array([7, 1, 30]),
        [np.int32(3), np.uint8(4), 5],
        [-1, -50, 0],
    ],
    ids=str,
)
def test_01_sampler_decides_the_order(cell: dict[str, Any], sampler: Any) -> None:
    with DataLoader(list(range(50)), batch_size=2, sampler=sampler, **cell) as loader:
        wanted = [range(50)[int(index)] for index in sampler]
        for _ in range(2):
            batches = [batch.tolist() for batch in loader]
            assert list(itertools.chain(*batches)) == wanted
            assert all(len(batch) == 2 for batch in batches[:-1])
        assert len(loader) == -(-len(wanted) // 2)


def test_01_indices_reach_the_dataset_as_python_integers(cell: dict[str, Any]) -> None:
    with DataLoader(
        Calls(lambda i: type(i).__name__, 8),
        batch_size=4,
        sampler=np.arange(8, dtype=np.int16),
        **cell,
    ) as loader:
        assert list(loader) == [["int"] * 4] * 2


def test_01_keys_that_are_no_integers_reach_a_mapping(cell: dict[str, Any]) -> None:
    table = {"a": 1, ("b", 2): 2, b"c": 3}
    with DataLoader(table, batch_size=2, sampler=list(table), **cell) as loader:
        assert [batch.tolist() for batch in loader] == [[1, 2], [3]]


@pytest.mark.parametrize(
    "batches",
    [[[0, 1], [2], [3, 4, 5]], [(7,), (8, 9)], [np.array([1, 2]), np.array([3])], [range(9)]],
    ids=str,
)
def test_01_batch_sampler_decides_the_batches(cell: dict[str, Any], batches: Any) -> None:
    with DataLoader(Rows(10), batch_sampler=batches, **cell) as loader:
        assert len(loader) == len(batches)
        for _ in range(2):
            found = list(loader)
            assert len(found) == len(batches)
            for batch, indices in zip(found, batches, strict=True):
                check_rows(batch, [int(index) for index in indices])


def test_01_batch_samplers_of_the_package_work_alike(cell: dict[str, Any]) -> None:
    sampler = BatchSampler(RandomSampler(Rows(30), seed=4), 7, drop_last=True)
    with DataLoader(Rows(30), batch_sampler=sampler, **cell) as loader:
        assert len(loader) == 4
        assert [batch[1].tolist() for batch in loader] == list(sampler)


def test_01_batch_of_thousands_of_indices_arrives(cell: dict[str, Any]) -> None:
    count = 20_000  # far more than a task ring holds inline
    with DataLoader(list(range(count)), batch_size=7000, shuffle=True, **cell) as loader:
        for _ in range(2):
            found = [batch.tolist() for batch in loader]
            assert [len(batch) for batch in found] == [7000, 7000, 6000]
            assert sorted(itertools.chain(*found)) == list(range(count))


def test_01_without_batching_each_sample_comes_as_it_is(cell: dict[str, Any]) -> None:
    samples = [np.arange(3), 5, "text", {"a": np.zeros(2), "b": [1, None]}, (1.5, b"x"), None]
    with DataLoader(samples, batch_size=None, **cell) as loader:
        assert len(loader) == 6
        found = list(loader)
    assert found[0].tolist() == [0, 1, 2]
    assert found[1:3] == [5, "text"]
    assert found[3]["a"].tolist() == [0, 0]
    assert found[3]["b"] == [1, None]
    assert found[4:] == [(1.5, b"x"), None]
    assert type(found[4]) is tuple


def test_01_without_batching_collate_fn_gets_the_sample(cell: dict[str, Any]) -> None:
    with DataLoader(
        Rows(5), batch_size=None, collate_fn=lambda sample: sample[0] * 2, shuffle=True, **cell
    ) as loader:
        assert sorted(batch[0] for batch in loader) == [0, 2, 4, 6, 8]


def test_01_getitems_is_asked_once_per_batch(cell: dict[str, Any]) -> None:
    for collate in (None, collate_rows):
        with DataLoader(Batched(20), batch_size=8, collate_fn=collate, **cell) as loader:
            for n, batch in enumerate(loader):
                check_rows(batch, range(8 * n, min(20, 8 * n + 8)))
            assert n == 2


def collate_rows(samples: list[Any]) -> Any:
    return np.stack([s[0] for s in samples]), np.array([s[1] for s in samples])


def test_01_collate_fn_gets_the_list_of_samples_in_order(cell: dict[str, Any]) -> None:
    def collate(samples: Any) -> Any:
        assert type(samples) is list
        return {"n": len(samples), "first": samples[0], "sum": np.array(sum(samples))}

    with DataLoader(list(range(10)), batch_size=4, collate_fn=collate, **cell) as loader:
        found = list(loader)
    assert [batch["n"] for batch in found] == [4, 4, 2]
    assert [batch["first"] for batch in found] == [0, 4, 8]
    assert [batch["sum"].item() for batch in found] == [6, 22, 17]
    assert all(batch["sum"].shape == () for batch in found)


def test_01_sampler_without_len_works_and_len_says_why_not(cell: dict[str, Any]) -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter([3, 1, 2])

    with DataLoader(Rows(5), batch_size=2, sampler=Endless(), **cell) as loader:
        assert [batch[1].tolist() for batch in loader] == [[3, 1], [2]]
        with pytest.raises(ConfigTypeError, match=r"Endless.* no __len__"):
            len(loader)


def test_01_sampler_is_drawn_from_no_further_than_the_batches_in_flight(
    cell: dict[str, Any],
) -> None:
    drawn = []

    class Counting:
        def __iter__(self) -> Iterator[int]:
            for index in range(1000):
                drawn.append(index)
                yield index

    with DataLoader(Rows(1000), batch_size=1, sampler=Counting(), **cell) as loader:
        batches = iter(loader)
        for n in range(10):
            check_rows(next(batches), [n])
            assert len(drawn) <= n + 2 + loader.config.window


@pytest.mark.parametrize(
    "cell",
    [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}],
    ids=["0", "2", "threads"],
)
def test_01_dataset_that_grows_is_seen_whole_from_the_next_epoch(cell: dict[str, Any]) -> None:
    samples = list(range(4))
    with DataLoader(samples, batch_size=2, **cell) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
        samples.append(4)
        assert len(loader) == 3
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


def test_worker_info_names_the_worker_and_its_dataset(each_cell: dict[str, Any]) -> None:
    workers = each_cell["num_workers"]
    with DataLoader(InfoRows(64), batch_size=1, prefetch_factor=1, **each_cell) as loader:
        found = [tuple(field[0] for field in batch) for batch in loader]
    assert get_worker_info() is None
    if workers == 0:
        assert {row[1:] for row in found} == {(-1, -1, "")}
    else:
        assert {row[1] for row in found} <= set(range(workers))
        assert {row[2] for row in found} == {workers}
        seeds = {row[1]: row[3] for row in found}
        assert len(set(seeds.values())) == len(seeds)


def test_worker_init_fn_runs_once_in_each_worker_before_any_sample(cell: dict[str, Any]) -> None:
    with DataLoader(
        Calls(lambda i: (len(_own_inits()), [*_own_inits(), -1][0]), 16),
        batch_size=1,
        worker_init_fn=_note_init,
        persistent_workers=True,
        **cell,
    ) as loader:
        workers = cell["num_workers"]
        for _ in range(2):
            found = [(int(count[0]), int(first[0])) for count, first in loader]
            assert len(found) == 16
            if workers == 0:
                assert set(found) == {(0, -1)}
            else:
                assert set(found) <= {(1, worker_id) for worker_id in range(workers)}
    assert _own_inits() == []


_inits = threading.local()  # a worker's own, whether it is a process or a thread


def _own_inits() -> list[int]:
    found: list[int] = _inits.__dict__.setdefault("ids", [])
    return found


def _note_init(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker_id
    _own_inits().append(worker_id)


@pytest.mark.parametrize("prefetch_factor", [1, 2, 50])
def test_01_any_prefetch_factor_delivers_everything(
    cell: dict[str, Any], prefetch_factor: int
) -> None:
    with DataLoader(Rows(100), batch_size=3, prefetch_factor=prefetch_factor, **cell) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(3 * n, min(100, 3 * n + 3)))
        assert n == 33


def test_01_more_workers_than_batches_deliver_everything() -> None:
    with DataLoader(Rows(3), batch_size=1, num_workers=8) as loader:
        assert [batch[1].tolist() for batch in loader] == [[0], [1], [2]]


def test_dataset_base_class_and_plain_sequences_work_alike(cell: dict[str, Any]) -> None:
    class Derived(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return index

    for dataset in (Derived(), [0, 1, 2, 3], (0, 1, 2, 3), range(4), np.arange(4),
                    collections.deque(range(4))):  # fmt: skip
        with DataLoader(dataset, batch_size=3, **cell) as loader:
            assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3]]


def test_context_manager_closes_and_the_loader_starts_anew(cell: dict[str, Any]) -> None:
    loader = DataLoader(Rows(8), batch_size=4, persistent_workers=True, **cell)
    for _ in range(2):
        with loader as same:
            assert same is loader
            assert len(list(loader)) == 2
            assert loader.stats()["arena"]["is_open"]
        assert not (loader.stats()["arena"] or {}).get("is_open", False)
    loader.close()
    assert loader.epoch == 2
    assert loader.stats()["batches"] == 4
    assert "Rows" in repr(loader)


def test_03_exception_inside_the_with_block_closes_too(cell: dict[str, Any]) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        DataLoader(Rows(64), batch_size=4, persistent_workers=True, **cell) as loader,
    ):
        for _ in loader:
            raise ZeroDivisionError
    assert not (loader.stats()["arena"] or {}).get("is_open", False)


@settings(max_examples=60)
@given(
    count=st.integers(0, 40),
    batch_size=st.integers(1, 12),
    drop_last=st.booleans(),
    prefetch_factor=st.integers(1, 5),
    data=st.data(),
)
def test_01_property_any_sampler_any_batch_size(
    count: int, batch_size: int, drop_last: bool, prefetch_factor: int, data: st.DataObject
) -> None:
    order = data.draw(st.lists(st.integers(0, count - 1), max_size=60)) if count else []
    workers = data.draw(st.sampled_from([0, 0, 0, 2]))
    with DataLoader(
        list(range(count)),
        batch_size=batch_size,
        drop_last=drop_last,
        sampler=order,
        prefetch_factor=prefetch_factor,
        num_workers=workers,
    ) as loader:
        wanted = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
        if drop_last and wanted and len(wanted[-1]) < batch_size:
            wanted.pop()
        assert [batch.tolist() for batch in loader] == wanted
        assert len(loader) == len(wanted)
