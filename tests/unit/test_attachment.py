"""What a worker attaches to its batches, and how it reaches the trainer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader.errors import DatasetError
from tests.wire import Wire, wire


@pytest.fixture(params=[False, True], ids=["process", "thread"])
def road(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with wire(is_thread=request.param) as made:
        yield made


SAMPLES = [(np.arange(3), f"name {i}") for i in range(4)]
ARRAYS = [np.arange(3) for _ in range(4)]


@pytest.mark.parametrize("way", ["stack", "stream", "write"])
@pytest.mark.parametrize("samples", [SAMPLES, ARRAYS, ["a", "b"]], ids=["both", "arrays", "texts"])
def test_a_batch_arrives_with_the_attachment_of_its_worker(
    road: Wire, way: str, samples: list[Any]
) -> None:
    send = getattr(road, way)
    plain = send(samples)
    road.channel.set_attachment(lambda: {"position": road.channel.seq})
    assert plain.attached is None
    for number in (1, 2, 3):  # the first batch of a form, and later ones of the same form
        batch = send(samples)
        assert batch.attached == {"position": number}
        assert batch.plain_containers().attached == batch.private_copy().attached == batch.attached
        assert np.array_equal(batch.storage_fields(), plain.storage_fields())
        assert repr(batch.objects) == repr(plain.objects)
    road.channel.set_attachment(None)
    assert send(samples).attached is None


@pytest.mark.parametrize("way", ["stack", "stream"])
def test_the_attachment_is_made_after_the_last_sample_is_fetched(road: Wire, way: str) -> None:
    fetched: list[int] = []

    class Source(list[Any]):
        def __getitem__(self, row: Any) -> Any:
            fetched.append(row)
            return ARRAYS[row]

        def __iter__(self) -> Iterator[Any]:
            return (self[row] for row in range(4))

    road.channel.set_attachment(lambda: list(fetched))
    for _ in range(2):
        fetched.clear()
        assert getattr(road, way)(Source(ARRAYS)).attached == [0, 1, 2, 3]


def test_an_attachment_of_none_is_none(road: Wire) -> None:
    road.channel.set_attachment(lambda: None)
    assert road.stack(SAMPLES).attached is None


def test_a_thread_attaches_the_object_itself() -> None:
    beside = object()
    with wire(is_thread=True) as road:
        road.channel.set_attachment(lambda: beside)
        assert road.stack(SAMPLES).attached is beside


@pytest.mark.parametrize("way", ["stack", "stream", "write"])
def test_an_attachment_that_raises_is_an_error_of_its_batch(road: Wire, way: str) -> None:
    calls: list[int] = []

    def make() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("no state")
        return 7

    road.channel.set_attachment(make)
    with pytest.raises(KeyError, match="no state"):
        getattr(road, way)(SAMPLES)
    assert getattr(road, way)(SAMPLES).attached == 7
    assert road.arena.stats()["writing_slots"] == 0


@pytest.mark.parametrize("way", ["stack", "stream", "write"])
def test_an_attachment_that_cannot_be_pickled_is_an_error_of_its_batch(way: str) -> None:
    with wire() as road:
        road.channel.set_attachment(threading.Lock)
        with pytest.raises(DatasetError, match="what belongs to the batch, a lock, to the main"):
            getattr(road, way)(SAMPLES)
        road.channel.set_attachment(None)
        assert len(getattr(road, way)(SAMPLES)) >= 1
        assert road.arena.stats()["writing_slots"] == 0


def test_an_attachment_that_outgrows_its_slot_arrives_whole() -> None:
    with wire() as road:
        for size in (10, 100_000, 3_000_000, 5):
            road.channel.set_attachment(lambda size=size: b"x" * size)
            batch = road.stack(SAMPLES)
            assert batch.attached == b"x" * size
            assert np.array_equal(batch.storage_fields()[0], np.stack(ARRAYS))
