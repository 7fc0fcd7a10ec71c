"""Random loaders: structures, arguments and samplers, the same in paddle.io and here.

Imports the harness and pytest; each program draws its loaders from the seed it is given. What
paddle.io cannot do (breaks, persistent streams, batches without tensors) is not drawn.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

PROGRAM = """
    import collections
    import random
    import sys
    import warnings
    import numpy as np
    import paddle
    from paddle.io import (
        BatchSampler, DataLoader, Dataset, DistributedBatchSampler, IterableDataset, RandomSampler,
        SubsetRandomSampler, TensorDataset, get_worker_info, random_split,
    )
    from tests.peers.inside import describe, tell

    warnings.simplefilter("ignore")
    draw = random.Random(int(sys.argv[1]))
    Pair = collections.namedtuple("Pair", "left right")

    def leaf(has_tensor):
        shape = tuple(draw.randrange(1, 4) for _ in range(draw.randrange(0, 4)))
        dtype = draw.choice(["float32", "float64", "int64", "int32", "uint8", "bool", "float16"])
        made = [
            lambda i, r: np.full(shape, i % 100).astype(dtype),
            lambda i, r: r.normal(size=shape).astype("float32"),
        ]
        if not has_tensor:
            made += [lambda i, r: i, lambda i, r: i / 7]
            made += [lambda i, r: f"{i}", lambda i, r: b"%d" % i]
        return draw.choice(made)

    def structure(depth, has_tensor):
        kind = draw.choice(["leaf", "tuple", "list", "dict", "Pair"]) if depth else "leaf"
        if kind == "leaf":
            return leaf(has_tensor)
        count = 2 if kind == "Pair" else draw.randrange(1, 4)
        parts = [structure(depth - 1, has_tensor and not n) for n in range(count)]
        if kind == "dict":
            keys = draw.sample("abcdef", count)
            return lambda i, r: {key: part(i, r) for key, part in zip(keys, parts)}
        if kind == "Pair":
            return lambda i, r: Pair(*[part(i, r) for part in parts])
        return lambda i, r: {"tuple": tuple, "list": list}[kind](part(i, r) for part in parts)

    class Made(Dataset):
        def __init__(self, make, count):
            self.make, self.count = make, count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            index = int(index)
            if index >= self.count:
                raise IndexError(index)
            return self.make(index, np.random.RandomState(np.random.randint(1 << 30)))

    class Flow(IterableDataset):
        def __init__(self, make, count, is_split):
            self.make, self.count, self.is_split = make, count, is_split

        def __iter__(self):
            found = get_worker_info()
            step = found.num_workers if found and self.is_split else 1
            for index in range(found.id if step > 1 else 0, self.count, step):
                yield self.make(index, np.random.RandomState(np.random.randint(1 << 30)))

    found = []
    for case in range(14):
        np.random.seed(case), random.seed(case), paddle.seed(case)
        make = structure(draw.randrange(0, 3), True)
        count = draw.randrange(1, 20)
        args = dict(
            num_workers=draw.choice([0, 0, 1, 2, 3]),
            prefetch_factor=draw.randrange(1, 4),
            use_buffer_reader=draw.random() < 0.7,
            use_shared_memory=draw.random() < 0.7,
        )
        if draw.random() < 0.3:
            dataset = Flow(make, count, draw.random() < 0.5)
            args.update(batch_size=draw.choice([1, 2, 3, None]))
            if args["batch_size"]:
                args.update(drop_last=draw.random() < 0.5)
        else:
            dataset = Made(make, count)
            if draw.random() < 0.3:
                dataset = random_split(dataset, [count // 2, count - count // 2])[1]
            way = draw.randrange(4)
            size = draw.randrange(1, 5)
            if way == 0:
                args.update(batch_size=None)
            elif way == 1:
                args.update(
                    batch_size=size, shuffle=draw.random() < 0.5, drop_last=draw.random() < 0.5
                )
            elif way == 2:
                sampler = draw.choice([RandomSampler, lambda d: SubsetRandomSampler(range(len(d)))])
                args.update(batch_sampler=BatchSampler(sampler=sampler(dataset), batch_size=size))
            else:
                args.update(
                    batch_sampler=DistributedBatchSampler(
                        dataset, size, 2, 1, shuffle=draw.random() < 0.5
                    )
                )
            args.update(persistent_workers=draw.random() < 0.2)
        loader = DataLoader(dataset, **args)
        epochs = [[describe(batch) for batch in loader] for epoch in range(2)]
        found.append([str(sorted(map(str, args.items()))), epochs])
    tell(found)
"""


@pytest.mark.parametrize(
    (),
    [
        pytest.param(
            id=str(seed),
            marks=pytest.mark.compares(Story(PROGRAM, args=(str(seed),), attempts=3)),
        )
        for seed in range(6)
    ],
)
def test_loaders_of_random_make_yield_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(theirs.result) == len(ours.result) == 14
    for (args, expected), (_, got) in zip(theirs.result, ours.result, strict=True):
        assert got == expected, args
