"""What an exception of ours says, and that it survives pickle and copy."""

from __future__ import annotations

import copy
import pickle

import pytest

from reader import errors
from reader.errors import (
    ArenaFull,
    CollateError,
    ConfigError,
    ConfigTypeError,
    DatasetError,
    ImageError,
    InternalError,
    LoadTimeout,
    QueueClosed,
    QueueKilled,
    ReaderError,
    SampleIndexError,
    SamplerError,
    StateError,
    WorkerDied,
)

EXAMPLES = [
    ReaderError("root"),
    ConfigError("bad value"),
    ConfigTypeError("bad type"),
    SamplerError("garbage"),
    SampleIndexError("out of range"),
    StateError("another dataset"),
    DatasetError("dataset"),
    CollateError("shapes differ"),
    ImageError("an image of 3 bytes"),
    WorkerDied(pid=7, exitcode=-9, worker_id=1, batch=3, epoch=2, indices=[4, 5]),
    ArenaFull(need_bytes=2000, have_bytes=10, limit_bytes=1500, knob="max_bytes"),
    QueueClosed("closed"),
    QueueKilled(reason="the trainer stopped"),
    LoadTimeout(timeout_s=0.5, batch=3, epoch=1),
    InternalError("slot 3 is FREE twice"),
]


def fields_of(exc: BaseException) -> tuple[object, ...]:
    return type(exc), exc.args, str(exc), exc.__dict__


def test_examples_cover_every_exception() -> None:
    assert {type(e).__name__ for e in EXAMPLES} == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize("exc", EXAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_survives_pickle_with_its_fields(exc: ReaderError, protocol: int) -> None:
    assert fields_of(pickle.loads(pickle.dumps(exc, protocol))) == fields_of(exc)


@pytest.mark.parametrize("exc", EXAMPLES, ids=lambda e: type(e).__name__)
def test_survives_copy_with_its_fields(exc: ReaderError) -> None:
    assert fields_of(copy.copy(exc)) == fields_of(exc)
    assert fields_of(copy.deepcopy(exc)) == fields_of(exc)


def test_notes_and_added_attributes_survive_pickle() -> None:
    exc = WorkerDied(pid=1)
    exc.__notes__ = ["a note"]
    exc.extra = 5  # type: ignore[attr-defined]
    back = pickle.loads(pickle.dumps(exc))
    assert back.__notes__ == ["a note"]
    assert back.extra == 5


@pytest.mark.parametrize(
    ("cls", "family"),
    [
        (ConfigError, ValueError),
        (ConfigTypeError, TypeError),
        (ConfigTypeError, ValueError),
        (SamplerError, ConfigError),
        (SampleIndexError, IndexError),
        (StateError, ConfigError),
        (SampleIndexError, SamplerError),
        (DatasetError, RuntimeError),
        (CollateError, ValueError),
        (CollateError, DatasetError),
        (ImageError, DatasetError),
        (WorkerDied, RuntimeError),
        (ArenaFull, MemoryError),
        (LoadTimeout, TimeoutError),
        (InternalError, RuntimeError),
    ],
)
def test_belongs_to_the_family_python_users_catch(cls: type, family: type) -> None:
    assert issubclass(cls, family)
    assert issubclass(cls, ReaderError)


@pytest.mark.parametrize("exc", EXAMPLES, ids=lambda e: type(e).__name__)
def test_the_tree_in_the_docstring_names_every_exception(exc: ReaderError) -> None:
    assert errors.__doc__ is not None
    assert type(exc).__name__ in errors.__doc__


@pytest.mark.parametrize(
    ("exitcode", "signal_name", "says"),
    [
        (-9, "SIGKILL", "memory runs out"),
        (-11, "SIGSEGV", "faulthandler"),
        (-15, "SIGTERM", "Something outside the loader"),
        (-64, "SIGRTMAX", "was killed by SIGRTMAX"),
        (-99, "signal 99", "was killed by signal 99"),
        (3, None, "exit code 3"),
        (None, None, "exit code is not known"),
    ],
)
def test_worker_died_says_how_and_what_to_do(
    exitcode: int | None, signal_name: str | None, says: str
) -> None:
    exc = WorkerDied(pid=70, exitcode=exitcode, worker_id=2, batch=5, epoch=1, indices=(8, 9))
    assert exc.signal_name == signal_name
    assert exc.indices == [8, 9]
    text = str(exc)
    assert says in text
    assert text.startswith("worker 2 (pid 70)")
    assert "batch 5 of epoch 1 (dataset indices [8, 9])" in text


def test_worker_died_idle_names_no_batch() -> None:
    exc = WorkerDied(exitcode=-9)
    assert str(exc).startswith("a worker was killed by SIGKILL while it was idle.")
    assert (exc.batch, exc.epoch, exc.indices) == (None, None, None)


def test_a_given_message_replaces_the_composed_one() -> None:
    assert str(WorkerDied("mine", pid=1)) == "mine"
    assert str(ArenaFull("mine", need_bytes=1)) == "mine"
    assert str(LoadTimeout("mine", timeout_s=1.0)) == "mine"
    assert str(QueueKilled("mine", reason="why")) == "mine"


def test_worker_died_shortens_a_long_list_of_indices() -> None:
    assert len(str(WorkerDied(pid=1, batch=0, indices=range(100_000)))) < 500


def test_arena_full_says_need_have_limit_and_knob() -> None:
    exc = ArenaFull(need_bytes=2_000, have_bytes=10, limit_bytes=1_500, knob="max_bytes")
    assert str(exc).startswith("a batch needs 2,000 bytes of shared memory, and 10 bytes of")
    assert "Raise max_bytes" in str(exc)
    assert (exc.need_bytes, exc.have_bytes, exc.limit_bytes, exc.knob) == (
        2_000, 10, 1_500, "max_bytes",
    )  # fmt: skip


def test_queue_killed_keeps_its_reason() -> None:
    assert str(QueueKilled(reason="stop")) == "the queue was killed: stop"
    assert str(QueueKilled()) == "the queue was killed: no reason was given"
    assert QueueKilled("text alone").reason == "text alone"
    reason = ValueError("why")
    exc = QueueKilled(reason=reason)
    assert exc.reason is reason
    assert "ValueError('why')" in str(exc)


def test_load_timeout_says_batch_deadline_and_remedy() -> None:
    text = str(LoadTimeout(timeout_s=0.25, batch=3, epoch=1))
    assert text.startswith("batch 3 of epoch 1 did not arrive within timeout=0.25 s.")
    assert "0 waits without a deadline" in text
    assert str(LoadTimeout()).startswith("the next batch did not arrive within its deadline")


def test_internal_error_asks_to_be_reported() -> None:
    assert "slot 3. This is a bug in reader: please report it" in str(InternalError("slot 3"))


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_shown_never_raises_and_is_short() -> None:
    assert "Hostile" in errors.shown(_Hostile())
    assert len(errors.shown("x" * 10_000)) <= 100
    assert len(errors.shown([["x" * 500] * 500] * 500)) < 20_000
    assert "int" in errors.shown(10**10_000)
    assert errors.got(0) == "0 (int)"
