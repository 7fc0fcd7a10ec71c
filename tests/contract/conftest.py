"""The cells of the contract: the ways to run a loader, for each of which every promise holds.

Imports pytest, and paddle where a fixture needs it. A cell is a dict of options for DataLoader.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from reader import WorkerPool

Cell = dict[str, Any]

_CELLS: dict[str, Cell] = {
    "0": {"num_workers": 0},
    "1": {"num_workers": 1},
    "2": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "fork": {"num_workers": 2, "start_method": "fork"},
    "spawn": {"num_workers": 2, "start_method": "spawn"},
    "forkserver": {"num_workers": 2, "start_method": "forkserver"},
    "shared": {"num_workers": 2},  # of a WorkerPool
}


def _some(*names: str) -> list[Any]:
    """Return cells by name; some are for make nightly.

    One worker does what two do, and the other start methods do what spawn does.
    """
    often = ("0", "2", "threads", "spawn")
    return [
        name if name in often else pytest.param(name, marks=pytest.mark.nightly) for name in names
    ]


@pytest.fixture(params=_some("0", "1", "2", "threads", "shared"))
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    """0, 1 and 2 workers, two threads, and two workers of a pool."""
    yield from _opened(request.param)


def _opened(name: str) -> Iterator[Cell]:
    if name != "shared":
        yield dict(_CELLS[name])
        return
    with WorkerPool(2) as pool:
        yield {**_CELLS[name], "pool": pool}


@pytest.fixture(params=_some(*_CELLS))
def each_cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    """Each number of workers, threads, each start method: for a few tests, since it takes long."""
    yield from _opened(request.param)


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def process(request: pytest.FixtureRequest) -> bool:
    """Whether a generator runs in a process of its own."""
    return bool(request.param)


@pytest.fixture
def old_ir() -> Iterator[None]:
    """Static mode in the old IR, where variables have a LoD, with the test's own programs."""
    import paddle

    paddle.enable_static()
    try:
        with (
            getattr(paddle.pir_utils, "OldIrGuard", nullcontext)(),  # in 2.6 there is no other
            paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()),
        ):
            yield
    finally:
        paddle.disable_static()
