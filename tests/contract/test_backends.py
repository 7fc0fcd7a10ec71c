"""Every backend, pool or not, is lent, released and closed alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reader import DataLoader
from reader.config import WORKER_KINDS
from reader.engine.backends.pool import Pool
from reader.engine.backends.pool_cache import backend_of
from reader.engine.backends.thread_pool import ThreadPool
from tests.datasets import Rows


class Recorded:
    """A backend that is no Pool: it passes each call on to one, and records it."""

    works_ahead, takes_keys = True, False
    made: list[Recorded]

    def __init__(self, *args: Any) -> None:
        self.calls: list[str] = []
        self._pool = ThreadPool(*args)
        Recorded.made.append(self)

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._pool, name)

    def count(self, name: str) -> int:
        return self.calls.count(name)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The backends that loaders make for `worker_type="thread"`."""
    kind = dataclasses.replace(WORKER_KINDS["thread"], backend=f"{__name__}:Recorded")
    monkeypatch.setitem(WORKER_KINDS, "thread", kind)
    monkeypatch.setattr(Recorded, "made", [], raising=False)
    return Recorded.made


def test_each_kind_of_worker_has_a_backend() -> None:
    assert all(issubclass(backend_of(kind), Pool) for kind in WORKER_KINDS)


def test_backend_is_used_for_each_epoch_and_then_closed(recorded: list[Recorded]) -> None:
    options: dict[str, Any] = {"num_workers": 2, "worker_type": "thread"}
    with DataLoader(Rows(16), batch_size=4, persistent_workers=True, **options) as loader:
        assert len(list(loader)) == 4
        next(iter(loader))  # left after one batch
        assert [worker.worker_id for worker in loader.workers()] == [0, 1]
        assert loader.stats()["batches"] == 5
        (backend,) = recorded
        assert backend.count("cancel_epoch") == 2
        assert backend.count("close_soon") == 0
    assert backend.count("close") == 1


def test_backend_without_persistent_workers_ends_with_its_epoch(recorded: list[Recorded]) -> None:
    loader = DataLoader(Rows(16), batch_size=4, num_workers=2, worker_type="thread")
    assert len(list(loader)) == len(list(loader)) == 4
    assert [backend.count("close_soon") for backend in recorded] == [1, 1]
    loader.close()
