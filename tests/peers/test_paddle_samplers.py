"""The samplers of the face beside paddle.io's: same draws, same lengths, same refusals.

Imports paddle and the face. Tests marked as a demonstration show what paddle.io 3.3.1 does
wrong; the test after each shows what we do.
"""

from __future__ import annotations

import pickle
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import paddle.io
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reader
from reader.compat import paddle as paddle_face
from reader.compat.paddle import datasets, samplers
from reader.compat.paddle.errors import ArgumentError
from tests.peers.program import demonstration

pytestmark = pytest.mark.peer

OURS = SimpleNamespace(**{name: getattr(samplers, name) for name in samplers.__all__})
MODULES = (paddle.io, OURS)


def told(act: Callable[[Any], Any], module: Any) -> Any:
    """Return the result or error of `act` with the samplers of `module`, from one global seed."""
    np.random.seed(3)
    paddle.seed(5)
    try:
        return act(module)
    except Exception as error:
        return error


def agree(act: Callable[[Any], Any]) -> Any:
    """Assert that both give the same, then leave the generators in the same state."""
    theirs, ours = told(act, paddle.io), None
    state = np.random.get_state(legacy=False)
    ours = told(act, OURS)
    if isinstance(theirs, Exception):
        sentence = str(theirs).removesuffix("!").removesuffix(".")
        assert isinstance(ours, type(theirs)), repr(ours)
        assert isinstance(ours, reader.ReaderError)
        assert str(ours).startswith(sentence)
        assert len(str(ours)) > len(sentence) + 10
    else:
        assert repr(ours) == repr(theirs)
        assert repr(np.random.get_state(legacy=False)) == repr(state)
    return ours


def epochs(sampler: Any, count: int = 2) -> list[Any]:
    return [list(sampler) for _ in range(count)] + [len(sampler)]


@given(count=st.integers(1, 5000), data=st.data())
def test_random_sampler_draws_what_paddle_draws(count: int, data: Any) -> None:
    replacement = data.draw(st.booleans())
    limit = 6000 if replacement else count
    num_samples = data.draw(st.none() | st.integers(1, limit))
    agree(lambda m: epochs(m.RandomSampler(range(count), replacement, num_samples)))


@pytest.mark.parametrize("module", MODULES)
def test_random_sampler_draws_when_its_first_index_is_taken(module: Any) -> None:
    iterator = iter(module.RandomSampler(range(100)))
    np.random.seed(1)
    late = list(iterator)
    np.random.seed(1)
    assert late == np.random.permutation(100).tolist()


def test_random_sampler_follows_a_growing_data_source() -> None:
    def act(module: Any) -> Any:
        source = [1, 2]
        sampler = module.RandomSampler(source)
        first = epochs(sampler)
        source.append(3)
        return first, epochs(sampler)

    agree(act)


def test_random_sampler_takes_the_indices_of_a_generator() -> None:
    agree(lambda m: list(m.RandomSampler(range(9), False, 3, iter([7, 5, 3, 1]))))
    agree(lambda m: list(m.RandomSampler(range(2), True, 4, iter([7, 5, 3, 1]))))


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.RandomSampler(range(5), 1),
        lambda m: m.RandomSampler(range(5), None),
        lambda m: m.RandomSampler(range(5), False, 9),
        lambda m: m.RandomSampler(range(5), False, 0),
        lambda m: m.RandomSampler(range(5), True, -1),
        lambda m: m.RandomSampler(range(5), True, 2.5),
        lambda m: m.RandomSampler(range(5), True, "2"),
        lambda m: m.RandomSampler(range(5), False, 2.5),
        lambda m: m.RandomSampler([]),
        lambda m: m.WeightedRandomSampler([1], 0),
        lambda m: m.WeightedRandomSampler([1], 1.5),
        lambda m: m.WeightedRandomSampler([1], None),
        lambda m: m.WeightedRandomSampler([1], 1, 1),
        lambda m: list(m.WeightedRandomSampler(np.array([1.0, -1]), 1)),
        lambda m: list(m.WeightedRandomSampler(np.array([1.0, np.nan]), 1)),
        lambda m: list(m.WeightedRandomSampler(np.array([1.0, np.inf]), 1)),
        lambda m: list(m.WeightedRandomSampler(np.zeros(3), 1)),
        lambda m: list(m.WeightedRandomSampler(np.array([[1, 2], [0, 0]]), 1)),
        lambda m: list(m.WeightedRandomSampler(np.array([1.0, 0]), 2, False)),
        lambda m: list(m.WeightedRandomSampler(np.ones((1, 1, 1)), 1)),
        lambda m: m.SubsetRandomSampler([]),
        lambda m: m.BatchSampler(),
        lambda m: m.BatchSampler(range(5), range(5)),
        lambda m: m.BatchSampler(sampler=range(5), shuffle=True),
        lambda m: m.BatchSampler(sampler=3),
        lambda m: m.BatchSampler(range(5), shuffle=1),
        lambda m: m.BatchSampler(range(5), batch_size=0),
        lambda m: m.BatchSampler(range(5), batch_size=2.5),
        lambda m: m.BatchSampler(range(5), batch_size=np.int64(2)),
        lambda m: m.BatchSampler(range(5), drop_last=1),
        lambda m: m.BatchSampler([], shuffle=True),
        lambda m: m.DistributedBatchSampler(range(5), 0),
        lambda m: m.DistributedBatchSampler(range(5), 2.0),
        lambda m: m.DistributedBatchSampler(range(5), 2, shuffle=1),
        lambda m: m.DistributedBatchSampler(range(5), 2, drop_last=1),
        lambda m: m.DistributedBatchSampler(range(5), 2, 0),
        lambda m: m.DistributedBatchSampler(range(5), 2, 1.5),
        lambda m: m.DistributedBatchSampler(range(5), 2, 1, -1),
        lambda m: m.DistributedBatchSampler(range(5), 2, 1, "0"),
    ],
)
def test_what_paddle_refuses_is_refused_with_its_sentence_and_a_remedy(
    act: Callable[[Any], Any],
) -> None:
    assert isinstance(agree(act), reader.ConfigError)


def test_batch_sampler_of_an_iterable_dataset_is_refused() -> None:
    class Stream(paddle.io.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            yield 1

    assert isinstance(agree(lambda m: m.BatchSampler(Stream())), ArgumentError)

    class Own(reader.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield 1

    with pytest.raises(ArgumentError, match=r"^dataset should not be a paddle.io.IterableDataset"):
        samplers.BatchSampler(Own())  # type: ignore[arg-type]


@given(
    weights=st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=40).filter(any),
    dtype=st.sampled_from(["float32", "float64"]),
    data=st.data(),
)
def test_weighted_sampler_draws_what_paddle_draws(
    weights: list[float], dtype: str, data: Any
) -> None:
    replacement = data.draw(st.booleans())
    limit = 100 if replacement else sum(weight > 0 for weight in weights)
    num_samples = data.draw(st.integers(1, limit))
    array = np.array(weights, dtype)
    agree(lambda m: epochs(m.WeightedRandomSampler(array, num_samples, replacement)))


def test_weighted_sampler_draws_what_paddle_draws_for_rows_that_sum_to_one() -> None:
    rows = np.array([[0.25, 0.75], [0.5, 0.5]])
    agree(lambda m: epochs(m.WeightedRandomSampler(rows, 7)))
    agree(lambda m: epochs(m.WeightedRandomSampler(np.array([3, 1, 2]), 7)))


@pytest.mark.parametrize("indices", [[7, 5, 3], (1, 1, 2), range(50), np.arange(9) * 2])
def test_subset_sampler_draws_what_paddle_draws(indices: Any) -> None:
    agree(lambda m: [list(map(int, one)) for one in (m.SubsetRandomSampler(indices),) * 2])
    assert len(samplers.SubsetRandomSampler(indices)) == len(indices)


@given(
    count=st.integers(0, 60),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_batches_are_paddles(count: int, batch_size: int, shuffle: bool, drop_last: bool) -> None:
    def act(module: Any) -> Any:
        return epochs(module.BatchSampler(range(count), None, shuffle, batch_size, drop_last))

    agree(act)
    samples = list(range(count))
    options = {"batch_size": batch_size, "drop_last": drop_last}
    agree(lambda m: epochs(m.BatchSampler(sampler=samples, **options)))


@pytest.mark.parametrize("size", [1, 3])
def test_steps_that_are_gathered_make_longer_batches(size: int) -> None:
    def act(module: Any) -> Any:
        found = []
        for sampler in (
            module.BatchSampler(range(11), batch_size=2),
            module.DistributedBatchSampler(range(11), 2, 2, 1),
        ):
            sampler._acc_steps = size  # as Paddle's automatic parallelism does
            found.append(epochs(sampler))
        return found

    agree(act)


@given(
    count=st.integers(0, 60),
    batch_size=st.integers(1, 9),
    num_replicas=st.integers(1, 6),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_split_over_ranks_is_paddles(
    count: int, batch_size: int, num_replicas: int, shuffle: bool, drop_last: bool, data: Any
) -> None:
    rank = data.draw(st.integers(0, num_replicas - 1))

    def act(module: Any) -> Any:
        sampler = module.DistributedBatchSampler(
            range(count), batch_size, num_replicas, rank, shuffle, drop_last
        )
        first = epochs(sampler)
        sampler.set_epoch(11)
        names = "nranks local_rank epoch num_samples total_size shuffle drop_last batch_size"
        return first, epochs(sampler), [getattr(sampler, name) for name in names.split()]

    agree(act)


def test_ranks_come_from_the_environment_as_paddle_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agree(lambda m: epochs(m.DistributedBatchSampler(range(9), 2)))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    batches = agree(lambda m: epochs(m.DistributedBatchSampler(range(9), 2)))
    assert batches[0] == [[4, 5], [8]]


@pytest.mark.parametrize("module", MODULES)
def test_epoch_is_counted_when_the_first_batch_is_taken(module: Any) -> None:
    sampler = module.DistributedBatchSampler(range(9), 2, 1, 0, shuffle=True)
    iterator = iter(sampler)
    assert sampler.epoch == 0
    next(iterator)
    assert sampler.epoch == 1


def made() -> list[Any]:
    return [
        samplers.SequenceSampler("abc"),
        samplers.RandomSampler("abc"),
        samplers.WeightedRandomSampler([1.0, 2.0], 3),
        samplers.SubsetRandomSampler([4, 5]),
        samplers.BatchSampler("abc", batch_size=2),
        samplers.DistributedBatchSampler("abc", 2, 1, 0, shuffle=True),
    ]


@pytest.mark.parametrize("sampler", made(), ids=lambda sampler: type(sampler).__name__)
def test_sampler_is_paddles_class_and_survives_pickle(sampler: Any) -> None:
    assert isinstance(sampler, getattr(paddle.io, type(sampler).__name__))
    assert isinstance(sampler, samplers.Sampler)
    np.random.seed(1)
    paddle.seed(1)
    copy = pickle.loads(pickle.dumps(sampler))
    orders = []
    for one in (sampler, copy):
        np.random.seed(1)
        paddle.seed(1)
        orders.append(list(one))
    assert (type(copy), orders[0]) == (type(sampler), orders[1])


def test_distributed_sampler_is_a_batch_sampler_of_the_face() -> None:
    assert issubclass(samplers.DistributedBatchSampler, samplers.BatchSampler)


def test_batch_sampler_takes_samplers_of_paddle_and_of_the_engine() -> None:
    for sampler in (paddle.io.SequenceSampler(range(5)), reader.SequenceSampler(range(5))):
        batches = samplers.BatchSampler(sampler=sampler, batch_size=3)
        assert epochs(batches) == [[[0, 1, 2], [3, 4]]] * 2 + [2]


def test_batches_of_the_face_open_at_any_position() -> None:
    for make in (
        lambda: samplers.BatchSampler(range(10), batch_size=3),
        lambda: samplers.DistributedBatchSampler(range(20), 2, 2, 1, shuffle=True),
    ):
        whole = list(make())
        assert [list(make().iter_from(n)) for n in range(5)] == [whole[n:] for n in range(5)]


def test_abstract_sampler_raises_what_paddles_does() -> None:
    assert samplers.Sampler([1]).data_source == [1]
    with pytest.raises(NotImplementedError):
        iter(samplers.Sampler())
    assert not hasattr(samplers.Sampler, "__len__")


def test_subclass_that_overrides_iteration_finds_paddles_attributes() -> None:
    class Own(samplers.DistributedBatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            yield list(range(self.local_rank, self.total_size, self.nranks))

    assert list(Own(range(6), 2, 2, 1)) == [[1, 3, 5]]


@demonstration
def test_paddle_ends_an_epoch_early_when_the_generator_of_indices_is_exhausted() -> None:
    sampler = paddle.io.RandomSampler(range(4), generator=iter([3, 2, 1, 0, 3]))  # type: ignore
    assert (list(sampler), list(sampler), len(sampler)) == ([3, 2, 1, 0], [3], 4)


def test_exhausted_generator_of_indices_ends_the_epoch_as_in_paddle_with_a_warning() -> None:
    for module in MODULES:
        sampler = module.RandomSampler(range(4), generator=iter([3, 2, 1, 0, 3]))
        found = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = [list(sampler) for _ in range(3)]
        assert found == [[3, 2, 1, 0], [3], []]
        texts = [str(each.message) for each in told]
        if module is OURS:
            assert len(texts) == 2
            assert "ended after 1 of num_samples=4 indices, and the epoch ends there" in texts[0]
            assert "ended after 0 of num_samples=4 indices, and the epoch ends there" in texts[1]


def test_loader_of_a_sampler_that_ends_early_ends_its_epoch_there() -> None:
    for workers in (0, 2):
        sampler = samplers.RandomSampler(range(9), generator=iter([8, 1, 2]))
        batches = samplers.BatchSampler(sampler=sampler, batch_size=2)
        loader = paddle_face.DataLoader(
            list(range(9)), batch_sampler=batches, num_workers=workers, return_list=True
        )
        with loader, pytest.warns(UserWarning, match="ended after 3 of num_samples=9"):
            assert [batch.tolist() for batch in loader] == [[8, 1], [2]]


def test_generator_that_is_no_iterator_is_refused() -> None:
    with pytest.raises(reader.ConfigTypeError, match=r"generator must be an iterator .* got 5"):
        samplers.RandomSampler(range(4), generator=5)  # type: ignore[arg-type]


def test_data_source_that_became_empty_is_an_error() -> None:
    sampler = samplers.RandomSampler([], True, 3)
    with pytest.raises(reader.SamplerError, match=r"num_samples=3 .* length 0"):
        list(sampler)


def peak_of(sampler: Any) -> int:
    tracemalloc.start()
    try:
        for _ in sampler:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


COUNT = 200_000


@demonstration
def test_paddle_keeps_every_index_of_an_epoch_as_a_python_number() -> None:
    assert peak_of(paddle.io.RandomSampler(range(COUNT))) > 30 * COUNT


def test_random_sampler_keeps_eight_bytes_for_each_index() -> None:
    assert peak_of(samplers.RandomSampler(range(COUNT))) < 9 * COUNT + (1 << 20)


@demonstration
def test_paddle_does_not_know_the_length_for_weights_in_a_list() -> None:
    with pytest.raises(AttributeError, match="shape"):
        len(paddle.io.WeightedRandomSampler([1.0, 2.0], 3))


def test_length_is_known_for_weights_in_a_list() -> None:
    assert len(samplers.WeightedRandomSampler([1.0, 2.0], 3)) == 3
    assert len(samplers.WeightedRandomSampler([[1.0], [2.0]], 3)) == 6
    assert len(list(samplers.WeightedRandomSampler([1.0, 2.0], 3))) == 3


ROWS = np.array([[1.0, 0, 0], [0, 2, 2]])
SQUARE = np.array([[4.0, 0], [0, 2]])


@demonstration
@pytest.mark.parametrize(
    ("rows", "match"), [(ROWS, "broadcast"), (np.array([[1.0, 3], [2, 2.5]]), "not sum to 1")]
)
def test_paddle_normalises_rows_of_weights_along_the_wrong_axis(rows: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        list(paddle.io.WeightedRandomSampler(rows, 4))


def test_each_row_of_weights_is_normalised_by_itself() -> None:
    drawn = list(samplers.WeightedRandomSampler(ROWS, 4))
    assert (drawn[:4], set(drawn[4:]) <= {1, 2}) == ([0] * 4, True)
    assert list(samplers.WeightedRandomSampler(SQUARE, 2)) == [0, 0, 1, 1]


@demonstration
def test_paddle_refuses_the_tensor_of_weights_that_its_documentation_allows() -> None:
    with pytest.raises(AssertionError, match=r"should be paddle\.Tensor"):
        list(paddle.io.WeightedRandomSampler(paddle.to_tensor([0.0, 1.0]), 2))


def test_weights_may_be_a_tensor() -> None:
    assert list(samplers.WeightedRandomSampler(paddle.to_tensor([0.0, 1.0]), 2)) == [1, 1]


@pytest.mark.parametrize("weights", [["a"], [[1], [1, 2]], None])
def test_weights_that_are_no_numbers_are_refused(weights: Any) -> None:
    with pytest.raises(reader.ConfigTypeError, match="weights must be an array of numbers"):
        list(samplers.WeightedRandomSampler(weights, 1))


@pytest.mark.parametrize("weights", [[], 3.0])
def test_weights_without_a_sample_are_refused(weights: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^weights should be a 1-D or 2-D array: got shape"):
        list(samplers.WeightedRandomSampler(weights, 1))


class Asked(list[int]):
    def __init__(self, *items: int) -> None:
        super().__init__(items)
        self.kinds: set[type] = set()

    def __getitem__(self, index: Any) -> Any:
        self.kinds.add(type(index))
        return super().__getitem__(index)


@demonstration
def test_paddle_asks_for_each_index_of_a_subset_by_a_tensor() -> None:
    indices = Asked(1, 2, 3)
    list(paddle.io.SubsetRandomSampler(indices))
    assert indices.kinds == {paddle.Tensor}


def test_indices_of_a_subset_are_asked_for_by_numbers() -> None:
    indices = Asked(1, 2, 3)
    assert sorted(samplers.SubsetRandomSampler(indices)) == [1, 2, 3]
    assert indices.kinds == {int}


@demonstration
def test_paddle_fails_without_a_text_and_late_for_a_rank_that_does_not_exist() -> None:
    sampler = paddle.io.DistributedBatchSampler(range(6), 2, 2, 2)
    with pytest.raises(AssertionError, match=r"^$"):
        list(sampler)


def test_rank_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(ArgumentError, match=r"got rank=2 with num_replicas=2\. .* 0 to 1"):
        samplers.DistributedBatchSampler(range(6), 2, 2, 2)


@demonstration
def test_paddle_makes_empty_epochs_of_an_exhausted_one_shot_sampler() -> None:
    sampler = paddle.io.BatchSampler(sampler=iter(range(3)), batch_size=2)
    assert [list(sampler), list(sampler)] == [[[0, 1], [2]], []]


def test_one_shot_sampler_works_for_one_epoch_and_is_an_error_in_the_next() -> None:
    sampler = samplers.BatchSampler(sampler=iter(range(3)), batch_size=2)
    assert list(sampler) == [[0, 1], [2]]
    with pytest.raises(reader.SamplerError, match=r"one-shot iterator, .* fresh iterator for each"):
        list(sampler)


@demonstration
def test_paddle_refuses_bad_arguments_by_assert_alone(fresh_optimised: Any) -> None:
    assert fresh_optimised("paddle.io") == "accepted"


@pytest.mark.nightly
def test_bad_arguments_are_refused_without_asserts_too(fresh_optimised: Any) -> None:
    assert fresh_optimised("reader.compat.paddle.samplers") == "refused"


@pytest.fixture
def fresh_optimised() -> Callable[[str], str]:
    import subprocess
    import sys

    from tests.peers.program import ROOT

    def run(module: str) -> str:
        text = (
            f"from {module} import BatchSampler\n"
            "try: BatchSampler(range(5), drop_last=3)\n"
            "except ValueError: print('refused')\n"
            "else: print('accepted')\n"
        )
        command = [sys.executable, "-O", "-W", "ignore", "-c", text]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_static_mode_draws_an_order_and_adds_nothing_to_the_program() -> None:
    paddle.enable_static()
    try:
        paddle.seed(7)
        first = list(samplers.SubsetRandomSampler(range(20)))
        paddle.seed(7)
        again = list(samplers.SubsetRandomSampler(range(20)))
        parts = datasets.random_split(list(range(20)), [5, 15])
        assert len(paddle.static.default_main_program().global_block().ops) == 0
    finally:
        paddle.disable_static()
    assert first == again
    assert sorted(first) == list(range(20))
    assert sorted(index for part in parts for index in part.indices) == list(range(20))
