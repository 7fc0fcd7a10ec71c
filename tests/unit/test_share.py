"""`reader.share`: equal to the original, once in memory."""

from __future__ import annotations

import collections
import copy
import enum
import errno
import gc
import multiprocessing
import os
import pickle
import resource
import threading
from decimal import Decimal
from multiprocessing import resource_sharer
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import ConfigError, ConfigTypeError, ReaderError, available_memory, share
from reader.sharing import memory_file
from reader.sharing.shared_array import SharedArray
from reader.sharing.shared_dict import SharedDict
from reader.sharing.shared_list import SharedList

Point = collections.namedtuple("Point", "x y")


class Color(enum.IntEnum):
    RED = 1


def deep(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found, 1]
    return found


LISTS: dict[str, Any] = {
    "nothing": [],
    "an empty tuple": (),
    "ints": [1, -2, 127, -128],
    "ints of two bytes": [1, -30_000],
    "ints of four bytes": [1, 2**31 - 1, -(2**31)],
    "ints of eight bytes": [2**63 - 1, -(2**63)],
    "ints of any size": [2**63, -(2**70), 1],
    "floats": [0.1, float("inf"), -0.0, 5e-324],
    "bools": [True, False],
    "None alone": [None] * 5,
    "numbers of several kinds": [1, 2.5, True, None],
    "strings": ["a", "", "b" * 300],
    "strings that are not ASCII": ["é", "日本", "😀", "", "a"],
    "half a surrogate": ["a\udc80b"],
    "bytes": [b"", b"x", bytes(range(256))],
    "strings and None": ["a", None, ""],
    "a path and its class": [("a/1.jpg", 0), ("b/2.jpg", 1)],
    "pairs in a tuple": (("a", 1), ("b", 2)),
    "lists of one length": [[1, 2], [3, 4]],
    "lists of many items": [list(range(40)), list(range(40))],
    "lists of several lengths": [[1], [2, 3], []],
    "tuples of several lengths": [(1,), (2, 3), ()],
    "lists and tuples": [[1], (1,)],
    "empty lists": [[], []],
    "empty tuples": [(), ()],
    "dicts of the same keys": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "dicts of several keys": [{"a": 1}, {"b": 2}, {}, {"a": 1, "b": 2}, {"b": 1, "a": 2}],
    "dicts of keys that are equal": [{1: "a"}, {True: "a"}, {1.0: "a"}],
    "dicts of keys that are zero": [{0.0: 0}, {-0.0: 0}],
    "dicts of equal tuples": [{(1,): 0}, {(True,): 0}],
    "dicts of more forms than a byte tells apart": [{str(i): i} for i in range(300)],
    "annotations": [
        {"id": i, "boxes": [[0.5, 1, 2, i]] * (i % 3), "name": None if i % 2 else "x"}
        for i in range(20)
    ],
    "objects": [Point(1, 2), Color.RED, Path("a"), np.float32(1.5), frozenset([1])],
    "one object again and again": ["abc" * 100] * 1000,
    "one list again and again": [[1, 2, 3]] * 10,
    "the deepest": deep(200),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_shared_list_is_equal_to_what_it_was(name: str) -> None:
    made = LISTS[name]
    shared = share(made)
    assert isinstance(shared, SharedList)
    assert shared == made
    assert made == shared
    assert shared != [*made, 1]
    assert repr(list(shared)) == repr(list(made))  # types, too
    assert [type(item) for item in shared] == [type(item) for item in made]
    assert shared[:] == made[:]
    assert shared[::-2] == made[::-2]
    assert type(shared[:]) is type(made)
    assert len(shared) == len(made)
    assert bool(shared) == bool(made)
    for place in range(-len(made), len(made)):
        assert repr(shared[place]) == repr(made[place])


NESTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(st.lists(NESTS))
@settings(deadline=None, max_examples=30)
def test_any_nest_comes_back(made: list[Any]) -> None:
    assert repr(share(made)[:]) == repr(made)


KEYS = st.recursive(
    st.text()
    | st.integers()
    | st.binary()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
)


@given(st.dictionaries(KEYS, NESTS), st.lists(KEYS))
@settings(deadline=None, max_examples=30)
def test_a_shared_dict_is_the_dict_that_it_was(made: dict[Any, Any], others: list[Any]) -> None:
    shared = share(made)
    assert shared == made
    assert list(shared) == list(made)
    assert len(shared) == len(made)
    assert repr(list(shared.items())) == repr(list(made.items()))
    for key in [*made, *others]:
        assert (key in shared) == (key in made)
        assert shared.get(key, "none") == made.get(key, "none")


@pytest.mark.parametrize(
    "made",
    [
        {"a": 1, "é": 2, "\udc80": 3, "": 4},
        {1: "a", -5: "b", 2**62: "c"},
        {2**64: 1},
        {True: 1, 2: 3, 0.5: 4, None: 5, (1, ("a", b"b")): 6},
        {i: str(i) for i in range(10_000)},
        {str(i): i for i in range(10_000)},
        {},
    ],
)
def test_a_shared_dict_finds_what_is_equal_to_a_key(made: dict[Any, Any]) -> None:
    shared = share(made)
    others = (
        0,
        1,
        1.0,
        True,
        np.int64(1),
        np.float32(2),
        np.float32(0.5),
        Decimal(1),
        2**64,
        float(2**64),
        "1",
        b"1",
        (),
        None,
    )
    for key in (*made, *others, 0.5, np.True_, (1.0, ("a", b"b")), (1, ("a", "b"))):
        assert (key in shared) == (key in made), key
        assert shared.get(key) == made.get(key), key
    with pytest.raises(KeyError, match="there is none"):
        shared["there is none"]
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        shared[[1]]
    assert shared == made
    assert dict(shared) == made
    assert list(shared) == list(made)
    assert list(reversed(shared)) == list(reversed(made))
    assert shared | {} == made
    assert repr(shared).startswith(f"<shared dict of {len(made):,} items: ")


def test_dicts_whose_keys_are_nan_are_shared() -> None:
    for make in (lambda nan: nan, lambda nan: (nan, 1)):
        shared = share([{make(float("nan")): 1}, {make(float("nan")): 2}])
        assert [list(item.values()) for item in shared] == [[1], [2]]
        assert repr(shared[1]) == repr({make(float("nan")): 2})


def test_the_views_of_a_shared_dict_come_in_reverse_too() -> None:
    made = {"b": 1, "a": 2, 3: None}
    shared = share(made)
    for view in (dict.keys, dict.values, dict.items):
        assert list(reversed(getattr(shared, view.__name__)())) == list(reversed(view(made)))
    assert shared.keys() == made.keys()
    assert shared.items() == made.items()
    assert len(shared.values()) == 3


def test_a_complex_number_finds_the_key_that_it_is_equal_to() -> None:
    for made in ({1: "a", 2: "b"}, {1: "a", 0.5: "b"}):
        shared = share(made)
        for key in (1 + 0j, 0.5 + 0j, 1 + 1j, np.complex64(1), complex("nan")):
            assert shared.get(key) == made.get(key), key


@pytest.mark.peer
def test_objects_that_share_refuses_are_refused_with_a_remedy() -> None:
    pyarrow, torch = pytest.importorskip("pyarrow"), pytest.importorskip("torch")
    pandas = pytest.importorskip("pandas")
    for wrong, remedy in (
        (torch.ones(2), r"pass it\.numpy\(\), of one on a device it\.cpu\(\)\.numpy\(\)"),
        (
            pyarrow.table({"a": [1]}),
            r"pass it\.to_pandas\(\), or read its rows by reader\.TableRows",
        ),
        (pandas.Index([1]), r"pass numpy\.asarray\(it\)"),
        ({1}, r"pass list\(it\)"),
        (5, "share it as an item of a list"),
    ):
        with pytest.raises(ConfigTypeError, match=f"(?s)share takes .*: {remedy}"):
            share(wrong)


def test_a_sequence_has_the_methods_of_a_list_that_change_nothing() -> None:
    shared = share(["a", "b", "a", "c"])
    assert shared.index("a", 1) == 2
    assert shared.count("a") == 2
    assert "c" in shared
    assert "d" not in shared
    assert 5 not in shared
    assert list(reversed(shared)) == ["c", "a", "b", "a"]
    assert sorted(shared)[0] == "a"
    assert add(shared, ["d"]) == ["a", "b", "a", "c", "d"]
    assert add(["d"], shared) == ["d", "a", "b", "a", "c"]
    assert shared * 2 == [*shared, *shared]
    assert shared + shared == shared * 2
    assert add(share((1,)), (2,)) == (1, 2)
    assert add((0,), share((1,))) == (0, 1)
    assert share([1]) != (1,)
    assert share((1,)) != [1]
    assert share([1]) < [2]
    assert share([1, 2]) >= [1]
    assert shared.copy() == shared.tolist() == ["a", "b", "a", "c"]
    assert repr(shared) == "<shared list of 4 items: 'a', 'b', 'a', 'c'>"
    assert repr(share(list(range(1000)))).endswith("4, 5, ...>")
    assert np.asarray(share([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared)
    assert hash(share((1, "a"))) == hash((1, "a"))
    with pytest.raises(IndexError, match="list index out of range: got 4 of 4 items"):
        shared[4]
    with pytest.raises(IndexError):
        shared[10**30]
    with pytest.raises(TypeError, match="list indices must be integers or slices, not str"):
        shared["a"]
    with pytest.raises(TypeError, match="unsupported operand"):
        add(shared, ("d",))


def test_changes_of_a_shared_list_are_refused_with_a_remedy() -> None:
    for shared in (share([1]), share({1: 1})):
        with pytest.raises(TypeError, match=r"cannot be changed: .* pass it to reader.share"):
            shared[0] = 1
        with pytest.raises(TypeError, match="cannot be changed"):
            del shared[0]
        with pytest.raises(AttributeError, match="cannot be changed"):
            shared.clear()
        with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
            shared.unknown  # noqa: B018
    array = share(np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_a_dict_that_changes_meanwhile_is_shared_as_it_was() -> None:
    made = {f"k{i}": i for i in range(200_000)}
    thread = threading.Thread(target=lambda: [made.pop(f"k{i}") for i in range(1000)])
    thread.start()
    shared = share(made)
    thread.join()
    assert all(int(key[1:]) == value for key, value in shared.items())


def test_lists_that_refer_to_one_list_again_and_again() -> None:
    twice: list[Any] = [1]
    for _ in range(40):
        twice = [twice, twice]
    shared = share(twice)
    assert len(shared) == 2
    assert shared.nbytes < 1 << 20
    itself: list[Any] = []
    itself += [itself, itself, 5]
    assert share(itself)[2] == 5


def test_changed_items_stay_with_whoever_changed_them() -> None:
    shared = share([{"a": [1]}])
    shared[0]["a"].append(2)
    assert shared[0] == {"a": [1]}


@pytest.mark.parametrize(
    "made",
    [
        np.arange(12).reshape(3, 4),
        np.empty((0, 3), np.float32),
        np.array(3.5),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
        np.arange(10)[::-2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["2020-01-01"], "datetime64[D]"),
    ],
)
def test_a_shared_array_is_an_array(made: Any) -> None:
    shared = share(made)
    assert isinstance(shared, np.ndarray)
    assert shared.dtype == made.dtype
    assert shared.shape == made.shape
    assert np.array_equal(shared, made)
    assert share(shared) is shared
    back = pickle.loads(pickle.dumps(shared))
    assert type(back) is np.ndarray
    assert np.array_equal(back, made)
    assert type(copy.deepcopy(shared)) is np.ndarray
    if made.ndim:
        assert type(shared[:1]) is np.ndarray


def test_results_computed_from_a_shared_array_are_plain_arrays() -> None:
    shared = share(np.arange(4.0))
    for found in (shared + 1, np.sqrt(shared), shared.reshape(2, 2) * 1, shared[[0, 1]]):
        assert type(found) is np.ndarray
    assert type(shared.sum()) is np.float64
    assert type(shared[0]) is np.float64
    assert np.shares_memory(shared[1:], np.asarray(shared))


def test_arrays_of_strings_become_lists() -> None:
    objects = np.array(["a", "é", None], object)
    assert share(objects) == ["a", "é", None]
    with pytest.raises(ConfigError, match=r"one axis, got the shape \(1, 3\): share its rows"):
        share(objects[None])
    if hasattr(np.dtypes, "StringDType"):
        assert share(np.array(["a", "bcd"], np.dtypes.StringDType())) == ["a", "bcd"]


def test_a_shared_object_is_shared_once() -> None:
    for made in ([1], {1: 1}, np.arange(2)):
        shared = share(made)
        assert share(shared) is shared
        assert copy.copy(shared) is shared or isinstance(shared, SharedArray)
    assert share(share([1])[:]) == [1]


@pytest.mark.parametrize("made", [["a", (1, None)], ("a",), {"a": [1]}, {(1,): 2}])
def test_a_plain_pickle_holds_the_items(made: Any) -> None:
    pickled = pickle.dumps(share(made))
    shared = pickle.loads(pickled)
    assert shared == made
    assert type(shared) in (SharedList, SharedDict)
    assert copy.deepcopy(shared) is shared


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_gets_a_reference(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    many = ["a" * 1000 + str(i) for i in range(2000)]
    objects = (share(many), share({"a": (1, 2)}), share(np.arange(5)))
    queue = context.Queue()
    process = context.Process(target=report, args=(objects, queue))
    process.start()
    found = queue.get(timeout=50)
    process.join(50)
    assert found == ([many[7], (1, 2), 4], [os.fstat(o._memory._fd).st_ino for o in objects])


def report(objects: Any, queue: Any) -> None:
    listed, by_key, array = objects
    inodes = [os.fstat(each._memory._fd).st_ino for each in objects]
    queue.put(([listed[7], by_key["a"], int(array[4])], inodes))


def test_a_queue_passes_a_reference() -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    shared = share(["x"] * 3)
    queue.put(shared)
    try:
        back = queue.get(timeout=50)
    finally:
        resource_sharer.stop()  # multiprocessing's thread, which passes descriptors
    assert back == shared
    assert os.fstat(back._memory._fd).st_ino == os.fstat(shared._memory._fd).st_ino


def test_the_memory_goes_with_the_last_reference() -> None:
    def count() -> int:
        return sum(
            "lodreader-shared" in os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        )

    gc.collect()
    before = count()
    shared = [share([1, 2]), share({1: 2}), share(np.arange(3))]
    view = shared[2][1:]
    assert count() == before + 3
    shared.clear()
    gc.collect()
    assert view.tolist() == [1, 2]  # mapped as long as a view of it lives
    del view
    gc.collect()
    assert count() == before


def test_strings_take_less_memory_than_in_a_list() -> None:
    names = [f"train/n{i % 100:08d}/{i:08d}.JPEG" for i in range(10_000)]
    taken = sum(map(len, names)) + 4 * len(names)
    assert share(names).nbytes < taken + 200
    assert share(["class " * 20] * 100_000).nbytes < 101_000


def test_bad_input_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigTypeError, match="share takes lists, tuples, dicts, arrays"):
        share({1, 2})
    with pytest.raises(ConfigTypeError, match="whose methods would be lost: share list"):
        share(Point(1, 2))
    with pytest.raises(ConfigTypeError, match="a key of the dict cannot be shared: frozenset"):
        share({frozenset([1]): 1})
    for own, plain in (
        (np.ma.array([1], mask=[1]), r"numpy.asarray\(it\)"),
        (collections.Counter("a"), r"dict\(it\)"),
    ):
        with pytest.raises(ConfigTypeError, match=f"whose methods would be lost: share {plain}"):
            share(own)
    with pytest.raises(ConfigTypeError, match="a key of the dict cannot be shared: nan"):
        share({float("nan"): 1})
    with pytest.raises(ConfigError, match="cannot be shared, since it cannot be pickled"):
        share([1, lambda: 1])
    monkeypatch.setattr(memory_file, "available_bytes", lambda: 100)
    with pytest.raises(ConfigError, match=r"takes 1,024 bytes of memory, and 100 are available"):
        share(np.zeros(1000, np.uint8))
    assert available_memory.available_bytes() > 0


@pytest.mark.parametrize("made", [[1], {"a": 1}, np.arange(3)], ids=lambda made: type(made))
def test_a_limit_on_open_files_is_named(made: Any) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(
            ReaderError, match=r"a file of its own, cannot be made: .*raise it \(ulimit -n\)"
        ):
            share(made)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def refusing(number: int) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_memory_that_the_system_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = share([1, 2])
    for name in ("Mapping", "seal"):
        with monkeypatch.context() as patch:
            patch.setattr(memory_file, name, refusing(errno.EFBIG))
            with pytest.raises(ReaderError, match=r"64 bytes, .* cannot be made: .*\(ulimit -f\)"):
                share([1, 2])

    class Received:
        def detach(self) -> int:
            return os.dup(shared._memory._fd)

    with monkeypatch.context() as patch:
        patch.setattr(memory_file, "Mapping", refusing(errno.ENOMEM))
        with pytest.raises(ReaderError, match=r"memory cannot be mapped: .* there is no memory"):
            memory_file._received(Received(), (64,))
    monkeypatch.setattr(Received, "detach", refusing(errno.EMFILE))
    with pytest.raises(ReaderError, match=r"shared memory cannot be opened: .*\(ulimit -n\)"):
        memory_file._received(Received(), (64,))


class TestTables:
    """DataFrames and Series of pandas."""

    @pytest.fixture
    def pandas(self) -> Any:
        pytest.importorskip("pyarrow")
        return pytest.importorskip("pandas")

    @pytest.fixture
    def frame(self, pandas: Any) -> Any:
        return pandas.DataFrame(
            {
                "number": np.arange(5),
                "float": np.arange(5) / 2,
                "text": ["x", "y", None, "é", ""],
                "object": np.array(["p", "q", "r", "s", "t"], object),
                "time": pandas.date_range("2020", periods=5),
                "kind": pandas.Categorical(["u", "v", "u", "v", "u"]),
                "masked": pandas.array([1, None, 3, 4, 5], "Int64"),
            },
            index=list("abcde"),
        )

    def test_a_shared_table_is_a_table(self, pandas: Any, frame: Any) -> None:
        shared = share(frame)
        assert isinstance(shared, pandas.DataFrame)
        assert share(shared) is shared
        pandas.testing.assert_frame_equal(
            pandas.DataFrame(shared), frame, check_dtype=False, check_index_type=False
        )
        assert shared.loc["b"].to_dict() == frame.loc["b"].to_dict()
        assert type(shared[shared.number > 2]) is pandas.DataFrame
        assert [row.text for row in shared.itertuples()][3] == "é"
        again = pickle.loads(pickle.dumps(shared))
        assert type(again) is pandas.DataFrame
        assert again.equals(pandas.DataFrame(shared))
        column = share(frame["text"])
        assert isinstance(column, pandas.Series)
        assert column.iloc[3] == "é"
        assert column.name == "text"

    def test_objects_in_a_table_are_refused_by_name(self, pandas: Any) -> None:
        frame = pandas.DataFrame({"a": [1, 2], "odd": [{}, []]})
        with pytest.raises(ConfigError, match="column 'odd' holds Python objects"):
            share(frame)
        for odd in ([[1, 2], [3, 4]], [[np.nan], [None]], [1, "a"]):
            with pytest.raises(ConfigError, match="column 'odd' holds Python objects"):
                share(pandas.DataFrame({"odd": pandas.Series(odd, dtype=object)}))

    @pytest.mark.parametrize("name", ["DataFrame", "Series"])
    def test_a_table_of_a_class_of_its_own_is_refused(self, pandas: Any, name: str) -> None:
        base = getattr(pandas, name)
        own = type("Own", (base,), {})
        with pytest.raises(
            ConfigTypeError,
            match=rf"\(Own\) is of a class of its own, .* lost: share pandas.{name}\(it\)",
        ):
            share(own([1, 2]))
        assert share(base(own([1, 2]))).shape[0] == 2

    def test_a_table_that_cannot_be_pickled_is_refused(self, pandas: Any) -> None:
        frame = pandas.DataFrame({"a": [1]})
        frame.attrs["made by"] = lambda: 1
        with pytest.raises(
            ConfigError, match=r"its index or attrs cannot be pickled: .* Drop what"
        ):
            share(frame)

    def test_an_index_of_objects_stays(self, pandas: Any) -> None:
        for labels in ([1, 2, 3], [1, "a", (2, 3)], ["a", "b", "c"]):
            frame = pandas.DataFrame({"v": [10, 20, 30]}, index=pandas.Index(labels, dtype=object))
            shared = share(frame)
            assert shared.index.tolist() == labels
            assert shared.loc[labels[0]].v == 10

    @pytest.mark.filterwarnings("ignore:The inplace keyword")
    def test_a_shared_table_refuses_changes(self, frame: Any) -> None:
        frame.attrs["name"] = "x"
        shared = share(frame)
        assert shared.attrs == {"name": "x"}
        for change in (
            lambda: shared.__setitem__("new", 1),
            lambda: shared.drop(index="a", inplace=True),
            lambda: shared.sort_values("number", ascending=False, inplace=True),
            lambda: shared.insert(0, "new", 1),
            lambda: shared.pop("number"),
            lambda: setattr(shared, "columns", list("abcdefg")),
        ):
            with pytest.raises(TypeError, match="a shared DataFrame cannot be changed"):
                change()
        assert shared.drop(index="a").shape == (4, 7)
        assert shared.assign(new=1).shape == (5, 8)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_process_gets_a_reference(self, frame: Any, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        shared = share(frame)
        queue = context.Queue()
        process = context.Process(target=report_table, args=(shared, queue))
        process.start()
        assert queue.get(timeout=50) == ["é", os.fstat(shared._memory._fd).st_ino]
        process.join(50)

    def test_arrays_of_arrow_become_lists(self, pandas: Any) -> None:
        import pyarrow

        assert share(pyarrow.array(["a", None])) == ["a", None]


def report_table(shared: Any, queue: Any) -> None:
    queue.put([shared["text"].iloc[3], os.fstat(shared._memory._fd).st_ino])
