"""A trainer that dies, is interrupted or ends: its workers end at once, and silently (2.3, 2.4)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.processes import Program, Wire, open_pid, wait_asleep, wait_gone

Start = Callable[..., Program]

# argv: start method, action of sample 9, a FIFO for the worker's pid, a FIFO to wait on
TRAINER = """
    import ctypes, os, signal, sys, threading
    import numpy as np
    from reader import DataLoader
    from tests.datasets import At, listen, tell

    METHOD, ACTION, SAYS, HEARS = sys.argv[1:]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it

    def act(index):
        tell(SAYS, str(os.getpid()))
        if ACTION == "wait":
            listen(HEARS)
        elif ACTION == "c":
            ctypes.PyDLL(None).sleep(1000)  # holds the GIL
        elif ACTION == "busy":
            while True:
                pass

    if __name__ == "__main__":
        loader = DataLoader(At(9, act), batch_size=4, num_workers=2, persistent_workers=True,
                            start_method=METHOD)
        batches = iter(loader)
        kept = [next(batches), next(batches)]
        print(*(w.pid for w in loader.workers() if w.pid != os.getpid()), flush=True)
        if ACTION == "idle":
            batches.close()
            print("idle", flush=True)
            threading.Event().wait()
        next(batches)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("action", ["wait", "c", "busy"])
def test_03_workers_end_at_once_when_their_trainer_dies(
    program: Start, says: Wire, gate: Wire, signum: signal.Signals, action: str
) -> None:
    trainer = program(TRAINER, "fork", action, says.path, gate.path)
    pids = [int(pid) for pid in trainer.line().split()]
    says.hear()  # one of them is in the sample now
    workers = [open_pid(pid) for pid in pids]
    assert len(workers) == 2
    trainer.process.send_signal(signum)
    wait_gone(workers)
    status, out, err = trainer.finish()
    assert (status, out, err) == (-signum, "", "")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_03_workers_of_every_start_method_end_when_their_trainer_is_killed(
    program: Start, says: Wire, gate: Wire, method: str
) -> None:
    trainer = program(TRAINER, method, "wait", says.path, gate.path)
    pids = [int(pid) for pid in trainer.line().split()]
    says.hear()
    workers = [open_pid(pid) for pid in pids]
    trainer.process.kill()
    wait_gone(workers)
    status, out, err = trainer.finish()
    assert (status, out, err) == (-signal.SIGKILL, "", "")


def test_03_idle_workers_end_when_their_trainer_is_killed(
    program: Start, says: Wire, gate: Wire
) -> None:
    trainer = program(TRAINER, "fork", "idle", says.path, gate.path)
    pids = [int(pid) for pid in trainer.line().split()]
    assert trainer.line() == "idle"
    workers = [open_pid(pid) for pid in pids]
    trainer.process.kill()
    wait_gone(workers)
    assert trainer.finish() == (-signal.SIGKILL, "", "")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGQUIT])
def test_03_group_signal_ends_trainer_and_workers_silently(
    program: Start, says: Wire, gate: Wire, signum: signal.Signals
) -> None:
    trainer = program(TRAINER, "fork", "wait", says.path, gate.path)
    pids = [int(pid) for pid in trainer.line().split()]
    says.hear()
    workers = [open_pid(pid) for pid in pids]
    trainer.interrupt(signum)
    wait_gone(workers)
    status, out, err = trainer.finish()
    assert status == -signum
    assert out == ""
    if signum == signal.SIGINT:
        assert err.count("Traceback") == 1
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert "reader/worker/" not in err
        assert "reader/processes/" not in err
    else:
        assert err == ""


CAUGHT = """
    import os, sys, threading
    from reader import DataLoader
    from tests.datasets import Stuck, check_rows

    WORKERS, METHOD, SAYS, HEARS, ONCE = sys.argv[1:]

    if __name__ == "__main__":
        options = {} if METHOD == "none" else {"start_method": METHOD}
        loader = DataLoader(Stuck(9, SAYS, HEARS, ONCE), batch_size=4, num_workers=int(WORKERS),
                            **options)
        batches = iter(loader)
        found = [next(batches), next(batches)]
        try:
            print("waiting", flush=True)
            next(batches)
        except KeyboardInterrupt:
            print("caught", flush=True)
        found += batches
        for n, batch in enumerate(found):
            check_rows(batch, range(4 * n, 4 * n + 4))
        print(len(found), flush=True)
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))
        print(n + 1, flush=True)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("workers", "method"), [(0, "none"), (2, "fork"), (2, "spawn"), (2, "forkserver")]
)
def test_04_ctrl_c_while_waiting_is_answered_and_loses_no_batch(
    program: Start,
    says: Wire,
    gate: Wire,
    tmp_path: pytest.TempPathFactory,
    workers: int,
    method: str,
) -> None:
    trainer = program(CAUGHT, str(workers), method, says.path, gate.path, f"{tmp_path}/once")
    assert trainer.line() == "waiting"
    says.hear()
    wait_asleep(trainer.process.pid)
    trainer.interrupt(signal.SIGINT)
    assert trainer.line() == "caught"
    gate.say()
    assert trainer.line() == "16"
    assert trainer.line() == "16"
    assert trainer.finish() == (0, "", "")


AT_EXIT = """
    import os, sys, threading
    from reader import DataLoader
    from tests.datasets import Rows, Stuck

    WORKERS, WAY, SAYS, HEARS = sys.argv[1:]

    if __name__ == "__main__":
        stuck = WAY.startswith("stuck")
        dataset = Stuck(9, SAYS, HEARS) if stuck else Rows(64)
        loader = DataLoader(dataset, batch_size=4, num_workers=int(WORKERS),
                            persistent_workers=WAY.endswith("persistent"))
        other = iter(DataLoader(Rows(64), batch_size=4, num_workers=int(WORKERS)))
        batches = iter(loader)
        kept = [next(batches), next(other)]
        print(*(w.pid for w in loader.workers() if w.pid != os.getpid()), flush=True)
        if WAY == "error":
            raise SystemExit(3)
        if WAY == "cycle":
            batches.me = batches
            loader.me = loader
            loader.batches = batches
            del batches, loader
        if WAY == "os_exit":
            os._exit(0)
        if WAY == "global":
            import builtins
            builtins.kept = kept, batches, loader, other
        if WAY == "thread":
            threading.Thread(target=lambda: list(batches)).start()
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "way",
    [
        *("plain", "persistent", "stuck", "stuck persistent"),
        *("error", "cycle", "os_exit", "global", "thread"),
    ],
)
def test_03_program_that_ends_in_the_middle_of_an_epoch_ends_silently(
    program: Start, says: Wire, gate: Wire, workers: int, way: str
) -> None:
    trainer = program(AT_EXIT, str(workers), way, says.path, gate.path)
    pids = [int(pid) for pid in trainer.line().split()]
    assert len(pids) == workers
    status, out, err = trainer.finish()
    wait_gone([open_pid(pid) for pid in pids])
    assert (status, out, err) == (3 if way == "error" else 0, "", "")


def test_03_closing_that_was_interrupted_can_be_done_again(
    program: Start, says: Wire, gate: Wire, make_wire: Callable[[], Wire]
) -> None:
    go = make_wire()
    trainer = program(
        """
        import os, signal, sys
        from reader import DataLoader
        from tests.datasets import Stuck, listen
        from tests.ledger import Ledger, settle

        SAYS, HEARS, GO = sys.argv[1:]

        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop

        if __name__ == "__main__":
            before = Ledger.take()
            loader = DataLoader(Stuck(1, SAYS, HEARS), batch_size=4, num_workers=2)
            batches = iter(loader)
            print("ready", flush=True)
            listen(GO)
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, 0.15)  # in the middle of the grace of close()
            try:
                loader.close()
                print("closed", flush=True)
            except Stop:
                print("stopped", flush=True)
            signal.setitimer(signal.ITIMER_REAL, 0)
            loader.close()
            del batches, loader
            print(settle(before), flush=True)
        """,
        says.path,
        gate.path,
        go.path,
    )
    assert trainer.line() == "ready"
    says.hear()  # a worker is in a sample that never ends: close() has to wait for its grace
    go.say()
    assert trainer.line() in ("stopped", "closed")
    assert trainer.finish() == (0, "[]\n", "")


# the finalizer comes between closing the pools and multiprocessing's waiting for its processes
LEAVING = """
    import sys, threading
    from multiprocessing import util
    from reader import DataLoader

    workers, kind, when = sys.argv[1:]
    loader = DataLoader(range(100), batch_size=2, num_workers=int(workers), worker_type=kind)
    begun, leaving = threading.Event(), threading.Event()

    def load():
        while True:
            for batch in loader:
                begun.set()
                if when == "within":
                    leaving.wait()
            if when == "between":
                leaving.wait()

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    begun.wait()

    def leave():
        leaving.set()
        thread.join()
        print("left", flush=True)

    util.Finalize(None, leave, exitpriority=50)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("when", ["within", "between"])
@pytest.mark.parametrize(("workers", "kind"), [("2", "process"), ("1", "process"), ("2", "thread")])
def test_04_daemon_thread_that_loads_epoch_after_epoch_ends_silently_with_its_program(
    program: Start, workers: str, kind: str, when: str
) -> None:
    assert program(LEAVING, workers, kind, when).finish() == (0, "left\n", "")
