"""Iterable datasets: every sample once, in the exact order of workers that take turns (2.1)."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    ChainDataset,
    ConfigError,
    DataLoader,
    IterableDataset,
    get_worker_info,
    mix,
    rebatch,
    shard,
    shuffle_buffer,
)
from tests.datasets import digest_of
from tests.streams import Endless, Iterates, Noisy, Parts, Sharded, order_of, values_of

COUNTS = pytest.mark.parametrize(
    "workers",
    [
        0,
        pytest.param(1, marks=pytest.mark.nightly),
        2,
        pytest.param(3, marks=pytest.mark.nightly),
        5,
    ],
)
FEW = pytest.mark.parametrize("workers", [0, 2])

UNEVEN = [range(23), range(100, 105), range(200, 200), range(300, 301), range(400, 416)]
EMPTY_FIRST = [range(0), range(100, 112), range(200, 203), range(300, 300), range(400, 404)]
ALL_EMPTY: list[range] = [range(0)] * 5
SHAPES = pytest.mark.parametrize(
    "parts", [UNEVEN, EMPTY_FIRST, ALL_EMPTY], ids=["uneven", "empty first", "all empty"]
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
@SHAPES
@COUNTS
def test_01_workers_take_turns_exactly_whatever_the_shards(
    workers: int, parts: list[range], persistent: bool
) -> None:
    with DataLoader(
        Parts(parts), batch_size=4, num_workers=workers, persistent_workers=persistent
    ) as loader:
        for _ in range(3 if persistent else 1):
            assert [values_of(b) for b in loader] == order_of(parts, workers, 4)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_01_workers_take_turns_under_each_start_method(method: str) -> None:
    with DataLoader(
        Parts(UNEVEN), batch_size=4, num_workers=2, start_method=method, persistent_workers=True
    ) as loader:
        for _ in range(2):
            assert [values_of(batch) for batch in loader] == order_of(UNEVEN, 2, 4)


@pytest.mark.sampled(2)
@SHAPES
@COUNTS
def test_01_drop_last_drops_the_short_batch_of_each_worker_alone(
    workers: int, parts: list[range]
) -> None:
    with DataLoader(
        Parts(parts), batch_size=4, num_workers=workers, drop_last=True, persistent_workers=True
    ) as loader:
        for _ in range(2):
            assert [values_of(b) for b in loader] == order_of(parts, workers, 4, drop_last=True)


@COUNTS
def test_01_without_batching_each_item_comes_as_it_is(workers: int) -> None:
    with DataLoader(Parts(UNEVEN), batch_size=None, num_workers=workers) as loader:
        found = list(loader)
    assert [sample[1] for sample in found] == [v for (v,) in order_of(UNEVEN, workers, 1)]
    assert all(type(sample[1]) is int for sample in found)
    assert all(sample[0].shape == (4,) for sample in found)


@FEW
def test_01_without_batching_collate_fn_gets_one_item(workers: int) -> None:
    with DataLoader(
        Parts(UNEVEN), batch_size=None, collate_fn=lambda sample: -sample[1], num_workers=workers
    ) as loader:
        assert list(loader) == [-v for (v,) in order_of(UNEVEN, workers, 1)]


@COUNTS
def test_01_collate_fn_gets_the_list_of_samples_of_each_batch(workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        assert type(samples) is list
        return {"sum": sum(value for _, value in samples), "all": [v for _, v in samples]}

    for drop_last in (False, True):
        with DataLoader(
            Parts(UNEVEN),
            batch_size=4,
            collate_fn=collate,
            drop_last=drop_last,
            num_workers=workers,
            persistent_workers=True,
        ) as loader:
            for _ in range(2):
                found = [batch["all"] for batch in loader]
                assert found == order_of(UNEVEN, workers, 4, drop_last)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    batch_size=st.integers(1, 4),
    drop_last=st.booleans(),
    prefetch_factor=st.integers(1, 4),
    workers=st.sampled_from([0, 0, 1, 3]),
)
def test_01_property_any_shards_any_number_in_flight(
    sizes: list[int], batch_size: int, drop_last: bool, prefetch_factor: int, workers: int
) -> None:
    parts = [range(100 * w, 100 * w + size) for w, size in enumerate(sizes)]
    with DataLoader(
        Parts(parts),
        batch_size=batch_size,
        drop_last=drop_last,
        prefetch_factor=prefetch_factor,
        num_workers=workers,
    ) as loader:
        wanted = order_of(parts, workers, batch_size, drop_last)
        assert [values_of(batch) for batch in loader] == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("contiguous", [False, True])
@COUNTS
def test_01_shard_gives_each_item_to_one_worker(workers: int, contiguous: bool) -> None:
    with DataLoader(
        Sharded(23, contiguous=contiguous),
        batch_size=None,
        num_workers=workers,
        persistent_workers=True,
    ) as loader:
        for _ in range(2):
            found = list(loader)
            assert sorted(found) == list(range(23))
            if not contiguous:
                assert found == list(range(23))
    with DataLoader(
        Sharded(23, contiguous=contiguous), batch_size=4, num_workers=workers
    ) as loader:
        assert sorted(itertools.chain(*(b.tolist() for b in loader))) == list(range(23))


def test_01_shard_of_ranks_and_workers_covers_everything_once() -> None:
    class Ranked(IterableDataset[int]):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def __iter__(self) -> Iterator[int]:
            return shard(iter(range(37)), rank=self.rank, world_size=3)

    found: list[int] = []
    for rank in range(3):
        with DataLoader(Ranked(rank), batch_size=None, num_workers=rank) as loader:
            found += loader
    assert sorted(found) == list(range(37))


class Runs(IterableDataset[Any]):
    """Runs of numbers of any length, divided by `reader.shard`."""

    def __iter__(self) -> Iterator[Any]:
        for number in shard(range(23)):
            yield np.arange(100 * number, 100 * number + number % 5)


WRAPPED: dict[str, tuple[Any, list[int]]] = {
    "mix": (lambda: mix([Sharded(23), Sharded(9)], [1, 2], stop="all"), [*range(23), *range(9)]),
    "shuffle_buffer": (lambda: shuffle_buffer(Sharded(23), 4), [*range(23)]),
    "rebatch": (
        lambda: rebatch(Runs(), 3),
        [row for number in range(23) for row in range(100 * number, 100 * number + number % 5)],
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("make", "wanted"), WRAPPED.values(), ids=WRAPPED)
@COUNTS
def test_01_a_stream_of_streams_has_each_sample_of_each_worker_once(
    workers: int, make: Any, wanted: list[int]
) -> None:
    with DataLoader(
        make(), batch_size=None, num_workers=workers, persistent_workers=True, seed=2
    ) as loader:
        epochs = [[np.atleast_1d(batch).tolist() for batch in loader] for _ in range(2)]
    for epoch in epochs:
        assert sorted(itertools.chain(*epoch)) == sorted(wanted)
    if make is WRAPPED["rebatch"][0]:
        assert max(map(len, epochs[0])) == 3
        assert sum(len(batch) < 3 for batch in epochs[0]) <= max(1, workers)
    if make is WRAPPED["shuffle_buffer"][0]:
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("face", ["torch", "paddle"])
@FEW
def test_01_each_face_takes_mixes_buffers_and_batches_of_rows(workers: int, face: str) -> None:
    pytest.importorskip(face)
    module = importlib.import_module(f"reader.compat.{face}")
    for make, wanted in WRAPPED.values():
        loader = module.DataLoader(make(), batch_size=None, num_workers=workers)
        found = [np.atleast_1d(np.asarray(batch)).tolist() for batch in loader]
        assert sorted(itertools.chain(*found)) == sorted(wanted)
    rows = mix([range(20), range(100, 105)], [4, 1])
    loader = module.DataLoader(rows, batch_size=5, num_workers=workers)
    assert [np.asarray(batch).tolist()[2] for batch in loader][:2] == [2, 6]


class EpochStart(IterableDataset[Any]):
    """What get_worker_info says in __iter__ and at the first item."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is None:
            yield -1, -1, True, 0
        else:
            yield info.id, info.num_workers, info.dataset is self, info.seed


@COUNTS
def test_worker_info_is_that_of_the_worker_that_iterates(workers: int) -> None:
    with DataLoader(EpochStart(), batch_size=None, num_workers=workers) as loader:
        found = list(loader)
    assert all(same for _, _, same, _ in found)
    if workers == 0:
        assert found == [(-1, -1, True, 0)]
    else:
        assert [(i, n) for i, n, _, _ in found] == [(w, workers) for w in range(workers)]
        assert len({own_seed for *_, own_seed in found}) == workers
    assert get_worker_info() is None


def classes() -> dict[str, Any]:
    import paddle
    import torch

    class Torch(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    class Paddle(paddle.io.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    class Indexed(IterableDataset[int]):
        """A subclass of ours counts as iterable, whatever else it has."""

        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

        def __getitem__(self, index: int) -> int:
            raise AssertionError("indexed")

        def __len__(self) -> int:
            return 3  # limits nothing

    return {
        "torch": Torch(),
        "paddle": Paddle(),
        "plain": Iterates(range, 7),
        "dict": dict.fromkeys(range(7)).keys(),
        "indexed": Indexed(),
        "chain": ChainDataset([Iterates(range, 7), []]),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["torch", "paddle", "plain", "dict", "indexed", "chain"])
@FEW
def test_iterable_of_any_kind_is_iterated_over(workers: int, kind: str) -> None:
    with DataLoader(classes()[kind], batch_size=4, num_workers=workers) as loader:
        copies = max(1, workers)
        wanted = [[0, 1, 2, 3]] * copies + [[4, 5, 6]] * copies
        assert [batch.tolist() for batch in loader] == wanted


def test_class_of_paddle_with_getitem_and_iter_is_iterated_over_like_ours() -> None:
    import paddle

    class Both(paddle.io.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

        def __getitem__(self, index: int) -> int:
            raise AssertionError("indexed")

    assert [b.tolist() for b in DataLoader(Both(), batch_size=2)] == [[1, 2]]


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@FEW
def test_01_each_framework_gets_its_own_leaves(workers: int, framework: str) -> None:
    if framework != "numpy":
        pytest.importorskip(framework)
    kind = {"numpy": "ndarray", "torch": "Tensor", "paddle": "Tensor"}[framework]
    with DataLoader(
        Parts(UNEVEN), batch_size=4, num_workers=workers, framework=framework
    ) as loader:
        found = []
        for batch in loader:
            assert type(batch) is tuple
            assert {type(field).__name__ for field in batch} == {kind}
            found.append(values_of(batch))
    assert found == order_of(UNEVEN, workers, 4)


# ---- reproducible ------------------------------------------------------------------------------


@COUNTS
def test_06_seed_makes_epochs_of_a_stream_the_same_in_another_loader(workers: int) -> None:
    found = []
    for persistent in (False, True, True):
        with DataLoader(
            Noisy(UNEVEN),
            batch_size=3,
            num_workers=workers,
            seed=5,
            persistent_workers=persistent,
        ) as loader:
            found.append([digest_of(list(loader)) for _ in range(2)])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


def test_06_seeded_stream_does_not_depend_on_the_start_method() -> None:
    found = set()
    for method in ("fork", "spawn"):
        with DataLoader(
            Noisy(UNEVEN), batch_size=3, num_workers=2, seed=5, start_method=method
        ) as loader:
            found.add(digest_of(list(loader)))
    assert len(found) == 1


def test_07_seeded_stream_leaves_the_random_state_of_the_trainer_alone() -> None:
    with DataLoader(Noisy(UNEVEN), batch_size=3, seed=5) as loader:
        np.random.seed(3)
        wanted = np.random.standard_normal(4).tolist()
        np.random.seed(3)
        found = [float(np.random.standard_normal()) for _, _ in zip(range(4), loader, strict=False)]
    assert found == wanted


# ---- what makes no sense -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shuffle": True}, r"shuffle=True chooses indices.*reader\.shuffle_buffer"),
        ({"sampler": [0]}, r"sampler=\[0\] chooses indices"),
        ({"batch_sampler": [[0]]}, r"batch_sampler=\[\[0\]\] chooses indices"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
    ],
)
def test_options_that_need_indices_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        DataLoader(Parts(UNEVEN), **options)


@FEW
def test_length_of_a_stream_is_not_known_and_says_so(workers: int) -> None:
    with DataLoader(Endless(), batch_size=2, num_workers=workers) as loader:
        with pytest.raises(TypeError, match="yields until it ends"):
            len(loader)
        with pytest.raises(TypeError, match="yields until it ends"):
            _ = loader.steps
        batches = iter(loader)
        with pytest.raises(TypeError, match="yields until it ends"):
            len(batches)  # type: ignore[arg-type]
        assert next(batches).tolist() == [0, 1]


def test_one_shot_iterators_and_classes_are_no_datasets() -> None:
    for wrong in (iter([1]), (i for i in range(2)), map(int, "12"), Endless):
        with pytest.raises(ConfigError):
            DataLoader(wrong)


@pytest.mark.parametrize("face", ["torch", "paddle"])
def test_a_shuffled_stream_of_a_face_is_refused_with_shuffle_buffer(face: str) -> None:
    pytest.importorskip(face)
    its = importlib.import_module({"torch": "torch.utils.data", "paddle": "paddle.io"}[face])

    class Stream(its.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    loaders = importlib.import_module(f"reader.compat.{face}")
    with pytest.raises(ValueError, match="shuffle") as caught:
        loaders.DataLoader(Stream(), batch_size=2, shuffle=True)
    assert "reader.shuffle_buffer" in "".join(caught.value.__notes__)
