"""The digest of a dataset: which attributes of its class count, and which do not."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import os
import subprocess
import sys
import threading
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, Dataset, cache
from reader.caching.digest import digest_of

ROOT = Path(__file__).parents[2]


class Scale:
    def __init__(self, by: int) -> None:
        self.by = by


def with_attribute(value: Any) -> Any:
    class Made(Dataset[int]):
        attribute = value

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index

    return Made()


def nested(number: int) -> type:
    class Inner:
        by = number

    return Inner


def times(by: int) -> Callable[[Any], int]:
    return lambda _: by


def dispatched(by: int) -> Any:
    method = functools.singledispatchmethod(times(1))
    method.register(int, times(by))
    return method


def wrapped(by: int) -> Any:
    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*arguments) * by

        return call

    return decorated(abs_of)


def abs_of(value: Any) -> Any:
    return abs(value)


KINDS: dict[str, Callable[[int], Any]] = {
    "array": lambda n: np.arange(5) * n,
    "strided": lambda n: (np.arange(10) * n)[::3],
    "scalar": np.float32,
    "path": lambda n: Path(f"folder {n}"),
    "dtype": lambda n: np.dtype(f"S{n}"),
    "object": Scale,
    "objects": lambda n: {"a": [Scale(1), Scale(n)]},
    "class": nested,
    "classes": lambda n: [nested(n)],
    "partial": lambda n: functools.partial(times(1), n),
    "partial function": lambda n: functools.partial(times(n)),
    "partialmethod": lambda n: functools.partialmethod(times(n)),
    "cached_property": lambda n: functools.cached_property(times(n)),
    "property": lambda n: property(times(n)),
    "singledispatchmethod": dispatched,
    "lru_cache": lambda n: functools.lru_cache(times(n)),
    "staticmethod": lambda n: staticmethod(times(n)),
    "decorated": wrapped,
    "function in a list": lambda n: [times(n)],
    "class within": lambda n: {"kind": type("Kind", (), {"by": np.array(n)})},
}


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_of_a_class_count(kind: str) -> None:
    digests = [digest_of(with_attribute(KINDS[kind](number))) for number in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


def test_tensors_of_a_class_count() -> None:
    torch = pytest.importorskip("torch")
    digests = [digest_of(with_attribute(torch.full((2,), n))) for n in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


def test_datasets_that_cannot_be_distinguished_need_a_version(tmp_path: Path) -> None:
    dataset = with_attribute(threading.Lock())
    assert digest_of(dataset) is None
    with pytest.raises(ConfigError, match=r"an attribute of its class cannot, .* pass version="):
        cache(dataset, disk=tmp_path)
    assert cache(dataset, disk=tmp_path, version="1")[2] == 2


class Colour(enum.Enum):
    RED = 1
    BLUE = (2, "b")


class Abstract(abc.ABC, typing.Generic[typing.TypeVar("T")]):
    __slots__ = ("a", "b")
    kinds = typing.TypeVar("kinds")
    module = types

    @abc.abstractmethod
    def one(self) -> int: ...


class Concrete(Abstract):  # type: ignore[type-arg]
    colour = Colour.RED
    path = Path("a")
    names = frozenset("abcdef")
    scales: typing.ClassVar = {Scale, Colour, Dataset}
    table = np.arange(4)

    def one(self) -> int:
        return 1

    def again(self) -> Any:
        return self.again if self.one in {"x", "y", "z"} else super().one

    @functools.cached_property
    def kept(self) -> int:
        return 1

    def __enter__(self) -> Concrete:
        return self


Concrete.itself = Concrete()  # type: ignore[attr-defined]


@dataclasses.dataclass
class Plain:
    size: int = 3
    names: list[str] = dataclasses.field(default_factory=list)


def each_other() -> Any:
    def one(n: int) -> Any:
        return other(n), one

    def other(n: int) -> Any:
        return one(n), other

    return with_attribute([one, other])


RUN = """
import sys
from tests.unit.test_digest import *
print([digest_of(each) for each in (Concrete(), Plain(), Colour.BLUE, each_other(), wrapped)])
print([digest_of(with_attribute(KINDS[kind](4))) for kind in KINDS])
"""


@pytest.mark.peer
def test_a_digest_of_classes_is_the_same_in_each_run() -> None:
    found = set()
    for seed in ("1", "2", "3"):
        run = subprocess.run(
            [sys.executable, "-c", RUN],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.add(run.stdout)
    assert len(found) == 1
    assert "None" not in found.pop()


def test_the_position_of_code_does_not_count() -> None:
    def made(before: str) -> Any:
        names: dict[str, Any] = {"__name__": "users.module"}
        text = "class Some:\n @staticmethod\n def f(a=(1, 2)): return [i for i in a]\n"
        exec(before + text, names)
        return names["Some"]()

    assert digest_of(made("")) == digest_of(made("\n\n# more\n\n")) is not None


def test_classes_of_packages_cost_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pytest.importorskip("torch").utils.data

    class OfTorch(data.Dataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> int:
            return index

        def __len__(self) -> int:
            return 1

    assert digest_of(OfTorch()) is not None
    # as a package with a lock does
    monkeypatch.setattr(data.Dataset, "lock", threading.Lock(), raising=False)
    monkeypatch.setattr(data.Dataset, "kinds", {"lock": threading.Lock()}, raising=False)
    assert digest_of(OfTorch()) is not None
