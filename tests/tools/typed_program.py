"""A typed program: mypy and pyright read it, and nothing runs it.

`# error` ends each line that both must refuse; all others must pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import reader
from reader import DataLoader

Image = npt.NDArray[np.float32]


class Images(reader.Dataset[tuple[Image, int]]):
    def __getitem__(self, index: int) -> tuple[Image, int]:
        return np.zeros(3, np.float32), index

    def __len__(self) -> int:
        return 4


class Indexed:
    def __getitem__(self, index: int) -> str:
        return str(index)

    def __len__(self) -> int:
        return 4


class Keyed:
    def __getitem__(self, key: str) -> bytes:
        return key.encode()


class Lines(reader.IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        yield "a"


class Plain:
    def __iter__(self) -> Iterator[float]:
        yield 1.0


class Nothing:
    pass


def collate(samples: list[Any]) -> dict[str, Any]:
    return {"n": len(samples)}


def count(samples: list[int]) -> tuple[int, list[int]]:
    return len(samples), samples


class Numbers(DataLoader[int, tuple[int, list[int]]]):
    pass


def total(loader: DataLoader[int]) -> int:
    return sum(1 for _ in loader)


def means(loader: DataLoader[Any, Image]) -> list[Image]:
    return [batch.mean(0) for batch in loader]


assert_type(DataLoader(Images(), batch_size=2), DataLoader[tuple[Image, int]])
assert_type(DataLoader(Indexed()), DataLoader[str])
assert_type(DataLoader(Keyed(), sampler=["a"]), DataLoader[bytes])
assert_type(DataLoader([1, 2, 3]), DataLoader[int])
assert_type(DataLoader(tuple(str(n) for n in range(2))), DataLoader[str])
assert_type(DataLoader(range(4)), DataLoader[int])
assert_type(DataLoader(Lines()), DataLoader[str])
assert_type(DataLoader(Plain()), DataLoader[float])

loader: DataLoader[int] = DataLoader(
    range(4),
    batch_size=None,
    collate_fn=collate,
    framework="torch",
    worker_type="thread",
    num_workers=2,
)
spawned = DataLoader(Images(), start_method="spawn", num_workers=1)
with loader:
    for batch in loader:
        print(batch["n"] + 1)  # whatever the collating makes
for nothing_known in DataLoader(Images()):
    assert_type(nothing_known, Any)
counted = DataLoader(range(4), batch_size=2, collate_fn=count)
assert_type(counted, DataLoader[int, tuple[int, list[int]]])
for pair in counted:
    assert_type(pair, tuple[int, list[int]])
assert_type(next(iter(counted())), tuple[int, list[int]])
lengths = DataLoader(range(4), collate_fn=len)
assert_type(next(iter(lengths)), int)
assert_type(next(iter(Numbers(range(4), collate_fn=count))), tuple[int, list[int]])
total(counted)
means(DataLoader([np.zeros(3, np.float32)]))
declared: DataLoader[int, dict[str, Image]] = DataLoader(range(4), collate_fn=collate)
for batch_of_images in declared:
    assert_type(batch_of_images, dict[str, Image])
for features, labels in spawned:
    print(features.shape, labels.sum())
state: dict[str, Any] = spawned.state_dict()
spawned.load_state_dict(state)
length: int = len(spawned)

DataLoader(5)  # error
DataLoader(None)  # error
DataLoader(Nothing())  # error
DataLoader([1], num_worker=2)  # error
DataLoader([1], batch_size="4")  # error
DataLoader([1], framework="tensorflow")  # error
DataLoader([1], worker_type="fibre")  # error
DataLoader([1], start_method="vfork")  # error
DataLoader([1], collate_fn=5)  # error
wrong: DataLoader[str] = DataLoader([1, 2])  # error
means(counted)  # error
for pair in counted:
    pair.nothing()  # error
