"""Errors of the user's own code: what becomes of them in paddle.io 3.3.1, and here.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

ERROR_WITHOUT_WORKERS = Story(
    """
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    class Broken(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 5:
                raise LookupError("no sample 5")
            return np.float32(index)

    seen = []
    try:
        for batch in DataLoader(Broken(), batch_size=2):
            seen.append(numbers(batch))
    except LookupError as error:
        tell([error.args, seen])
    """
)


@demonstrated_by(ERROR_WITHOUT_WORKERS, hang_s=HANG_S)
def test_paddle_hangs_when_a_sample_raises_without_workers(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()
    assert "LookupError: no sample 5" in verdict.stderr


@proved_by(ERROR_WITHOUT_WORKERS)
def test_error_of_a_sample_without_workers_comes_after_the_batches_before_it(
    verdict: Verdict,
) -> None:
    assert verdict.result == [["no sample 5"], [[0, 1], [2, 3]]]
    assert "Traceback" not in verdict.stderr


ERROR_IN_WORKER = Story(
    """
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    class Missing(Exception):
        def __init__(self, path, line):
            super().__init__(f"{path}:{line}")
            self.path = path

    class Broken(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            if index == 7:
                raise Missing("list.txt", 7)
            return np.float32(index)

    seen = []
    try:
        for batch in DataLoader(Broken(), batch_size=2, num_workers=2):
            seen.append(numbers(batch))
    except Exception as error:
        tell([type(error).__name__, getattr(error, "path", None), seen])
    """
)


@demonstrated_by(ERROR_IN_WORKER)
def test_paddle_loses_the_type_of_an_error_and_the_batches_before_it(verdict: Verdict) -> None:
    kind, path, seen = verdict.result
    assert (kind, path) == ("SystemError", None)
    assert len(seen) <= 3


@proved_by(ERROR_IN_WORKER)
def test_error_of_a_worker_keeps_its_type_and_fields_and_comes_in_its_place(
    verdict: Verdict,
) -> None:
    assert verdict.result == ["Missing", "list.txt", [[0, 1], [2, 3], [4, 5]]]
    assert "Traceback" not in verdict.stderr


LOCAL_ERROR = Story(
    """
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    def fail():
        class Local(ValueError):
            pass
        raise Local("a class that no pickle finds")

    class Broken(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return np.float32(index) if index != 5 else fail()

    seen = []
    try:
        for batch in DataLoader(Broken(), batch_size=2, num_workers=2):
            seen.append(numbers(batch))
    except ValueError as error:
        tell([type(error).__name__, str(error), seen])
    """
)


@demonstrated_by(LOCAL_ERROR, hang_s=HANG_S)
def test_paddle_hangs_when_the_class_of_an_error_cannot_be_pickled(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(LOCAL_ERROR)
def test_error_whose_class_cannot_be_pickled_is_caught_by_its_base(verdict: Verdict) -> None:
    kind, text, seen = verdict.result
    assert kind == "Local"
    assert "a class that no pickle finds" in text
    assert seen == [[0, 1], [2, 3]]


UNPICKLABLE_RESULT = Story(
    """
    import threading
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    def collate(samples):
        return [np.array(samples), threading.Lock() if 4 in samples else None]

    seen = []
    try:
        for batch in DataLoader(list(range(8)), batch_size=2, num_workers=2, collate_fn=collate):
            seen.append(numbers(batch))
    except Exception as error:
        tell([str(error), seen])
    """
)


@demonstrated_by(UNPICKLABLE_RESULT, hang_s=HANG_S)
def test_paddle_hangs_when_a_batch_cannot_be_pickled(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(UNPICKLABLE_RESULT)
def test_batch_that_cannot_be_pickled_is_an_error_in_its_place(verdict: Verdict) -> None:
    text, seen = verdict.result
    assert "lock" in text
    assert "pickle" in text
    assert seen == [[0, 1], [2, 3]]


STOP_IN_SAMPLE = Story(
    """
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import numbers, tell

    class Early(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return np.float32(index) if index != 3 else next(iter(()))

    seen, caught = [], []
    try:
        for batch in DataLoader(Early(), batch_size=2):
            seen.append(numbers(batch))
    except Exception as error:
        caught.append(type(error.__cause__).__name__)
    tell([seen, caught])
    """
)


@demonstrated_by(STOP_IN_SAMPLE)
def test_paddle_takes_stop_iteration_of_a_sample_for_the_end(verdict: Verdict) -> None:
    assert verdict.result == [[[0, 1]], []]


@proved_by(STOP_IN_SAMPLE)
def test_stop_iteration_of_a_sample_is_an_error(verdict: Verdict) -> None:
    assert verdict.result == [[[0, 1]], ["StopIteration"]]


EXIT_IN_SAMPLE = Story(
    """
    import sys
    import numpy as np
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import tell

    class Leaving(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return np.float32(index) if index != 2 else sys.exit(3)

    try:
        print(len(list(DataLoader(Leaving()))))
    except Exception as error:
        tell(type(error.__cause__).__name__)
    """
)


@demonstrated_by(EXIT_IN_SAMPLE, hang_s=HANG_S)
def test_paddle_hangs_when_a_sample_calls_exit_without_workers(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@proved_by(EXIT_IN_SAMPLE)
def test_exit_in_a_sample_is_an_error(verdict: Verdict) -> None:
    assert verdict.result == "SystemExit"


SAMPLER_ERROR = Story(
    """
    import sys
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import children, excess, held, numbers, tell

    class Batches:
        def __iter__(self):
            yield [0, 1]
            yield [2, 3]
            raise OSError("the list of files is gone")

    before = held()
    seen = []
    try:
        dataset = np.arange(8, dtype="float32")
        for batch in DataLoader(dataset, batch_sampler=Batches(), num_workers=int(sys.argv[1])):
            seen.append(numbers(batch))
    except OSError as error:
        kept = excess(before)
        tell([str(error), seen, kept.get("processes", 0)])
    """,
    args=("0",),
)
SAMPLER_ERROR_WITH_WORKERS = Story(SAMPLER_ERROR.text, args=("2",))


@demonstrated_by(SAMPLER_ERROR, hang_s=HANG_S)
def test_paddle_hangs_when_the_sampler_raises_without_workers(verdict: Verdict) -> None:
    assert verdict.is_hung, verdict.story()


@demonstrated_by(SAMPLER_ERROR_WITH_WORKERS, hang_s=HANG_S)
def test_paddle_loses_batches_and_workers_when_the_sampler_raises(verdict: Verdict) -> None:
    if not verdict.is_hung:
        _, seen, processes = verdict.result
        assert len(seen) < 2
        assert processes == 2


@proved_by(SAMPLER_ERROR)
def test_error_of_the_sampler_comes_after_the_batches_before_it(verdict: Verdict) -> None:
    assert verdict.result == ["the list of files is gone", [[0, 1], [2, 3]], 0]


@proved_by(SAMPLER_ERROR_WITH_WORKERS)
def test_error_of_the_sampler_leaves_no_worker_behind(verdict: Verdict) -> None:
    assert verdict.result == ["the list of files is gone", [[0, 1], [2, 3]], 0]


INIT_ERROR = Story(
    """
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def init(worker_id):
        raise PermissionError("no access to the shard")

    try:
        list(DataLoader(list(range(8)), num_workers=2, worker_init_fn=init))
    except Exception as error:
        tell([type(error).__name__, str(error)])
    """
)


@demonstrated_by(INIT_ERROR)
def test_paddle_loses_the_error_of_worker_init_fn(verdict: Verdict) -> None:
    kind, text = verdict.result
    assert kind == "SystemError"
    assert "shard" not in text


@proved_by(INIT_ERROR)
def test_error_of_worker_init_fn_keeps_its_type(verdict: Verdict) -> None:
    assert verdict.result == ["PermissionError", "no access to the shard"]


GENERATOR_AS_DATASET = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    samples = (np.float32(index) for index in range(4))
    try:
        tell([numbers(batch) for batch in DataLoader(samples, batch_size=2, batch_sampler=None)])
    except (TypeError, ValueError) as error:
        tell(str(error))
    """
)


@demonstrated_by(GENERATOR_AS_DATASET, hang_s=HANG_S)
def test_paddle_hangs_or_ends_with_a_generator_as_dataset(verdict: Verdict) -> None:
    assert verdict.is_hung or verdict.exit_code, verdict.story()


@proved_by(GENERATOR_AS_DATASET)
def test_generator_as_dataset_gives_its_samples_or_a_clear_refusal(verdict: Verdict) -> None:
    assert verdict.result == [[0, 1], [2, 3]] or "generator" in verdict.result
