"""The face beyond its arguments: attributes, switches, and additions to paddle.io.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares, proved_by

pytestmark = pytest.mark.peer

AHEAD = Story(
    """
    import os
    import sys
    import threading
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import tell

    class Counted(Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, index):
            os.write(told, b".")
            return np.float32(index)

    found = []
    for num_workers, factor in ((0, 1), (0, 3), (1, 1), (1, 4), (2, 2), (3, 5)):
        told = os.open(f"calls{num_workers}{factor}", os.O_CREAT | os.O_RDWR | os.O_APPEND)
        loader = DataLoader(Counted(), num_workers=num_workers, prefetch_factor=factor)
        batches = iter(loader)
        taken = [next(batches)]
        threading.Event().wait(0.4)
        found.append(os.fstat(told).st_size)
        taken.append(next(batches))
        threading.Event().wait(0.4)
        found.append(os.fstat(told).st_size)
        del batches, taken
    tell(found)
    os._exit(0)  # paddle.io would wait for its threads
    """
)


@compares(AHEAD)
def test_no_more_is_fetched_ahead_than_by_paddle(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert all(mine <= their for mine, their in zip(ours.result, theirs.result, strict=True)), (
        ours.result,
        theirs.result,
    )
    assert all(mine > taken for mine, taken in zip(ours.result, [1, 2] * 6, strict=True))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_paddles_own_datasets_and_samplers_are_accepted(num_workers: int) -> None:
    import numpy as np
    import paddle.io

    from reader.compat.paddle import DataLoader

    class Rows(paddle.io.Dataset):
        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> np.ndarray:
            return np.float32([index])

    class Stream(paddle.io.IterableDataset):
        def __iter__(self):
            found = paddle.io.get_worker_info()
            first, step = (0, 1) if found is None else (found.id, found.num_workers)
            yield from (np.float32([index]) for index in range(first, 7, step))

    def values(loader: DataLoader) -> list[list[float]]:
        return [batch.numpy().ravel().tolist() for batch in loader]

    subset = paddle.io.Subset(Rows(), [5, 1, 3])
    assert values(DataLoader(subset, batch_size=2, num_workers=num_workers)) == [[5, 1], [3]]
    sampler = paddle.io.BatchSampler(Rows(), batch_size=4)
    with DataLoader(Rows(), batch_sampler=sampler, num_workers=num_workers) as loader:
        assert values(loader) == [[0, 1, 2, 3], [4, 5, 6]]
        assert len(loader) == 2
    stream = DataLoader(Stream(), batch_size=7, num_workers=num_workers)
    assert sorted(x for batch in values(stream) for x in batch) == [0, 1, 2, 3, 4, 5, 6]
    chained = paddle.io.ChainDataset([Stream(), Stream()])
    assert len(values(DataLoader(chained, batch_size=None))) == 14


@pytest.mark.parametrize("num_workers", [0, 2])
def test_steps_counts_iterations_and_length_counts_batches(num_workers: int) -> None:
    import numpy as np

    from reader.compat.paddle import DataLoader

    rows = np.zeros((6, 1), "float32")
    for places, wanted, steps in ((["cpu"] * 2, None, 3), (["cpu"] * 4, False, 2)):
        loader = DataLoader(rows, places=places, num_workers=num_workers, drop_last_group=wanted)
        assert len(loader) == 6
        assert loader.steps == steps == len(list(loader))
    dropping = DataLoader(rows, places=["cpu"] * 4, drop_last_group=True)
    assert dropping.steps == len(list(dropping)) == 1


def test_next_epoch_is_prefetched_on_request() -> None:
    import numpy as np

    from reader.compat.paddle import DataLoader

    rows = np.arange(6, dtype="float32")
    with DataLoader(
        rows, batch_size=2, num_workers=2, persistent_workers=True, prefetch_next_epoch=True
    ) as loader:
        for _ in range(3):
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def test_pinned_memory_switch_is_asked_and_set_as_paddles() -> None:
    import paddle.io

    from reader.compat.paddle import DataLoader, use_pinned_memory

    assert use_pinned_memory() is paddle.io.reader.use_pinned_memory()
    assert DataLoader([1]).pin_memory == paddle.io.DataLoader([1]).pin_memory
    try:
        use_pinned_memory(False)
        assert use_pinned_memory() is False
        assert DataLoader([1]).pin_memory is False
    finally:
        from reader.compat.paddle import switches

        switches._values["pinned"] = None


def test_attributes_that_programs_read_are_paddles() -> None:
    import paddle.io

    from reader.compat.paddle import DataLoader

    arguments = {"batch_size": 2, "drop_last": True, "num_workers": 2, "timeout": 3}
    theirs = paddle.io.DataLoader([1, 2, 3], **arguments)
    ours = DataLoader([1, 2, 3], **arguments)
    for name in vars(theirs):
        if name.startswith("_") or name in ("batch_sampler", "collate_fn", "places"):
            continue
        assert getattr(ours, name) == getattr(theirs, name), name
    assert list(ours.batch_sampler) == list(theirs.batch_sampler)
    assert [str(place) for place in ours.places] == [str(place) for place in theirs.places]


CHANGED_AND_KEPT = Story(
    """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import describe, tell

    rows = np.arange(64, dtype="float32").reshape(16, 4)
    found = []
    for num_workers in (0, 2):
        for persistent_workers in (False, True):
            loader = DataLoader(
                rows, batch_size=2, num_workers=num_workers, persistent_workers=persistent_workers
            )
            kept, views = [], []
            for epoch in range(2):
                for batch in loader:
                    batch.add_(paddle.to_tensor(100.0))
                    batch[0] = -1.0
                    kept.append(batch)
                    views.append(batch[1])
                    batch.stop_gradient = False
                    (batch * 2).sum().backward()
                    views.append(batch.grad)
            del loader
            found.append([describe(kept), describe(views)])
    assert rows[0, 1] == 1 and rows[1, 0] == 4
    tell(found)
    """,
    attempts=3,
)


@compares(CHANGED_AND_KEPT)
def test_batches_may_be_changed_in_place_and_kept(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result


ATTRIBUTES = Story(
    """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def taken(loader):
        return [np.array(batch).tolist() for batch in loader]

    def tenfold(samples):
        return np.array(samples) * 10

    found = []
    for workers in (0, 2):
        loader = DataLoader(list(range(6)), batch_size=2, num_workers=workers)
        found.append([isinstance(loader, getattr(paddle, "io").DataLoader), taken(loader)])
        loader.collate_fn = tenfold
        found.append(taken(loader))
        loader.num_workers = 2 - workers
        found.append(taken(loader))
        loader.batch_sampler = [[5], [4, 3]]
        found.append(taken(loader))
        loader.places = [paddle.CPUPlace()]
        found.append(taken(loader))
    tell(found)
    """,
    attempts=3,
)


@compares(ATTRIBUTES)
def test_attributes_that_are_set_take_effect_in_the_next_epoch(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = both
    assert ours.result == theirs.result
    assert ours.result[0] == [True, [[0, 1], [2, 3], [4, 5]]]
    assert ours.result[1:4] == [
        [[0, 10], [20, 30], [40, 50]],
        [[0, 10], [20, 30], [40, 50]],
        [[50], [40, 30]],
    ]


REFUSED_ATTRIBUTE = Story(
    """
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    loader = DataLoader(list(range(6)), batch_size=2, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    first = next(batches).tolist()
    try:
        loader.num_workers = -1
    except AssertionError as error:
        told = str(error)
    loader.collate_fn = list
    rest = [batch.tolist() for batch in batches]
    tell([told, loader.num_workers, first, rest, list(loader)])
    """
)


@proved_by(REFUSED_ATTRIBUTE)
def test_attribute_that_cannot_work_is_refused_and_a_live_epoch_goes_on(verdict: Verdict) -> None:
    told, workers, first, rest, after = verdict.result
    assert told.startswith("num_workers should be a non-negative value")
    assert (workers, first, rest) == (1, [0, 1], [[2, 3], [4, 5]])
    assert after == [[0, 1], [2, 3], [4, 5]]
