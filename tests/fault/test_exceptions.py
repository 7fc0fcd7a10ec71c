"""The user's exceptions arrive as raised, in their place; the loader goes on (2.1, 2.10)."""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import CollateError, DataLoader, DatasetError, SampleIndexError, SamplerError
from tests.datasets import (
    At,
    Box,
    Calls,
    OddError,
    Raise,
    Rows,
    StuckError,
    UnpicklableResult,
    check_rows,
)
from tests.streams import Iterates

WORKERS = pytest.mark.parametrize("workers", [0, 2])
THREADS = {"num_workers": 1, "worker_type": "thread"}
OUTLAWS = [StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit, StopAsyncIteration]
# without workers a KeyboardInterrupt of the dataset is Ctrl-C in it
WORKERS_AND_OUTLAWS = pytest.mark.parametrize(
    ("workers", "kind"),
    [(n, kind) for n in (0, 2) for kind in OUTLAWS if n or kind is not KeyboardInterrupt],
)


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def run(loader: DataLoader, bad: int, expected: type[BaseException], of: int = 4) -> Any:
    """Iterate an epoch of `of` batches of 4 rows, of which `bad` must raise; return that error."""
    batches = iter(loader)
    caught: BaseException | None = None
    for n in range(of):
        if n == bad:
            with pytest.raises(expected) as info:
                next(batches)
            caught = info.value
        else:
            check_rows(next(batches), range(4 * n, 4 * n + 4))
    with pytest.raises(StopIteration):
        next(batches)
    return caught


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {**THREADS}], ids=str)
def test_03_loop_that_is_left_after_an_exception_leaves_nothing_to_the_collector(
    options: dict[str, Any],
) -> None:
    loader = DataLoader(At(1, Raise(KeyError), 8), batch_size=1, **options)
    batches = iter(loader)
    gone = weakref.ref(batches)
    gc.disable()
    try:
        check_rows(next(batches), [0])
        with contextlib.suppress(KeyError):
            next(batches)
        del batches
        assert gone() is None
    finally:
        gc.enable()
    loader.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
@WORKERS_AND_OUTLAWS
def test_01_exception_that_would_end_the_loop_in_a_dataset_arrives_as_dataset_error(
    workers: int, persistent: bool, kind: type[BaseException]
) -> None:
    with DataLoader(
        At(9, Raise(functools.partial(kind, "odd")), 16),
        batch_size=4,
        num_workers=workers,
        persistent_workers=persistent,
    ) as loader:
        for epoch in range(2):
            error = run(loader, 2, DatasetError)
            assert type(error.__cause__) is kind
            assert error.__cause__.args == ("odd",)
            assert kind.__name__ in str(error)
            said = notes_of(error) + notes_of(error.__cause__)
            assert f"batch 2 of epoch {epoch}" in said
            assert "dataset index 9" in said


@WORKERS_AND_OUTLAWS
def test_01_exception_that_would_end_the_loop_in_collate_arrives_as_dataset_error(
    workers: int, kind: type[BaseException]
) -> None:
    def collate(samples: list[Any]) -> Any:
        if samples[0][1] == 8:
            raise kind
        return np.stack([s[0] for s in samples]), np.array([s[1] for s in samples])

    with DataLoader(Rows(16), batch_size=4, num_workers=workers, collate_fn=collate) as loader:
        for _ in range(2):
            error = run(loader, 2, DatasetError)
            assert type(error.__cause__) is kind


@WORKERS_AND_OUTLAWS
def test_01_exception_that_would_end_the_loop_in_getitems_or_reduce_arrives_as_dataset_error(
    workers: int, kind: type[BaseException]
) -> None:
    class Many(Rows):
        def __getitems__(self, indices: list[int]) -> Any:
            if 9 in indices:
                raise kind
            return [self[index] for index in indices]

    with DataLoader(Many(16), batch_size=4, num_workers=workers) as loader:
        assert type(run(loader, 2, DatasetError).__cause__) is kind


@WORKERS
def test_10_exception_arrives_with_type_attributes_and_notes(workers: int) -> None:
    def fail(index: int) -> Any:
        error = OddError("train.rec", line=7)
        error.extra = {"seen": [1, 2]}  # type: ignore[attr-defined]
        add_note = getattr(error, "add_note", None)
        if add_note is not None:
            add_note("the user's own note")
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise error from inner

    with DataLoader(At(9, fail, 16), batch_size=4, num_workers=workers) as loader:
        for _ in range(2):
            error = run(loader, 2, OddError)
            assert type(error) is OddError
            assert (error.path, error.line, error.extra) == ("train.rec", 7, {"seen": [1, 2]})
            assert str(error) == "train.rec:7"
            assert isinstance(error.__cause__, KeyError)
            said = notes_of(error)
            if sys.version_info >= (3, 11):
                assert "the user's own note" in said
            assert "dataset index 9" in said
            assert "sample 1" in said
            assert "batch 2 of epoch" in said
            if workers:
                assert "worker" in said
                assert "in fail" in said  # the traceback of the worker


@WORKERS
def test_10_exception_that_cannot_be_pickled_arrives_with_its_type_and_text(workers: int) -> None:
    with DataLoader(
        At(9, Raise(functools.partial(StuckError, "held")), 16), batch_size=4, num_workers=workers
    ) as loader:
        error = run(loader, 2, StuckError)
        assert str(error) == "held"
        assert error.text == "held"


@WORKERS
def test_10_local_exception_class_arrives_as_itself(workers: int) -> None:
    class Local(LookupError):
        def __init__(self, code: int) -> None:
            super().__init__()
            self.code = code

        def __reduce__(self) -> Any:
            raise TypeError("no pickle")

    with DataLoader(
        At(9, Raise(functools.partial(Local, 5)), 16), batch_size=4, num_workers=workers
    ) as loader:
        error = run(loader, 2, Local)
        assert error.code == 5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
@WORKERS
def test_10_exception_group_arrives_whole(workers: int) -> None:
    group = functools.partial(
        ExceptionGroup,  # noqa: F821
        "two",
        [ValueError("a"), OddError("b", line=1)],
    )
    with DataLoader(At(9, Raise(group), 16), batch_size=4, num_workers=workers) as loader:
        error = run(loader, 2, ExceptionGroup)  # noqa: F821
        assert [type(one) for one in error.exceptions] == [ValueError, OddError]
        assert error.exceptions[1].line == 1


@WORKERS
def test_01_result_that_cannot_be_pickled_is_an_ordinary_error_of_its_batch(workers: int) -> None:
    def sample(index: int) -> Any:
        odd = UnpicklableResult() if index == 9 else index
        return np.full(8, index, np.float32), index, {"deep": [str(index), odd]}

    loader = DataLoader(
        Calls(sample, 16), batch_size=4, num_workers=workers, collate_fn=collate_keeping_objects
    )
    with loader:
        if workers == 0:
            assert len(list(loader)) == 4  # nothing has to be pickled
            return
        for _ in range(2):
            error = run(loader, 2, DatasetError)
            assert "UnpicklableResult" in str(error)
            assert "this object stays here" in str(error)


def collate_keeping_objects(samples: list[Any]) -> Any:
    return (
        np.stack([s[0] for s in samples]),
        np.array([s[1] for s in samples]),
        [s[2] for s in samples],
    )


def test_01_result_that_cannot_be_pickled_is_reported_by_default_collate_too() -> None:
    samples = [(np.ones(2), UnpicklableResult() if i == 5 else "x") for i in range(8)]
    with DataLoader(Calls(samples.__getitem__, 8), batch_size=4, num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(DatasetError, match=r"UnpicklableResult cannot be pickled"):
            next(batches)


def test_01_object_that_pickles_but_does_not_unpickle_is_reported_at_its_place() -> None:
    with DataLoader(
        Calls(lambda i: Trap() if i == 5 else i, 12), batch_size=4, num_workers=2, collate_fn=list
    ) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1, 2, 3]
        with pytest.raises((LookupError, DatasetError), match="sprung"):
            next(batches)
        assert next(batches) == [8, 9, 10, 11]
        with pytest.raises(StopIteration):
            next(batches)
        assert loader.stats()["arena"] is None or loader.stats()["arena"]["ready_slots"] == 0


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_01_object_that_exits_when_it_is_unpickled_is_reported_at_its_place(
    kind: type[BaseException],
) -> None:
    with DataLoader(
        Calls(lambda i: Exit(kind) if i == 5 else i, 12),
        batch_size=4,
        num_workers=2,
        collate_fn=list,
    ) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1, 2, 3]
        with pytest.raises(DatasetError, match=r"batch 1 .* cannot be unpickled in this") as info:
            next(batches)
        assert isinstance(info.value.__cause__, kind)
        assert next(batches) == [8, 9, 10, 11]
        with pytest.raises(StopIteration):
            next(batches)


@pytest.mark.parametrize("kind", [SystemExit, LookupError])
def test_01_exception_of_a_handler_while_a_batch_is_opened_is_raised(
    kind: type[BaseException],
) -> None:
    # signal handlers run between the lines of code that unpickling calls
    def leave(number: int, frame: Any) -> None:
        raise kind("the handler")

    _opened.clear()
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with DataLoader(
            Calls(lambda i: Once() if i == 1 else i, 4), batch_size=2, num_workers=1,
            collate_fn=list,
        ) as loader:  # fmt: skip
            batches = iter(loader)
            with pytest.raises(kind, match="the handler"):
                next(batches)
            assert next(batches) == [0, "opened"]
            assert next(batches) == [2, 3]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_01_exception_of_a_handler_while_an_exception_is_opened_is_raised() -> None:
    def leave(number: int, frame: Any) -> None:
        raise LookupError("the handler")

    def sample(index: int) -> int:
        if index == 1:
            raise Signalling("of the dataset")
        return index

    _opened.clear()
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with DataLoader(Calls(sample, 4), batch_size=2, num_workers=1) as loader:
            batches = iter(loader)
            with pytest.raises(LookupError, match="the handler"):
                next(batches)
            with pytest.raises(Signalling, match="of the dataset"):
                next(batches)
            assert next(batches).tolist() == [2, 3]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_01_key_that_exits_when_it_is_unpickled_ends_no_worker() -> None:
    sampler = [[1, Exit(SystemExit)], [2, 3]]
    with DataLoader(Calls(lambda i: i, 4), batch_sampler=sampler, num_workers=2) as loader:
        batches = iter(loader)
        with pytest.raises(DatasetError, match="cannot be unpickled in the worker"):
            next(batches)
        assert next(batches).tolist() == [2, 3]


class Exit:
    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return leave_by, (self.kind,)


def leave_by(kind: type[BaseException]) -> None:
    raise kind("sprung")


class Once:
    def __reduce__(self) -> Any:
        return open_slowly, ()


class Signalling(Exception):
    """Raises a signal when it is unpickled for the first time."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.mark = 1

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        open_slowly()


_opened: list[int] = []


def open_slowly() -> str:
    _opened.append(0)
    if len(_opened) == 1:
        signal.raise_signal(signal.SIGUSR1)
    return "opened"


class Trap:
    def __reduce__(self) -> Any:
        return spring, ()


def spring() -> None:
    raise LookupError("sprung")


@WORKERS
def test_01_batches_before_an_error_come_first_and_the_loader_stays_usable(workers: int) -> None:
    bad = {0, 15, 31, 63}

    def sample(index: int) -> tuple[Any, int]:
        if index in bad:
            raise ValueError(index)
        return np.full(8, index, np.float32), index

    with DataLoader(
        Calls(sample, 64), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        for _ in range(3):
            batches = iter(loader)
            for n in range(16):
                wanted = set(range(4 * n, 4 * n + 4)) & bad
                if wanted:
                    with pytest.raises(ValueError) as info:  # noqa: PT011
                        next(batches)
                    assert set(info.value.args) == wanted
                else:
                    check_rows(next(batches), range(4 * n, 4 * n + 4))
            with pytest.raises(StopIteration):
                next(batches)


@WORKERS
def test_01_every_batch_fails_and_each_is_reported(workers: int) -> None:
    def sample(index: int) -> Any:
        raise OddError("x", line=index)

    with DataLoader(Calls(sample, 32), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        for n in range(8):
            with pytest.raises(OddError) as info:
                next(batches)
            assert info.value.line == 4 * n
        with pytest.raises(StopIteration):
            next(batches)


@WORKERS
def test_01_batch_of_strings_alone_arrives(workers: int) -> None:
    with DataLoader(Calls(lambda i: f"s{i}", 8), batch_size=4, num_workers=workers) as loader:
        assert list(loader) == [["s0", "s1", "s2", "s3"], ["s4", "s5", "s6", "s7"]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("nothing", [None, (), [], {}, "", b"", False, 0])
@WORKERS
def test_01_batch_without_tensors_that_is_false_or_empty_arrives(
    workers: int, nothing: Any
) -> None:
    for options in ({"collate_fn": lambda samples: nothing}, {"batch_size": None}):
        with DataLoader(
            Calls(lambda i: nothing, 5),
            num_workers=workers,
            **options,  # type: ignore[arg-type]
        ) as loader:
            found = list(loader)
            assert len(found) == 5
            assert all(type(one) is type(nothing) and one == nothing for one in found)


@WORKERS
def test_10_runaway_recursion_of_the_dataset_arrives(workers: int) -> None:
    def fall(index: int) -> Any:
        return fall(index)

    with DataLoader(At(9, fall, 16), batch_size=4, num_workers=workers) as loader:
        run(loader, 2, RecursionError)


@pytest.mark.parametrize("way", ["stack", "collate", "cycle"])  # of a collate_fn: test_aliases.py
def test_10_sample_nested_too_deep_is_an_error_and_no_crash(way: str, program: Any) -> None:
    trainer = program(
        """
        import sys
        from reader import DataLoader
        from tests.datasets import Calls

        def nest(index):
            made = inner = []
            for _ in range(200_000):
                inner.append([])
                inner = inner[0]
            return made

        def cycle(index):
            made = []
            made.append(made)
            return made

        WAY = sys.argv[1]
        dataset = Calls(cycle if WAY == "cycle" else nest, 4)
        collate = (lambda samples: samples) if WAY == "collate" else None
        for workers in (2, 0):
            loader = DataLoader(dataset, batch_size=2, num_workers=workers, collate_fn=collate,
                                worker_retries=0)
            batches = iter(loader)
            for _ in range(2):
                try:
                    next(batches)
                except Exception as error:
                    print(type(error).__name__, flush=True)
            loader.close()
        """,
        way,
    )
    status, out, err = trainer.finish(40)
    assert status == 0, err[-2000:]
    assert len(out.split()) == 4
    assert set(out.split()) <= {"RecursionError", "CollateError", "DatasetError", "ValueError"}


MIXED: dict[str, tuple[Any, Any, str]] = {
    "shape": (np.zeros(3), np.zeros(4), r"shape \(4,\).*\(3,\)"),
    "ndim": (np.zeros(3), np.zeros((3, 1)), r"shape \(3, 1\).*\(3,\)"),
    "0-d": (np.zeros(()), np.zeros(1), r"shape \(1,\).*\(\)"),
    "dtype": (np.zeros(3, "f4"), np.zeros(3, "f8"), "float64.*float32"),
    "kind": (np.zeros(3), "text", "str.*float64"),
    "none": (np.zeros(3), None, "None.*float64"),
    "array after object": ("text", np.zeros(3), "array.*str"),
    "int and float": (1, 1.5, "float.*int"),
    "int and bool": (1, True, "bool.*int"),
    "bool and int": (True, 1, "int.*bool"),
    "float and int": (1.5, 1, "int.*float"),
    "number and none": (1, None, "None.*int"),
    "list lengths": ([1, 2], [1, 2, 3], "3 entries.*2"),
    "dict keys": ({"a": 1}, {"b": 1}, r"\['b'\].*\['a'\]"),
    "more keys": ({"a": 1}, {"a": 1, "b": 2}, r"\['a', 'b'\].*\['a'\]"),
    "tuple and list": ((1, 2), [1, 2], "list.*tuple"),
    "dataclass and dict": (Box(1, 2), {"image": 1}, "dict.*Box"),
    "numpy scalar": (np.float32(1), np.float64(1), "float64.*float32"),
    "string lengths": (np.array("ab"), np.array("abc"), "str.*str"),
    "datetime units": (np.zeros(2, "M8[s]"), np.zeros(2, "M8[ms]"), r"ms.*\[s\]"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", MIXED)
@WORKERS
def test_samples_that_do_not_fit_are_named_with_how_they_differ(workers: int, case: str) -> None:
    good, bad, text = MIXED[case]

    def sample(index: int) -> Any:
        return {"x": [bad if index == 6 else good]}

    with DataLoader(Calls(sample, 12), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(CollateError, match=text) as info:
            next(batches)
        assert "sample 2 (dataset index 6)" in str(info.value)
        assert "sample 0 (dataset index 4)" in str(info.value)
        assert "['x'][0]" in str(info.value)
        next(batches)
        with pytest.raises(StopIteration):
            next(batches)


@WORKERS
def test_integer_too_large_for_int64_is_refused_by_value(workers: int) -> None:
    with (
        DataLoader(Calls(lambda i: 2**63 + i, 4), batch_size=4, num_workers=workers) as loader,
        pytest.raises(CollateError, match=str(2**63)),
    ):
        list(loader)


@WORKERS
def test_getitems_of_the_wrong_length_is_refused(workers: int) -> None:
    class Short(Rows):
        def __getitems__(self, indices: list[int]) -> Any:
            return [self[index] for index in indices][:-1]

    class Lazy(Rows):
        def __getitems__(self, indices: list[int]) -> Any:
            return (self[index] for index in indices)

    for dataset, text in ((Short(8), "4 indices and returned 3"), (Lazy(8), "generator")):
        for collate in (None, list):
            with (
                DataLoader(
                    dataset, batch_size=4, num_workers=workers, collate_fn=collate
                ) as loader,
                pytest.raises(DatasetError, match=text),
            ):
                list(loader)


def yields_then(count: int, error: BaseException) -> Any:
    def make() -> Iterator[Any]:
        yield from range(count)
        raise error

    return Iterates(make)


@pytest.mark.parametrize("kind", [ValueError, OSError, SystemExit, GeneratorExit])
@WORKERS
def test_01_error_of_the_sampler_is_raised_after_the_batches_before_it(
    workers: int, kind: type[BaseException]
) -> None:
    with DataLoader(
        Rows(64), batch_size=4, num_workers=workers, sampler=yields_then(12, kind("sampled"))
    ) as loader:
        for _ in range(2):
            batches = iter(loader)
            for n in range(3):
                check_rows(next(batches), range(4 * n, 4 * n + 4))
            with pytest.raises((kind, DatasetError)) as info:
                next(batches)
            assert type(info.value) is kind or type(info.value.__cause__) is kind
            with pytest.raises(StopIteration):
                next(batches)


@WORKERS
def test_01_ctrl_c_inside_the_sampler_is_raised_and_loses_no_batch(workers: int) -> None:
    with DataLoader(
        Rows(64), batch_size=4, num_workers=workers, sampler=yields_then(48, KeyboardInterrupt())
    ) as loader:
        batches = iter(loader)
        found: list[int] = []
        raised = 0
        for _ in range(20):
            try:
                found.append(int(next(batches)[1][0]))
            except StopIteration:
                break
            except KeyboardInterrupt:
                raised += 1
            except SamplerError as error:  # the sampler cannot go on, and that is not the end
                assert "batch 12" in str(error)  # noqa: PT017
                raised += 10
        assert found == list(range(0, 48, 4))
        assert 11 <= raised < 20


GARBAGE: dict[str, tuple[Any, type[BaseException], str]] = {
    "too large": (64, SampleIndexError, "index 64 in batch 1.*64 samples"),
    "too small": (-65, SampleIndexError, "index -65 in batch 1.*64 samples"),
    "none": (None, SamplerError, "None.*batch 1"),
    "float": (1.0, SamplerError, r"1\.0 \(float\) in batch 1"),
    "bool": (True, SamplerError, "True.*batch 1"),
    "list": ([1], SamplerError, r"\[1\].*batch 1"),
    "huge": (2**70, IndexError, "."),
    "unpicklable": (UnpicklableResult(), SamplerError, "UnpicklableResult"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("workers", "case"),  # without workers no key is pickled
    [(n, case) for n in (0, 2) for case in GARBAGE if n or case != "unpicklable"],
)
def test_sampler_that_yields_garbage_is_reported_at_its_place(workers: int, case: str) -> None:
    garbage, kind, text = GARBAGE[case]
    loader = DataLoader(
        Rows(64), batch_size=4, num_workers=workers, sampler=[0, 1, 2, 3, 4, garbage, 6, 7]
    )
    with loader:
        for _ in range(2):
            batches = iter(loader)
            check_rows(next(batches), range(4))
            with pytest.raises(kind, match=text):
                next(batches)


@pytest.mark.parametrize(
    ("garbage", "text"),
    [(5, "5.*list of"), ("0123", "'0123'"), (None, "None"), ([], "empty batch"), ({1: 2}, "dict")],
)
@WORKERS
def test_batch_sampler_that_yields_garbage_is_reported_at_its_place(
    workers: int, garbage: Any, text: str
) -> None:
    with DataLoader(Rows(64), num_workers=workers, batch_sampler=[[0, 1, 2, 3], garbage]) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))
        with pytest.raises(SamplerError, match=text):
            next(batches)


@WORKERS
def test_10_batch_sampler_that_reuses_its_list_does_not_spoil_messages(workers: int) -> None:
    def make() -> Iterator[list[int]]:
        batch = [0, 0]
        for n in range(8):
            batch[:] = [2 * n, 2 * n + 1]
            yield batch

    with DataLoader(
        At(5, Raise(ValueError), 16), num_workers=workers, batch_sampler=Iterates(make)
    ) as loader:
        batches = iter(loader)
        check_rows(next(batches), [0, 1])
        check_rows(next(batches), [2, 3])
        with pytest.raises(ValueError) as info:  # noqa: PT011
            next(batches)
        assert "dataset index 5 " in notes_of(info.value)
        assert "[4, 5]" in notes_of(info.value)
        check_rows(next(batches), [6, 7])


@WORKERS
def test_10_index_error_of_a_dataset_shorter_than_it_says_arrives(workers: int) -> None:
    class Liar(Rows):
        def __getitem__(self, index: int) -> Any:
            if index >= 10:
                raise IndexError("only 10 samples")
            return super().__getitem__(index)

    with DataLoader(Liar(16), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        for n in range(2):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
        for _ in range(2):
            with pytest.raises(IndexError, match="only 10 samples"):
                next(batches)


@WORKERS
def test_exception_raised_by_len_of_the_dataset_arrives(workers: int) -> None:
    class Odd(Rows):
        def __len__(self) -> int:
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        DataLoader(Odd(8), batch_size=4, num_workers=workers)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@WORKERS
def test_10_errors_are_the_same_for_frameworks(workers: int, framework: str) -> None:
    pytest.importorskip(framework)
    with DataLoader(
        At(9, Raise(functools.partial(OddError, "p", line=2)), 16),
        batch_size=4,
        num_workers=workers,
        framework=framework,
    ) as loader:
        assert run(loader, 2, OddError).line == 2
