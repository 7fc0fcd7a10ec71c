"""The notes of a profile's watch about the workers of a loader."""

from __future__ import annotations

from typing import Any

from reader._core.wire.times_log import TimesLog
from reader._core.wire.worker_reports import WorkerCounts
from reader.engine.backends.backend import WorkerActivity, WorkerStatus
from reader.observe.observed import Observed
from reader.observe.watch import Watch


class Played(Observed):
    """A loader whose workers are on other machines."""

    def __init__(self, *error_s: float) -> None:
        self.statuses = [
            WorkerStatus(
                worker,
                100 + worker,
                WorkerActivity.IDLE,
                host="there",
                counts=WorkerCounts(1, 1.0, 0.5, 0.0, 0.0, 0.0, each),
            )
            for worker, each in enumerate(error_s)
        ]

    def _observed_workers(self) -> list[WorkerStatus]:
        return self.statuses

    def _observed_stats(self) -> dict[str, Any] | None:
        return None


def test_a_worker_without_a_batch_gives_no_bound_for_the_clock_of_its_machine() -> None:
    watch = Watch(Played(0.002, 0.0), TimesLog())
    watch.start()
    watch.stop()
    assert watch.clock_errors == {"there": 0.002}
