"""Iterators that are left, kept or used twice: what paddle.io 3.3.1 makes of them, and what we do.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

BREAK = Story(
    """
    import sys
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import excess, held, tell

    num_workers = int(sys.argv[1])
    loader = DataLoader(np.zeros((64, 4), "float32"), num_workers=num_workers)
    list(DataLoader(np.zeros((4, 4), "float32"), num_workers=num_workers))
    before = held()
    for _ in range(3):
        for batch in loader:
            break
    del batch
    tell(excess(before))
    """,
    args=("2",),
)
BREAK_WITHOUT_WORKERS = Story(BREAK.text, args=("0",))


@demonstrated_by(BREAK)
def test_paddle_keeps_processes_threads_and_descriptors_after_break(verdict: Verdict) -> None:
    kept = verdict.result
    assert kept["processes"] == 6
    assert kept["threads"] >= 3
    assert kept["descriptors"] >= 20


@demonstrated_by(BREAK_WITHOUT_WORKERS)
def test_paddle_keeps_threads_after_break_without_workers(verdict: Verdict) -> None:
    assert verdict.result["threads"] >= 3


@proved_by(BREAK)
def test_nothing_is_kept_after_break(verdict: Verdict) -> None:
    assert verdict.result == {}


@proved_by(BREAK_WITHOUT_WORKERS)
def test_nothing_is_kept_after_break_without_workers(verdict: Verdict) -> None:
    assert verdict.result == {}


LENGTH_OF_ITERATOR = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import excess, held, tell

    loader = DataLoader(np.zeros((8, 4), "float32"), num_workers=2)
    before = held()
    lengths = [len(loader()) for _ in range(2)]
    tell([lengths, excess(before)])
    """
)


@demonstrated_by(LENGTH_OF_ITERATOR)
def test_paddle_keeps_workers_for_asking_an_iterator_for_its_length(verdict: Verdict) -> None:
    lengths, kept = verdict.result
    assert lengths == [8, 8]
    assert kept["processes"] == 4


@proved_by(LENGTH_OF_ITERATOR)
def test_asking_an_iterator_for_its_length_keeps_nothing(verdict: Verdict) -> None:
    assert verdict.result == [[8, 8], {}]


PERSISTENT_BREAK = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    loader = DataLoader(np.arange(8, dtype="float32"), num_workers=2, persistent_workers=True)
    found = []
    for stop in (1, 3, 8):
        epoch = []
        for batch in loader:
            epoch.append(numbers(batch)[0])
            if len(epoch) == stop:
                break
        found.append(epoch)
    tell(found)
    """
)


@demonstrated_by(PERSISTENT_BREAK)
def test_paddle_fails_in_every_epoch_after_a_break_with_persistent_workers(
    verdict: Verdict,
) -> None:
    assert verdict.exit_code == 1, verdict.story()
    assert "IndexError: pop from empty list" in verdict.stderr


@proved_by(PERSISTENT_BREAK)
def test_epoch_after_a_break_with_persistent_workers_begins_anew(verdict: Verdict) -> None:
    assert verdict.result == [[0], [0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7]]


SECOND_ITERATOR = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    loader = DataLoader(np.arange(6, dtype="float32"), num_workers=2, persistent_workers=True)
    first = iter(loader)
    found = [numbers(next(first))[0]]
    second = iter(loader)
    found += [numbers(next(second))[0], numbers(next(first))[0]]
    rest = [[numbers(batch)[0] for batch in one] for one in (first, second)]
    tell([found, rest])
    """
)


@demonstrated_by(SECOND_ITERATOR, hang_s=HANG_S)
def test_paddle_breaks_the_first_iterator_when_a_second_begins_with_persistent_workers(
    verdict: Verdict,
) -> None:
    if verdict.exit_code == 0:
        assert verdict.result != [[0, 0, 1], [[2, 3, 4, 5], [1, 2, 3, 4, 5]]]
    else:
        assert verdict.is_hung or "IndexError" in verdict.stderr, verdict.story()


@proved_by(SECOND_ITERATOR)
def test_two_iterators_with_persistent_workers_are_independent(verdict: Verdict) -> None:
    assert verdict.result == [[0, 0, 1], [[2, 3, 4, 5], [1, 2, 3, 4, 5]]]


AFTER_THE_END = Story(
    """
    import sys
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    batches = iter(DataLoader(np.zeros((2, 4), "float32"), num_workers=int(sys.argv[1])))
    sizes = [len(list(batches))]
    for _ in range(3):
        try:
            next(batches)
        except Exception as error:
            sizes.append(type(error).__name__)
    tell(sizes)
    """,
    args=("0",),
)
AFTER_THE_END_WITH_WORKERS = Story(AFTER_THE_END.text, args=("2",))


@demonstrated_by(AFTER_THE_END)
def test_paddle_fails_when_next_is_called_after_the_end_without_workers(verdict: Verdict) -> None:
    assert verdict.exit_code != 0 or "RuntimeError" in verdict.result, verdict.story()


@demonstrated_by(AFTER_THE_END_WITH_WORKERS)
def test_paddle_fails_when_next_is_called_after_the_end_with_workers(verdict: Verdict) -> None:
    assert verdict.exit_code != 0 or "RuntimeError" in verdict.result, verdict.story()


@proved_by(AFTER_THE_END)
def test_next_after_the_end_stays_the_end_without_workers(verdict: Verdict) -> None:
    assert verdict.result == [2, "StopIteration", "StopIteration", "StopIteration"]


@proved_by(AFTER_THE_END_WITH_WORKERS)
def test_next_after_the_end_stays_the_end_with_workers(verdict: Verdict) -> None:
    assert verdict.result == [2, "StopIteration", "StopIteration", "StopIteration"]


RESUMED_TAIL = Story(
    """
    import threading
    import numpy as np
    from paddle.io import DataLoader, IterableDataset
    from tests.peers.inside import tell

    class Stream(IterableDataset):
        def __iter__(self):
            for index in range(5):
                yield np.float32(index)

    loader = DataLoader(
        Stream(), batch_size=2, drop_last=False, num_workers=2, persistent_workers=True
    )
    counts = []
    for _ in range(3):
        counts.append(0)
        for batch in loader:
            counts[-1] += 1
            threading.Event().wait(0.05)  # else paddle.io hangs, which is another story
    tell(counts)
    """
)


@demonstrated_by(RESUMED_TAIL)
def test_paddle_drops_the_tail_of_a_stream_from_the_second_persistent_epoch_on(
    verdict: Verdict,
) -> None:
    assert verdict.result == [6, 4, 4]


@proved_by(RESUMED_TAIL)
def test_tail_of_a_stream_comes_in_every_persistent_epoch(verdict: Verdict) -> None:
    assert verdict.result == [6, 6, 6]


GENERATOR_OF_BATCHES = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    loader = DataLoader(
        np.arange(6, dtype="float32"), batch_sampler=([2 * n, 2 * n + 1] for n in range(3))
    )
    counts = [sum(1 for _ in loader)]
    try:
        counts.append(sum(1 for _ in loader))
    except Exception as error:
        counts.append(str(error))
    tell(counts)
    """
)


@demonstrated_by(GENERATOR_OF_BATCHES)
def test_paddle_has_silently_nothing_in_epoch_two_with_a_generator_of_batches(
    verdict: Verdict,
) -> None:
    assert verdict.result == [3, 0]


@proved_by(GENERATOR_OF_BATCHES)
def test_generator_of_batches_is_refused_in_its_second_epoch(verdict: Verdict) -> None:
    first, second = verdict.result
    assert first == 3
    assert "generator" in second or "iterator" in second


NEXT_EPOCH = Story(
    """
    import time
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    loader = DataLoader(np.zeros((8, 4), "float32"), num_workers=2, persistent_workers=True)
    list(loader)
    waits = []
    for _ in range(4):
        begun = time.monotonic()
        batches = iter(loader)
        next(batches)
        waits.append(time.monotonic() - begun)
        list(batches)
    tell(min(waits))
    """
)


@demonstrated_by(NEXT_EPOCH)
def test_paddle_sleeps_half_a_second_before_each_persistent_epoch(verdict: Verdict) -> None:
    assert verdict.result >= 0.5


@proved_by(NEXT_EPOCH)
def test_a_persistent_epoch_begins_without_a_sleep(verdict: Verdict) -> None:
    assert verdict.result < 0.5


OPEN_AT_EXIT = Story(
    """
    import sys
    import numpy as np
    from paddle.io import DataLoader

    kept = []
    for num_workers in (0, 2):
        for persistent_workers in (False, True):
            rows = np.zeros((64, 4), "float32")
            loader = DataLoader(
                rows, num_workers=num_workers, persistent_workers=persistent_workers
            )
            batches = iter(loader)
            kept += [next(batches), batches, loader]
    """
)


@proved_by(OPEN_AT_EXIT)
def test_program_with_an_open_iterator_ends_at_once(verdict: Verdict) -> None:
    assert verdict.exit_code == 0, verdict.story()
    assert verdict.stderr == ""
    assert verdict.left == []
