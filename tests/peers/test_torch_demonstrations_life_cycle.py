"""Beginnings, epochs and ends: where PyTorch 2.13 goes wrong, and the same programs here.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.peers.program import Verdict, demonstrated_by, proved_by
from tests.peers.test_torch_demonstrations_errors import HEAD, story

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(150)]

TWO_LOOPS = story(
    HEAD
    + """
    loader = DataLoader(Rows(), num_workers=1, persistent_workers=True)
    outer = []
    for batch in loader:
        outer.append(numbers(batch))
        if len(outer) == 2:
            inner = [numbers(each) for each in loader]
        if len(outer) > 20:
            break
    tell([outer, inner])
    """
)


@demonstrated_by(TWO_LOOPS)
def test_pytorch_loses_batches_when_persistent_workers_are_iterated_twice_at_once(
    verdict: Verdict,
) -> None:
    outer, inner = verdict.result
    assert inner == [[index] for index in range(8)]
    assert outer == [[0], [1]]


@proved_by(TWO_LOOPS)
def test_two_iterations_of_persistent_workers_are_independent(verdict: Verdict) -> None:
    whole = [[index] for index in range(8)]
    assert verdict.result == [whole, whole]


SET_EPOCH = story(
    HEAD
    + """
    class Epochs(Rows):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def sample(self, index):
            return self.epoch

    dataset = Epochs()
    loader = DataLoader(dataset, batch_size=8, num_workers=2, persistent_workers=True)
    found = []
    for epoch in range(3):
        getattr(loader, "set_epoch", dataset.set_epoch)(epoch)
        found += [numbers(batch)[0] for batch in loader]
    tell(found)
    """
)


@demonstrated_by(SET_EPOCH)
def test_persistent_workers_of_pytorch_never_see_set_epoch(verdict: Verdict) -> None:
    assert verdict.result == [0, 0, 0]


@proved_by(SET_EPOCH)
def test_persistent_workers_are_told_the_epoch(verdict: Verdict) -> None:
    assert verdict.result == [0, 1, 2]


STUCK_WORKERS = story(
    HEAD
    + """
    class Stuck(Rows):
        def sample(self, index):
            if index > 1:
                threading.Event().wait(60)
            return index

    batches = iter(DataLoader(Stuck(), num_workers=2))
    found = [numbers(next(batches)), numbers(next(batches))]
    del batches
    tell(found)
    """
)


@demonstrated_by(STUCK_WORKERS, hang_s=6.0)
def test_pytorch_waits_five_seconds_for_each_worker_that_is_busy_at_the_end(
    verdict: Verdict,
) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(STUCK_WORKERS)
def test_busy_workers_end_when_the_iterator_is_dropped(verdict: Verdict) -> None:
    assert verdict.result == [[0], [1]]
    assert verdict.left == []


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


KILLED_TRAINER = story(
    HEAD
    + """
    class Slow(Rows):
        def sample(self, index):
            if index > 1:
                threading.Event().wait(60)
            return index

    batches = iter(DataLoader(Slow(), num_workers=2))
    next(batches)
    print("ready", flush=True)
    next(batches), next(batches)
    """,
    acts={"ready": _kill},
)


@demonstrated_by(KILLED_TRAINER)
def test_workers_of_pytorch_outlive_their_killed_trainer(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left  # one may have looked for it in that second


@proved_by(KILLED_TRAINER)
def test_workers_end_with_their_killed_trainer(verdict: Verdict) -> None:
    assert verdict.exit_code == -signal.SIGKILL
    assert verdict.left == []


DESCRIPTORS = story(
    HEAD
    + """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    class Vectors(Rows):
        def __len__(self):
            return 200

        def sample(self, index):
            return torch.full((4,), index)

    kept = list(DataLoader(Vectors(), num_workers=1))
    tell([int(batch[0, 0]) for batch in kept] == list(range(200)))
    """
)


@demonstrated_by(DESCRIPTORS)
def test_pytorch_needs_a_descriptor_for_each_batch_that_is_kept(verdict: Verdict) -> None:
    assert verdict.exit_code not in (0, None), verdict.story()
    assert "Too many open files" in verdict.stderr


@proved_by(DESCRIPTORS)
def test_batches_that_are_kept_need_no_descriptors(verdict: Verdict) -> None:
    assert verdict.result is True


PICKLED_ONCE = story(
    """
    import os
    import sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    pickled = []

    class Heavy(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

        def __getstate__(self):
            pickled.append(os.getpid())
            return {}

    if __name__ == "__main__":
        loader = DataLoader(Heavy(), num_workers=2, multiprocessing_context="forkserver")
        found = [numbers(batch) for batch in loader]
        tell([found, len(pickled)])
    """,
    limit_s=90.0,
)


@demonstrated_by(PICKLED_ONCE)
def test_pytorch_pickles_the_dataset_for_each_worker(verdict: Verdict) -> None:
    assert verdict.result == [[[0], [1], [2], [3]], 2]


@proved_by(PICKLED_ONCE)
def test_dataset_is_pickled_once_for_all_workers(verdict: Verdict) -> None:
    assert verdict.result == [[[0], [1], [2], [3]], 1]


LAMBDAS = story(
    """
    import torch
    from torch.utils.data import DataLoader
    from tests.peers.inside import numbers, tell

    if __name__ == "__main__":
        collate = lambda samples: torch.tensor(samples) * 2
        loader = DataLoader(
            [1, 2, 3], num_workers=1, collate_fn=collate, multiprocessing_context="forkserver"
        )
        tell([numbers(batch) for batch in loader])
    """,
    limit_s=90.0,
)


@demonstrated_by(LAMBDAS)
def test_lambdas_reach_no_forkserver_worker_of_pytorch(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "pickle" in verdict.stderr


@proved_by(LAMBDAS)
def test_lambdas_reach_forkserver_workers(verdict: Verdict) -> None:
    assert verdict.result == [[2], [4], [6]]


CHILDREN_OF_WORKERS = story(
    HEAD
    + """
    import multiprocessing

    class Nested(Rows):
        def sample(self, index):
            with multiprocessing.Pool(1) as pool:
                return pool.apply(abs, (-index,))

    tell(all_of(DataLoader(Nested(), num_workers=1), 9))
    """
)


@demonstrated_by(CHILDREN_OF_WORKERS)
def test_workers_of_pytorch_may_have_no_children(verdict: Verdict) -> None:
    assert verdict.result == ["AssertionError"] * 8


@proved_by(CHILDREN_OF_WORKERS)
def test_workers_may_have_children(verdict: Verdict) -> None:
    assert verdict.result == [[index] for index in range(8)]


OFF_THREAD = story(
    HEAD
    + """
    class Dies(Rows):
        def sample(self, index):
            if index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    found = []
    loader = DataLoader(Dies(), num_workers=1)
    thread = threading.Thread(target=lambda: found.extend(all_of(loader)))
    thread.start()
    thread.join()
    tell(found)
    """
)


@demonstrated_by(OFF_THREAD, hang_s=3.5)
def test_pytorch_sees_no_death_for_seconds_in_a_loader_of_another_thread(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(OFF_THREAD)
def test_death_is_seen_in_a_loader_of_any_thread(verdict: Verdict) -> None:
    assert verdict.result == [[0], "WorkerExit", *([index] for index in range(2, 8))]


ELSEWHERE = story(
    HEAD
    + """
    class Dies(Rows):
        def sample(self, index):
            if index == 6:
                while not os.path.exists("go"):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    batches = iter(DataLoader(Dies(), num_workers=1, prefetch_factor=8))
    next(batches)
    try:
        open("go", "w").close()
        for _ in range(400):
            time.sleep(0.01)  # code of the user's that has nothing to do with loading
        tell("undisturbed")
    except RuntimeError as error:
        tell("disturbed")
    """
)


@demonstrated_by(ELSEWHERE)
def test_pytorch_raises_in_unrelated_code_when_a_worker_dies(verdict: Verdict) -> None:
    assert verdict.result == "disturbed"


@proved_by(ELSEWHERE)
def test_death_of_a_worker_disturbs_no_other_code(verdict: Verdict) -> None:
    assert verdict.result == "undisturbed"
