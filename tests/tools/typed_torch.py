"""A typed torch program: mypy and pyright give the same verdicts when its import is switched.

Nothing runs it. Some of its lines are wrong, and `# error` ends those that both must refuse.
"""
# pyright: strict

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)
from typing_extensions import assert_type

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Image = npt.NDArray[np.float32]


class Example(NamedTuple):
    image: Tensor
    label: int


class Examples(Dataset[Example]):
    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __getitem__(self, index: int) -> Example:
        return Example(torch.zeros(3), index)

    def __len__(self) -> int:
        return self.count


class Lines(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        worker = get_worker_info()
        if worker is not None:
            random.seed(worker.seed + worker.id + worker.num_workers)
            print(worker.dataset)
        yield "a"


class Bare:  # of the right form, and no Dataset
    def __getitem__(self, index: int) -> str:
        return str(index)

    def __len__(self) -> int:
        return 4


class Evens(Sampler[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        yield from range(0, self.count, 2)

    def __len__(self) -> int:
        return self.count // 2


class Pairs(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        yield [0, 1]


def collate(samples: list[Example]) -> Example:
    return Example(torch.stack([each.image for each in samples]), len(samples))


def collate_sequence(samples: Sequence[Example]) -> dict[str, Tensor]:
    return {"image": torch.stack([each.image for each in samples])}


def seed_worker(worker_id: int) -> None:
    np.random.seed(worker_id)


def init_worker_wrongly(worker_id: str) -> None:
    print(worker_id)


class ExampleLoader(DataLoader[Example]):
    def __init__(self, dataset: Dataset[Example], **options: Any) -> None:
        super().__init__(dataset, **options)
        self.seen = 0

    def __iter__(self) -> Any:
        self.seen += 1
        return super().__iter__()

    def __len__(self) -> int:
        return super().__len__() + 1


class AnyLoader(DataLoader[T_co]):
    def __init__(self, dataset: Dataset[T_co], batch_size: int = 4) -> None:
        super().__init__(dataset, batch_size=batch_size, collate_fn=default_collate)


class NamedLoader(DataLoader[Example]):
    dataset: Examples

    def count(self) -> int:
        return self.dataset.count


class Trainer:
    train: DataLoader[Example]
    test: DataLoader[Example] | None = None

    def __init__(self, train: DataLoader[Example]) -> None:
        self.train = train

    def train_dataloader(self) -> DataLoader[Example]:
        return DataLoader(Examples(), batch_size=4, shuffle=True, num_workers=2)


def first(loader: DataLoader[T]) -> T:
    return loader.dataset[0]


def batches(loader: Iterable[Any]) -> int:
    return sum(1 for _ in loader)


examples = Examples()
images = TensorDataset(torch.zeros(4, 3), torch.zeros(4))

# positions and names
assert_type(DataLoader(examples), DataLoader[Example])
assert_type(DataLoader(examples, 4, True), DataLoader[Example])
assert_type(DataLoader(Lines(), batch_size=None), DataLoader[str])
assert_type(DataLoader(images, 4), DataLoader[tuple[Tensor, ...]])
full = DataLoader(
    examples,
    4,
    False,
    Evens(8),
    None,
    2,
    collate,
    False,
    False,
    1.5,
    seed_worker,
    "spawn",
    torch.Generator(),
    prefetch_factor=2,
    persistent_workers=True,
    pin_memory_device="",
    in_order=True,
)
assert_type(full, DataLoader[Example])
options: dict[str, Any] = {"batch_size": 2, "num_workers": 0}
assert_type(DataLoader(examples, **options), DataLoader[Example])
plain: DataLoader[Any] = DataLoader(examples, multiprocessing_context=torch.multiprocessing)
wider: DataLoader[tuple[Tensor, int]] = DataLoader(examples)
Trainer(plain).test = DataLoader(examples)

# samplers
DataLoader(examples, sampler=SubsetRandomSampler([0, 1]))
DataLoader(examples, sampler=WeightedRandomSampler([0.1, 0.9], 2), batch_size=2)
DataLoader(examples, sampler=[2, 1, 0])
DataLoader(examples, sampler=range(3))
DataLoader(examples, sampler=DistributedSampler(examples, 2, 0))
DataLoader(examples, sampler=RandomSampler(examples, replacement=True, num_samples=3))
DataLoader(examples, batch_sampler=BatchSampler(SequentialSampler(examples), 2, False))
DataLoader(examples, batch_sampler=Pairs())
DataLoader(examples, batch_sampler=[[0, 1], [2]])
DataLoader(examples, sampler=BatchSampler(Evens(8), 2, drop_last=True), batch_size=None)

# datasets
halves = random_split(examples, [0.5, 0.5], generator=torch.Generator().manual_seed(1))
assert_type(halves, list[Subset[Example]])
assert_type(DataLoader(halves[0]), DataLoader[Example])
assert_type(DataLoader(Subset(examples, [0, 1])), DataLoader[Example])
both: ConcatDataset[Example] = ConcatDataset([examples, examples])
assert_type(DataLoader(both), DataLoader[Example])
assert_type(DataLoader(examples + examples), DataLoader[Example])
DataLoader(ChainDataset([Lines(), Lines()]))
DataLoader(StackDataset(examples, images))

# collating
DataLoader(examples, collate_fn=default_collate)
DataLoader(examples, collate_fn=default_convert, batch_size=None)
DataLoader(examples, collate_fn=collate_sequence)
DataLoader(examples, collate_fn=lambda samples: len(samples))
DataLoader(examples, collate_fn=list)
DataLoader(examples, worker_init_fn=lambda worker_id: None)

# the loader, its batches and its attributes
for batch in full:
    assert_type(batch, Any)
    print(batch.image.shape + 1)
for step, (features, labels) in enumerate(DataLoader(images)):
    print(step, features.mean(), labels)
assert_type(next(iter(full)), Any)
iterator = iter(full)
count: int = len(full) + batches(full)
assert_type(full.dataset, Dataset[Example])
assert_type(full.dataset[0], Example)
assert_type(full.batch_size, int | None)
assert_type(full.num_workers, int)
assert_type(full.pin_memory, bool)
assert_type(full.drop_last, bool)
assert_type(full.timeout, float)
assert_type(full.prefetch_factor, int | None)
assert_type(full.pin_memory_device, str)
assert_type(first(full), Example)
print(full.sampler, full.batch_sampler, full.collate_fn, full.worker_init_fn, full.generator)
print(full.persistent_workers, full.in_order)
full.multiprocessing_context = None
full.check_worker_number_rationality()
if isinstance(full.sampler, DistributedSampler):
    full.sampler.set_epoch(1)
if isinstance(full.dataset, IterableDataset | IterDataPipe | MapDataPipe):
    print("a stream")
assert isinstance(full, torch.utils.data.DataLoader)
peers: list[torch.utils.data.DataLoader[Example]] = [full, ExampleLoader(examples, batch_size=2)]
assert_type(AnyLoader(examples), AnyLoader[Example])
assert_type(NamedLoader(examples).count(), int)
info = get_worker_info()
print(default_collate([torch.zeros(1)]))
print(default_convert([1]))

# what torch's stubs refuse
DataLoader()  # error
DataLoader(5)  # error
DataLoader([1, 2, 3])  # error
DataLoader(Bare())  # error
DataLoader(examples, num_worker=2)  # error
DataLoader(examples, batch_size="4")  # error
DataLoader(examples, shuffle="yes")  # error
DataLoader(examples, sampler=5)  # error
DataLoader(examples, batch_sampler=[0, 1])  # error
DataLoader(examples, collate_fn=5)  # error
DataLoader(examples, worker_init_fn=init_worker_wrongly)  # error
DataLoader(examples, worker_init_fn=lambda: None)  # error
DataLoader(examples, timeout="1")  # error
DataLoader(examples, prefetch_factor=0.5)  # error
DataLoader(examples, 1, None, None, None, 0, None, False, False, 0, None, None, None, 2)  # error
wrong: DataLoader[str] = DataLoader(examples)  # error
wrong_half: DataLoader[int] = DataLoader(halves[0])  # error
first(full).nothing()  # error
full.nothing()  # error
full.dataset.count()  # error
full.batch_size + 1  # error
full[0]  # error
next(full)  # error
random_split(examples, 5)  # error
Subset(examples, 5)  # error
TensorDataset([1])  # error
Trainer(DataLoader(Lines()))  # error
print(info.id)  # error


class Closed(DataLoader[Example]):
    def check_worker_number_rationality(self) -> str:  # error
        return ""
