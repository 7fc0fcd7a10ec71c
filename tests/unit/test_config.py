"""Every argument of a loader is checked, alone and against the others, with value and remedy."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest

from reader import DataLoader
from reader.checks import as_bool, as_int, as_reiterable
from reader.config import LoaderConfig
from reader.errors import ConfigError, ConfigTypeError
from reader.places import CPU, Place
from tests.datasets import NoLength

DATASET = [10, 11, 12]


def build(**options: Any) -> LoaderConfig:
    return LoaderConfig.build(DATASET, **options)


@pytest.fixture
def with_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that every framework is installed, without importing one."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_defaults_are_those_of_the_loader() -> None:
    config = build()
    assert config.dataset is DATASET
    assert (config.batch_size, config.shuffle, config.drop_last) == (1, False, False)
    assert (config.num_workers, config.prefetch_factor, config.worker_retries) == (0, 2, 1)
    assert (config.framework, config.places, config.return_list) == ("numpy", (CPU,), True)
    assert (config.seed, config.start_method, config.max_bytes) == (None, None, None)
    assert (config.timeout, config.timeout_s, config.feed_names) == (0.0, None, None)


def test_is_frozen() -> None:
    config = build()
    with pytest.raises(AttributeError):
        config.batch_size = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        config.other = 2  # type: ignore[attr-defined]


def test_a_config_has_all_fields_and_can_be_replaced_and_copied() -> None:
    config = build(batch_size=3)
    assert set(vars(config)) == {field.name for field in dataclasses.fields(config)}
    assert dataclasses.replace(config, drop_last=True).batch_size == 3
    assert vars(pickle.loads(pickle.dumps(config))) == vars(config)


def test_repr_holds_no_samples() -> None:
    assert "dataset" not in repr(build())


def f(*_: Any) -> None: ...


GOOD: list[tuple[str, Any, Any]] = [
    ("batch_size", None, None),
    ("batch_size", np.int32(4), 4),
    ("shuffle", np.bool_(True), True),
    ("drop_last", np.bool_(False), False),
    ("num_workers", np.uint8(2), 2),
    ("prefetch_factor", 1, 1),
    ("timeout", 2, 2.0),
    ("timeout", np.float32(0.5), 0.5),
    ("worker_init_fn", f, f),
    ("collate_fn", f, f),
    ("persistent_workers", True, True),
    ("seed", 0, 0),
    ("seed", 2**64 - 1, 2**64 - 1),
    ("worker_retries", 0, 0),
    ("max_bytes", 1 << 40, 1 << 40),
    ("places", "cpu", (CPU,)),
    ("places", ["gpu", "gpu:1"], (Place("gpu", 0), Place("gpu", 1))),
    ("pin_limit", np.int64(4096), 4096),
    ("pin_limit", 0, 0),
    ("sampler", DATASET, DATASET),
]


@pytest.mark.parametrize(("name", "value", "kept"), GOOD)
def test_good_value_is_kept_as_a_plain_python_value(name: str, value: Any, kept: Any) -> None:
    result = getattr(build(**{name: value}), name)
    assert result == kept
    assert type(result) is type(kept)


BAD_TYPE: list[tuple[str, Any, str]] = [
    ("batch_size", True, r"batch_size must be an int of 1 or more, got True \(bool\)\. None deliv"),
    ("batch_size", np.bool_(True), r"batch_size must be an int of 1 or more, got .*\(bool"),
    ("batch_size", 2.0, r"batch_size must be an int of 1 or more, got 2\.0 \(float\)"),
    ("batch_size", "8", r"batch_size must be an int of 1 or more, got '8' \(str\)"),
    ("shuffle", 1, r"shuffle must be a bool, got 1 \(int\)\. Pass True or False"),
    ("drop_last", None, r"drop_last must be a bool, got None \(NoneType\)"),
    ("persistent_workers", "no", r"persistent_workers must be a bool, got 'no' \(str\)"),
    ("return_list", 0, r"return_list must be a bool, got 0 \(int\)"),
    ("num_workers", None, r"num_workers must be an int of 0 or more, got None .* 0 starts no"),
    ("num_workers", 1.5, r"num_workers must be an int of 0 or more, got 1\.5 \(float\)"),
    ("prefetch_factor", None, r"prefetch_factor must be an int of 1 or more, got None"),
    ("worker_retries", None, r"worker_retries must be an int of 0 or more, got None"),
    ("seed", "7", r"seed must be an int in \[0, 18446744073709551615\], got '7' \(str\)"),
    ("timeout", None, r"timeout must be a number of seconds in \[0, 1e\+09\], got None"),
    ("timeout", True, r"timeout must be a number of seconds .* got True \(bool\)"),
    ("timeout", "5", r"timeout must be a number of seconds .* got '5' \(str\)"),
    ("collate_fn", [], r"collate_fn must be callable or None, got \[\] \(list\)\. Pass the functi"),
    ("worker_init_fn", 3, r"worker_init_fn must be callable or None, got 3 \(int\)"),
    ("framework", None, r"framework must be one of 'jax', 'numpy', 'paddle', 'torch', got None"),
    ("worker_type", 1, r"worker_type must be one of 'process', 'thread', got 1 \(int\)\. Pass"),
    ("seed_globals", 2, r"seed_globals must be a bool, got 2"),
    ("start_method", 1, r"start_method must be None or one of .*, got 1 \(int\)"),
    ("sampler", 5, r"sampler must be an iterable of dataset indices, got 5 \(int\)\. Pass a list"),
    ("sampler", "012", r"sampler must be an iterable of dataset indices, got '012' \(str\)"),
    ("sampler", list, r"sampler must be .* got the class list\. Pass an instance of it: list\("),
    ("batch_sampler", 5, r"batch_sampler must be an iterable of lists of indices, got 5 \(int\)"),
    ("feed_list", "x", r"feed_list must be a list or tuple .* got 'x' \(str\)\. Pass \[variable"),
    ("batch_sise", 3, r"no argument 'batch_sise': did you mean batch_size\?"),
    ("zzz", 3, r"no argument 'zzz': the arguments are feed_list, places, .*"),
]


@pytest.mark.parametrize(("name", "value", "match"), BAD_TYPE)
def test_wrong_type_is_refused(name: str, value: Any, match: str) -> None:
    with pytest.raises(ConfigTypeError, match=match):
        build(**{name: value})


BAD_VALUE: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, r"batch_size must be an int of 1 or more, got 0 \(int\)\. None delivers"),
    ({"batch_size": 2**63}, r"batch_size must be an int in \[1, 9223372036854775807\]"),
    ({"num_workers": -1}, r"num_workers must be an int of 0 or more, got -1 \(int\)"),
    ({"prefetch_factor": 0}, r"prefetch_factor must be an int of 1 or more, got 0"),
    ({"worker_retries": -1}, r"worker_retries must be .* got -1 .*raises WorkerDied at the first"),
    ({"max_bytes": 0}, r"max_bytes must be an int of 1 or more, got 0 .* lets the shared memory"),
    ({"seed": -1}, r"seed must be an int in \[0, \d+\], got -1 .* a fresh seed from the system"),
    ({"seed": 2**64}, r"seed must be an int in \[0, \d+\], got 18446744073709551616"),
    ({"timeout": -0.1}, r"timeout must be .* got -0\.1 \(float\)\. 0 waits without a deadline"),
    ({"timeout": float("nan")}, r"timeout must be .* got nan"),
    ({"timeout": float("inf")}, r"timeout must be .* got inf"),
    ({"timeout": 10**400}, r"timeout must be a number of seconds"),
    ({"framework": "mx"}, r"framework must be one of .* got 'mx'\. framework=\"numpy\" works"),
    ({"places": "tpu 1"}, r"places: there is no place 'tpu 1'\. Pass \"cpu\""),
    ({"places": ["cpu", "gpu:1"]}, r"places: cpu, gpu:1 are of different kinds"),
    ({"pin_limit": 4095}, r"pin_limit must be .* one page \(4096 bytes\), got 4095 bytes"),
    ({"places": []}, r"places must name at least one place, got \[\] \(list\)"),
    ({"places": 3}, r"places must name a device for batches, got 3 \(int\)\. Pass \"cpu\""),
    ({"reader_buffer_size": -1}, r"reader_buffer_size must be an int of 0 or more, got -1"),
    ({"drop_last_group": "no"}, r"drop_last_group must be a bool, got 'no' \(str\)"),
    ({"prefetch_next_epoch": True}, r"prefetch_next_epoch=True .* workers that persist"),
    ({"start_method": "thread", "num_workers": 1}, r"start_method must be None or one of .*'fork'"),
    ({"start_method": "spawn"}, r"start_method='spawn' contradicts num_workers=0, .* Pass num_w"),
    ({"worker_type": "fiber"}, r"worker_type must be one of 'process', 'thread', got 'fiber' .*"),
    (
        {"worker_type": "thread", "num_workers": 2, "start_method": "fork"},
        r"start_method='fork' contradicts worker_type='thread', which starts no process\. Lea",
    ),
    ({"sampler": [0], "shuffle": True}, r"sampler decides the order and excludes shuffle=True"),
    ({"sampler": iter([0])}, r"sampler must give a fresh iterator .* one-shot iterator .* list\("),
    ({"sampler": (i for i in [0])}, r"sampler must give .* empty from the second epoch on"),
    ({"batch_sampler": ([i] for i in [0])}, r"batch_sampler must give a fresh iterator"),
    ({"batch_sampler": [[0]], "batch_size": 2}, r"batch_sampler alone .* got also batch_size=2\."),
    ({"batch_sampler": [[0]], "shuffle": True}, r"batch_sampler alone .* got also shuffle=True\."),
    ({"batch_sampler": [[0]], "sampler": [0]}, r"batch_sampler alone .* got also sampler=\[0\]\."),
    (
        {"batch_sampler": [[0]], "drop_last": True, "batch_size": 4},
        r"excludes batch_size, shuffle, sampler and drop_last, got also drop_last=True, batch_siz",
    ),
    ({"batch_sampler": [[0]], "batch_size": None}, r"batch_size=None .* contradicts batch_sampler"),
    ({"batch_size": None, "drop_last": True}, r"drop_last=True .* contradicts batch_size=None"),
    ({"return_list": False}, r"return_list=False .* needs feed_list, got feed_list=None\. Pass"),
    ({"feed_list": []}, r"feed_list must be .* got an empty list\. Pass None for none"),
    ({"feed_list": ["x"]}, r"feed_list .* needs framework=\"paddle\", got framework='numpy'"),
    (
        {"feed_list": ["x", "y", "x"]},
        r"names in feed_list must be distinct, got 'x' at positions 0",
    ),
    ({"feed_list": ["x", object()]}, r"feed_list must be .* at position 1, which has no name"),
    ({"feed_list": [SimpleNamespace(name=None)]}, r"at position 0, which has no name"),
    ({"feed_list": [""]}, r"at position 0, which has no name\. Pass what paddle\.static\.data"),
]


@pytest.mark.parametrize(("options", "match"), BAD_VALUE)
def test_bad_or_contradictory_value_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        build(**options)


def test_two_families_catch_a_wrong_type() -> None:
    for family in (TypeError, ValueError, ConfigError):
        with pytest.raises(family):
            build(batch_size="8")


def test_missing_framework_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ConfigError, match=r'not installed here\. Run: pip install "lodreader\[tor'):
        build(framework="torch")
    monkeypatch.setitem(sys.modules, "torch", None)  # how Python marks an import that is blocked
    with pytest.raises(ConfigError, match="not installed here"):
        build(framework="torch")


@pytest.mark.usefixtures("with_frameworks")
def test_framework_is_found_without_importing_it() -> None:
    before = set(sys.modules)
    assert build(framework="torch").framework == "torch"
    assert set(sys.modules) == before


@pytest.mark.usefixtures("with_frameworks")
def test_feed_list_takes_variables_and_names() -> None:
    variable = SimpleNamespace(name="image")
    config = build(feed_list=(variable, "label"), framework="paddle", return_list=False)
    assert config.feed_list == (variable, "label")
    assert config.feed_names == ("image", "label")


def test_compatible_options_are_accepted() -> None:
    assert build(persistent_workers=True, num_workers=0).persistent_workers
    assert build(num_workers=2, start_method="spawn").start_method == "spawn"
    assert build(batch_size=None, shuffle=True).batch_size is None
    assert build(timeout=1.5).timeout_s == 1.5
    assert build(batch_sampler=[[0, 1]]).batch_sampler == [[0, 1]]


class Sequence:  # without __iter__: Python iterates over it by index
    def __getitem__(self, index: int) -> int:
        return [0, 2][index]


def test_sampler_may_be_any_iterable_that_begins_anew() -> None:
    for sampler in (Sequence(), np.arange(3), range(3), {0, 1}, {0: 1}):
        assert build(sampler=sampler).sampler is sampler


class OneShot:
    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


def test_object_that_is_its_own_iterator_is_refused() -> None:
    with pytest.raises(ConfigError, match="one-shot iterator"):
        as_reiterable("sampler", OneShot())


class IterableOnly:
    def __iter__(self) -> Iterator[int]:
        return iter([1])


class LengthOnly:
    def __len__(self) -> int:
        return 3


class SwitchedOff(list):  # type: ignore[type-arg]
    __getitem__ = None  # type: ignore[assignment]
    __iter__ = None  # type: ignore[assignment]


class Length:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("dataset", "match"),
    [
        (list, r"dataset must be an instance, got the class list\. Pass list\(\.\.\.\)"),
        (iter([1]), r"a fresh iterator for each epoch, got the one-shot iterator .*list_iterator"),
        (NoLength(), r"got .*NoLength.* without __len__\. Add the method, or pass a sampler"),
        (LengthOnly(), r"got .*LengthOnly.* without __getitem__\. Add the method"),
        (SwitchedOff(), r"without __getitem__"),
        (None, r"got None \(NoneType\) without __getitem__"),
        (5, r"got 5 \(int\) without __getitem__\. Add the method, or pass a list of samples"),
        (
            Length(-2),
            r"len\(dataset\) must be an int of 0 or more, got -2 \(int\)\. Return the num",
        ),
        (Length("3"), r"len\(dataset\) must be .* got '3' \(str\)\. .* from Length\.__len__"),
        (Length(2.5), r"len\(dataset\) must be .* got 2\.5 \(float\)"),
        (Length(None), r"len\(dataset\) must be .* got None"),
    ],
)
def test_dataset_that_cannot_work_is_refused(dataset: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        LoaderConfig.build(dataset)


def test_iterable_dataset_needs_no_length_and_no_index() -> None:
    assert LoaderConfig.build(IterableOnly(), is_iterable=True).is_iterable


def test_exception_of_a_broken_len_passes_through() -> None:
    broken = KeyError("from __len__")
    with pytest.raises(KeyError) as caught:
        LoaderConfig.build(Length(broken), shuffle=True)
    assert caught.value is broken


def test_len_is_not_asked_for_when_a_sampler_decides() -> None:
    dataset = Length(KeyError("from __len__"))
    assert LoaderConfig.build(dataset, sampler=[0]).dataset is dataset
    assert LoaderConfig.build(dataset, batch_sampler=[[0]]).dataset is dataset
    assert LoaderConfig.build(NoLength(), sampler=[0]).sampler == [0]


def test_empty_dataset_is_accepted() -> None:
    assert LoaderConfig.build([]).dataset == []


class Raises:
    def __index__(self) -> int:
        raise KeyError("mine")


def test_single_checks_accept_and_refuse_values() -> None:
    assert as_int("n", 3, low=0, high=3, remedy="") == 3
    with pytest.raises(ConfigError, match=r"n must be an int in \[0, 3\], got 4 \(int\)\. Less\."):
        as_int("n", 4, low=0, high=3, remedy="Less.")
    with pytest.raises(KeyError, match="mine"):
        as_int("n", Raises(), low=0, remedy="")
    assert as_bool("b", True) is True
    with pytest.raises(ConfigTypeError, match=r"b must be a bool, got 1 \(int\)\. Really\."):
        as_bool("b", 1, remedy="Really.")


def test_importing_imports_no_framework() -> None:
    code = (
        "import sys, reader.config, reader.exceptions.user_error, reader.random.seeds\n"
        "heavy = {'torch', 'paddle', 'jax', 'tensorflow', 'mxnet'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()) or 0)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


@pytest.mark.parametrize(
    ("options", "uses_threads", "takes_turns"),
    [
        ({}, True, False),
        ({"seed": 1}, True, True),
        ({"seed": 1, "seed_globals": False}, True, False),
        ({"seed": 1, "seed_globals": False, "reseed": max}, True, True),
        ({"seed": 1, "num_workers": 2, "reseed": max}, False, False),
        ({"seed": 1, "num_workers": 2}, False, False),
        ({"num_workers": 2, "worker_type": "thread"}, True, False),
        ({"seed": 0, "num_workers": 2, "worker_type": "thread"}, True, True),
    ],
)
def test_threads_with_a_seed_hold_the_random_state_one_at_a_time(
    options: dict[str, Any], uses_threads: bool, takes_turns: bool
) -> None:
    config = build(**options)
    assert (config.uses_threads, config.takes_turns) == (uses_threads, takes_turns)


# ---- arguments of other libraries, and things that are no dataset --------------------------------

MEANT = [
    (
        {"num_worker": 2},
        r"^DataLoader.__init__\(\) got .* argument 'num_worker': did you mean num_workers\?$",
    ),
    ({"batchsize": 2}, r"did you mean batch_size\?"),
    ({"Shuffle": True}, r"did you mean shuffle\?"),
    ({"collate": len}, r"did you mean collate_fn\?"),
    ({"pin_memory": True}, r"'pin_memory': pass places=\"gpu:0\""),
    ({"generator": None}, r"'generator': pass seed="),
    ({"multiprocessing_context": "spawn"}, r'pass start_method="fork", "forkserver" or "spawn"'),
    ({"device": "cuda"}, r"'device': pass places="),
    ({"workers": 2}, r"'workers': pass num_workers="),
    ({"quux": 2}, r"'quux': the arguments are dataset, feed_list, places"),
]


@pytest.mark.parametrize(("options", "text"), MEANT, ids=lambda v: str(v)[:20])
def test_unknown_argument_suggests_the_nearest_name(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigTypeError, match=text):
        DataLoader([1], **options)


def test_signature_of_a_loader_is_still_its_own() -> None:
    names = list(inspect.signature(DataLoader).parameters)
    assert names[:3] == ["dataset", "feed_list", "places"]
    assert "snapshot_every_n_steps" in names

    class Mine(DataLoader):
        def __init__(self, dataset: Any, *, extra: int) -> None:
            super().__init__(dataset, batch_size=extra)

    assert [batch.tolist() for batch in Mine([1, 2], extra=2)] == [[1, 2]]


def test_loader_takes_the_types_of_sample_and_batch_or_of_the_sample_alone() -> None:
    Sample = TypeVar("Sample")

    class Mine(DataLoader[Sample]):
        pass

    class Typed(DataLoader[int, "list[int]"]):
        pass

    kinds: list[Any] = [DataLoader[int], DataLoader[int, "list[int]"], Mine[int], Typed]
    assert [[batch.tolist() for batch in kind([1])] for kind in kinds] == [[[1]]] * 4
    with pytest.raises(TypeError, match="Too many arguments"):
        DataLoader[int, int, int]  # type: ignore[misc]


@pytest.mark.parametrize("number", [32, 32.0, np.int64(32), True])
def test_number_as_second_argument_is_refused_with_its_right_name(number: Any) -> None:
    with pytest.raises(
        ConfigTypeError, match=r"pass batch_size=.* by keyword, or use reader.compat"
    ):
        DataLoader([1], number)


@pytest.mark.parametrize("value", [1e6, 2.0**40, np.float32(1e6), np.int64(10**6)])
def test_integral_float_is_a_count_of_bytes(value: Any) -> None:
    with DataLoader([1], max_bytes=value) as loader:
        assert loader.config.max_bytes == int(value)
        assert type(loader.config.max_bytes) is int


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), "1e6", True, 0.0, -1e6])
def test_other_values_are_refused_as_a_count_of_bytes(value: Any) -> None:
    with pytest.raises(ConfigError, match="max_bytes must be an int of 1 or more, got"):
        DataLoader([1], max_bytes=value)


def frame_of(module: str, name: str) -> Any:
    """A stand-in for a table of a library that need not be installed."""
    body = {
        "__module__": module,
        "__getitem__": lambda self, key: {}[key],
        "__len__": lambda self: 3,
    }
    return type(name, (), body)()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (frame_of("pandas.core.frame", "DataFrame"), r"got a DataFrame.*df.to_dict\('records'\)"),
        (frame_of("polars.dataframe.frame", "DataFrame"), r"got a DataFrame.*table.to_dicts"),
        (frame_of("pyarrow.lib", "Table"), r"got a Table.*table.to_pylist"),
        ({"x": [1, 2], "y": [3, 4]}, r"got a dict, whose \[...\] takes keys. Pass reader.Tensor"),
    ],
)
def test_table_as_dataset_says_how_to_wrap_it(table: Any, text: str) -> None:
    with pytest.raises(ConfigTypeError, match=text):
        DataLoader(table)
    assert len(DataLoader(table, sampler=["x"])) == 1  # its own keys are its indices


def test_array_without_an_axis_as_dataset_is_refused_by_name() -> None:
    with pytest.raises(ConfigTypeError, match=r"got array\(4\) .* without a first axis"):
        DataLoader(np.array(4))


def test_dicts_of_numbers_and_of_own_rules_are_datasets() -> None:
    class Rows(dict[str, int]):
        def __missing__(self, key: Any) -> Any:
            return key

    assert [batch.tolist() for batch in DataLoader({0: 5, 1: 6}, batch_size=2)] == [[5, 6]]
    assert [batch.tolist() for batch in DataLoader(Rows(a=1, b=2), batch_size=2)] == [[0, 1]]
