"""Workers that die or exit: PyTorch 2.13 loses batches or waits; the same programs here.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Verdict, demonstrated_by, proved_by
from tests.peers.test_torch_demonstrations_errors import HEAD, story

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(150)]


KILLED_WORKER = story(
    HEAD
    + """
    class Dies(Rows):
        def sample(self, index):
            if index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    tell(all_of(DataLoader(Dies(), num_workers=2)))
    """
)


@demonstrated_by(KILLED_WORKER, hang_s=HANG_S)
def test_pytorch_loses_every_batch_in_flight_of_a_killed_worker_or_hangs(verdict: Verdict) -> None:
    if verdict.is_hung:
        return
    found = verdict.result
    assert "RuntimeError" in found
    assert [1] not in found
    assert [3] not in found


@proved_by(KILLED_WORKER)
def test_killed_worker_loses_one_batch_and_the_iteration_goes_on(verdict: Verdict) -> None:
    found = verdict.result
    assert found == [[0], "WorkerExit", [2], [3], [4], [5], [6], [7]]


KILLED_ONCE = story(
    HEAD
    + """
    class Dies(Rows):
        def sample(self, index):
            if index == 1 and not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    retries = {} if DataLoader.__module__.startswith("torch") else {"worker_retries": 1}
    tell(all_of(DataLoader(Dies(), num_workers=2, **retries)))
    """
)


@proved_by(KILLED_ONCE)
def test_killed_worker_is_replaced_and_no_batch_is_lost_with_worker_retries(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[index] for index in range(8)]


CLEAN_EXIT = story(
    HEAD
    + """
    class Leaves(Rows):
        def sample(self, index):
            if index == 1:
                os._exit(0)
            return index

    tell(all_of(DataLoader(Leaves(), num_workers=2)))
    """
)


@demonstrated_by(CLEAN_EXIT, hang_s=3.5)
def test_pytorch_notices_a_worker_that_left_after_five_seconds(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(CLEAN_EXIT)
def test_worker_that_leaves_is_noticed_at_once_and_costs_one_batch(verdict: Verdict) -> None:
    assert verdict.result == [[0], "WorkerExit", [2], [3], [4], [5], [6], [7]]


INTERRUPTED_WORKER = story(
    HEAD
    + """
    class Raises(Rows):
        def sample(self, index):
            if index == 1:
                raise SystemExit(0)
            return index

    tell(all_of(DataLoader(Raises(), num_workers=2)))
    """
)


@demonstrated_by(INTERRUPTED_WORKER, hang_s=3.5)
def test_pytorch_waits_five_seconds_when_a_sample_calls_exit(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(INTERRUPTED_WORKER)
def test_exit_called_by_a_sample_is_an_error_in_its_place(verdict: Verdict) -> None:
    found = verdict.result
    assert isinstance(found[1], str)
    assert [found[0], *found[2:]] == [[0], [2], [3], [4], [5], [6], [7]]
