"""Workers that cannot start, and epochs that are left before that is raised (2.4, 2.10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reader import DataLoader, LoadTimeout
from reader.engine.backends.backend import WorkerActivity
from reader.policy import DispatchPolicy, Policy
from tests.datasets import Rows, listen
from tests.faces import Face
from tests.processes import Wire, wait_until
from tests.streams import Parts, worker_id

PARTS = [range(8), range(100, 108)]
TURNS = Policy(dispatch=DispatchPolicy(is_round_robin=True))
PROCESS: dict[str, Any] = {"start_method": "fork"}
SPAWN: dict[str, Any] = {"start_method": "spawn"}
THREAD: dict[str, Any] = {"worker_type": "thread"}


class GatedRows(Rows):
    """Rows, and sample 0 waits until the test says something."""

    def __init__(self, count: int, gate: str) -> None:
        super().__init__(count)
        self.gate = gate

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            listen(self.gate)
        return super().__getitem__(index)


class GatedParts(Parts):
    """Parts, and worker 0 waits until the test says something."""

    def __init__(self, gate: str) -> None:
        super().__init__(PARTS)
        self.gate = gate

    def __iter__(self) -> Iterator[Any]:
        if worker_id() == 0:
            listen(self.gate)
        return super().__iter__()


class Refuse:
    """A `worker_init_fn`: worker 1 raises, when the test has said something."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def __call__(self, worker: int) -> None:
        if worker == 1:
            listen(self.gate)
            raise OSError("no licence")


def next_of(batches: Any) -> Any:
    """Return the next batch, however long it takes."""
    for _ in range(40):
        try:
            return next(batches)
        except LoadTimeout:
            pass
    raise AssertionError("the failed start is not raised")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("closes", [True, False], ids=["close", "drop"])
@pytest.mark.parametrize("kind", ["map", "turns", "stream"])
@pytest.mark.parametrize("options", [PROCESS, SPAWN, THREAD], ids=["fork", "spawn", "thread"])
def test_04_failed_start_of_an_epoch_that_was_left_is_raised_in_the_next(
    options: dict[str, Any], kind: str, closes: bool, says: Wire, gate: Wire
) -> None:
    dataset: Any = GatedParts(gate.path) if kind == "stream" else GatedRows(16, gate.path)
    with Face(
        TURNS if kind == "turns" else Policy(),
        dataset,
        batch_size=4,
        num_workers=2,
        persistent_workers=True,
        timeout=0.5,
        worker_init_fn=Refuse(says.path),
        **options,
    ) as loader:
        batches = iter(loader)
        says.say()
        wait_until(lambda: loader.workers()[1].activity is WorkerActivity.ENDED)
        with pytest.raises(LoadTimeout):  # that of worker 0; what worker 1 said is noted by now
            next(batches)
        if closes:
            batches.close()
        del batches
        gate.say(8)
        again = iter(loader)
        found = 0
        with pytest.raises(OSError, match="no licence") as info:
            while found < 4:
                next_of(again)
                found += 1
        assert found == 1 if kind in ("turns", "stream") else found < 4
        notes = "\n".join(info.value.__notes__)  # type: ignore[attr-defined]
        assert "the start of worker" in notes
        assert "before epoch 0" in notes
        assert next(again, None) is None


def test_workers_that_all_cannot_start_end_each_epoch_with_one_exception() -> None:
    with DataLoader(
        Rows(16), batch_size=4, num_workers=3, persistent_workers=True, worker_init_fn=refuse_all
    ) as loader:
        for _ in range(2):
            with pytest.raises(OSError, match="no licence"):
                list(loader)


def refuse_all(worker: int) -> None:
    raise OSError("no licence")
