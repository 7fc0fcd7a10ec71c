"""Waiting for ever: stuck workers, Ctrl-C, dead workers, one's own death; paddle.io's and ours.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

STUCK = Story(
    """
    import threading
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    class Stuck(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 3:
                threading.Event().wait()
            return np.float32(index)

    seen = []
    try:
        for batch in DataLoader(Stuck(), num_workers=2, timeout=1):
            seen.append(numbers(batch))
    except TimeoutError as error:
        tell(seen)
    """
)


@demonstrated_by(STUCK, hang_s=HANG_S)
def test_paddle_waits_for_ever_for_a_stuck_worker_despite_timeout(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(STUCK)
def test_timeout_is_a_deadline_on_one_batch(verdict: Verdict) -> None:
    assert verdict.result == [[0], [1], [2]]


def _interrupt(pid: int) -> None:
    """Send SIGINT to the program alone, half a second after it said that it is about to wait."""
    threading.Event().wait(0.5)
    os.kill(pid, signal.SIGINT)


CTRL_C = Story(
    """
    import sys
    import threading
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import tell

    class Stuck(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index == 1:
                threading.Event().wait()
            return np.float32(index)

    batches = iter(DataLoader(Stuck(), num_workers=int(sys.argv[1])))
    next(batches)
    try:
        print("ready", flush=True)
        next(batches)
    except KeyboardInterrupt:
        tell("KeyboardInterrupt")
    """,
    args=("0",),
    acts={"ready": _interrupt},
)
CTRL_C_WITH_WORKERS = Story(CTRL_C.text, args=("2",), acts=CTRL_C.acts)


@demonstrated_by(CTRL_C, hang_s=HANG_S)
def test_paddle_does_not_notice_ctrl_c_without_workers(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@demonstrated_by(CTRL_C_WITH_WORKERS, hang_s=HANG_S)
def test_paddle_does_not_notice_ctrl_c_with_workers(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(CTRL_C)
def test_ctrl_c_ends_waiting_without_workers(verdict: Verdict) -> None:
    assert verdict.result == "KeyboardInterrupt"


@proved_by(CTRL_C_WITH_WORKERS)
def test_ctrl_c_ends_waiting_with_workers_and_they_end_too(verdict: Verdict) -> None:
    assert verdict.result == "KeyboardInterrupt"
    assert verdict.left == []


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


ORPHANS = Story(
    """
    import threading
    import numpy as np
    from paddle.io import DataLoader

    batches = iter(DataLoader(np.zeros((64, 4), "float32"), num_workers=2))
    next(batches)
    print("ready", flush=True)
    threading.Event().wait()
    """,
    acts={"ready": _kill},
)


@demonstrated_by(ORPHANS)
def test_paddle_leaves_workers_behind_when_the_trainer_is_killed(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left, verdict.story()


@proved_by(ORPHANS)
def test_workers_end_when_the_trainer_is_killed(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left == []


DEATH_ELSEWHERE = Story(
    """
    import os
    import signal
    import threading
    import time
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import children, numbers, tell

    batches = iter(DataLoader(np.arange(40, dtype="float32"), num_workers=2))
    seen = [numbers(next(batches))]
    os.kill(children()[0], signal.SIGKILL)
    caught = None
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:  # the user's own code, which has no part in it
            threading.Event().wait(0.05)
    except SystemError as error:
        caught = type(error).__name__
    else:
        seen += [numbers(batch) for batch in batches]
    tell([caught, len(seen)])
    """
)


@demonstrated_by(DEATH_ELSEWHERE)
def test_paddle_throws_the_death_of_a_worker_into_unrelated_code(verdict: Verdict) -> None:
    assert verdict.result == ["SystemError", 1]


@proved_by(DEATH_ELSEWHERE)
def test_death_of_a_worker_disturbs_no_other_code_and_loses_no_batch(verdict: Verdict) -> None:
    assert verdict.result == [None, 40]


DEATH_BETWEEN_EPOCHS = Story(
    """
    import os
    import signal
    import threading
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import children, numbers, tell

    loader = DataLoader(np.arange(8, dtype="float32"), num_workers=2, persistent_workers=True)
    first = [numbers(batch) for batch in loader]
    victim = children()[0]
    try:
        os.kill(victim, signal.SIGKILL)
        threading.Event().wait(1.0)
    except SystemError:
        pass
    second = [numbers(batch) for batch in loader]
    tell([first == second, len(second)])
    """
)


@demonstrated_by(DEATH_BETWEEN_EPOCHS, hang_s=9.0)
def test_paddle_hangs_when_a_worker_died_between_epochs(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(DEATH_BETWEEN_EPOCHS)
def test_worker_that_died_between_epochs_is_replaced(verdict: Verdict) -> None:
    assert verdict.result == [True, 8]


FIRST_USE_IN_A_THREAD = Story(
    """
    import threading
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import children, numbers, tell

    found = []

    def train():
        try:
            dataset = np.arange(4, dtype="float32")
            found.extend(numbers(batch) for batch in DataLoader(dataset, num_workers=2))
        except Exception as error:
            found.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    for _ in range(500):  # workers end in the background
        if children():
            threading.Event().wait(0.01)
    tell([found, len(children())])
    """
)


@demonstrated_by(FIRST_USE_IN_A_THREAD)
def test_paddle_cannot_be_used_first_in_a_thread(verdict: Verdict) -> None:
    assert "signal only works in main thread" in str(verdict.result[0])


@proved_by(FIRST_USE_IN_A_THREAD)
def test_loader_may_be_used_first_in_any_thread(verdict: Verdict) -> None:
    assert verdict.result == [[[0], [1], [2], [3]], 0]


PERSISTENT_ITERABLE = Story(
    """
    from paddle.io import DataLoader, IterableDataset
    from tests.peers.inside import tell

    import numpy as np

    class Stream(IterableDataset):
        def __iter__(self):
            for index in range(3):
                yield np.float32(index)

    loader = DataLoader(Stream(), num_workers=2, persistent_workers=True)
    # A consumer that is faster than the workers: nothing is done with the batches.
    tell([[sum(1 for _ in loader) for _ in range(3)] for _ in range(4)])
    """
)


@demonstrated_by(PERSISTENT_ITERABLE, hang_s=HANG_S)
def test_paddle_deadlocks_with_persistent_workers_and_a_fast_consumer_of_a_stream(
    verdict: Verdict,
) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(PERSISTENT_ITERABLE)
def test_stream_with_persistent_workers_and_a_fast_consumer_ends_each_epoch(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[6, 6, 6]] * 4
