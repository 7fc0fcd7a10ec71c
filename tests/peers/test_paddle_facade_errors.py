"""Errors that name their cause, where paddle.io 3.3.1 hangs, hides it or drops data without a word.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = pytest.mark.peer

COLLATE_ERRORS = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import outcome, tell

    row = np.zeros(2, "float32")
    found = {}
    for num_workers in (0, 2):
        found[num_workers] = {
            name: outcome(lambda: list(DataLoader(samples, batch_size=2, num_workers=num_workers)))
            for name, samples in {
                "ragged": [row, np.zeros(3, "float32")],
                "missing key": [{"x": row, "y": row}, {"x": row}],
                "extra key": [{"x": row}, {"x": row, "y": row}],
                "fields": [(row, 1), (row,)],
                "none": [None, None],
                "set": [{1}, {2}],
                "date": [np.datetime64("2020-01-01")] * 2,
                "object": [(row, object())] * 2,
            }.items()
        }
    tell(found)
    """
)
WANTED = {
    "ragged": ("ValueError", "shape"),
    "missing key": ("KeyError", "'y'"),
    "extra key": ("ValueError", "'y'"),
    "fields": ("RuntimeError", "fields number not same among samples in a batch"),
    "none": (
        "TypeError",
        "batch data con only contains: tensor, numpy.ndarray, dict, list, number",
    ),
    "set": ("TypeError", "but got <class 'set'>"),
    "date": ("TypeError", "but got <class 'numpy.datetime64'>"),
    "object": ("TypeError", "but got <class 'object'>"),
}


@proved_by(COLLATE_ERRORS)
@pytest.mark.parametrize("num_workers", ["0", "2"])
@pytest.mark.parametrize("name", WANTED)
def test_samples_that_do_not_fit_are_refused_with_paddles_type_and_text(
    verdict: Verdict, name: str, num_workers: str
) -> None:
    kind, text = WANTED[name]
    found = verdict.result[num_workers][name]
    assert found[0] == "raised", found
    assert kind in found[3]
    assert text in found[2]


@demonstrated_by(COLLATE_ERRORS, hang_s=HANG_S)
def test_paddle_hangs_on_samples_that_do_not_fit(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


NUMPY_BOOL = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    samples = [(np.bool_(index % 2), np.float32(index)) for index in range(4)]
    tell([[numbers(field) for field in batch] for batch in DataLoader(samples, batch_size=4)])
    """
)


@demonstrated_by(NUMPY_BOOL, hang_s=HANG_S)
def test_paddle_hangs_on_numpy_bools(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(NUMPY_BOOL)
def test_numpy_bools_are_stacked_like_bools(verdict: Verdict) -> None:
    assert verdict.result == [[[False, True, False, True], [0, 1, 2, 3]]]


EMPTY_BATCH = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import outcome, tell

    tell(outcome(lambda: list(DataLoader(np.zeros(4), batch_sampler=[[0, 1], []], num_workers=2))))
    """
)


@demonstrated_by(EMPTY_BATCH)
def test_paddle_says_nothing_of_use_about_an_empty_batch(verdict: Verdict) -> None:
    assert verdict.result[1] == "SystemError"


@proved_by(EMPTY_BATCH)
def test_empty_batch_is_an_error_that_says_so(verdict: Verdict) -> None:
    assert verdict.result[0] == "raised"
    assert verdict.result[1] != "IndexError"
    assert "no samples" in verdict.result[2] or "empty" in verdict.result[2]


WORKER_TEXT = Story(
    """
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import tell

    class Broken(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise ValueError("broken sample")

    try:
        list(DataLoader(Broken(), num_workers=2))
    except Exception as error:
        tell([type(error).__name__, str(error), "\\n".join(getattr(error, "__notes__", []))])
    """
)


@proved_by(WORKER_TEXT)
def test_error_of_a_worker_says_what_paddle_says(verdict: Verdict) -> None:
    kind, text, notes = verdict.result
    assert (kind, text) == ("ValueError", "broken sample")
    assert "DataLoader worker(0) caught ValueError with message:" in notes
    assert "in __getitem__" in notes


KILLED = Story(
    """
    import os
    import signal
    import numpy as np
    from paddle.io import DataLoader, Dataset, get_worker_info
    from tests.peers.inside import numbers, tell

    class Deadly(Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, index):
            if index == 9 and not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return np.float32(index)

    tell([numbers(batch)[0] for batch in DataLoader(Deadly(), num_workers=2)])
    """
)


@demonstrated_by(KILLED)
def test_paddle_ends_with_system_error_when_a_worker_is_killed(verdict: Verdict) -> None:
    assert verdict.exit_code == 1, verdict.story()
    assert "SystemError" in verdict.stderr


@proved_by(KILLED)
def test_killed_worker_is_replaced_and_no_batch_is_lost(verdict: Verdict) -> None:
    assert verdict.result == list(range(20))


FEED_ERRORS = Story(
    """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import outcome, tell

    paddle.enable_static()
    x = paddle.static.data("x", [None, 2], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    a, b = np.zeros(2, "float32"), np.zeros(1, "int64")

    def first(*fields, return_list=False, feed_list=(x, y)):
        sample = fields[0] if len(fields) == 1 else fields
        loader = DataLoader([sample], feed_list=list(feed_list), return_list=return_list)
        return outcome(lambda: list(loader))

    tell({
        "too few": first(a, feed_list=(x, y)),
        "too many": first(a, b, b),
        "names": first({"x": a, "label": b}),
        "dtype": first(a.astype("float64"), b),
        "shape": first(np.zeros(3, "float32"), b),
        "ragged": first([a, [b]]),
        "count": first(a, b, a, return_list=True),
    })
    """
)
NOT_EQUAL = "number of reader's input data and the input number of feed list are not equal"


@proved_by(FEED_ERRORS)
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("too few", [NOT_EQUAL, "'x'", "'y'", "1"]),
        ("too many", [NOT_EQUAL, "2", "3"]),
        ("names", ["'y'", "'label'"]),
        ("dtype", ["'x'", "float32", "float64"]),
        ("shape", ["'x'", "[-1, 2]", "[1, 3]"]),
        ("count", [NOT_EQUAL, "2", "3"]),
    ],
)
def test_feed_that_does_not_fit_is_an_error_that_names_both_sides(
    verdict: Verdict, name: str, texts: list[str]
) -> None:
    found = verdict.result[name]
    assert found[0] == "raised", found
    assert "ValueError" in found[3]
    for text in texts:
        assert text in found[2]
