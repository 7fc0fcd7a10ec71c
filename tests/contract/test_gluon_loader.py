"""The Gluon face: its arguments, last batches, reloads, bounds, errors and states.

Traces are those of docs/gluon.md; beside MXNet itself they run in tests/peers/test_gluon_mxnet.py.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, LoadTimeout
from reader.compat.gluon import DataLoader, DataLoaderV1, batchify, nlp
from reader.compat.gluon.arrays import is_nd
from tests.datasets import Fails, Pids
from tests.peers import impure_datasets

WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "thread_pool": True},
}


@pytest.fixture(params=WORKERS)
def workers(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WORKERS[request.param]


def plain(value: Any) -> Any:
    if is_nd(value):
        return value.asnumpy().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def epochs(loader: Any, count: int) -> list[tuple[int, Any]]:
    """Return the length and the batches of each epoch."""
    found = []
    for _ in range(count):
        length = len(loader)
        found.append((length, [plain(batch) for batch in loader]))
    loader.close()
    return found


# -- arguments -----------------------------------------------------------------------------------


def test_arguments_stand_where_gluon_has_them() -> None:
    names = [
        *("dataset", "batch_size", "shuffle", "sampler", "last_batch", "batch_sampler"),
        *("batchify_fn", "num_workers", "pin_memory", "pin_device_id"),
    ]
    assert list(inspect.signature(DataLoaderV1).parameters) == names
    names += ["prefetch", "thread_pool", "timeout", "auto_reload", "try_nopython"]
    assert list(inspect.signature(DataLoader).parameters)[:15] == names
    loader = DataLoader(list(range(5)), 2, False, None, "discard", None, None, 0, False, 0, 3)
    assert epochs(loader, 1) == [(2, [[0, 1], [2, 3]])]
    assert epochs(DataLoaderV1(list(range(3)), 2), 1) == [(2, [[0, 1], [2]])]
    assert epochs(DataLoader([1, 2], 2, num_workers=-3, try_nopython=True), 1) == [(1, [[1, 2]])]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "batch_size must be specified unless batch_sampler is specified"),
        (
            {"batch_size": 1, "shuffle": True, "sampler": [0]},
            "shuffle must not be specified if sampler is specified",
        ),
        *(
            (
                {"batch_sampler": [[0]], **more},
                (
                    "batch_size, shuffle, sampler and last_batch must not be specified if"
                    " batch_sampler is specified."
                ),
            )
            for more in (
                {"batch_size": 1},
                {"shuffle": True},
                {"sampler": [0]},
                {"last_batch": "keep"},
            )
        ),
    ],
)
def test_contradictions_are_refused_in_gluons_words(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DataLoader([1, 2], **options)


def test_timeout_must_be_positive() -> None:
    with pytest.raises(AssertionError, match="timeout must be positive, given 0"):
        DataLoader([1], 1, timeout=0)
    with pytest.raises(ConfigError, match="timeout must be positive, given -1"):
        DataLoader([1], 1, timeout=-1)


def test_unknown_last_batch_is_refused_when_it_is_used() -> None:
    loader = DataLoader(list(range(5)), 2, last_batch="nonsense")
    text = "last_batch must be one of 'keep', 'discard', or 'rollover', but got nonsense"
    with pytest.raises(ValueError, match=text):
        len(loader)
    with pytest.raises(ValueError, match=text):
        list(loader)


def test_importing_it_imports_no_mxnet() -> None:
    program = """
import sys
from reader.compat.gluon import DataLoader, nlp, vision
assert not any(name.split(".")[0] in ("mxnet", "torch", "paddle", "PIL") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


# -- last batches --------------------------------------------------------------------------------

KEPT = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
ROLLED = (
    (2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (3, [[8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]),
)


def test_last_batches_are_those_of_gluon(workers: dict[str, Any]) -> None:
    data = list(range(10))
    assert epochs(DataLoader(data, 4, **workers), 2) == [(3, KEPT)] * 2
    assert epochs(DataLoader(data, 4, last_batch="keep", **workers), 2) == [(3, KEPT)] * 2
    assert epochs(DataLoader(data, 4, last_batch="discard", **workers), 2) == [(2, KEPT[:2])] * 2
    rolled = DataLoader(data, 4, last_batch="rollover", **workers)
    assert epochs(rolled, 4) == [*ROLLED, *ROLLED]
    few = DataLoader([0, 1, 2], 4, last_batch="rollover", **workers)
    assert epochs(few, 4) == [
        (0, []),
        (1, [[0, 1, 2, 0]]),
        (1, [[1, 2, 0, 1]]),
        (1, [[2, 0, 1, 2]]),
    ]


def test_breaking_out_of_an_epoch_loses_its_remainder(workers: dict[str, Any]) -> None:
    loader = DataLoader(list(range(10)), 4, last_batch="rollover", **workers)
    assert [plain(batch) for batch in loader] == ROLLED[0][1]
    assert plain(next(iter(loader))) == [8, 9, 0, 1]
    assert epochs(loader, 1) == [ROLLED[0]]


def test_shuffle_draws_what_gluon_draws(workers: dict[str, Any]) -> None:
    np.random.seed(5)
    loader = DataLoader(list(range(10)), 5, shuffle=True, **workers)
    found = [index for _, batches in epochs(loader, 2) for batch in batches for index in batch]
    np.random.seed(5)
    expected = []
    for _ in range(2):
        order = np.arange(10)
        np.random.shuffle(order)
        expected += order.tolist()
    assert found == expected


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_orders_by_seed_are_functions_of_seed_and_epoch(last_batch: str) -> None:
    def make(**options: Any) -> DataLoader:
        return DataLoader(list(range(11)), 4, True, None, last_batch, seed=3, **options)

    one = epochs(make(), 5)
    assert epochs(make(num_workers=2), 5) == one
    assert len({json.dumps(each) for each in one}) == 5
    for epoch in (4, 1):
        loader = make()
        loader.set_epoch(epoch)
        assert epochs(loader, 1) == [one[epoch]]


# -- batches -------------------------------------------------------------------------------------


def test_samples_become_the_batches_of_gluon_1(workers: dict[str, Any]) -> None:
    pairs = [(np.full(2, i, "f4"), (i, [i, 2.5])) for i in range(2)]
    (batch,) = list(DataLoader(pairs, 2, **workers))
    assert type(batch) is list
    assert type(batch[1]) is list
    assert plain(batch) == [[[0, 0], [1, 1]], [[0, 1], [[0, 2.5], [1, 2.5]]]]
    lists = [[1, 2], [3, 4]]  # a list is data
    assert plain(next(iter(DataLoader(lists, 2, **workers)))) == lists
    (mixed,) = list(DataLoader([1, 2.5], 2, **workers))
    assert plain(mixed) == [1, 2.5]
    assert mixed.dtype == np.float64
    (one,) = list(DataLoader([np.ones(3)], 1, **workers))
    assert one.shape == (1, 3)


def test_dicts_and_strings_are_collated_too(workers: dict[str, Any]) -> None:
    data = [{"x": np.full(2, i), "name": f"n{i}", "pair": (i, "s")} for i in range(2)]
    (batch,) = list(DataLoader(data, 2, **workers))
    assert set(batch) == {"x", "name", "pair"}
    assert plain(batch["x"]) == [[0, 0], [1, 1]]
    assert batch["name"] == ["n0", "n1"]
    assert plain(batch["pair"]) == [[0, 1], ["s", "s"]]


def test_ragged_samples_are_refused_with_the_remedy(workers: dict[str, Any]) -> None:
    loader = DataLoader([np.ones(2), np.ones(3)], 2, **workers)
    with pytest.raises(ValueError, match=r"Pass a batchify_fn: batchify\.Pad"):
        list(loader)
    loader.close()


class Counted:
    """A class of the user."""

    def __init__(self, samples: list[Any]) -> None:
        self.count = len(samples)


def test_a_batchify_function_returns_what_it_likes(workers: dict[str, Any]) -> None:
    (batch,) = list(DataLoader([1, 2, 3], 3, batchify_fn=Counted, **workers))
    assert type(batch) is Counted
    assert batch.count == 3
    function = batchify.Group(batchify.Pad(val=-1), batchify.Stack(), batchify.AsList())
    data = [([1, 2], 3, "a"), ([4], 5, "b")]
    (batch,) = list(DataLoader(data, 2, batchify_fn=function, **workers))
    assert type(batch) is tuple
    assert plain(batch) == [[[1, 2], [4, -1]], [3, 5], ["a", "b"]]
    (array,) = list(DataLoader([1, 2], 2, batchify_fn=np.array, **workers))
    assert type(array) is np.ndarray


def test_workers_pad_with_a_value_as_it_is_cast(workers: dict[str, Any]) -> None:
    data = [np.ones(1 + index % 3, np.uint8) for index in range(6)]
    for pad in (batchify.Pad(val=-1), nlp.batchify.Pad(pad_val=-1)):
        loader = DataLoader(data, 3, batchify_fn=pad, **workers)
        assert [plain(batch) for batch in loader] == [[[1, 255, 255], [1, 1, 255], [1, 1, 1]]] * 2
        loader.close()


def test_lambdas_serve_as_batchify_functions(workers: dict[str, Any]) -> None:
    loader = DataLoader([1, 2], 2, batchify_fn=lambda data: sum(data), **workers)
    assert list(loader) == [3]
    loader.close()


def test_batches_are_those_of_the_framework_that_is_asked_for() -> None:
    torch = pytest.importorskip("torch")
    loader = DataLoader([(1, 2.0)] * 4, 2, framework="torch", num_workers=2)
    with loader:
        for numbers, _ in loader:
            assert type(numbers) is torch.Tensor


# -- datasets that carry something from sample to sample -----------------------------------------


@pytest.mark.parametrize("kind", impure_datasets.KINDS)
def test_one_worker_keeps_the_same_state_as_a_loop(kind: str) -> None:
    count, size = impure_datasets.COUNT, impure_datasets.SIZE
    expected = []
    with impure_datasets.opened(kind, 0.0) as dataset:
        for first in range(0, 2 * count, size):
            samples = [dataset[index % count] for index in range(first, first + size)]
            arrays, places = zip(*samples, strict=True)
            expected.append([np.stack(arrays).tolist(), list(places)])
    for options in ({}, {"num_workers": 1}, {"num_workers": 1, "thread_pool": True}):
        with impure_datasets.opened(kind, 0.0) as dataset:
            loader = DataLoader(dataset, size, **options)
            assert [plain(batch) for _ in range(2) for batch in loader] == expected
            loader.close()


@pytest.mark.parametrize("sample_s", [0.0, impure_datasets.SLOW_S], ids=["fast", "slow"])
def test_a_batch_is_made_by_one_worker_sample_after_sample(
    workers: dict[str, Any], sample_s: float
) -> None:
    loader = DataLoader(impure_datasets.Logged(sample_s), 4, **workers)
    batches = [plain(batch) for _ in range(2) for batch in loader]
    loader.close()
    orders = [list(range(first, first + 4)) for first in range(0, impure_datasets.COUNT, 4)]
    impure_datasets.check_made_whole(batches, orders * 2)


# -- life ----------------------------------------------------------------------------------------


def test_the_loader_is_kept_by_its_iterator_and_its_workers_by_the_loader() -> None:
    assert plain(next(iter(DataLoader([1, 2, 3], 2, num_workers=2)))) == [1, 2]
    loader = DataLoader(Pids(4), 1, num_workers=1)
    pids = {plain(batch)[0] for _ in range(3) for batch in loader}
    loader.close()
    assert len(pids) == 1
    assert pids != {os.getpid()}


class Counter:
    """Counts who asks for sample 0."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = 0
        self.asked = threading.Condition(self.lock)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        with self.asked:
            self.begun += index == 0
            self.asked.notify_all()
        return index

    def has_begun(self, count: int) -> bool:
        """Wait until that many epochs have begun."""
        with self.asked:
            return self.asked.wait_for(lambda: self.begun >= count, timeout=20)


def test_an_epoch_is_reloaded_as_gluon_does() -> None:
    data = Counter()
    loader = DataLoader(data, 2, num_workers=2, thread_pool=True, auto_reload=True)
    assert data.has_begun(1)  # when it is made
    iterators = [iter(loader) for _ in range(4)]
    assert data.begun == 1  # nothing is begun by iter()
    first, second, third, fourth = iterators
    assert plain(next(second)) == [0, 1]  # takes the one that was begun
    assert data.begun == 1
    next(first)
    assert data.has_begun(2)
    assert len(list(third)) == 5
    assert data.has_begun(4)  # its own, and the next at its end
    assert len(list(first)) == 4
    assert plain(next(fourth)) == [0, 1]
    assert data.begun == 4  # one was begun already
    assert len(list(second)) == 4
    assert data.has_begun(5)
    loader.clean()
    loader.auto_reload = False
    assert epochs(loader, 1) == [(5, [[i, i + 1] for i in range(0, 10, 2)])]
    assert data.begun == 6


def test_without_workers_no_epoch_is_prefetched() -> None:
    data = Counter()
    loader = DataLoader(data, 2, auto_reload=True)
    loader.refresh()
    assert data.begun == 0
    assert len(list(loader)) == 5
    assert data.begun == 1


class Pulled:
    """A sampler that counts the batches drawn."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        for index in range(20):
            self.drawn += 1
            yield [index]

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize(("prefetch", "drawn"), [(None, 5), (0, 1), (4, 5), (1, 2), (-3, 1)])
def test_prefetch_bounds_the_batches_ahead(prefetch: int | None, drawn: int) -> None:
    pulled = Pulled()
    loader = DataLoader(range(20), batch_sampler=pulled, num_workers=2, prefetch=prefetch)
    batches = iter(loader)
    assert pulled.drawn == 0
    assert plain(next(batches)) == [0]
    assert drawn <= pulled.drawn <= drawn + 1
    assert plain(list(batches)) == [[index] for index in range(1, 20)]
    loader.close()


def test_workers_and_batches_ahead_are_found_while_training() -> None:
    samples = [np.float32(each) for each in range(60)]
    plain_epochs = epochs(DataLoader(samples, 4), 2)
    for options in ({}, {"prefetch": "auto"}, {"prefetch": "auto", "auto_reload": True}):
        loader = DataLoader(samples, 4, num_workers="auto", **options)
        assert loader.chosen["num_workers"] >= 2
        assert epochs(loader, 2) == plain_epochs
    loader = DataLoader(samples, 4, num_workers=2, prefetch="auto")
    assert loader.chosen == {"num_workers": 2, "prefetch_factor": 2}
    assert epochs(loader, 2) == plain_epochs
    with pytest.raises(ConfigError, match='leave it out, or pass prefetch="auto"'):
        DataLoader(samples, 4, num_workers="auto", prefetch=3)
    with pytest.raises(ConfigError, match='pass num_workers="auto" as well'):
        DataLoader(samples, 4, prefetch="auto")
    shards = nlp.FixedBucketSampler([3] * 60, 4, num_shards=2)
    with pytest.raises(ConfigError, match="one for each shard"):
        nlp.ShardedDataLoader(samples, batch_sampler=shards, num_workers="auto")


def test_a_copy_of_a_loader_works() -> None:
    loader = DataLoader(list(range(4)), 2, num_workers=1)
    list(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert epochs(copy, 1) == epochs(loader, 1)


# -- errors --------------------------------------------------------------------------------------


def test_after_an_error_the_epoch_and_the_loader_go_on(workers: dict[str, Any]) -> None:
    loader = DataLoader(Fails(2, 6), 2, **workers)
    for _ in range(2):
        batches = iter(loader)
        assert plain(next(batches)) == [0, 1]
        with pytest.raises(ZeroDivisionError, match="of the user"):
            next(batches)
        assert plain(list(batches)) == [[4, 5]]
    loader.close()


class Gate:
    """Samples that wait for a file; for processes and threads."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 0:
            with open(self.path, "rb") as gate:
                gate.read()
        return index


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_a_late_batch_is_reported_and_not_lost(kind: str, tmp_path: Any) -> None:
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    loader = DataLoader(Gate(pipe), 2, timeout=0.2, **WORKERS[kind])
    batches = iter(loader)
    text = r"Worker timed out after 0\.2 seconds\. This might be caused by\n- Slow transform"
    with pytest.raises(multiprocessing.TimeoutError, match=text) as caught:
        next(batches)
    assert isinstance(caught.value, LoadTimeout)
    assert ("Insufficient shared_memory" in str(caught.value)) == (kind == "processes")
    pipe.write_bytes(b"")
    for _ in range(100):
        try:
            assert plain(next(batches)) == [0, 1]
            break
        except multiprocessing.TimeoutError:
            continue
    assert plain(list(batches)) == [[2, 3]]
    loader.close()


def test_a_killed_worker_loses_no_batch() -> None:
    loader = DataLoader(list(range(200)), 2, num_workers=2)
    batches = iter(loader)
    found = [plain(next(batches))]
    for worker in loader.workers():
        os.kill(worker.pid, signal.SIGKILL)
    found += [plain(batch) for batch in batches]
    assert found == [[index, index + 1] for index in range(0, 200, 2)]
    loader.close()


# -- states --------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", [None, 4])
def test_a_run_resumes_at_any_batch_of_any_epoch(
    last_batch: str, shuffle: bool, seed: int | None
) -> None:
    def make(num_workers: int) -> DataLoader:
        return DataLoader(
            list(range(11)), 3, shuffle, None, last_batch, num_workers=num_workers, seed=seed
        )

    np.random.seed(1)
    whole, states = [], []
    loader = make(2)
    for epoch in range(3):
        states.append((json.dumps(loader.state_dict()), np.random.get_state(), len(whole)))
        for batch in loader:
            whole.append((epoch, plain(batch)))
            states.append((json.dumps(loader.state_dict()), np.random.get_state(), len(whole)))
    loader.close()
    for number in range(0, len(states), 2):
        state, random, count = states[number]
        np.random.set_state(random)
        resumed = make(number % 3)
        resumed.load_state_dict(json.loads(state))
        rest = []
        while resumed.epoch < 3:
            epoch = resumed.epoch
            rest += [(epoch, plain(batch)) for batch in resumed]
        resumed.close()
        assert rest == whole[count:], (number, state)
