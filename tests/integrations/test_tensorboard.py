"""Scalars in the files of TensorBoard's writers, read back by TensorBoard itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, ConfigTypeError
from reader.integrations.tensorboard import ScalarLogger
from tests.integrations.numbers import loaded


def writer_of(kind: str, folder: Path) -> Any:
    if kind == "torch":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))
    import tensorboardX

    return tensorboardX.SummaryWriter(str(folder))


@pytest.mark.parametrize("kind", ["torch", "tensorboardX"])
def test_a_program_logs_every_nth_step(kind: str, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = writer_of(kind, tmp_path)
    with loaded(2) as loader:
        logger = ScalarLogger(writer, loader, every=5)
        for step, _ in enumerate(loader):
            logger.log(step)
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags == {
        f"reader/{name}"
        for name in "wait_share batches_per_s samples_per_s workers_busy queued arena_bytes"
        " worker_restarts failed_samples".split()
    }
    for tag in tags:
        assert [point.step for point in events.Scalars(tag)] == [5, 10, 15]
    assert all(0 <= point.value <= 1 for point in events.Scalars("reader/wait_share"))
    for slow, fast in zip(
        events.Scalars("reader/batches_per_s"), events.Scalars("reader/samples_per_s")
    ):
        assert fast.value == pytest.approx(4 * slow.value, rel=1e-4)


def test_non_writers_are_refused() -> None:
    with pytest.raises(ConfigTypeError, match=r"writer must have add_scalar.*, got 'runs' \(str\)"):
        ScalarLogger("runs", loaded())
    with pytest.raises(ConfigError, match=r"every must be an int of 1 or more, got -1"):
        ScalarLogger(type("Writer", (), {"add_scalar": print}), loaded(), every=-1)
