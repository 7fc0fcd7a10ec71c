"""Samples that fail: left out or replaced, with any workers, and reported."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import DataLoader, DatasetError, IterableDataset

BAD = (3, 17, 18, 40)
WAYS: dict[str, dict[str, Any]] = {
    "none": {"num_workers": 0},
    "one": {"num_workers": 1},
    "processes": {"num_workers": 3},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "spawn": {"num_workers": 2, "start_method": "spawn"},
}


EACH = [
    pytest.param(way, marks=pytest.mark.nightly) if way == "spawn" else way for way in WAYS
]  # each spawned worker takes seconds to start


class Files:
    """Numbers, some of which cannot be read."""

    def __init__(self, count: int = 64, bad: tuple[int, ...] = BAD) -> None:
        self.count, self.bad = count, frozenset(bad)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index in self.bad:
            raise OSError(f"file {index} is damaged")
        return np.full(3, reader.sample_rng(index).integers(1000), np.float32), index


class ManyFiles(Files):
    """Fetches many at once, which one damaged file spoils."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class WrittenFiles(Files):
    """Samples that write themselves into their rows."""

    def __getitem__(self, index: int, out: Any = None) -> tuple[Any, int]:
        array, number = super().__getitem__(index)
        if out is not None and out[0] is not None and out[0].shape == array.shape:
            out[0][...] = array
            return out[0], number
        return array, number


def numbers_of(samples: list[Any]) -> list[int]:
    return [number for _, number in samples]


def rows(batches: Any) -> list[Any]:
    return [
        batch if isinstance(batch, list) else [batch[0].tolist(), batch[1].tolist()]
        for batch in batches
    ]


KINDS: dict[str, dict[str, Any]] = {
    "stacked": {},
    "collated": {"collate_fn": numbers_of},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", EACH[1:])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dataset", [Files, ManyFiles, WrittenFiles])
def test_batches_are_the_same_with_any_workers(
    way: str, on_error: str, kind: str, dataset: type[Files]
) -> None:
    options = {"batch_size": 8, "shuffle": True, "seed": 1, "on_error": on_error, **KINDS[kind]}
    found = []
    for each in ("none", way):
        with DataLoader(dataset(), error_budget=4, **options, **WAYS[each]) as loader:
            found.append([rows(loader), rows(loader)])
            errors = loader.errors
            assert sorted(error.index for error in errors) == sorted([*BAD, *BAD])
            assert {error.epoch for error in errors} == {0, 1}
            assert all(error.error == "OSError" for error in errors)
            assert all(f"file {error.index} is damaged" == error.text for error in errors)
            assert all("is damaged" in error.traceback for error in errors)
            assert all((error.instead is None) == (on_error == "skip") for error in errors)
            assert loader.stats()["failed_samples"] == 8
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_only_failed_samples_are_left_out(kind: str) -> None:
    plain = DataLoader(Files(bad=()), batch_size=8, seed=1, shuffle=True, **KINDS[kind])
    loader = DataLoader(
        Files(), batch_size=8, seed=1, shuffle=True, on_error="skip", error_budget=4, **KINDS[kind]
    )
    numbers = [
        [number for batch in rows(each) for number in (batch if kind == "collated" else batch[1])]
        for each in (plain, loader)
    ]
    assert numbers[1] == [number for number in numbers[0] if number not in BAD]


@pytest.mark.parametrize(
    ("bad", "sizes"),
    [
        ((), [8] * 8),
        ((3,), [7, *[8] * 7]),
        ((63,), [*[8] * 7, 7]),
        ((3, 17, 18, 40), [7, 8, 6, 8, 8, 7, 8, 8]),
        (tuple(range(8, 24)), [8] * 6),
        (tuple(range(63)), [1]),
        (tuple(range(64)), []),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"in_order": False}])
def test_batches_lack_only_their_failed_samples(
    bad: tuple[int, ...], sizes: list[int], kind: str, options: dict[str, Any]
) -> None:
    loader = DataLoader(
        Files(bad=bad), batch_size=8, on_error="skip", error_budget=64, **KINDS[kind], **options
    )
    batches = [batch if kind == "collated" else batch[1].tolist() for batch in loader]
    assert [len(batch) for batch in batches] == sizes
    assert [number for batch in batches for number in batch] == [
        number for number in range(64) if number not in bad
    ]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_a_prefetched_epoch_are_those_of_any_other(num_workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 8, "on_error": "skip", "error_budget": 4}
    options["num_workers"] = num_workers
    ahead = {"prefetch_next_epoch": True, "persistent_workers": True} if num_workers else {}
    with DataLoader(Files(), **options, **ahead) as loader:
        found = [[numbers.tolist() for _, numbers in loader] for _ in range(2)]
    assert found == [[numbers.tolist() for _, numbers in DataLoader(Files(), **options)]] * 2


def test_an_error_comes_after_the_batch_before_it() -> None:
    class Failing(Files):
        def __getitem__(self, index: int) -> Any:
            if index == 9:
                raise MemoryError("no memory")
            return super().__getitem__(index)

    batches = iter(DataLoader(Failing(), batch_size=8, on_error="skip", error_budget=4))
    assert next(batches)[1].tolist() == [0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(MemoryError):
        next(batches)
    assert next(batches)[1].tolist() == [16, 19, 20, 21, 22, 23]


@pytest.mark.parametrize("places", [["cpu", "cpu"], ["cpu"] * 3])
def test_groups_of_several_places_have_short_batches(places: list[str]) -> None:
    loader = DataLoader(
        Files(), batch_size=8, places=places, on_error="skip", error_budget=4, num_workers=1,
        drop_last_group=False,
    )  # fmt: skip
    found = [len(numbers) for group in loader for _, numbers in group]
    assert found == [7, 8, 6, 8, 8, 7, 8, 8]


@pytest.mark.parametrize("way", EACH)
def test_other_samples_of_the_batch_replace_failed_ones(way: str) -> None:
    order = [list(range(begin, begin + 8)) for begin in range(8, 56, 8)]  # some are left out
    with DataLoader(
        Files(), batch_sampler=order, on_error="replace", error_budget=4, seed=5, **WAYS[way]
    ) as loader:
        for (_, numbers), wanted in zip(loader, order, strict=True):
            assert len(numbers) == 8
            assert set(numbers.tolist()) <= set(wanted) - set(BAD)
            kept = [number for number in wanted if number not in BAD]
            assert [number for number in wanted if number in numbers] == kept


@pytest.mark.parametrize("batch_size", [1, None])
@pytest.mark.parametrize("way", ["none", "processes"])
def test_a_failed_batch_of_one_sample_is_replaced_by_any_sample(
    batch_size: int | None, way: str
) -> None:
    loader = DataLoader(
        Files(), batch_size=batch_size, on_error="replace", error_budget=4, **WAYS[way]
    )
    with loader:
        numbers = [int(np.ravel(number)[0]) for _, number in loader]
    assert len(numbers) == 64
    assert not set(numbers) & set(BAD)
    assert [number for index, number in enumerate(numbers) if number != index] == [
        numbers[index] for index in BAD
    ]


def test_the_users_sampler_decides_which_samples_may_replace() -> None:
    loader = DataLoader(Files(), sampler=[1, 3, 5], on_error="replace", error_budget=1)
    batches = iter(loader)
    assert int(next(batches)[1][0]) == 1
    with pytest.raises(DatasetError, match="no other one that could take its place: pass a larger"):
        next(batches)
    assert int(next(batches)[1][0]) == 5


@pytest.mark.parametrize("way", EACH)
def test_a_batch_without_any_sample_is_left_out(way: str) -> None:
    bad = tuple(range(8, 24))
    with DataLoader(
        Files(bad=bad), batch_size=8, on_error="skip", error_budget=16, **WAYS[way]
    ) as loader:
        found = [numbers[0] for _, numbers in loader]
        assert found == [0, 24, 32, 40, 48, 56]
        assert [error.batch for error in loader.errors] == [1] * 8 + [2] * 8
        state = loader.state_dict()
    again = DataLoader(Files(bad=bad), batch_size=8, on_error="skip", error_budget=16)
    again.load_state_dict(state)
    assert [numbers[0] for _, numbers in again] == found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["none", "processes", "threads"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 7])
def test_a_resumed_run_has_the_same_batches(way: str, on_error: str, after: int) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 7, "on_error": on_error}
    with DataLoader(Files(), error_budget=4, **options) as loader:
        whole = rows(loader)
    with DataLoader(Files(), error_budget=4, **options, **WAYS[way]) as loader:
        batches = iter(loader)
        first = rows(next(batches) for _ in range(after))
        state = json.loads(json.dumps(loader.state_dict()))
        count = len(loader.errors)
    assert state["failed"] == count
    with DataLoader(Files(), error_budget=4, **options) as loader:
        loader.load_state_dict(state)
        assert first + rows(loader) == whole
        assert count + len(loader.errors) == 4
    with DataLoader(Files(), error_budget=3, **options) as loader:
        loader.load_state_dict(state)
        if count < 4:
            with pytest.raises(DatasetError, match=r"^4 samples of epoch 0 have failed"):
                list(loader)


@pytest.mark.parametrize("way", ["none", "processes"])
def test_a_run_may_be_resumed_after_each_batch(way: str) -> None:
    bad = tuple(range(0, 64, 3))
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 9, "on_error": "skip"}
    options["error_budget"] = 64
    with DataLoader(Files(bad=bad), **options) as loader:
        whole = rows(loader)
    state = None
    found: list[Any] = []
    with DataLoader(Files(bad=bad), **options, **WAYS[way]) as loader:
        while True:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            batches = iter(loader)
            batch = next(batches, None)
            if batch is None:
                break
            found += rows([batch])
            state = loader.state_dict()
    assert found == whole


def test_a_damaged_state_is_refused() -> None:
    loader = DataLoader(Files(), batch_size=8, on_error="skip")
    state = loader.state_dict()
    with pytest.raises(reader.StateError, match="failed in the state must be a count"):
        loader.load_state_dict({**state, "failed": -1})


def test_a_state_that_holds_rows_of_a_batch_is_refused() -> None:
    """Earlier versions filled short batches from the next one, and saved the rest of that one."""
    loader = DataLoader(Files(), batch_size=8, on_error="skip", error_budget=4)
    state = loader.state_dict()
    spare = {"batch": 1, "keys": list(range(8, 16)), "at": 1, "bad": []}
    with pytest.raises(reader.StateError, match="spare in it names the rows that were left"):
        loader.load_state_dict({**state, "spare": spare})
    loader.load_state_dict({**state, "spare": None})
    assert len(list(loader)) == 8


@pytest.mark.parametrize("way", EACH)
def test_too_many_failed_samples_end_the_epoch_with_an_error_that_names_them(way: str) -> None:
    with DataLoader(
        Files(bad=(1, 9, 10)), batch_size=8, on_error="skip", error_budget=2, **WAYS[way]
    ) as loader:
        batches, count = iter(loader), 0
        with pytest.raises(DatasetError) as caught:
            for _ in batches:
                count += 1
        assert count == 2  # they are delivered, and then reported
        text = str(caught.value)
        assert "3 samples of epoch 0 have failed, and error_budget=2 allows 2" in text
        assert "3 of OSError (index 1, 9, 10; 'file 1 is damaged')" in text
        with pytest.raises(StopIteration):
            next(batches)
        with pytest.raises(DatasetError, match="samples of epoch 1"):
            list(loader)


@pytest.mark.parametrize(
    ("budget", "bad", "is_enough"),
    [
        (0, 0, True),
        (0, 1, False),
        (4, 4, True),
        (0.0625, 4, True),
        (0.0624, 4, False),
        (1.0, 9, True),
    ],
)
def test_a_budget_is_a_count_or_a_share_of_the_epoch(
    budget: float, bad: int, is_enough: bool
) -> None:
    loader = DataLoader(
        Files(bad=tuple(range(bad))), batch_size=8, on_error="skip", error_budget=budget
    )
    if is_enough:
        list(loader)
        return
    with pytest.raises(DatasetError, match=f"error_budget={budget}"):
        list(loader)


def test_the_end_of_an_epoch_reports_failed_samples(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reader"):
        list(DataLoader(Files(), batch_size=8, on_error="skip", error_budget=4))
        list(DataLoader(Files(bad=()), batch_size=8, on_error="skip"))
    (said,) = caplog.messages
    wanted = "epoch 0: 4 samples were left out: 4 of OSError (index 3, 17, 18, 40; 'file 3"
    assert said.startswith(wanted)


class Stream(IterableDataset[Any]):
    """Draws numbers; some cannot be drawn."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def __iter__(self) -> Iterator[Any]:
        return self._generated() if self.ends else _Draws(list(reader.shard(range(64))))

    def _generated(self) -> Iterator[Any]:
        yield from range(5)
        raise OSError("the connection was lost")


class _Draws:
    def __init__(self, numbers: list[int]) -> None:
        self.left = numbers

    def __iter__(self) -> _Draws:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        number = self.left.pop(0)
        if number in BAD:
            raise OSError(f"record {number} is damaged")
        return number


@pytest.mark.parametrize("way", EACH)
@pytest.mark.parametrize("kind", [{}, {"collate_fn": list}])
def test_a_stream_goes_on_where_a_draw_fails(way: str, kind: dict[str, Any]) -> None:
    with DataLoader(Stream(), batch_size=8, on_error="skip", **kind, **WAYS[way]) as loader:
        batches = [list(map(int, batch)) for batch in loader]
        numbers = sorted(number for batch in batches for number in batch)
        assert numbers == [number for number in range(64) if number not in BAD]
        assert all(len(batch) == 8 for batch in batches[: -max(1, WAYS[way]["num_workers"])])
        assert sorted(error.text for error in loader.errors) == sorted(
            f"record {number} is damaged" for number in BAD
        )


@pytest.mark.parametrize("way", ["none", "processes"])
def test_a_stream_keeps_its_length_if_the_sample_before_replaces(way: str) -> None:
    with DataLoader(Stream(), batch_size=4, on_error="replace", **WAYS[way]) as loader:
        numbers = [int(number) for batch in loader for number in batch]
    assert len(numbers) == 64
    assert not set(numbers) & set(BAD)
    assert len(set(numbers)) == 60


@pytest.mark.parametrize("way", ["none", "processes"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_stream_is_resumed_at_its_position(way: str, on_error: str) -> None:
    options: dict[str, Any] = {"batch_size": 4, "on_error": on_error, **WAYS[way]}
    with DataLoader(Stream(), **options) as loader:
        whole = [batch.tolist() for batch in loader]
        texts = sorted(error.text for error in loader.errors)
    for after in (1, 4, 9):
        with DataLoader(Stream(), **options) as loader:
            batches = iter(loader)
            first = [next(batches).tolist() for _ in range(after)]
            state, errors = loader.state_dict(), loader.errors
        with DataLoader(Stream(), **options) as loader:
            loader.load_state_dict(state)
            assert first + [batch.tolist() for batch in loader] == whole
            assert sorted(error.text for error in [*errors, *loader.errors]) == texts


@pytest.mark.parametrize("way", EACH)
def test_an_exhausted_generator_raises_its_error(way: str) -> None:
    loader = DataLoader(Stream(ends=True), batch_size=2, on_error="skip", **WAYS[way])
    with loader, pytest.raises(OSError, match="the connection was lost"):
        list(loader)


class Refused(Files):
    """Raises an error that means that the program is wrong."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise self.error
        return index


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    "error", [MemoryError("no memory"), reader.ConfigError("wrong"), reader.SampleIndexError("out")]
)
@pytest.mark.parametrize("way", ["none", "processes"])
def test_errors_outside_of_samples_are_raised(on_error: str, error: Exception, way: str) -> None:
    loader = DataLoader(Refused(error), batch_size=8, on_error=on_error, **WAYS[way])
    with loader, pytest.raises(type(error)):
        list(loader)


def test_samples_that_do_not_fit_together_are_raised() -> None:
    ragged = [np.zeros(1 + index % 2) for index in range(8)]
    with pytest.raises(reader.CollateError):
        list(DataLoader(ragged, batch_size=4, on_error="skip"))


# -- what must end -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", EACH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [range(64), range(40, 64)])
def test_whole_batches_that_fail_end_the_epoch_at_the_budget(
    way: str, kind: str, bad: range
) -> None:
    options = {"batch_size": 8, "on_error": "skip", "error_budget": 12, **KINDS[kind], **WAYS[way]}
    with DataLoader(Files(bad=tuple(bad)), **options) as loader:
        with pytest.raises(DatasetError, match="samples of epoch 0 have failed"):
            list(loader)
        assert loader.stats()["failed_samples"] == 16


@pytest.mark.parametrize("way", EACH)
def test_failed_samples_are_reported_with_their_batch(way: str) -> None:
    with DataLoader(
        Files(bad=(3,)), batch_size=8, on_error="replace", error_budget=4, **WAYS[way]
    ) as loader:
        batches = iter(loader)
        next(batches)
        assert [error.index for error in loader.errors] == [3]
        assert loader.stats()["failed_samples"] == 1


@pytest.mark.parametrize("way", ["none", "one"])
def test_a_dataset_of_one_sample_that_fails_raises(way: str) -> None:
    loader = DataLoader(Files(1, bad=(0,)), on_error="replace", error_budget=4, **WAYS[way])
    with loader, pytest.raises(DatasetError, match="no other one that could take its place"):
        list(loader)


@pytest.mark.parametrize("way", ["none", "one"])
def test_the_last_sample_of_an_epoch_is_replaced_too(way: str) -> None:
    loader = DataLoader(
        Files(17, bad=(16,)), batch_size=8, on_error="replace", error_budget=4, **WAYS[way]
    )
    with loader:
        assert [len(numbers) for _, numbers in loader] == [8, 8, 1]


class Gone(IterableDataset[Any]):
    """Draws for a while, and never again."""

    def __iter__(self) -> Iterator[Any]:
        return _Gone()


class _Gone:
    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> _Gone:
        return self

    def __next__(self) -> int:
        self.drawn += 1
        if self.drawn > 5:
            raise ConnectionError("the connection is gone")
        return self.drawn


@pytest.mark.parametrize("way", ["none", "one"])
def test_a_stream_that_fails_for_good_raises(way: str) -> None:
    with DataLoader(
        Gone(), batch_size=2, on_error="skip", error_budget=1000, **WAYS[way]
    ) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[1, 2], [3, 4]]
        with pytest.raises(ConnectionError):
            next(batches)


def test_samples_without_anything_in_them_pass() -> None:
    assert list(DataLoader([()] * 4, batch_size=2, on_error="skip")) == [(), ()]


# -- the quarantine ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", EACH)
def test_a_quarantine_names_each_sample_once(way: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    options: dict[str, Any] = {"batch_size": 8, "on_error": "skip", "error_budget": 4}
    with DataLoader(Files(), quarantine=path, **options, **WAYS[way]) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        list(batches)
    with DataLoader(Files(), quarantine=path, **options) as loader:
        loader.load_state_dict(state)  # meets them once more
        list(loader)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["index"] for line in lines] == list(BAD)
    assert lines[0].keys() == {
        *("epoch", "batch", "index", "error", "text", "traceback", "instead"),
    }
    assert "file 3 is damaged" in lines[0]["traceback"]
    rest = reader.without(Files(), path)
    assert len(rest) == 60
    assert sorted(
        number for _, numbers in DataLoader(rest, batch_size=7) for number in numbers.tolist()
    ) == [number for number in range(64) if number not in BAD]


def test_a_quarantine_grows_by_new_failures_alone(tmp_path: Path) -> None:
    class Flaky(Files):
        def __getitem__(self, index: int) -> Any:
            if index == 9 and self.is_away:
                raise TimeoutError("no answer")
            return super().__getitem__(index)

        is_away = False

    path = tmp_path / "bad.jsonl"
    dataset = Flaky()
    options: dict[str, Any] = {"batch_size": 8, "on_error": "skip", "quarantine": path}
    with DataLoader(dataset, shuffle=True, seed=2, **options, error_budget=5) as loader:
        for epoch in range(4):
            dataset.is_away = epoch > 1
            list(loader)
        assert len(loader.errors) == 4 * len(BAD) + 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(line["index"] for line in lines) == sorted([*BAD, 9])
    assert [line["epoch"] for line in lines] == [0] * len(BAD) + [2]


def test_a_quarantine_of_a_stream_has_a_line_for_each_draw(tmp_path: Path) -> None:
    class Draws(reader.IterableDataset):
        def __iter__(self) -> Any:
            self.at = 0
            return self

        def __next__(self) -> Any:
            self.at += 1
            if self.at == 4:
                raise OSError("no answer")
            if self.at > 9:
                raise StopIteration
            return np.full(2, self.at)

    path = tmp_path / "bad.jsonl"
    with DataLoader(Draws(), batch_size=3, on_error="skip", error_budget=9, quarantine=path) as it:
        list(it)
        list(it)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["epoch"], line["index"]) for line in lines] == [(0, 3), (1, 3)]


def test_a_cut_off_quarantine_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    list(DataLoader(Files(), batch_size=8, on_error="skip", error_budget=4, quarantine=path))
    path.write_bytes(path.read_bytes()[:-20])
    assert len(reader.without(Files(), path)) == 61
    with path.open("a") as file:
        file.write('{"epoch": 3, "batch": 0, "ind')  # and the run goes on
    list(DataLoader(Files(bad=(9,)), batch_size=8, on_error="skip", quarantine=path))
    assert len(reader.without(Files(), path)) == 60
    with path.open("a") as file:
        file.write('{"epoch": 0, "batch": 0, "index": [1, 2]}\n')
    list(DataLoader(Files(bad=(10,)), batch_size=8, on_error="skip", quarantine=path))
    path.write_text('{"other": 1}\n')
    with pytest.raises(reader.ConfigError, match=r"line 1 of '.*bad.jsonl' names no sample"):
        reader.without(Files(), path)


def test_a_quarantine_that_can_no_longer_be_written_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "bad.jsonl"
    path.parent.mkdir()
    options: dict[str, Any] = {"batch_size": 8, "on_error": "skip", "error_budget": 4}
    loader = DataLoader(Files(), quarantine=path, **options)
    path.unlink()
    path.parent.rmdir()
    with pytest.warns(UserWarning, match="cannot be written any more") as told:
        list(loader)
    assert len(told) == 1
    assert len(loader.errors) == 4


# -- deaths --------------------------------------------------------------------------------------


class Killed(Files):
    """Kills its worker once at some samples."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        if index % 13 == 5:
            try:
                (self.folder / str(index)).mkdir()
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_deaths_of_workers_change_nothing(on_error: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "seed": 2, "on_error": on_error, "error_budget": 4}
    whole = rows(DataLoader(Files(), **options))
    with DataLoader(Killed(tmp_path), num_workers=3, worker_retries=5, **options) as loader:
        assert rows(loader) == whole
        assert sorted(error.index for error in loader.errors) == list(BAD)
    assert len(list(tmp_path.iterdir())) == 5


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"on_error": "ignore"}, reader.ConfigError, "on_error must be one of 'raise', 'skip', 'r"),
        ({"on_error": None}, reader.ConfigError, "on_error must be one of"),
        ({"error_budget": 3}, reader.ConfigError, "error_budget is for samples that fail and are"),
        ({"quarantine": "x"}, reader.ConfigError, "quarantine is for samples that fail and are"),
        ({"on_error": "skip", "error_budget": -1}, reader.ConfigError, "an int of 0 or more"),
        ({"on_error": "skip", "error_budget": 1.5}, reader.ConfigError, r"a float in \[0, 1\]"),
        ({"on_error": "skip", "error_budget": True}, reader.ConfigTypeError, "error_budget must"),
        ({"on_error": "skip", "error_budget": "a"}, reader.ConfigTypeError, "error_budget must"),
        ({"on_error": "skip", "error_budget": np.nan}, reader.ConfigError, "error_budget must"),
        ({"on_error": "skip", "quarantine": 3}, reader.ConfigTypeError, "quarantine must be the"),
        (
            {"on_error": "skip", "quarantine": "/none/bad.jsonl"},
            reader.ConfigError,
            "quarantine='/none/bad.jsonl' cannot be written",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        DataLoader(Files(), **options)


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ([64], reader.SampleIndexError, "index 64 is outside of Files, which has 64 samples"),
        ([-65], reader.SampleIndexError, "index -65 is outside"),
        (["a"], reader.ConfigTypeError, "bad must hold indices of the dataset, got 'a'"),
        (5, reader.ConfigTypeError, "bad must be a list of indices, or the path"),
        (range(64), reader.ConfigError, "all 64 samples of Files would be left out"),
        ("/none.jsonl", reader.ConfigError, "the quarantine file '/none.jsonl' cannot be read"),
    ],
)
def test_without_refuses_invalid_arguments(bad: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        reader.without(Files(), bad)


def test_without_an_empty_list_is_the_dataset() -> None:
    assert list(reader.without(list("abc"), [])) == ["a", "b", "c"]
    assert list(reader.without(list("abc"), [-1, 2])) == ["a", "b"]
