"""Limits on open files, and a killed forkserver: each is reported in our words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes import Program

# with 0, 1, 2, ... descriptors left: the errors raised, until all succeeds
LIMITED = """
    import gc
    import itertools
    import os
    import resource
    import sys
    import tempfile

    import numpy as np

    import reader
    from tests.datasets import Rows

    FULL, NUMBERS = 120, itertools.count()

    def loop(**options):
        with reader.DataLoader(Rows(16), batch_size=4, **options) as loader:
            assert len(list(loader)) == 4

    def pool(method):
        with reader.WorkerPool(2, start_method=method) as workers:
            loop(pool=workers)

    def cache(folder):
        disk = f"{folder}/{next(NUMBERS)}"
        kept = reader.cache(Rows(16), memory="1MB", disk=disk)
        assert len(list(reader.DataLoader(kept, batch_size=4))) == 4

    KINDS = {
        "thread": lambda _: loop(num_workers=2, worker_type="thread"),
        "fork": lambda _: loop(num_workers=2, start_method="fork"),
        "spawn": lambda _: loop(num_workers=1, start_method="spawn"),
        "template": lambda _: loop(num_workers=2, start_method="spawn"),
        "pool of fork": lambda _: pool("fork"),
        "pool of spawn": lambda _: pool("spawn"),
        "cache": cache,
        "share": lambda _: reader.share({"rows": np.zeros(1 << 17)}),
    }

    def opened():
        return len(os.listdir("/proc/self/fd"))

    def main():
        run = KINDS[sys.argv[1]]
        with tempfile.TemporaryDirectory() as folder:
            run(folder)  # opens what stays open
            resource.setrlimit(resource.RLIMIT_NOFILE, (FULL, 4096))
            told = set()
            for left in range(60):
                gc.collect()
                before, held = opened(), []
                try:
                    while True:
                        held.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    pass
                for _ in range(left):
                    os.close(held.pop())
                text = None
                try:
                    run(folder)
                except reader.ReaderError as error:
                    text = str(error)
                finally:
                    for fd in held:
                        os.close(fd)
                gc.collect()
                assert opened() == before, (left, text)
                if text is None:
                    break
                assert "Too many open files" in text and "ulimit -n" in text, text
            print(left)

    if __name__ == "__main__":
        main()
"""

KILLED = """
    import os
    import signal
    import sys
    import threading
    from multiprocessing import forkserver

    from reader import DataLoader, ReaderError
    from tests.datasets import Rows

    def kill(pid):
        # when the trainer waits for the number of the process
        me, pause = threading.main_thread().ident, threading.Event()
        while sys._current_frames()[me].f_code.co_name != "read_signed":
            pause.wait(0.001)
        os.kill(pid, signal.SIGKILL)

    def main():
        forkserver.ensure_running()
        server = forkserver._forkserver._forkserver_pid
        options = {"batch_size": 4, "num_workers": 1, "start_method": "forkserver"}
        loader = DataLoader(Rows(16), **options)
        if sys.argv[1] == "before":
            os.kill(server, signal.SIGKILL)
            os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        else:
            os.kill(server, signal.SIGSTOP)
            threading.Thread(target=kill, args=(server,)).start()
        try:
            print(len(list(loader)))
        except ReaderError as error:
            print(error)
        print(len(list(loader)))
        loader.close()

    if __name__ == "__main__":
        main()
"""

KINDS = [
    "thread",
    "fork",
    "spawn",
    "template",
    "pool of fork",
    "pool of spawn",
    "cache",
    "share",
]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_08_every_limit_of_open_files_is_reported_and_leaves_none_open(
    program: Callable[..., Program], kind: str
) -> None:
    status, out, err = program(LIMITED, kind).finish(50.0)
    # a worker of a pool that was forked is at the limit, too, and is replaced
    deaths = [line for line in err.splitlines() if "before it was ready" not in line]
    assert (status, deaths) == (0, [])
    assert 0 < int(out) < 60


def test_forkserver_that_ended_before_is_started_again(program: Callable[..., Program]) -> None:
    status, out, err = program(KILLED, "before").finish()
    assert (status, out.splitlines(), err) == (0, ["4", "4"], "")


def test_forkserver_that_is_killed_while_it_starts_a_worker_is_reported_and_started_again(
    program: Callable[..., Program],
) -> None:
    status, out, err = program(KILLED, "meanwhile").finish()
    told, again = out.splitlines()
    assert (status, again, err) == (0, "4", "")
    assert told.startswith(
        "worker process 0 cannot be started: the forkserver of multiprocessing, which forks it,"
        " ended meanwhile (EOFError: unexpected EOF)"
    )
    assert told.endswith("Iterate over the loader again, which starts another")
