"""Errors of the user's code: PyTorch 2.13 loses batches or waits; the same programs here.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import functools

import pytest

from tests.peers.program import HANG_S, TORCH_DATA, Story, Verdict, demonstrated_by, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(150)]

story = functools.partial(Story, peer=TORCH_DATA)

HEAD = """
    import os
    import signal
    import sys
    import threading
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    from tests.peers.inside import numbers, tell

    def all_of(batches, limit=30):
        found = []
        batches = iter(batches)
        while len(found) < limit:
            try:
                found.append(numbers(next(batches)))
            except StopIteration:
                return found
            except Exception as error:
                found.append(type(error).__name__)
        return found

    class Rows(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return self.sample(index)

        def sample(self, index):
            return index
"""

UNPICKLABLE_RESULT = story(
    HEAD
    + """
    class Locked(Rows):
        def sample(self, index):
            return threading.Lock() if index == 3 else index

    tell(all_of(DataLoader(Locked(), batch_size=None, num_workers=2)))
    """
)


@demonstrated_by(UNPICKLABLE_RESULT, hang_s=HANG_S)
def test_pytorch_hangs_for_a_batch_that_cannot_be_pickled(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()
    assert "cannot pickle '_thread.lock' object" in verdict.stderr


@proved_by(UNPICKLABLE_RESULT)
def test_batch_that_cannot_be_pickled_is_an_error_in_its_place(verdict: Verdict) -> None:
    assert [each if isinstance(each, list) else "error" for each in verdict.result] == [
        [0], [1], [2], "error", [4], [5], [6], [7],
    ]  # fmt: skip


UNPICKLABLE_ERROR = story(
    HEAD
    + """
    def make():
        class Local(ValueError):
            pass
        return Local

    class Broken(Rows):
        def sample(self, index):
            if index == 3:
                raise make()("no sample 3")
            return index

    found = []
    batches = iter(DataLoader(Broken(), batch_size=None, num_workers=2))
    while True:
        try:
            found.append(numbers(next(batches)))
        except StopIteration:
            break
        except ValueError as error:
            found.append("no sample 3" in str(error))
    tell(found)
    """
)


@demonstrated_by(UNPICKLABLE_ERROR, hang_s=HANG_S)
def test_pytorch_hangs_for_an_exception_class_that_cannot_be_pickled(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(UNPICKLABLE_ERROR)
def test_exception_whose_class_cannot_be_pickled_is_caught_by_its_base(verdict: Verdict) -> None:
    assert verdict.result == [[0], [1], [2], True, [4], [5], [6], [7]]


STOP_IN_SAMPLE = {
    workers: story(
        HEAD
        + f"""
    class Stops(Rows):
        def sample(self, index):
            return next(iter(())) if index == 3 else index

    tell(all_of(DataLoader(Stops(), num_workers={workers})))
    """
    )
    for workers in (0, 2)
}
STOP_IN_COLLATE = {
    workers: story(
        HEAD
        + f"""
    def collate(samples):
        return next(iter(())) if 3 in samples else torch.tensor(samples)

    tell(all_of(DataLoader(Rows(), collate_fn=collate, num_workers={workers})))
    """
    )
    for workers in (0, 2)
}


@demonstrated_by(STOP_IN_SAMPLE[0])
def test_pytorch_ends_the_epoch_for_stop_iteration_of_a_sample_without_workers(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2]]


@demonstrated_by(STOP_IN_SAMPLE[2])
def test_pytorch_ends_the_epoch_for_stop_iteration_of_a_sample_in_a_worker(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2]]


@demonstrated_by(STOP_IN_COLLATE[0])
def test_pytorch_ends_the_epoch_for_stop_iteration_of_collate_fn_without_workers(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2]]


@demonstrated_by(STOP_IN_COLLATE[2])
def test_pytorch_ends_the_epoch_for_stop_iteration_of_collate_fn_in_a_worker(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2]]


def check_error_in_its_place(verdict: Verdict) -> None:
    found = verdict.result
    assert isinstance(found[3], str)
    assert found[3] != "StopIteration"
    assert [*found[:3], *found[4:]] == [[0], [1], [2], [4], [5], [6], [7]]


@proved_by(STOP_IN_SAMPLE[0])
def test_stop_iteration_of_a_sample_without_workers_is_an_error_in_its_place(
    verdict: Verdict,
) -> None:
    check_error_in_its_place(verdict)


@proved_by(STOP_IN_SAMPLE[2])
def test_stop_iteration_of_a_sample_in_a_worker_is_an_error_in_its_place(verdict: Verdict) -> None:
    check_error_in_its_place(verdict)


@proved_by(STOP_IN_COLLATE[0])
def test_stop_iteration_of_collate_fn_without_workers_is_an_error_in_its_place(
    verdict: Verdict,
) -> None:
    check_error_in_its_place(verdict)


@proved_by(STOP_IN_COLLATE[2])
def test_stop_iteration_of_collate_fn_in_a_worker_is_an_error_in_its_place(
    verdict: Verdict,
) -> None:
    check_error_in_its_place(verdict)


BROKEN_GENERATOR = {
    workers: story(
        HEAD
        + f"""
    class Stream(IterableDataset):
        def __iter__(self):
            for index in range(8):
                if index == 3:
                    raise LookupError("no sample 3")
                yield index

    tell(all_of(DataLoader(Stream(), num_workers={workers})))
    """
    )
    for workers in (0, 1)
}


@demonstrated_by(BROKEN_GENERATOR[0])
def test_pytorch_ends_in_silence_after_a_generator_raised_without_workers(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2], "LookupError"]


@demonstrated_by(BROKEN_GENERATOR[1])
def test_pytorch_ends_in_silence_after_a_generator_raised_in_a_worker(verdict: Verdict) -> None:
    assert verdict.result == [[0], [1], [2], "LookupError"]


@proved_by(BROKEN_GENERATOR[0])
def test_lost_rest_of_a_dead_generator_is_an_error_without_workers(
    verdict: Verdict,
) -> None:
    assert verdict.result == [[0], [1], [2], "LookupError", "DatasetError"]


@proved_by(BROKEN_GENERATOR[1])
def test_lost_rest_of_a_dead_generator_is_an_error_in_a_worker(verdict: Verdict) -> None:
    assert verdict.result == [[0], [1], [2], "LookupError", "DatasetError"]


ATTRIBUTES = story(
    HEAD
    + """
    class Missing(Exception):
        def __init__(self, path, line):
            super().__init__(f"{path}:{line}")
            self.path, self.line = path, line

    class Broken(Rows):
        def sample(self, index):
            try:
                raise OSError("disk")
            except OSError as error:
                raise Missing("list.txt", index) from error

    try:
        next(iter(DataLoader(Broken(), num_workers=1)))
    except Exception as error:
        tell([type(error).__name__, getattr(error, "path", None), repr(error.__cause__)])
    """
)


@demonstrated_by(ATTRIBUTES)
def test_pytorch_loses_type_attributes_and_cause_of_an_error(verdict: Verdict) -> None:
    assert verdict.result == ["RuntimeError", None, "None"]


@proved_by(ATTRIBUTES)
def test_error_of_a_worker_keeps_its_type_attributes_and_cause(verdict: Verdict) -> None:
    assert verdict.result == ["Missing", "list.txt", "OSError('disk')"]
