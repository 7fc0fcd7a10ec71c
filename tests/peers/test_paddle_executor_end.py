"""An executor that ends releases its feeds in its own threads, and waits for these.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.timeout(90)]

TEXT = """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from reader import LoDTensor
    from tests.peers.inside import tell

    paddle.enable_static()
    data = [np.ones(64, "float32") for _ in range(256)]

    def feeds(x):
        if KIND == "python":  # memory that a Python object owns
            for _ in range(4):
                array = LoDTensor(np.ones((64, 64), "float32"))
                yield {"x": paddle.base.core.from_dlpack(array.__dlpack__())}
        else:
            loader = DataLoader(data, feed_list=[x], return_list=False, batch_size=64,
                                num_workers=1, use_shared_memory=KIND == "shared")
            for (feed,) in loader:
                yield feed

    for _ in range(40):
        with (
            paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()),
            paddle.static.scope_guard(paddle.static.Scope()),
        ):
            x = paddle.static.data("x", [None, 64], "float32")
            y = paddle.scale(x, 2.0)
            exe = paddle.static.Executor(paddle.CPUPlace())
            for feed in feeds(x):
                exe.run(feed=feed, fetch_list=[y])
                del feed
            del exe
    tell("ended")
"""


def story(kind: str) -> Story:
    """A story in which every feed is of one kind."""
    return Story(TEXT.replace("KIND", repr(kind)), limit_s=60.0)


@proved_by(story("python"))
def test_tensors_of_python_memory_let_executors_end(verdict: Verdict) -> None:
    assert verdict.result == "ended"


@proved_by(story("private"))
def test_batches_in_private_memory_let_executors_end(verdict: Verdict) -> None:
    assert verdict.result == "ended"


@proved_by(story("shared"))
def test_batches_in_shared_memory_let_executors_end(verdict: Verdict) -> None:
    assert verdict.result == "ended"
