"""Programs in which gevent or eventlet has replaced threads: refused early, with the remedy."""

from __future__ import annotations

import sys
import types

import pytest

from reader import ConfigError, DataLoader
from tests.datasets import Rows, check_rows


def patched(*names: str) -> types.SimpleNamespace:
    """A stand-in for gevent.monkey or eventlet.patcher that has replaced the named modules."""
    return types.SimpleNamespace(
        is_module_patched=names.__contains__, is_monkey_patched=names.__contains__
    )


@pytest.mark.parametrize("options", [{"num_workers": 2, "worker_type": "thread"}])
def test_09_threads_that_gevent_replaced_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched("_thread", "threading"))
    with (
        DataLoader(Rows(8), batch_size=2, **options) as loader,  # type: ignore[arg-type]
        pytest.raises(ConfigError, match=r"gevent.*num_workers=1 or more.*thread=False"),
    ):
        iter(loader)


@pytest.mark.parametrize("workers", [1, 2])
def test_09_worker_processes_work_beside_gevent(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched("_thread", "select", "os"))
    with DataLoader(Rows(8), batch_size=4, num_workers=workers) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))


@pytest.mark.parametrize("options", [{}, {"worker_type": "thread"}])
@pytest.mark.parametrize("name", ["thread", "select", "os"])
def test_09_what_eventlet_replaced_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patched(name))
    with (
        DataLoader(Rows(8), num_workers=2, **options) as loader,  # type: ignore[arg-type]
        pytest.raises(ConfigError, match=rf"needs the unpatched modules {name}, and eventlet"),
    ):
        iter(loader)


@pytest.mark.parametrize("library", ["gevent.monkey", "eventlet.patcher"])
def test_09_a_library_that_replaced_nothing_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, patched())
    options = {"num_workers": 2, "worker_type": "thread"}
    with DataLoader(Rows(8), batch_size=4, **options) as loader:  # type: ignore[arg-type]
        assert len(list(loader)) == 2
