"""The config of workers on other machines: pickled once, with its arrays in shared files."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, share
from reader.cluster.sent_config import put_config
from reader.processes.remote_config import open_remote, pickle_remote
from reader.worker.loop import WorkerConfig


def config_of(dataset: Any) -> WorkerConfig:
    return WorkerConfig(
        dataset=dataset,
        collate_fn=None,
        worker_init_fn=None,
        num_workers=1,
        seed=None,
        base_seed=0,
    )


def sent_twice(dataset: Any) -> tuple[Any, Any]:
    """The dataset as two workers of a machine get it."""
    sent = pickle_remote(config_of(dataset))
    try:
        found = [open_remote(sent.data, [os.dup(fd) for fd in sent.fds], sent.sizes) for _ in "12"]
        return found[0].dataset, found[1].dataset
    finally:
        sent.close()


def large(dtype: Any = np.int64) -> np.ndarray:
    return np.arange(1 << 14).astype(dtype)


@pytest.mark.parametrize(
    "array",
    [
        large(),
        large(np.float16).reshape(128, -1),
        np.asfortranarray(large().reshape(128, -1)),
        large().reshape(128, -1)[:, ::2],
        large("M8[s]"),
        np.array([{}, None]),
        np.arange(3),
        np.empty((0, 1 << 17)),
    ],
    ids="int half fortran strided time objects small empty".split(),
)
def test_arrays_arrive_as_they_are(array: np.ndarray) -> None:
    for found in sent_twice({"one": array, "same": array}):
        np.testing.assert_array_equal(found["one"], array)
        assert found["one"].dtype == array.dtype
        assert found["one"].flags.f_contiguous == array.flags.f_contiguous
        assert found["same"] is found["one"]


def test_each_worker_may_change_its_arrays_alone() -> None:
    array = large()
    one, other = sent_twice([array, large(np.uint8)])
    one[0][:] = 7
    assert (one[0] == 7).all()
    np.testing.assert_array_equal(other[0], array)
    np.testing.assert_array_equal(one[1], large(np.uint8))
    assert array[1] == 1


def test_arrays_that_are_read_only_stay_so() -> None:
    array = large()
    array.flags.writeable = False
    for found in sent_twice(array):
        np.testing.assert_array_equal(found, array)
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


def test_only_large_arrays_have_a_file() -> None:
    small = pickle_remote(config_of(np.zeros(1 << 12)))
    assert (small.fds, small.sizes) == ([], [])
    sent = pickle_remote(config_of([np.zeros(1 << 17), np.zeros(1 << 14)]))
    assert len(sent.fds) == 1
    assert sent.sizes == [1 << 20, 1 << 17]
    assert len(sent.data) < 1 << 16
    sent.close()


@dataclasses.dataclass
class Shared:
    words: Any
    numbers: Any
    table: Any
    own: Any


def test_shared_arrays_are_shared_by_the_workers_of_each_machine() -> None:
    words = [f"word {n}" for n in range(1000)]
    made = Shared(share(words), share(large()), share({"a": [1, 2], "b": [3]}), large())
    for found in sent_twice(made):
        assert list(found.words) == words
        np.testing.assert_array_equal(found.numbers, large())
        assert dict(found.table) == {"a": [1, 2], "b": [3]}
        assert type(found.words) is type(made.words)
        assert type(found.numbers) is type(made.numbers)
        found.own[0] = 5


def test_objects_of_one_machine_are_refused_with_a_remedy() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, pytest.raises(ConfigError, match="Open them lazily in the worker; arrays"):
        pickle_remote(config_of([share([1, 2]), ours]))


def test_too_many_files_are_refused_by_their_number() -> None:
    with pytest.raises(ConfigError, match=r"201 objects of reader\.share"):
        pickle_remote(config_of([share([n]) for n in range(201)]))


def test_files_are_stored_although_the_store_frees_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []  # as Ray 2.9 does
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(put=kept.append))
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file:
        sent = put_config(b"", [file.fileno()], [7])
    assert [part.tobytes() for part in kept] == [b"content"]
    assert sent.files == [(7, [None])]
