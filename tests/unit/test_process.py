"""The handles of worker processes that have ended."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
from typing import Any

import pytest

from reader.processes.process import release_process


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_that_is_released_may_be_asked_whether_it_has_ended(method: str) -> None:
    # multiprocessing asks each of its children where somebody starts a process, in any thread
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=int)
    process.start()
    process.join()
    sentinel = process.sentinel
    children = [process]  # as another thread has copied them
    release_process(process)
    assert process not in multiprocessing.process._children  # type: ignore[attr-defined]
    assert [each._popen.poll() for each in children] == [0]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(sentinel)
    release_process(process)
