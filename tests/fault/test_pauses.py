"""Jobs that are stopped and go on (SIGSTOP, SIGCONT): no limit counts that time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from reader import DataLoader, DatasetError
from tests.datasets import Stuck
from tests.processes import Program, Wire, kill_and_wait

Start = Callable[..., Program]
STOPPED_S = 3.0  # a job that is stopped has to be stopped for longer than its limits

PROGRAM = """
    import sys, threading
    from reader import DataLoader
    from tests.datasets import Stuck, listen, tell

    OPTIONS, WHERE, SAYS, HEARS, GO = sys.argv[1:]

    if __name__ == "__main__":
        loader = DataLoader(Stuck(9, SAYS, HEARS, count=24), batch_size=4, num_workers=2,
                            **eval(OPTIONS))
        seen = 0
        for batch in loader:
            seen += 1
            if seen == 2 and WHERE == "step":
                tell(SAYS, "step")
                listen(GO)
        print(seen, loader.stats()["wait_s"] < 2.5, flush=True)
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["wait", "step"])
@pytest.mark.parametrize("options", ["hang_after=1.5", "warn_after=1.5", "timeout=1.5"])
def test_time_while_the_whole_job_was_stopped_counts_for_no_limit(
    program: Start,
    says: Wire,
    gate: Wire,
    make_wire: Callable[[], Wire],
    where: str,
    options: str,
) -> None:
    go = make_wire()
    trainer = program(PROGRAM, f"dict({options})", where, says.path, gate.path, go.path)
    for _ in range(2 if where == "step" else 1):
        says.hear()  # a worker is at a sample, and the loop waits for it or computes
    trainer.interrupt(signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    trainer.interrupt(signal.SIGCONT)
    go.say()
    threading.Event().wait(0.5)  # looks at the sample, and at the time
    gate.say()
    assert trainer.finish() == (0, "6 True\n", "")


def test_worker_that_is_stopped_alone_hangs(says: Wire, gate: Wire) -> None:
    loader = DataLoader(
        Stuck(9, says.path, gate.path),
        batch_size=4,
        num_workers=1,
        hang_after=0.3,
        worker_retries=0,
    )
    batches = iter(loader)
    next(batches)
    pid = int(says.hear())
    os.kill(pid, signal.SIGSTOP)
    next(batches)
    with pytest.raises(DatasetError, match="hang_after"):
        next(batches)
    loader.close(grace=0)


def test_grace_of_workers_does_not_pass_while_the_job_is_stopped(
    program: Start, tmp_path: object, says: Wire, gate: Wire, make_wire: Callable[[], Wire]
) -> None:
    go = make_wire()
    trainer = program(
        """
        import sys
        from reader import DataLoader
        from tests.datasets import Writes, listen

        FOLDER, SAYS, HEARS, GO = sys.argv[1:]
        loader = DataLoader(Writes(FOLDER, SAYS, HEARS), batch_size=4, num_workers=1)
        batches = iter(loader)
        next(batches)
        listen(GO)
        print("closing", flush=True)
        loader.close(grace=2)
        print("closed", flush=True)
        """,
        str(tmp_path),
        says.path,
        gate.path,
        go.path,
    )
    says.hear()
    go.say()
    assert trainer.line() == "closing"
    trainer.interrupt(signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    trainer.interrupt(signal.SIGCONT)
    gate.say()
    assert trainer.finish() == (0, "closed\n", "")
    assert os.path.exists(f"{tmp_path}/5.npy")


def test_worker_killed_while_stopped_is_replaced(says: Wire, gate: Wire, tmp_path: object) -> None:
    once = f"{tmp_path}/once"
    loader = DataLoader(Stuck(9, says.path, gate.path, once, count=16), batch_size=4, num_workers=1)
    batches = iter(loader)
    next(batches)
    pid = int(says.hear())
    os.kill(pid, signal.SIGSTOP)
    kill_and_wait(pid)
    assert len(list(batches)) == 3
    loader.close()
