"""Order, epochs and lengths: one program text, the same batches from paddle.io and from us.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.parity import check_same, story
from tests.peers.program import Verdict, compares, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

ORDERS = """
    SLOW = ("plain", "shuffle", "tuples", "DistributedBatchSampler")
    num_workers, persistent_workers = %s
    found = {}
    for name, make in {
        "plain": lambda **more: DataLoader(Rows(), batch_size=3, **more),
        "drop_last": lambda **more: DataLoader(Rows(), batch_size=3, drop_last=True, **more),
        "shuffle": lambda **more: DataLoader(Rows(), batch_size=3, shuffle=True, **more),
        "both": lambda **more: DataLoader(Rows(), None, None, True, None, 4, True, True, **more),
        "unbatched": lambda **more: DataLoader(Rows(), batch_size=None, **more),
        "one": lambda **more: DataLoader(Rows(), **more),
        "list": lambda **more: DataLoader(Rows(), batch_sampler=[[3, 1], [0], [2, 2, 4]], **more),
        "tuples": lambda **more: DataLoader(Rows(), batch_sampler=[(3, 1), (0,)], **more),
        "BatchSampler": lambda **more: DataLoader(
            Rows(), batch_sampler=BatchSampler(Rows(), shuffle=True, batch_size=4), **more
        ),
        "sampler": lambda **more: DataLoader(
            Rows(), batch_sampler=BatchSampler(sampler=[5, 4, 9], batch_size=2), **more
        ),
        "RandomSampler": lambda **more: DataLoader(
            Rows(),
            batch_sampler=BatchSampler(
                sampler=RandomSampler(Rows(), replacement=True, num_samples=7), batch_size=2
            ),
            **more,
        ),
        "WeightedRandomSampler": lambda **more: DataLoader(
            Rows(),
            batch_sampler=BatchSampler(
                sampler=WeightedRandomSampler(np.array([0.1, 2, 0, 5]), 6), batch_size=4
            ),
            **more,
        ),
        "SubsetRandomSampler": lambda **more: DataLoader(
            Rows(),
            batch_sampler=BatchSampler(sampler=SubsetRandomSampler([7, 3, 5, 1]), batch_size=3),
            **more,
        ),
        "DistributedBatchSampler": lambda **more: DataLoader(
            Rows(), batch_sampler=DistributedBatchSampler(Rows(), 2, 3, 1, shuffle=True), **more
        ),
    }.items():
        if persistent_workers and num_workers and name not in SLOW:
            continue  # paddle.io sleeps half a second before each such epoch
        np.random.seed(5)
        random.seed(5)
        paddle.seed(5)
        loader = make(num_workers=num_workers, persistent_workers=persistent_workers)
        found[name] = [len(loader), epochs(loader)]
    tell(found)
"""
WITHOUT_WORKERS = story(ORDERS % "0, False")
WITH_WORKERS = story(ORDERS % "2, False")
PERSISTENT = story(ORDERS % "2, True")
PERSISTENT_WITHOUT_WORKERS = story(ORDERS % "0, True")


@compares(WITHOUT_WORKERS)
def test_order_and_length_without_workers_are_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(WITH_WORKERS)
def test_order_and_length_with_workers_are_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(PERSISTENT)
def test_order_with_persistent_workers_is_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(PERSISTENT_WITHOUT_WORKERS)
def test_persistent_workers_without_workers_changes_nothing(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


STREAMS = """
    found = []
    for args in (
        dict(batch_size=3),
        dict(batch_size=3, drop_last=True),
        dict(batch_size=None),
        dict(batch_size=3, collate_fn=len_and_first),
        dict(batch_size=7),
        dict(batch_size=8, drop_last=True),
    ):
        found.append(epochs(DataLoader(Stream(), **args, **dict(%s)), %s))
    tell(found)
"""
COLLATE = """
    def len_and_first(batch):
        return {"size": len(batch), "first": batch[0][0]}
"""


@compares(story(COLLATE + STREAMS % ("num_workers=0", "2")))
def test_stream_without_workers_is_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@compares(story(COLLATE + STREAMS % ("num_workers=2", "2")))
def test_stream_in_each_worker_comes_in_the_same_round_robin(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


# paddle.io hangs, fails or drops the tail here; its epochs without persistence are compared above.
PERSISTENT_STREAMS = """
    found = []
    for num_workers in (0, 1, 2, 3):
        for args in (
            dict(batch_size=3), dict(batch_size=3, drop_last=True), dict(batch_size=None),
            dict(batch_size=7), dict(batch_size=8, drop_last=True),
        ):
            more = dict(num_workers=num_workers, **args)
            (expected,) = epochs(DataLoader(Stream(), **more), 1)
            same = epochs(DataLoader(Stream(), persistent_workers=True, **more), 3)
            found.append(same == [expected] * 3)
    tell([all(found), len(found)])
"""


@proved_by(story(PERSISTENT_STREAMS))
def test_stream_with_persistent_workers_is_the_same_in_each_epoch(verdict: Verdict) -> None:
    assert verdict.result == [True, 20]


SHARDS = """
    class Sharded(IterableDataset):
        def __init__(self, count):
            self.begin, self.end = 0, count

        def __iter__(self):
            found = get_worker_info()
            step = 1 if found is None else found.num_workers
            for index in range(self.begin + (found.id if found else 0), self.end, step):
                yield np.int64(index)

    class Cut(IterableDataset):
        begin, end = 0, 10

        def __iter__(self):
            return iter(np.arange(self.begin, self.end))

    def cut(worker_id):
        found = get_worker_info()
        share = -(-10 // found.num_workers)
        found.dataset.begin = worker_id * share
        found.dataset.end = min(10, found.dataset.begin + share)

    found = []
    for count in (10, 1, 2, 9):
        for num_workers in (0, 1, 2, 3):
            loader = DataLoader(Sharded(count), batch_size=2, num_workers=num_workers)
            found.append(epochs(loader, 1))
    for num_workers in (1, 2, 4):
        loader = DataLoader(Cut(), batch_size=2, num_workers=num_workers, worker_init_fn=cut)
        found.append(epochs(loader, 2))
    tell(found)
"""


@compares(story(SHARDS))
def test_sharded_streams_of_uneven_and_empty_shards_are_the_same(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


SWITCHES = """
    found = []
    for num_workers in (0, 2):
        for args in (
            dict(use_buffer_reader=False), dict(reader_buffer_size=0), dict(reader_buffer_size=5),
            dict(use_shared_memory=False), dict(prefetch_factor=1), dict(prefetch_factor=7),
            dict(timeout=20), dict(places="cpu"), dict(places=paddle.CPUPlace()),
            dict(places=[paddle.CPUPlace()]), dict(places=["cpu"]), dict(return_list=False),
            dict(feed_list=[]),
        ):
            loader = DataLoader(Rows(), batch_size=3, num_workers=num_workers, **args)
            found.append(epochs(loader, 2))
    tell(found)
"""


@compares(story(SWITCHES))
def test_switches_that_change_no_batch_change_none(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


TWO_AT_ONCE = """
    found = []
    for num_workers in (0, 2):
        loader = DataLoader(Rows(), batch_size=2, num_workers=num_workers)
        found.append([[describe(a), describe(b)] for a, b in zip(loader, loader())])
        iterator = iter(loader)
        found.append([iter(iterator) is iterator, len(iterator), len(list(iterator))])
    tell(found)
"""


@compares(story(TWO_AT_ONCE))
def test_two_iterators_of_one_loader_are_independent_in_both(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)
