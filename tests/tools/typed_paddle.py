"""A typed paddle program: mypy and pyright give the same verdicts when its import is switched.

Nothing runs it. Some of its lines are wrong, and `# error` ends those that both must refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
import paddle.io
from paddle import Tensor
from paddle.io import (
    BatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedBatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequenceSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)
from typing_extensions import assert_type

Image = npt.NDArray[np.float32]
Example = tuple[Image, int]


class Examples(Dataset[Example]):
    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.count = count

    def __getitem__(self, idx: int) -> Example:
        return np.zeros(3, np.float32), idx

    def __len__(self) -> int:
        return self.count


class Lines(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        worker = get_worker_info()
        print(worker)
        yield "a"


class Bare:  # of the right form, and no Dataset
    def __getitem__(self, index: int) -> str:
        return str(index)

    def __len__(self) -> int:
        return 4


class Evens(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(0, 8, 2)

    def __len__(self) -> int:
        return 4


class Halves(BatchSampler):
    def __init__(self, count: int) -> None:
        super().__init__(dataset=Examples(count), batch_size=count // 2)

    def __iter__(self) -> Iterator[list[int]]:
        yield from super().__iter__()

    def __len__(self) -> int:
        return 2


def seed_worker(worker_id: int) -> None:
    np.random.seed(worker_id)


def init_worker_wrongly(worker_id: str) -> None:
    print(worker_id)


def collate(batch: Any) -> Any:
    return batch


class ExampleLoader(DataLoader):
    def __init__(self, dataset: Dataset[Any], **options: Any) -> None:
        super().__init__(dataset, **options)
        self.seen = 0

    def __len__(self) -> int:
        return super().__len__() + 1


class Trainer:
    train: DataLoader
    test: DataLoader | None = None

    def __init__(self, train: DataLoader) -> None:
        self.train = train

    def loaders(self) -> list[DataLoader]:
        return [DataLoader(Examples(), batch_size=4, shuffle=True, num_workers=2)]


def batches(loader: Iterable[Any]) -> int:
    return sum(1 for _ in loader)


examples = Examples()
zeros: Tensor = paddle.zeros([4, 3])

# positions and names
DataLoader(examples)
DataLoader(examples, None, None, True, None, 4, True, False)
DataLoader(Lines(), batch_size=2)
full = DataLoader(
    examples,
    feed_list=None,
    places=None,
    return_list=True,
    batch_sampler=None,
    batch_size=4,
    shuffle=False,
    drop_last=True,
    collate_fn=collate,
    num_workers=2,
    use_buffer_reader=True,
    reader_buffer_size=2,
    prefetch_factor=2,
    use_shared_memory=True,
    timeout=0,
    worker_init_fn=seed_worker,
    persistent_workers=True,
)
DataLoader(examples, places="cpu")
DataLoader(examples, places=paddle.CPUPlace())
DataLoader(examples, places=[paddle.CPUPlace()])
DataLoader(examples, feed_list=[zeros])
options: dict[str, Any] = {"batch_size": 2, "num_workers": 0}
DataLoader(examples, **options)
Trainer(full).test = DataLoader(examples)

# samplers
indices: Sequence[int] = [0, 1]
DataLoader(examples, batch_sampler=BatchSampler(examples, shuffle=True, batch_size=2))
DataLoader(examples, batch_sampler=BatchSampler(sampler=Evens(), batch_size=2, drop_last=True))
DataLoader(examples, batch_sampler=BatchSampler(sampler=SequenceSampler(examples)))
DataLoader(examples, batch_sampler=BatchSampler(sampler=RandomSampler(examples, True, 3)))
DataLoader(examples, batch_sampler=BatchSampler(sampler=SubsetRandomSampler(indices)))
DataLoader(examples, batch_sampler=BatchSampler(sampler=WeightedRandomSampler([0.1, 0.9], 2)))
DataLoader(examples, batch_sampler=DistributedBatchSampler(examples, 2, 2, 0, shuffle=True))
DataLoader(examples, batch_sampler=Halves(8))
ranks = DistributedBatchSampler(examples, batch_size=2)
ranks.set_epoch(1)
assert_type(list(SequenceSampler(examples)), list[int])
assert_type(list(RandomSampler(examples)), list[int])
assert_type(list(BatchSampler(examples)), list[list[int]])
assert_type(list(ranks), list[list[int]])
assert_type(len(ranks), int)

# datasets
halves = random_split(examples, [4, 4])
print(halves[0])
DataLoader(halves[0])
assert_type(Subset(examples, [0, 1]), Subset[Example])
DataLoader(Subset(examples, [0, 1]))
DataLoader(ConcatDataset([examples, examples]))
DataLoader(ComposeDataset([examples, examples]))
DataLoader(ChainDataset([Lines(), Lines()]))
tensors = TensorDataset([zeros, zeros])
assert_type(tensors[0], tuple[Tensor, ...])
DataLoader(tensors)

# the loader, its batches and its attributes
for batch in full:
    print(batch[0].shape + 1)
for step, (images, labels) in enumerate(full()):
    print(step, images.mean(), labels)
print(next(iter(full)))
count: int = len(full) + batches(full)
assert_type(full.return_list, bool)
assert_type(full.num_workers, int)
assert_type(full.prefetch_factor, int)
assert_type(full.reader_buffer_size, int)
assert_type(full.use_buffer_reader, bool)
assert_type(full.use_shared_memory, bool)
assert_type(full.drop_last, bool)
assert_type(full.auto_collate_batch, bool)
print(full.dataset[0], full.batch_sampler, full.collate_fn, full.worker_init_fn, full.places)
print(full.feed_list, full.dataset_kind, full.timeout)
if isinstance(full.batch_sampler, DistributedBatchSampler):
    full.batch_sampler.set_epoch(1)
peers: list[paddle.io.DataLoader] = [full, ExampleLoader(examples, batch_size=2)]
info = get_worker_info()
print(info.id)

# what paddle's types refuse
DataLoader()  # error
DataLoader(5)  # error
DataLoader([1, 2, 3])  # error
DataLoader(Bare())  # error
DataLoader(examples, num_worker=2)  # error
DataLoader(examples, sampler=Evens())  # error
DataLoader(examples, batch_size="4")  # error
DataLoader(examples, batch_size=None)  # error
DataLoader(examples, shuffle="yes")  # error
DataLoader(examples, batch_sampler=[[0, 1]])  # error
DataLoader(examples, batch_sampler=5)  # error
DataLoader(examples, collate_fn=5)  # error
DataLoader(examples, worker_init_fn=init_worker_wrongly)  # error
DataLoader(examples, worker_init_fn=lambda: None)  # error
DataLoader(examples, timeout=1.5)  # error
DataLoader(examples, places=5)  # error
DataLoader(examples, feed_list=5)  # error
DataLoader(examples, prefetch_factor=0.5)  # error
DataLoader(examples, 1)  # error
full.nothing()  # error
full[0]  # error
next(full)  # error
Subset(examples, 5)  # error
BatchSampler(examples, batch_size="2")  # error
BatchSampler(examples, size=2)  # error
RandomSampler(5)  # error
SubsetRandomSampler(5)  # error
WeightedRandomSampler([1.0])  # error
DistributedBatchSampler(examples)  # error
TensorDataset(5)  # error
ConcatDataset(5)  # error
ChainDataset([examples])  # error
ComposeDataset(5)  # error
Trainer(5)  # error


class Closed(DataLoader):
    def __call__(self) -> str:  # error
        return ""
