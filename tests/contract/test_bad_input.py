"""Bad input is refused as early as possible, with value and remedy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, DataLoader, ReaderError
from tests.datasets import NoLength, Rows
from tests.names import shown

# name of the argument -> (value, whether its type is wrong, part of the text)
WRONG: list[tuple[str, Any, bool, str]] = [
    ("batch_size", 0, False, "batch_size must be an int of 1 or more, got 0"),
    ("batch_size", -3, False, "got -3"),
    ("batch_size", 2.0, True, r"got 2\.0 \(float\)"),
    ("batch_size", "4", True, r"got '4' \(str\)"),
    ("batch_size", True, True, "got True"),
    ("num_workers", -1, False, "num_workers must be an int of 0 or more, got -1"),
    ("num_workers", None, True, "got None"),
    ("num_workers", 1.5, True, r"got 1\.5"),
    ("prefetch_factor", 0, False, "prefetch_factor must be an int of 1 or more"),
    ("prefetch_factor", None, True, "prefetch_factor"),
    ("timeout", -1, False, "timeout must be a number of seconds"),
    ("timeout", float("nan"), False, "nan"),
    ("timeout", float("inf"), False, "inf"),
    ("timeout", "5", True, "'5'"),
    ("timeout", None, True, "None"),
    ("shuffle", 1, True, "shuffle must be a bool, got 1"),
    ("shuffle", "yes", True, "'yes'"),
    ("drop_last", None, True, "drop_last must be a bool, got None"),
    ("return_list", 0, True, "return_list"),
    ("persistent_workers", 2, True, "persistent_workers"),
    ("collate_fn", 5, True, "collate_fn must be callable or None, got 5"),
    ("worker_init_fn", "f", True, "worker_init_fn must be callable or None, got 'f'"),
    ("seed", -1, False, "seed"),
    ("seed", 2**64, False, "seed"),
    ("seed", 1.0, True, "seed"),
    ("framework", "tensorflow", False, "'numpy', 'paddle', 'torch', got 'tensorflow'"),
    ("framework", None, True, "framework"),
    ("places", "gpu:0", False, "places"),
    ("places", "tpu", False, "arrays of NumPy lie on the CPU. places='tpu:0'"),
    ("places", "tpu 1", False, "there is no place 'tpu 1'"),
    ("pin_limit", 100, False, "pin_limit must be 0, None, or at least one page"),
    ("pin_limit", -1, False, "pin_limit"),
    ("places", "cpu:1", False, "there is no place 'cpu:1'"),
    ("places", [], False, "at least one place"),
    ("places", ["cpu", 5], True, "got 5"),
    ("drop_last_group", 1, True, "drop_last_group must be a bool, got 1"),
    ("prefetch_next_epoch", 1, True, "prefetch_next_epoch must be a bool"),
    ("use_shared_memory", None, True, "use_shared_memory must be a bool"),
    ("use_buffer_reader", 2, True, "use_buffer_reader must be a bool"),
    ("reader_buffer_size", -1, False, "reader_buffer_size must be an int of 0 or more"),
    ("start_method", "thread", False, "start_method must be None or one of"),
    ("start_method", 1, True, "start_method"),
    ("worker_retries", -1, False, "worker_retries"),
    ("worker_retries", None, True, "worker_retries"),
    ("max_bytes", 0, False, "max_bytes"),
    ("max_bytes", 0.5, True, "max_bytes"),
    ("sampler", 5, True, "sampler must be an iterable"),
    ("sampler", "abc", True, "sampler"),
    ("sampler", iter([1, 2]), False, "fresh iterator"),
    ("batch_sampler", 5, True, "batch_sampler must be an iterable"),
    ("batch_sampler", (b for b in [[1]]), False, "fresh iterator"),
    ("feed_list", "x", True, "feed_list"),
    ("feed_list", [], False, "feed_list"),
    ("feed_list", [5], True, "position 0"),
]


@pytest.mark.parametrize(
    ("name", "value", "is_type", "text"), WRONG, ids=[shown(f"{w[0]}={w[1]!r}")[:40] for w in WRONG]
)
def test_wrong_argument_is_refused_by_name_and_value(
    name: str, value: Any, is_type: bool, text: str
) -> None:
    with pytest.raises(ConfigTypeError if is_type else ConfigError, match=text) as info:
        DataLoader(Rows(8), **{name: value})
    assert name in str(info.value)
    assert isinstance(info.value, TypeError) == is_type
    assert isinstance(info.value, ValueError)
    assert len(str(info.value).split(". ")) >= 2, "it says what to do instead"


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"sampler": [1], "shuffle": True}, "sampler.*shuffle"),
    ({"batch_sampler": [[1]], "batch_size": 4}, "batch_sampler.*batch_size=4"),
    ({"batch_sampler": [[1]], "shuffle": True}, "batch_sampler.*shuffle"),
    ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler.*drop_last"),
    ({"batch_sampler": [[1]], "sampler": [1]}, "batch_sampler.*sampler"),
    ({"batch_sampler": [[1]], "batch_size": None}, "batch_size=None.*batch_sampler"),
    ({"batch_size": None, "drop_last": True}, "drop_last=True.*batch_size=None"),
    ({"num_workers": 0, "start_method": "fork"}, "start_method='fork'.*num_workers=0"),
    ({"return_list": False}, "return_list=False.*feed_list"),
    ({"feed_list": ["x"]}, 'framework="paddle"'),
    ({"feed_list": ["x", "x"], "framework": "paddle"}, "distinct.*'x'"),
]


@pytest.mark.parametrize(
    ("options", "text"), CONTRADICTIONS, ids=["+".join(c[0]) for c in CONTRADICTIONS]
)
def test_contradictory_arguments_are_refused_together(options: dict[str, Any], text: str) -> None:
    pytest.importorskip(options.get("framework", "numpy"))
    with pytest.raises(ConfigError, match=text):
        DataLoader(Rows(8), **options)


class NoItems:
    def __len__(self) -> int:
        return 5


class OddLen(Rows):
    def __init__(self, length: Any) -> None:
        super().__init__(4)
        self.length = length

    def __len__(self) -> int:
        return self.length  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("dataset", "kind", "text"),
    [
        (NoLength(), ConfigTypeError, "without __len__"),
        (NoItems(), ConfigTypeError, "without __getitem__"),
        (5, ConfigTypeError, "got 5"),
        (None, ConfigTypeError, "None"),
        (Rows, ConfigTypeError, r"class Rows.*Rows\(\.\.\.\)"),
        (
            "data.csv",
            ConfigTypeError,
            r"hold samples, got 'data\.csv' \(str\), which holds characters\. Open",
        ),
        (b"abc", ConfigTypeError, r"got b'abc' \(bytes\), which holds bytes.*or pass list\(text\)"),
        (Path("data"), ConfigTypeError, r"got PosixPath\('data'\).*reader\.TableRows"),
        ((x for x in [1]), ConfigTypeError, "one-shot iterator"),
        (iter([1]), ConfigTypeError, "one-shot iterator"),
        (OddLen(-1), ConfigError, r"len\(dataset\).*-1"),
        (OddLen(2.5), ConfigTypeError, r"2\.5"),
        (OddLen("4"), ConfigTypeError, "'4'"),
    ],
    ids=lambda each: shown(repr(each)),
)
def test_wrong_dataset_is_refused(dataset: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        DataLoader(dataset)


def test_dataset_without_len_works_with_a_sampler() -> None:
    for options in ({"sampler": [4, 2], "batch_size": 2}, {"batch_sampler": [[4, 2]]}):
        for workers in (0, 1):
            with DataLoader(NoLength(), num_workers=workers, **options) as loader:  # type: ignore[arg-type]
                assert [batch.tolist() for batch in loader] == [[4, 2]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shuffle": True}, "shuffle=True chooses indices"),
        ({"sampler": [0]}, r"sampler=\[0\] chooses indices"),
        ({"batch_sampler": [[0]]}, r"batch_sampler=\[\[0\]\] chooses indices"),
    ],
)
def test_options_about_indices_are_refused_for_an_iterable_dataset(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        DataLoader({1, 2}, **options)


def test_prefetching_the_next_epoch_needs_workers_that_stay() -> None:
    for options in ({}, {"num_workers": 1}, {"persistent_workers": True}):
        with pytest.raises(ConfigError, match="prefetch_next_epoch"):
            DataLoader(Rows(8), prefetch_next_epoch=True, **options)  # type: ignore[arg-type]


def test_map_datasets_and_samplers_of_torch_and_paddle_work() -> None:
    data = pytest.importorskip("torch.utils.data")
    io = pytest.importorskip("paddle.io")
    torch = pytest.importorskip("torch")
    table = data.TensorDataset(torch.arange(8.0), torch.arange(8))
    sampler = data.SequentialSampler(table)
    for options in (
        {"sampler": sampler, "batch_size": 4},
        {"batch_sampler": data.BatchSampler(sampler, 4, False)},
        {"batch_sampler": io.BatchSampler(table, batch_size=4)},
        {"batch_size": 4},
    ):
        with DataLoader(table, num_workers=1, framework="torch", **options) as loader:  # type: ignore[arg-type]
            assert [labels.tolist() for _, labels in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_unknown_argument_is_refused_by_python() -> None:
    with pytest.raises(TypeError, match="numworkers"):
        DataLoader(Rows(8), numworkers=2)  # type: ignore[call-arg]


def test_integers_of_numpy_pass_wherever_an_integer_does() -> None:
    with DataLoader(
        Rows(8), batch_size=np.int64(4), num_workers=np.uint8(1), prefetch_factor=np.int32(3),
        seed=np.uint64(2**64 - 1), timeout=np.float32(20), shuffle=np.bool_(True),
    ) as loader:  # fmt: skip
        assert len(list(loader)) == 2


def test_refused_loader_leaves_nothing_and_starts_nothing() -> None:
    before = threading.active_count()
    for _ in range(20):
        with pytest.raises(ConfigError):
            DataLoader(Rows(8), num_workers=2, batch_size=0)
    assert threading.active_count() == before


def test_every_refusal_belongs_to_the_family_of_the_package() -> None:
    for options in ({"batch_size": 0}, {"batch_size": "x"}, {"sampler": 5}):
        with pytest.raises(ReaderError):
            DataLoader(Rows(8), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["num_workers", "dataset", "batch_size", "drop_last", "config"])
def test_setting_a_fixed_attribute_is_refused(name: str) -> None:
    with DataLoader(Rows(8), batch_size=4) as loader:
        before = getattr(loader, name)
        with pytest.raises(AttributeError, match=f"{name} of a DataLoader is fixed"):
            setattr(loader, name, 3)
        assert getattr(loader, name) is before
        loader.batch_sampler = [[1], [2]]
        assert len(list(loader)) == len(loader) == 2


def test_samplers_are_replaced_where_the_loader_draws_from_them() -> None:
    with DataLoader(range(6), batch_size=2) as loader:
        loader.sampler = [5, 4, 3]
        assert [batch.tolist() for batch in loader] == [[5, 4], [3]]
        assert len(loader) == 2
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        other = DataLoader(range(6), batch_size=2, sampler=[5, 4, 3])
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == [[3]]
        del batches
        for value in (None, 3, iter([1])):
            with pytest.raises(ConfigError, match="sampler must"):
                loader.sampler = value
            with pytest.raises(ConfigError, match="batch_sampler must"):
                loader.batch_sampler = value
    loader = DataLoader(range(6), batch_size=None)
    loader.sampler = [5, 4]
    assert list(loader) == [5, 4]
    with pytest.raises(ConfigError, match=r"batch_size=None.*takes no batch_sampler"):
        loader.batch_sampler = [[5, 4]]
    loader = DataLoader(range(6), batch_sampler=[[1], [2]])
    with pytest.raises(ConfigError, match=r"does not ask loader\.sampler\. Replace loader\.batch"):
        loader.sampler = [5, 4]
    stream: Any = DataLoader({1, 2})  # type: ignore[var-annotated]
    for name in ("sampler", "batch_sampler"):
        with pytest.raises(ConfigError, match="the dataset is iterated over, and has no indices"):
            setattr(stream, name, [[1]])


def test_faces_of_libraries_take_a_string_as_samples() -> None:
    import torch.utils.data

    import reader.compat.paddle
    import reader.compat.torch

    wanted = [["a", "b"], ["c"]]
    theirs: Any = torch.utils.data.DataLoader("abc", batch_size=2)  # type: ignore[arg-type,var-annotated]
    ours: Any = reader.compat.torch.DataLoader("abc", batch_size=2)
    assert list(ours) == list(theirs) == wanted
    # Paddle's own yields nothing: it drops batches without a tensor
    assert list(reader.compat.paddle.DataLoader("abc", batch_size=2)) == wanted
