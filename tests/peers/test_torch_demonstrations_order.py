"""Orders, seeds and shards: costs and repetitions of PyTorch 2.13, and the same programs here.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Verdict, demonstrated_by, proved_by
from tests.peers.test_torch_demonstrations_errors import HEAD, story

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(150)]

AUGMENTATION = story(
    HEAD
    + """
    class Augmented(Rows):
        def sample(self, index):
            return torch.rand(())

    seed = {} if DataLoader.__module__.startswith("torch") else {"seed": 3}
    found = []
    for workers in (0, 1, 2):
        torch.manual_seed(3)
        found.append(all_of(DataLoader(Augmented(), 2, True, num_workers=workers, **seed)))
    tell(found)
    """
)


@demonstrated_by(AUGMENTATION)
def test_augmentation_of_pytorch_depends_on_the_number_of_workers(verdict: Verdict) -> None:
    none, one, two = verdict.result
    assert one != two
    assert none != one


@proved_by(AUGMENTATION)
def test_augmentation_depends_on_the_seed_and_not_on_the_workers(verdict: Verdict) -> None:
    none, one, two = verdict.result
    assert none == one == two
    assert len({value for batch in none for value in batch}) == 8


SHUFFLE_MEMORY = story(
    HEAD
    + """
    import tracemalloc

    class Long(Rows):
        def __len__(self):
            return 1_000_000

    seed = {} if DataLoader.__module__.startswith("torch") else {"seed": 3}
    found = []
    for options in ({}, seed):
        tracemalloc.start()
        batches = iter(DataLoader(Long(), 4, True, **options))
        next(batches)
        found.append(tracemalloc.get_traced_memory()[1] >> 20)
        tracemalloc.stop()
    tell(found)
    """
)


@demonstrated_by(SHUFFLE_MEMORY)
def test_pytorch_makes_a_python_int_of_every_index_before_the_first_batch(
    verdict: Verdict,
) -> None:
    assert verdict.result[0] >= 30  # MiB: 1e6 ints of 28 bytes, and a list of them


@proved_by(SHUFFLE_MEMORY)
def test_shuffle_makes_no_python_int_before_it_is_needed(verdict: Verdict) -> None:
    assert max(verdict.result) <= 8


LONG_SHUFFLE = story(
    HEAD
    + """
    import tracemalloc

    class Long(Rows):
        def __len__(self):
            return 10**9

    tracemalloc.start()
    batches = iter(DataLoader(Long(), 4, True, seed=3))
    first = numbers(next(batches))
    tell([len(set(first)), max(first) < 10**9, tracemalloc.get_traced_memory()[1] >> 20])
    """
)


@proved_by(LONG_SHUFFLE)
def test_shuffle_of_a_billion_with_a_seed_begins_at_once_and_needs_no_memory(
    verdict: Verdict,
) -> None:
    distinct, is_in_range, mebibytes = verdict.result
    assert (distinct, is_in_range) == (4, True)
    assert mebibytes <= 2


MODULE_GENERATOR = story(
    HEAD
    + """
    import numpy as np
    rng = np.random.default_rng(0)

    class Augmented(Rows):
        def sample(self, index):
            own = rng
            if not DataLoader.__module__.startswith("torch"):
                import reader
                own = reader.sample_rng(index)
            return float(own.random())

    seed = {} if DataLoader.__module__.startswith("torch") else {"seed": 3}
    found = all_of(DataLoader(Augmented(), num_workers=4, **seed))
    tell(len({value for batch in found for value in batch}))
    """
)


@demonstrated_by(MODULE_GENERATOR)
def test_generator_of_a_module_repeats_in_every_worker_of_pytorch(verdict: Verdict) -> None:
    assert verdict.result == 2


@proved_by(MODULE_GENERATOR)
def test_generator_of_each_sample_repeats_nothing(verdict: Verdict) -> None:
    assert verdict.result == 8


NAIVE_STREAM = story(
    HEAD
    + """
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(4))

    class Sharded(IterableDataset):
        def __iter__(self):
            import reader
            return iter(reader.shard(range(4)))

    naive = sorted(all_of(DataLoader(Stream(), num_workers=2)))
    ours = not DataLoader.__module__.startswith("torch")
    tell([naive, sorted(all_of(DataLoader(Sharded(), num_workers=2))) if ours else None])
    """
)


@demonstrated_by(NAIVE_STREAM)
def test_streams_that_ignore_workers_are_repeated_by_pytorch(verdict: Verdict) -> None:
    assert verdict.result == [[[0], [0], [1], [1], [2], [2], [3], [3]], None]


@proved_by(NAIVE_STREAM)
def test_streams_are_repeated_as_by_pytorch_unless_they_are_sharded(verdict: Verdict) -> None:
    naive, sharded = verdict.result
    assert naive == [[0], [0], [1], [1], [2], [2], [3], [3]]
    assert sharded == [[0], [1], [2], [3]]


ONE_SHOT = story(
    HEAD
    + """
    loader = DataLoader(Rows(), sampler=iter([1, 2, 3]), num_workers=1)
    tell([all_of(loader, 5), len(all_of(loader, 1))])
    """
)


@demonstrated_by(ONE_SHOT)
def test_exhausted_sampler_is_a_silent_empty_epoch_in_pytorch(verdict: Verdict) -> None:
    assert verdict.result == [[[1], [2], [3]], 0]


@proved_by(ONE_SHOT)
def test_exhausted_sampler_is_an_error(verdict: Verdict) -> None:
    assert verdict.exit_code != 0 or verdict.result[1] == 1, verdict.story()
