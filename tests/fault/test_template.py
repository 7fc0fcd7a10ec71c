"""Workers of spawn and forkserver come from one template: its limits, and its end."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reader import DataLoader
from reader.processes import pool_registry, preload, process
from reader.worker.loop import WorkerConfig
from tests.datasets import PidRows, Rows, Stuck
from tests.processes import Program, Wire, kill_and_wait, open_pid, wait_gone

Start = Callable[..., Program]
METHODS = pytest.mark.parametrize("method", ["spawn", "forkserver"])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@METHODS
def test_03_workers_have_one_template_which_ends_with_them(method: str) -> None:
    with DataLoader(Rows(32), batch_size=4, num_workers=3, start_method=method) as loader:
        batches = iter(loader)
        next(batches)
        (template,) = {parent_of(worker.pid) for worker in workers_of(loader)}
        assert template != os.getpid()
        assert parent_of(template) == os.getpid()
        assert name_of(template) == "reader-template"
        fds = [open_pid(template), *(open_pid(worker.pid) for worker in workers_of(loader))]
    wait_gone(fds)


def workers_of(loader: DataLoader[Any]) -> list[Any]:
    (pool,) = pool_registry.snapshot()
    assert [worker.pid for worker in loader.workers()] == [each.pid for each in pool.handles]  # type: ignore[attr-defined]
    return list(pool.handles)  # type: ignore[attr-defined]


SEES = """
    import json, multiprocessing, os, random, signal, sys, threading
    import numpy as np
    from reader import DataLoader

    METHOD, LINES = sys.argv[1:]
    with open(LINES, "a") as lines:
        lines.write(f"{__name__} {np.random.rand()} {random.random()}\\n")

    class Sees:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            parent = multiprocessing.parent_process()
            return json.dumps({
                "name": multiprocessing.current_process().name,
                "method": multiprocessing.get_start_method(),
                "main": sys.modules["__main__"].__name__ + " " + type(self).__module__,
                "is_parent_alive": parent.is_alive(),
                "parent": parent.pid,
                "argv": sys.argv[1:],
                "is_main_thread": threading.current_thread() is threading.main_thread(),
                "blocked": [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
                "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN,
                "folder": os.getcwd(),
                "variable": os.environ.get("SEEN"),
                "path": sys.path[0],
            })

    if __name__ == "__main__":
        os.environ["SEEN"] = "yes"
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        sys.path.insert(0, "/nowhere")
        os.chdir("/")
        with DataLoader(Sees(), batch_size=None, num_workers=3, start_method=METHOD) as loader:
            for text in loader:
                seen = json.loads(text)
                assert seen.pop("name").startswith("reader-worker-")
                assert seen == {
                    "method": METHOD, "main": "__mp_main__ __mp_main__", "is_parent_alive": True,
                    "parent": os.getpid(), "argv": sys.argv[1:], "is_main_thread": True,
                    "blocked": [], "child": True, "folder": "/", "variable": "yes",
                    "path": "/nowhere"}, seen
        print(multiprocessing.get_start_method(allow_none=True))
"""


@pytest.mark.sampled(2)
@METHODS
def test_07_worker_of_a_template_sees_what_a_spawned_one_sees(
    program: Start, tmp_path: Path, method: str
) -> None:
    lines = tmp_path / "lines"
    assert program(SEES, method, str(lines)).finish() == (0, "None\n", "")
    mains = [line.split() for line in lines.read_text().splitlines()]
    assert sorted(name for name, *_ in mains) == ["__main__", *["__mp_main__"] * 3]
    for column in (1, 2):  # the main module's own random numbers: no two processes have the same
        assert len({line[column] for line in mains}) == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "how", [("-c", "{text}"), ("-m", "work.run"), ("-c", "import runpy; runpy.run_module('work')")]
)
def test_every_way_to_run_python_works_with_a_template(
    tmp_path: Path, how: tuple[str, str]
) -> None:
    import subprocess
    import sys

    text = """
        from reader import DataLoader
        from tests.datasets import Rows, check_rows
        if __name__ in ("__main__", "work.__main__"):
            with DataLoader(Rows(8), batch_size=4, num_workers=2, start_method="spawn") as loader:
                for n, batch in enumerate(loader):
                    check_rows(batch, range(4 * n, 4 * n + 4))
            print(n + 1)
    """
    folder = tmp_path / "work"
    folder.mkdir()
    text = textwrap.dedent(text)
    for name in ("__init__.py", "run.py", "__main__.py"):
        (folder / name).write_text("" if name == "__init__.py" else text)
    arguments = [sys.executable, how[0], how[1].format(text=text)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50
    )
    assert (run.stdout, run.stderr, run.returncode) == ("2\n", "", 0)


def test_main_module_without_a_guard_is_refused_as_by_multiprocessing(program: Start) -> None:
    unguarded = """
        from reader import DataLoader
        from reader.errors import WorkerDied
        from tests.datasets import Rows

        try:
            list(DataLoader(Rows(8), num_workers=2, start_method="spawn"))
        except WorkerDied:
            print("died")
    """
    status, out, err = program(unguarded).finish()
    assert (status, out) == (0, "died\n")
    assert "before the\n        current process has finished its bootstrapping phase" in err


@pytest.mark.sampled(2)
@METHODS
def test_01_killed_template_costs_no_batch_and_workers_can_still_be_replaced(
    method: str, says: Wire, gate: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Stuck(9, says.path, gate.path, str(tmp_path / "once"))
    with (
        caplog.at_level(logging.WARNING, "reader"),
        DataLoader(dataset, batch_size=4, num_workers=2, start_method=method) as loader,
    ):
        batches = iter(loader)
        found = [next(batches)]
        stuck = int(says.hear())
        kill_and_wait(parent_of(stuck))
        kill_and_wait(stuck)
        found += batches
    assert sum(len(batch[0]) for batch in found) == 64
    assert "each worker now imports them itself" in caplog.text


@pytest.mark.sampled(2)
@METHODS
def test_a_worker_outlives_its_killed_template(
    method: str, says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(9, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=2, start_method=method) as loader:
        batches = iter(loader)
        next(batches)
        stuck = int(says.hear())
        worker = next(each for each in workers_of(loader) if each.pid == stuck)
        kill_and_wait(parent_of(stuck))
        worker.join(0.1)
        assert worker.exitcode is None
        kill_and_wait(stuck)
        worker.join()
        assert worker.exitcode == 255  # its status went to the template
        assert sum(len(batch[0]) for batch in batches) == 60


@pytest.mark.sampled(2)
@METHODS
def test_killed_worker_is_reaped_and_its_signal_is_known(method: str) -> None:
    with DataLoader(PidRows(64), batch_size=4, num_workers=2, start_method=method) as loader:
        batches = iter(loader)
        next(batches)
        worker = workers_of(loader)[0]
        template = parent_of(worker.pid)
        kill_and_wait(worker.pid)
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        assert not worker.is_alive()
        assert worker.pid not in children_of(template)
        assert sum(len(batch[0]) for batch in batches) == 60


# argv: a FIFO to the test, a FIFO to wait on; the template is importing meanwhile
IMPORTS = """
    import multiprocessing, os, sys
    from pathlib import Path
    from reader import DataLoader
    from tests.datasets import Rows

    SAYS, HEARS = sys.argv[1:]

    if __name__ == "__main__":
        Path("waits.py").write_text(
            f"from tests.datasets import listen, tell\\n"
            f"import os; tell({SAYS!r}, str(os.getpid())); listen({HEARS!r})\\n"
            "raise ImportError('not here')"
        )
        multiprocessing.set_forkserver_preload(["waits"])
        loader = DataLoader(Rows(8), batch_size=4, num_workers=2, start_method="forkserver")
        try:
            print(len(list(loader)), flush=True)
        except KeyboardInterrupt:
            print("caught", flush=True)
        print(len(loader.workers()), flush=True)
"""


def test_03_template_ends_at_once_when_its_trainer_is_killed_while_it_imports(
    program: Start, says: Wire, gate: Wire
) -> None:
    trainer = program(IMPORTS, says.path, gate.path)
    template = open_pid(int(says.hear()))
    trainer.process.kill()
    wait_gone([template])
    assert trainer.finish() == (-signal.SIGKILL, "", "")


def test_04_interrupt_is_answered_while_the_template_imports(
    program: Start, says: Wire, gate: Wire
) -> None:
    trainer = program(IMPORTS, says.path, gate.path)
    template = open_pid(int(says.hear()))
    trainer.interrupt(signal.SIGINT)
    assert trainer.line() == "caught"
    wait_gone([template])
    assert trainer.finish() == (0, "0\n", "")


def test_import_that_fails_in_the_template_is_left_to_the_workers(
    program: Start, says: Wire, gate: Wire
) -> None:
    trainer = program(IMPORTS, says.path, gate.path)
    gate.say()
    assert trainer.finish() == (0, "2\n0\n", "")


def test_01_library_that_ends_the_template_costs_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ends_its_process.py").write_text("import os; os._exit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(process, "libraries_of", lambda *_: ["ends_its_process"])
    with (
        caplog.at_level(logging.WARNING, "reader"),
        DataLoader(Rows(8), batch_size=4, num_workers=2, start_method="spawn") as loader,
    ):
        assert len(list(loader)) == 2
    assert "each worker now imports them itself" in caplog.text


def test_03_start_that_the_system_refuses_leaves_nothing_wherever_it_was(program: Start) -> None:
    refused = """
        import os, resource
        from multiprocessing import resource_tracker
        from pathlib import Path
        from reader import DataLoader, ReaderError
        from tests.datasets import Rows

        def left():
            tracker = str(resource_tracker._resource_tracker._pid)
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            return len(os.listdir("/proc/self/fd")), [each for each in children if each != tracker]

        if __name__ == "__main__":
            resource_tracker.ensure_running()
            loader = DataLoader(Rows(2), num_workers=2, start_method="spawn")
            before = left()
            outcomes = set()
            for more in range(13):  # descriptors that can still be opened
                full = before[0] + more
                resource.setrlimit(resource.RLIMIT_NOFILE, (full, 4096))
                try:
                    outcomes.add(len(list(loader)))
                except (ReaderError, OSError):
                    outcomes.add("refused")
                resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
                loader.close()
                assert left() == before, (more, left(), before)
            print(*sorted(map(str, outcomes)))
    """
    assert program(refused).finish(50.0) == (0, "2 refused\n", "")


def config_of(dataset: Any) -> WorkerConfig:
    return WorkerConfig(dataset, None, None, 2, None, 0)


def test_libraries_are_those_that_the_workers_will_need(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    torch, user, far = (types.ModuleType(name) for name in ("torch", "user", "far"))
    main = types.ModuleType("__main__")
    main.__file__ = __file__
    for name, module in (("torch", torch), ("user", user), ("far", far), ("__main__", main)):
        monkeypatch.setitem(preload.sys.modules, name, module)
    monkeypatch.setattr(preload, "_HEAVY", ("torch", "absent"))
    assert preload.libraries_of(config_of(0), b"") == []
    assert preload.libraries_of(config_of(0), b"...torch._utils...") == ["torch"]
    main.user = user  # type: ignore[attr-defined]
    assert preload.libraries_of(config_of(0), b"") == []
    user.function = types.FunctionType((lambda: 0).__code__, {"__name__": "far"})  # type: ignore[attr-defined]
    assert preload.libraries_of(config_of(0), b"") == []
    far.nn = torch  # type: ignore[attr-defined]
    assert preload.libraries_of(config_of(0), b"") == ["torch"]
    del main.__file__  # workers do not import a notebook, but the objects it uses
    assert preload.libraries_of(config_of(0), b"") == []
    assert preload.libraries_of(config_of(0), b"", ["user"]) == ["torch"]
