"""Iterable datasets at their edges: errors, breaks, odd samples, odd iterators, odd speeds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import CollateError, DataLoader, DatasetError, IterableDataset
from tests.datasets import OddError, Point, UnpicklableResult, digest_of
from tests.streams import (
    ActParts,
    Endless,
    Parts,
    Sharded,
    cut,
    in_turn,
    marks,
    order_of,
    values_of,
    worker_id,
)

WORKERS = pytest.mark.parametrize(
    "workers",
    [0, pytest.param(1, marks=pytest.mark.nightly), 2, pytest.param(3, marks=pytest.mark.nightly)],
)
FEW = pytest.mark.parametrize("workers", [0, 2])
PARTS = [range(11), range(100, 106), range(200, 217)]


class Items(IterableDataset[Any]):
    """Worker 0 yields what `make()` yields, the others nothing."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return self.make() if worker_id() == 0 else iter(())


def run(batches: Any, most: int = 200) -> list[Any]:
    """Iterate to the end through every error; returns batches and errors in order."""
    found: list[Any] = []
    for _ in range(most):
        try:
            found.append(next(batches))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)
    raise AssertionError("the epoch does not end")


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


# ---- samples -----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u2", "f2", "f4", "f8", "i8", "c16", "M8[s]", "S3", "U2", "i4,f8"]
)
@FEW
def test_01_short_last_batch_has_its_own_shape_and_nothing_of_the_one_before(
    workers: int, dtype: str
) -> None:
    """The second batch is stacked in a slot that was laid out for a full one."""
    kind = np.dtype(dtype)

    def make() -> Iterator[Any]:
        for value in range(11):
            if kind.names:
                row = np.array([(value, value)] * 3, kind)
            else:
                row = np.arange(value, value + 3).astype(kind.str)
            yield {"row": row, "scalar": float(value), "small": np.uint8(value), "i": value}

    with DataLoader(Items(make), batch_size=4, num_workers=workers, persistent_workers=True) as it:
        wanted = list(make())
        for _ in range(2):
            found = list(it)
            assert [len(batch["i"]) for batch in found] == [4, 4, 3]
            for n, batch in enumerate(found):
                rows = wanted[4 * n : 4 * n + 4]
                for name in ("row", "scalar", "small", "i"):
                    stacked = np.stack([np.asarray(row[name]) for row in rows])
                    assert batch[name].shape == stacked.shape
                    assert batch[name].dtype == stacked.dtype
                    assert batch[name].tobytes() == stacked.tobytes()
                    assert batch[name].flags.c_contiguous


def test_01_short_last_batch_of_frameworks_has_its_own_shape() -> None:
    for framework in ("torch", "paddle"):
        pytest.importorskip(framework)
        with DataLoader(Parts([range(11)]), batch_size=4, num_workers=1, framework=framework) as it:
            assert [list(batch[0].shape) for batch in it] == [[4, 4], [4, 4], [3, 4]]


@FEW
def test_01_containers_strings_and_objects_collate_as_with_an_index(workers: int) -> None:
    samples = [
        {"text": f"t{i}", "raw": bytes([i]), "none": None, "point": Point(np.ones(2) * i, (i, 0.5))}
        for i in range(7)
    ]
    with DataLoader(Items(lambda: iter(samples)), batch_size=3, num_workers=workers) as streamed:
        found = digest_of(list(streamed))
    with DataLoader(samples, batch_size=3) as indexed:
        assert digest_of(list(indexed)) == found


@FEW
def test_01_batches_may_be_unlike_each_other(workers: int) -> None:
    """Only samples of one batch must be alike; the remembered form does not bind other batches."""
    items = [np.zeros(2), np.ones(2), np.zeros(3), np.ones(3), "a", "b", (1, "x"), (2, "y"), 5, 6]
    items += [{"a": 1}, {"a": 2}, {"b": 1, "a": 2}, {"b": 3, "a": 4}, np.zeros(2), np.ones(2), None]
    with DataLoader(
        Items(lambda: iter(items)), batch_size=2, num_workers=workers, persistent_workers=True
    ) as loader:
        for _ in range(2):
            found = list(loader)
            assert found[0].shape == (2, 2)
            assert found[1].shape == (2, 3)
            assert found[2] == ["a", "b"]
            assert found[3][1] == ["x", "y"]
            assert found[4].tolist() == [5, 6]
            assert [list(batch) for batch in found[5:7]] == [["a"], ["b", "a"]]
            assert found[7].shape == (2, 2)
            assert found[8] == [None]


@FEW
def test_01_ragged_samples_are_reported_in_their_place_and_the_rest_arrives(workers: int) -> None:
    items = [np.zeros(2 + (i == 6)) for i in range(12)]
    with DataLoader(Items(lambda: iter(items)), batch_size=4, num_workers=workers) as loader:
        found = run(iter(loader))
    assert [getattr(batch, "shape", None) for batch in found] == [(4, 2), None, (4, 2)]
    assert isinstance(found[1], CollateError)
    assert "sample 2" in str(found[1])
    assert "shape (3,)" in str(found[1])
    assert "batch 1 of epoch 0" in notes_of(found[1])
    assert "dataset index" not in str(found[1]) + notes_of(found[1])


@FEW
def test_error_of_a_ragged_first_batch_names_no_dataset_index(workers: int) -> None:
    items = [np.zeros(2 + (i == 2)) for i in range(4)]
    with DataLoader(Items(lambda: iter(items)), batch_size=4, num_workers=workers) as loader:
        (error,) = run(iter(loader))
    assert isinstance(error, CollateError)
    assert "sample 2" in str(error)
    assert "dataset index" not in str(error) + notes_of(error)  # there is none


@pytest.mark.parametrize("way", ["stack", "collate", "alone"])
def test_01_item_that_cannot_be_pickled_is_reported_and_the_rest_arrives(way: str) -> None:
    items = [(np.ones(1), UnpicklableResult() if i == 5 else "x") for i in range(12)]
    options: dict[str, Any] = {"batch_size": None if way == "alone" else 4}
    if way == "collate":
        options["collate_fn"] = lambda samples: [list(sample) for sample in samples]
    with DataLoader(Items(lambda: iter(items)), num_workers=1, **options) as loader:
        found = run(iter(loader))
    bad = 5 if way == "alone" else 1
    assert isinstance(found[bad], DatasetError)
    assert "UnpicklableResult" in str(found[bad])
    assert len(found) == (12 if way == "alone" else 3)
    assert not [e for n, e in enumerate(found) if isinstance(e, Exception) and n != bad]


def test_01_item_that_cannot_be_pickled_passes_by_reference_without_workers() -> None:
    thing = UnpicklableResult()
    with DataLoader(Items(lambda: iter([thing])), batch_size=None) as loader:
        assert next(iter(loader)) is thing


# ---- errors ------------------------------------------------------------------------------------


def fail(value: int) -> None:
    raise OddError("file", line=value)


@pytest.mark.parametrize("collate", [None, list], ids=["stack", "collate"])
@WORKERS
def test_10_error_of_one_generator_comes_at_its_place_and_the_others_go_on(
    workers: int, collate: Any
) -> None:
    """Value 9 is the second of worker 0's third batch: that batch fails, and its part ends.

    That it does is told in the place of the batch that would come next.
    """
    parts = [PARTS[0], PARTS[1], PARTS[2]]
    with DataLoader(
        ActParts(parts, 9, fail),
        batch_size=4,
        num_workers=workers,
        collate_fn=collate,
        persistent_workers=True,
    ) as loader:
        for epoch in range(2):
            found = run(iter(loader))
            place = next(n for n, b in enumerate(found) if isinstance(b, Exception))
            error = found[place]
            assert type(error) is OddError
            assert (error.path, error.line) == ("file", 9)
            assert f"sample 1 of batch {place} of epoch {epoch}" in notes_of(error)
            who = f"worker 0 (pid {error_pid(loader)})" if workers else "the thread that iterates"
            assert who in notes_of(error)
            lost = next(n for n, b in enumerate(found) if type(b) is DatasetError)
            with pytest.raises(DatasetError, match="remaining samples of worker 0 in"):
                raise found[lost]
            found[place], found[lost] = ["error"], ["lost"]
            batches = [cut(part, 4) for part in parts[: max(1, workers)]]
            wanted = in_turn([[*batches[0][:2], ["error"], ["lost"]], *batches[1:]])
            marks = (["error"], ["lost"])
            if collate is None:
                found = [b if b in marks else values_of(b) for b in found]
            else:
                found = [b if b in marks else [int(v) for _, v in b] for b in found]
            assert found == wanted


def error_pid(loader: DataLoader) -> int:
    return loader.workers()[0].pid or 0


@WORKERS
def test_10_error_of_iter_itself_ends_the_shard_of_that_worker_alone(workers: int) -> None:
    class Refuses(Parts):
        def __iter__(self) -> Iterator[Any]:
            if worker_id() == 0:
                raise LookupError("no such file")
            return super().__iter__()

    with DataLoader(
        Refuses(PARTS), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        for _ in range(2):
            found = run(iter(loader))
            assert type(found[0]) is LookupError
            assert "batch 0 of epoch" in notes_of(found[0])
            wanted = in_turn([[], *(order_of([part], 1, 4) for part in PARTS[1 : max(1, workers)])])
            assert [values_of(batch) for batch in found[1:]] == wanted


@FEW
def test_10_iter_that_returns_no_iterator_is_reported(workers: int) -> None:
    class Wrong(Parts):
        def __iter__(self) -> Any:
            return 5

    with (
        DataLoader(Wrong(PARTS), batch_size=4, num_workers=workers) as loader,
        pytest.raises(TypeError, match="iterator"),
    ):
        list(loader)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
@FEW
def test_01_exceptions_that_would_end_the_program_arrive_as_dataset_error(
    workers: int, error: type[BaseException]
) -> None:
    def act(_: int) -> None:
        raise error

    with DataLoader(ActParts(PARTS, 5, act), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        if workers == 0 and error is KeyboardInterrupt:
            next(batches)
            with pytest.raises(KeyboardInterrupt):  # as Ctrl-C, which comes in this very thread
                next(batches)
            with pytest.raises(DatasetError, match="cannot continue"):
                next(batches)
            return
        found = run(batches)
    errors = [e for e in found if isinstance(e, Exception)]
    assert [type(e) for e in errors] == [DatasetError] * 2
    assert type(errors[0].__cause__) is error
    assert "cannot continue" in str(errors[1])
    if workers:
        assert [values_of(b) for b in found if not isinstance(b, Exception)] == [
            b for b in order_of(PARTS, 2, 4) if b[0] < 4 or b[0] >= 100
        ]


@FEW
def test_01_stop_iteration_is_the_end_only_from_next(workers: int) -> None:
    def inner(_: int) -> None:
        raise StopIteration

    # out of a generator's own code it is an error, says Python (PEP 479)
    with DataLoader(ActParts(PARTS, 5, inner), batch_size=4, num_workers=workers) as loader:
        errors = [e for e in run(iter(loader)) if isinstance(e, Exception)]
    assert [type(e) for e in errors] == [RuntimeError, DatasetError]

    # out of collate_fn it must not pass for the end of the dataset
    def collate(samples: list[Any]) -> Any:
        if samples[0][1] == 4:
            raise StopIteration
        return [value for _, value in samples]

    with DataLoader(
        Parts(PARTS[:1] * 2), batch_size=4, num_workers=workers, collate_fn=collate
    ) as loader:
        found = run(iter(loader))
    copies = max(1, workers)
    errors = [e for e in found if isinstance(e, Exception)]
    assert [type(e) for e in errors] == [DatasetError] * copies
    assert [b for b in found if not isinstance(b, Exception)] == (
        [[0, 1, 2, 3]] * copies + [[8, 9, 10]] * copies
    )


class Counter:
    """An iterator without a generator: it may go on after an error."""

    def __init__(self) -> None:
        self.at = -1

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 2:
            raise ValueError("once")
        if self.at >= 6:
            raise StopIteration
        return self.at


@FEW
def test_01_iterator_that_goes_on_after_an_error_is_followed(workers: int) -> None:
    with DataLoader(Items(Counter), batch_size=None, num_workers=workers) as loader:
        found = run(iter(loader))
    assert [v if isinstance(v, int) else type(v) for v in found] == [0, 1, ValueError, 3, 4, 5]


@FEW
def test_01_every_exception_is_raised_and_the_epoch_ends(workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        raise ValueError(samples[0][1])

    with DataLoader(
        Parts(PARTS), batch_size=4, num_workers=workers, collate_fn=collate, persistent_workers=True
    ) as loader:
        for _ in range(2):
            wanted = [str(batch[0]) for batch in order_of(PARTS, workers, 4)]
            assert [str(error) for error in run(iter(loader))] == wanted


# ---- breaks, speed, several at once ------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
@WORKERS
def test_01_break_at_every_position_leaves_the_next_epoch_whole(
    workers: int, persistent: bool
) -> None:
    wanted = order_of(PARTS, workers, 4)
    with DataLoader(
        Parts(PARTS), batch_size=4, num_workers=workers, persistent_workers=persistent
    ) as loader:
        for position in range(len(wanted)):
            for n, batch in enumerate(loader):
                assert values_of(batch) == wanted[n]
                if n == position:
                    break
            if persistent or position % 3 == 0:
                assert [values_of(batch) for batch in loader] == wanted


@pytest.mark.parametrize("collate", [None, list], ids=["stack", "collate"])
@FEW
def test_04_endless_stream_is_left_at_once_and_begun_anew(workers: int, collate: Any) -> None:
    with DataLoader(
        Endless(), batch_size=2, num_workers=workers, collate_fn=collate, persistent_workers=True
    ) as loader:
        for _ in range(20):
            found = [list(batch) for batch in itertools.islice(loader, 5)]
            wanted = [[2 * n, 2 * n + 1] for n in range(5) for _ in range(max(1, workers))][:5]
            assert found == wanted


@FEW
def test_04_endless_stream_is_drawn_no_further_than_the_batches_in_flight(
    workers: int, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    with DataLoader(Endless(log), batch_size=2, num_workers=workers, prefetch_factor=2) as loader:
        batches = iter(loader)
        next(batches)
        pool: Any = batches.epoch.backend  # type: ignore[attr-defined]
        never = threading.Event()
        while pool.feeder.is_busy():
            never.wait(0.01)
        ahead = pool.window if workers else 0  # without workers no sample is drawn ahead
        assert marks(log) == 2 * (ahead + 1)


@FEW
def test_09_two_live_iterators_each_yield_everything(workers: int) -> None:
    wanted = order_of(PARTS, workers, 4)
    with DataLoader(
        Parts(PARTS), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        first, second = iter(loader), iter(loader)
        for values in wanted:
            assert values_of(next(first)) == values
            assert values_of(next(second)) == values
        assert list(first) == list(second) == []


class Slow(Parts):
    def __init__(self, parts: Any, slow: int) -> None:
        super().__init__(parts)
        self.slow = slow

    def sample(self, value: int) -> Any:
        if worker_id() == self.slow:
            threading.Event().wait(0.01)
        return super().sample(value)


@pytest.mark.parametrize("slow", [0, 1, -1])
def test_01_order_does_not_depend_on_who_is_slow(slow: int) -> None:
    wanted = order_of(PARTS, 2, 2)
    with DataLoader(Slow(PARTS, slow), batch_size=2, num_workers=2) as loader:
        found = []
        for batch in loader:
            if slow < 0:
                threading.Event().wait(0.01)  # the consumer is
            found.append(values_of(batch))
    assert found == wanted


@FEW
def test_02_kept_batches_of_a_stream_stay_right(workers: int) -> None:
    with DataLoader(
        Sharded(2000), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        kept = [batch for _ in range(2) for batch in loader]
        assert [v.tolist() for v in kept[:500]] == [v.tolist() for v in kept[500:]]
        assert sorted(itertools.chain(*(v.tolist() for v in kept[:500]))) == list(range(2000))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("places", [1, 3])
def test_threads_that_share_an_iterator_take_turns(
    workers: int, is_stream: bool, places: int
) -> None:
    data: Any = Sharded(400) if is_stream else range(400)
    with DataLoader(data, batch_size=2, num_workers=workers, places=["cpu"] * places) as loader:
        batches = iter(loader)
        found: list[int] = []

        def take() -> None:
            for step in batches:
                for batch in step if places > 1 else [step]:
                    found.extend(batch.tolist())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
    assert sorted(found) == list(range(400))
