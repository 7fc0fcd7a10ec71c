"""PyTorch's own tests of worker processes and their ends, in our words, for our loader.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.peers.program import Verdict, proved_by
from tests.peers.test_torch_demonstrations_errors import HEAD, story

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150), pytest.mark.nightly]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _text(sample: str, more: str = "", loop: str = "pass", options: str = "") -> str:
    return (
        HEAD
        + f"""
    class Samples(Rows):
        def __len__(self):
            return 40

        def sample(self, index):
            {sample}
            return torch.full((64,), index)

    {more}
    loader = DataLoader(Samples(), 2, num_workers=2, {options})
    for number, batch in enumerate(loader):
        {loop}
    tell("end")
    """
    )


SEGFAULT = story(_text("import ctypes; index == 5 and ctypes.string_at(0)"))
WORKER_KILL = story(_text("index == 5 and os.kill(os.getpid(), signal.SIGKILL)"))
WORKER_EXIT = story(_text("index == 5 and os._exit(3)"))
WORKER_ERROR = story(_text("assert index != 5, 'sample 5'"))
LOADER_ERROR = story(_text("pass", loop="assert number != 3, 'loop'"))
PERSISTENT_ERROR = story(
    _text("pass", loop="assert number != 3, 'loop'", options="persistent_workers=True")
)
LOADER_KILL = story(
    _text("pass", loop="number == 3 and print('kill me', flush=True) or time.sleep(0.1)"),
    acts={"kill me": _kill},
)
PERSISTENT_KILL = story(
    _text(
        "pass",
        loop="number == 3 and print('kill me', flush=True) or time.sleep(0.1)",
        options="persistent_workers=True",
    ),
    acts={"kill me": _kill},
)
TIMEOUT = story(
    _text(
        "index == 5 and threading.Event().wait(60)",
        loop="pass",
        options="timeout=1",
    )
)
EXIT_IN_LOOP = story(_text("pass", loop="number == 3 and sys.exit(7)"))
UNUSED = story(_text("pass", more="unused = iter(DataLoader(Samples(), num_workers=2))"))


@proved_by(SEGFAULT)
def test_segfault_of_a_worker_is_an_error_that_names_the_signal(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "is killed by signal: Segmentation fault" in verdict.stderr
    assert verdict.left == []


@proved_by(WORKER_KILL)
def test_kill_of_a_worker_is_an_error_that_names_the_signal(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "RuntimeError" in verdict.stderr or "WorkerExit" in verdict.stderr
    assert "DataLoader worker (pid" in verdict.stderr
    assert "is killed by signal: Killed" in verdict.stderr
    assert verdict.left == []


@proved_by(WORKER_EXIT)
def test_exit_of_a_worker_is_an_error_with_pytorchs_words(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "DataLoader worker (pid(s) " in verdict.stderr
    assert "exited unexpectedly" in verdict.stderr
    assert verdict.left == []


@proved_by(WORKER_ERROR)
def test_error_of_a_worker_ends_the_program_and_leaves_nothing(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "Caught AssertionError in DataLoader worker process 0." in verdict.stderr
    assert "Original Traceback (most recent call last):" in verdict.stderr
    assert verdict.left == []


@proved_by(LOADER_ERROR)
def test_error_of_the_loop_ends_the_program_and_leaves_nothing(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert verdict.stderr.rstrip().endswith("AssertionError: loop")
    assert verdict.left == []


@proved_by(PERSISTENT_ERROR)
def test_error_of_the_loop_ends_persistent_workers_too(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert verdict.stderr.rstrip().endswith("AssertionError: loop")
    assert verdict.left == []


@proved_by(LOADER_KILL)
def test_kill_of_the_trainer_leaves_no_worker(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left == []


@proved_by(PERSISTENT_KILL)
def test_kill_of_the_trainer_leaves_no_persistent_worker(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left == []


@proved_by(TIMEOUT)
def test_late_batch_is_a_runtime_error_with_pytorchs_words(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "DataLoader timed out after 1 seconds" in verdict.stderr
    assert verdict.left == []


@proved_by(EXIT_IN_LOOP)
def test_exit_in_the_loop_keeps_its_code_and_says_nothing(verdict: Verdict) -> None:
    assert verdict.exit_code == 7
    assert verdict.stderr == ""
    assert verdict.left == []


@proved_by(UNUSED)
def test_iterator_that_is_never_used_leaves_nothing(verdict: Verdict) -> None:
    assert verdict.result == "end"
    assert verdict.stderr == ""
    assert verdict.left == []


CAUGHT = story(
    HEAD
    + """
    class Slow(Rows):
        def sample(self, index):
            if index == 2:
                time.sleep(1.5)
            return index

    from_torch = []
    batches = iter(DataLoader(Slow(), num_workers=2, timeout=0.5))
    found = []
    while len(found) < 30:
        try:
            found.append(numbers(next(batches)))
        except StopIteration:
            break
        except RuntimeError as error:
            found.append(str(error)[:38])
    tell(found)
    """
)


@proved_by(CAUGHT)
def test_iteration_goes_on_after_a_late_batch_and_loses_none(verdict: Verdict) -> None:
    late = "DataLoader timed out after 0.5 seconds"
    found = [each for each in verdict.result if each != late]
    assert late in verdict.result
    assert found == [[index] for index in range(8)]


CONVOLUTION_AFTER_FORK = story(
    HEAD
    + """
    layer = torch.nn.Conv2d(1, 1, 3)
    layer(torch.randn(1, 1, 8, 8))

    class Convolved(Rows):
        def sample(self, index):
            return layer(torch.randn(1, 1, 8, 8)).detach()

    shapes = [list(batch.shape) for batch in DataLoader(Convolved(), 1, num_workers=2)]
    layer(torch.randn(1, 1, 8, 8))
    tell(shapes)
    """
)


@proved_by(CONVOLUTION_AFTER_FORK)
def test_convolution_works_in_forked_workers_and_after(verdict: Verdict) -> None:
    assert verdict.result == [[1, 1, 1, 6, 6]] * 8


QUEUE_OF_WORKERS = story(
    HEAD
    + """
    import multiprocessing
    queue = multiprocessing.Queue()

    class FromQueue(IterableDataset):
        def __iter__(self):
            while (item := queue.get(timeout=20)) is not None:
                yield item

    for item in [*range(6), None, None]:
        queue.put(item)
    found = sorted(numbers(b)[0] for b in DataLoader(FromQueue(), num_workers=2))
    queue.close()
    tell(found)
    """
)


@proved_by(QUEUE_OF_WORKERS)
def test_workers_may_share_a_queue_of_the_user(verdict: Verdict) -> None:
    assert verdict.result == list(range(6))


INTERRUPTED = story(
    HEAD
    + """
    class Slow(Rows):
        def sample(self, index):
            if index:
                threading.Event().wait(30)
            return index

    batches = iter(DataLoader(Slow(), num_workers=2))
    next(batches)
    try:
        print("waiting", flush=True)  # the Ctrl-C may come before it returns
        next(batches)
    except KeyboardInterrupt:
        tell("interrupted")
    """,
    acts={"waiting": lambda pid: os.killpg(pid, signal.SIGINT)},
)


@proved_by(INTERRUPTED)
def test_ctrl_c_of_a_terminal_ends_the_wait_and_workers_say_nothing(verdict: Verdict) -> None:
    assert verdict.result == "interrupted"
    assert verdict.stderr == ""
    assert verdict.left == []


NOT_IN_ORDER = story(
    HEAD
    + """
    class First(Rows):
        def sample(self, index):
            if index == 0:
                while not os.path.exists("go"):
                    time.sleep(0.01)
            return index

    loader = DataLoader(First(), num_workers=2, in_order=False)
    batches = iter(loader)
    found = [numbers(next(batches)) for _ in range(2)]
    open("go", "w").close()
    found += [numbers(batch) for batch in batches]
    tell(found)
    """
)


@proved_by(NOT_IN_ORDER)
def test_batches_come_as_they_are_ready_with_in_order_false(verdict: Verdict) -> None:
    found = verdict.result
    assert [0] not in found[:2]
    assert sorted(found) == [[index] for index in range(8)]
