"""The next epoch: prefetched, chosen by set_epoch, told to the workers' copies (2.1, 2.3, 2.6)."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    BatchSampler,
    ConfigError,
    DataLoader,
    DistributedBatchSampler,
    IterableDataset,
    Subset,
)
from tests.datasets import Rows, Wrapped, check_rows
from tests.processes import kill_and_wait, wait_until
from tests.streams import Marking, Parts, marks, order_of, values_of

AHEAD: dict[str, Any] = {"persistent_workers": True, "prefetch_next_epoch": True}
EITHER = pytest.mark.parametrize("ahead", [False, True])


class Epochs(Rows):
    """Samples are (index, epoch that this copy was told, pid)."""

    def __init__(self, count: int = 8) -> None:
        super().__init__(count)
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return index, self.epoch, os.getpid()


class Hidden(Epochs):
    """Keeps its epoch in an unusual attribute."""

    def __init__(self, count: int = 8) -> None:
        super().__init__(count)
        del self.epoch

    def set_epoch(self, epoch: int) -> None:
        self.where = epoch

    def __getitem__(self, index: int) -> Any:
        return index, getattr(self, "where", -1), os.getpid()


class Joined(Epochs):
    """Keeps others in `datasets`: samples are (index, own epoch, pid, epochs of the others)."""

    def __init__(self, *datasets: Any) -> None:
        super().__init__()
        self.datasets = datasets

    def __getitem__(self, index: int) -> Any:
        return (*super().__getitem__(index), [each[index][1] for each in self.datasets])


class Rolled:
    """A sampler that begins at its epoch and counts only by set_epoch, as torch's does."""

    def __init__(self, count: int = 8) -> None:
        self.count = count
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(np.roll(range(self.count), -self.epoch).tolist())


def rolled(epoch: int, count: int = 8) -> list[int]:
    return [int(i) for i in np.roll(range(count), -epoch)]


def indices_of(loader: Any) -> list[int]:
    return [int(index) for batch in loader for index in batch[0]]


def told(batches: Any) -> set[int]:
    """The epochs that the copies of Epochs say."""
    return {int(epoch) for batch in batches for epoch in batch[1]}


# ---- begun ahead -------------------------------------------------------------------------------


def test_prefetch_needs_workers_that_stay() -> None:
    for options in ({}, {"num_workers": 2}, {"persistent_workers": True}):
        with pytest.raises(ConfigError, match="prefetch_next_epoch=True needs"):
            DataLoader(Rows(), prefetch_next_epoch=True, **options)  # type: ignore[arg-type]


def test_first_batches_are_made_before_the_next_epoch_is_asked_for(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with DataLoader(
        Marking(log, 16), batch_size=2, num_workers=2, prefetch_factor=2, **AHEAD
    ) as it:
        for epoch in range(4):
            for n, batch in enumerate(it):
                check_rows(batch, (2 * n, 2 * n + 1))
            # four batches in flight, and no more
            wait_until(lambda: marks(log) == 16 * (epoch + 1) + 8)  # noqa: B023
            threading.Event().wait(0.02)
            assert marks(log) == 16 * (epoch + 1) + 8


def test_next_epoch_begins_with_the_last_batch_and_not_after_it(tmp_path: Path) -> None:
    """While the user trains on the last batch, the workers make the next ones."""
    log = str(tmp_path / "log")
    with DataLoader(Marking(log, 16), batch_size=2, num_workers=1, **AHEAD) as loader:
        batches = iter(loader)
        for _ in range(8):
            batch = next(batches)
        wait_until(lambda: marks(log) == 16 + 4)
        check_rows(batch, (14, 15))
        with pytest.raises(StopIteration):
            next(batches)


@pytest.mark.parametrize("workers", [1, 2])
def test_01_prefetched_epochs_are_whole_and_equal_others(workers: int) -> None:
    orders = []
    for ahead in (False, True):
        with DataLoader(
            Rows(30), batch_size=4, shuffle=True, seed=3, num_workers=workers,
            persistent_workers=True, prefetch_next_epoch=ahead,
        ) as loader:  # fmt: skip
            orders.append([[b[1].tolist() for b in loader] for _ in range(4)])
    assert orders[0] == orders[1]
    assert len({str(order) for order in orders[0]}) == 4


def test_epoch_of_the_loader_counts_requested_epochs() -> None:
    """`loader.epoch` is the epoch that the next iter() begins, prefetched or not."""
    with DataLoader(Rows(8), batch_size=4, num_workers=1, **AHEAD) as loader:
        for epoch in range(3):
            assert loader.epoch == epoch
            list(loader)
        assert loader.epoch == 3
        loader.set_epoch(7)
        assert loader.epoch == 7
        list(loader)
        assert loader.epoch == 8
        loader.close()
        assert loader.epoch == 8


@EITHER
def test_01_break_leaves_the_next_epoch_whole(ahead: bool) -> None:
    with DataLoader(
        Rows(24), batch_size=4, num_workers=2, persistent_workers=True, prefetch_next_epoch=ahead
    ) as loader:
        for position in range(6):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                if n == position:
                    break
            assert [b[1].tolist() for b in loader] == [
                list(range(n, n + 4)) for n in range(0, 24, 4)
            ]


def test_09_two_live_iterators_with_prefetched_epochs() -> None:
    with DataLoader(Rows(16), batch_size=4, num_workers=1, **AHEAD) as loader:
        for _ in range(2):
            first, second = iter(loader), iter(loader)
            for n in range(4):
                check_rows(next(first), range(4 * n, 4 * n + 4))
                check_rows(next(second), range(4 * n, 4 * n + 4))
            assert list(first) == list(second) == []


def test_01_stream_prefetched_is_whole() -> None:
    parts = [range(11), range(100, 106)]
    with DataLoader(Parts(parts), batch_size=4, num_workers=2, **AHEAD) as loader:
        for _ in range(4):
            assert [values_of(batch) for batch in loader] == order_of(parts, 2, 4)


def test_01_groups_prefetched_are_whole() -> None:
    with DataLoader(Rows(28), batch_size=4, num_workers=2, places=["cpu"] * 2, **AHEAD) as loader:
        for _ in range(4):
            found = [[batch[1].tolist()[0] for batch in group] for group in loader]
            assert found == [[0, 4], [8, 12], [16, 20], [24]]


def test_01_worker_killed_after_it_began_ahead_costs_nothing(tmp_path: Path) -> None:
    with DataLoader(Epochs(16), batch_size=4, num_workers=1, **AHEAD) as loader:
        for _ in range(3):
            batches = list(loader)
            assert indices_of(batches) == list(range(16))
            kill_and_wait(int(batches[-1][2][0]))


# ---- nothing is left (the ledger looks after each test) ----------------------------------------


@pytest.mark.parametrize("way", ["close", "del", "with", "iterate", "set_epoch", "cycle"])
def test_03_prefetched_epoch_leaves_nothing(way: str) -> None:
    loader = DataLoader(Rows(16), batch_size=4, num_workers=2, **AHEAD)
    assert len(list(loader)) == 4
    if way == "close":
        loader.close()
        loader.close()
    elif way == "with":
        with loader:
            list(loader)
    elif way == "iterate":
        batches = iter(loader)
        next(batches)
        del batches
    elif way == "set_epoch":
        loader.set_epoch(0)
    elif way == "cycle":
        loader.me = loader  # type: ignore[attr-defined]
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None


def test_03_closed_loader_with_a_prefetched_epoch_starts_anew() -> None:
    loader = DataLoader(Rows(16), batch_size=4, num_workers=1, shuffle=True, seed=2, **AHEAD)
    plain = DataLoader(Rows(16), batch_size=4, shuffle=True, seed=2)
    for _ in range(3):
        assert [b[1].tolist() for b in loader] == [b[1].tolist() for b in plain]
        loader.close()


def test_child_of_a_fork_takes_no_epoch_that_its_parent_began() -> None:
    with DataLoader(Rows(16), batch_size=4, num_workers=1, **AHEAD) as loader:
        list(loader)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ok = [b[1].tolist()[0] for b in loader] == [0, 4, 8, 12] and loader.epoch == 2
                loader.close()
                status = 0 if ok else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [b[1].tolist()[0] for b in loader] == [0, 4, 8, 12]


# ---- samplers ----------------------------------------------------------------------------------


def choices(sampler: Any, loader: DataLoader, epochs: list[int | None]) -> list[list[int]]:
    """Iterate once for each; None sets no epoch."""
    found = []
    for epoch in epochs:
        if epoch is not None:
            sampler.set_epoch(epoch)
        found.append(indices_of(loader))
    return found


def wanted_of(make: Callable[[], Any], epochs: list[int | None]) -> list[list[int]]:
    """The same without workers and without anything ahead."""
    sampler = make()
    loader = DataLoader(Epochs(), batch_sampler=sampler)
    return choices(sampler, loader, epochs)


PATHS = pytest.mark.parametrize(
    "epochs",
    [
        [0, 1, 2, 3],
        [None, None, None, None],
        [0, 0, 0],
        [0, 2, 4, 1],
        [None, 5, None, None, 1],
        [3, None, 3, 4],
    ],
    ids=str,
)


def samplers() -> dict[str, Callable[[], Any]]:
    import paddle

    return {
        "ours": lambda: DistributedBatchSampler(Epochs(), 3, 1, 0, shuffle=True),
        "ours, rank 1": lambda: DistributedBatchSampler(Epochs(), 2, 2, 1, shuffle=True),
        "in order": lambda: DistributedBatchSampler(Epochs(), 3, 1, 0),
        "paddle": lambda: paddle.io.DistributedBatchSampler(Epochs(), 3, 1, 0, shuffle=True),
    }


@pytest.mark.sampled(6)
@PATHS
@EITHER
@pytest.mark.parametrize("kind", ["ours", "ours, rank 1", "in order", "paddle"])
def test_01_epoch_chosen_for_a_distributed_sampler_is_honoured(
    kind: str, ahead: bool, epochs: list[int | None]
) -> None:
    make = samplers()[kind]
    sampler = make()
    with DataLoader(
        Epochs(), batch_sampler=sampler, num_workers=1, persistent_workers=True,
        prefetch_next_epoch=ahead,
    ) as loader:  # fmt: skip
        assert choices(sampler, loader, epochs) == wanted_of(make, epochs)


@EITHER
def test_01_epoch_that_is_the_one_the_sampler_counted_to_is_honoured(ahead: bool) -> None:
    """Prefetched for epoch 1, the sampler counts to 2, and the user chooses 2."""
    make = samplers()["ours"]
    sampler = make()
    with DataLoader(
        Epochs(), batch_sampler=sampler, num_workers=1, persistent_workers=True,
        prefetch_next_epoch=ahead,
    ) as loader:  # fmt: skip
        assert choices(sampler, loader, [0, 2, 4]) == wanted_of(make, [0, 2, 4])


@EITHER
@pytest.mark.parametrize("where", ["sampler", "in a batch sampler", "of torch"])
def test_01_epoch_chosen_for_a_sampler_is_honoured(ahead: bool, where: str) -> None:
    sampler = Rolled()
    options: dict[str, Any] = {"sampler": sampler, "batch_size": 4}
    if where == "in a batch sampler":
        options = {"batch_sampler": BatchSampler(sampler, 4)}
    elif where == "of torch":
        torch = pytest.importorskip("torch")
        options = {"batch_sampler": torch.utils.data.BatchSampler(sampler, 4, False)}
    with DataLoader(
        Epochs(), num_workers=1, persistent_workers=True, prefetch_next_epoch=ahead, **options
    ) as loader:
        for epoch in (0, 1, 2, 2, 5, 0):
            sampler.set_epoch(epoch)
            assert indices_of(loader) == rolled(epoch)
        assert indices_of(loader) == rolled(0)


@EITHER
@pytest.mark.parametrize("workers", [0, 2])
def test_06_epoch_of_the_loader_decides_the_shuffled_order(workers: int, ahead: bool) -> None:
    plain = DataLoader(Epochs(), batch_size=4, shuffle=True, seed=9)
    orders = [indices_of(plain) for _ in range(6)]
    with DataLoader(
        Epochs(), batch_size=4, shuffle=True, seed=9, num_workers=workers,
        persistent_workers=True, prefetch_next_epoch=ahead and workers > 0,
    ) as loader:  # fmt: skip
        assert indices_of(loader) == orders[0]
        loader.set_epoch(3)
        assert indices_of(loader) == orders[3]
        assert indices_of(loader) == orders[4]
        loader.set_epoch(0)
        assert indices_of(loader) == orders[0]
        assert indices_of(loader) == orders[1]


@EITHER
def test_set_epoch_of_the_loader_reaches_sampler_and_dataset(ahead: bool) -> None:
    sampler, dataset = Rolled(), Epochs()
    with DataLoader(
        dataset, sampler=sampler, batch_size=4, num_workers=1, persistent_workers=True,
        prefetch_next_epoch=ahead,
    ) as loader:  # fmt: skip
        list(loader)
        for epoch in (4, 0, 2):
            loader.set_epoch(epoch)
            assert (sampler.epoch, dataset.epoch) == (epoch, epoch)
            batches = list(loader)
            assert indices_of(batches) == rolled(epoch)
            assert told(batches) == {epoch}
        for wrong in (-1, 1.5, "1", None):
            with pytest.raises(ConfigError, match="epoch"):
                loader.set_epoch(wrong)  # type: ignore[arg-type]


# ---- datasets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_06_epoch_of_a_dataset_reaches_persistent_workers(method: str) -> None:
    dataset = Epochs()
    with DataLoader(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, start_method=method
    ) as loader:
        for epoch in (5, 6, 6, 0, 100):
            dataset.set_epoch(epoch)
            assert told(loader) == {epoch}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_06_epoch_of_a_dataset_is_the_same_however_it_runs(workers: int, persistent: bool) -> None:
    dataset = Epochs()
    with DataLoader(
        dataset, batch_size=2, num_workers=workers, persistent_workers=persistent
    ) as loader:
        for epoch in (3, 1):
            dataset.set_epoch(epoch)
            assert told(loader) == {epoch}


@EITHER
@pytest.mark.parametrize("way", ["itself", "subset", "wrapped", "twice", "torch"])
def test_06_epoch_of_a_dataset_within_others_is_honoured(way: str, ahead: bool) -> None:
    inner = Epochs()
    dataset: Any = inner
    if way == "subset":
        dataset = Subset(inner, list(range(6)))
    elif way == "wrapped":
        dataset = Wrapped(inner)
    elif way == "twice":
        dataset = Subset(Wrapped(inner), [0, 1, 2, 3])
    elif way == "torch":
        torch = pytest.importorskip("torch")
        dataset = torch.utils.data.Subset(inner, [0, 1, 2, 3])
    with DataLoader(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, prefetch_next_epoch=ahead
    ) as loader:
        for epoch in (5, 6, 9, 9, 0):
            inner.set_epoch(epoch)
            assert told(loader) == {epoch}


@EITHER
def test_06_each_of_several_datasets_is_told_its_own_epoch(ahead: bool) -> None:
    first, second = Epochs(), Epochs()
    dataset = Joined(first, second)
    with DataLoader(
        dataset, batch_size=2, num_workers=1, persistent_workers=True, prefetch_next_epoch=ahead
    ) as loader:
        for epoch in (1, 2):
            dataset.set_epoch(10 * epoch)
            first.set_epoch(20 * epoch)
            second.set_epoch(30 * epoch)
            for batch in loader:
                assert set(batch[1].tolist()) == {10 * epoch}
                assert [set(e.tolist()) for e in batch[3]] == [{20 * epoch}, {30 * epoch}]


@EITHER
def test_dataset_that_hides_its_epoch_gets_that_of_the_loader(ahead: bool) -> None:
    with DataLoader(
        Hidden(), batch_size=2, num_workers=2, persistent_workers=True, prefetch_next_epoch=ahead
    ) as loader:
        for epoch in range(3):
            assert told(loader) == {epoch}
        loader.set_epoch(9)
        assert told(loader) == {9}


def test_dataset_without_epochs_is_told_nothing() -> None:
    class Deaf(Rows):
        epoch = "spring"

    with DataLoader(Deaf(8), batch_size=4, num_workers=1, **AHEAD) as loader:
        for _ in range(3):
            assert len(list(loader)) == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_06_worker_that_replaces_a_dead_one_is_told_the_epoch(method: str) -> None:
    dataset = Epochs(32)
    with DataLoader(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, start_method=method
    ) as loader:
        for epoch in (7, 8):
            dataset.set_epoch(epoch)
            batches = iter(loader)
            found = [next(batches)]
            kill_and_wait(int(found[0][2][0]))
            found += batches
            assert told(found) == {epoch}
            assert indices_of(found) == list(range(32))
            kill_and_wait(int(found[-1][2][0]))


def test_06_break_and_a_new_epoch_never_mix_their_epochs() -> None:
    dataset = Epochs(64)
    with DataLoader(dataset, batch_size=1, num_workers=2, persistent_workers=True) as loader:
        for epoch in range(30):
            dataset.set_epoch(epoch)
            for n, batch in enumerate(loader):
                assert batch[1].tolist() == [epoch]
                if n == epoch % 4:
                    break


class Stream(IterableDataset[Any]):
    """Yields its epoch three times."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        if epoch == 13:
            raise ValueError("unlucky")
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return iter([(i, self.epoch) for i in range(3)])


@EITHER
def test_06_epoch_of_a_stream_reaches_persistent_workers(ahead: bool) -> None:
    dataset = Stream()
    with DataLoader(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, prefetch_next_epoch=ahead
    ) as loader:
        for epoch in (3, 4, 4, 0):
            dataset.set_epoch(epoch)
            found = list(loader)
            assert len(found) == 4
            assert told(found) == {epoch}


@pytest.mark.parametrize("is_stream", [False, True])
def test_10_set_epoch_that_raises_in_a_worker_is_reported_and_the_epoch_ends(
    is_stream: bool,
) -> None:
    class Unlucky(Epochs):
        def set_epoch(self, epoch: int) -> None:
            if epoch == 13 and os.getpid() != trainer:
                raise ValueError("unlucky")
            self.epoch = epoch

    trainer = os.getpid()
    dataset: Any = Stream() if is_stream else Unlucky()
    with DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True) as loader:
        assert len(list(loader)) == 4
        dataset.epoch = 13
        batches = iter(loader)
        errors = 0
        for _ in range(50):
            try:
                next(batches)
            except StopIteration:
                break
            except ValueError as error:
                assert "unlucky" in str(error)  # noqa: PT017
                errors += 1
        else:
            pytest.fail("the epoch does not end")
        assert 2 <= errors <= 4
        dataset.set_epoch(2)
        assert told(loader) == {2}


# ---- trouble while the next epoch is begun -----------------------------------------------------


class Fails:
    """A batch sampler whose second iteration raises, at once or at its first batch."""

    def __init__(self, error: BaseException, at_once: bool) -> None:
        self.error = error
        self.at_once = at_once
        self.begun = 0

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[list[int]]:
        self.begun += 1
        if self.begun == 2 and self.at_once:
            raise self.error
        return self.batches(self.begun == 2)

    def batches(self, fails: bool) -> Iterator[list[int]]:
        if fails:
            raise self.error
        yield from ([0, 1], [2, 3], [4, 5])


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_01_sampler_that_fails_in_a_prefetched_epoch_loses_no_batch_of_this_one(
    kind: type[BaseException], at_once: bool
) -> None:
    """The last batch of this epoch arrives, whatever happens to the next one."""
    with DataLoader(
        Rows(8), batch_sampler=Fails(kind("x"), at_once), num_workers=1, **AHEAD
    ) as loader:
        found = []
        batches = iter(loader)
        for _ in range(5):
            try:
                found.append(next(batches)[1].tolist())
            except StopIteration:
                break
            except KeyboardInterrupt:
                assert kind is KeyboardInterrupt
        assert found == [[0, 1], [2, 3], [4, 5]]
        del batches
        for _ in range(3):  # the error is raised, or was; then the loop goes on
            try:
                if len(list(loader)) == 3:
                    break
            except BaseException as its_error:
                if not isinstance(its_error, (ValueError, RuntimeError, kind)):
                    raise
        else:
            pytest.fail("the loader does not go on")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_of_a_loader_has_its_options_and_epoch_and_nothing_else(copied: Any) -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 1, "num_workers": 1}
    with DataLoader(
        range(8), persistent_workers=True, prefetch_next_epoch=True, **options
    ) as loader:
        first = [batch.tolist() for batch in loader]
        with copied(loader) as other:
            assert other.epoch == loader.epoch == 1
            again = [batch.tolist() for batch in other]
        assert again != first
        assert [batch.tolist() for batch in loader] == again
