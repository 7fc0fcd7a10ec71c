"""Loaders of the faces on the workers of one pool, beside workers of their own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from reader import WorkerPool

pytestmark = pytest.mark.peer


class Draws:
    """The worker info of a face's worker, and random numbers of its global states."""

    def __init__(self, name: int, face: str) -> None:
        self.name = name
        self.face = face

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> np.ndarray:
        info = worker_info(self.face)
        assert info.dataset is self
        return np.array([self.name, index, info.id, random.random(), float(np.random.random())])


def worker_info(face: str) -> Any:
    if face == "torch":
        import torch.utils.data

        return torch.utils.data.get_worker_info()
    if face == "paddle":
        import paddle.io

        return paddle.io.get_worker_info()
    from reader import get_worker_info

    return get_worker_info()


def make(face: str, name: int, **options: Any) -> Any:
    dataset: Any = Draws(name, face)
    if face == "torch":
        import torch

        from reader.compat.torch import DataLoader as Torch

        generator = torch.Generator().manual_seed(name)
        return Torch(dataset, batch_size=4, generator=generator, **options)
    if face == "paddle":
        from reader.compat.paddle import DataLoader as Paddle

        return Paddle(dataset, batch_size=4, **options)
    from reader.compat.gluon import DataLoader as Gluon

    return Gluon(dataset, batch_size=4, seed=name, framework="numpy", **options)


@pytest.mark.parametrize("face", ["torch", "paddle", "gluon"])
def test_loaders_of_a_face_share_the_workers_of_a_pool(face: str) -> None:
    random.seed(0)
    np.random.seed(0)
    own: list[list[np.ndarray]] = []
    for name in (1, 2):
        options = {} if face == "gluon" else {"persistent_workers": True}
        loader = make(face, name, num_workers=1, **options)
        own.append([np.asarray(batch) for _ in range(2) for batch in loader])
    np.random.seed(0)
    with WorkerPool(1) as pool:
        loaders = [make(face, name, pool=pool) for name in (1, 2)]
        epochs = [[[np.asarray(each) for each in step] for step in zip(*loaders)] for _ in range(2)]
        assert len(pool.pids) == 1
        assert [status.pid for status in loaders[1].workers()] == pool.pids
    found = [[step[k] for epoch in epochs for step in epoch] for k in range(2)]
    for mine, its in zip(found, own):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("face", ["torch", "paddle", "gluon"])
def test_pool_contradicts_another_number_of_workers(face: str) -> None:
    with WorkerPool(1) as pool, pytest.raises(ValueError, match="contradicts pool=WorkerPool"):
        make(face, 1, pool=pool, num_workers=2)


def test_paddle_loader_that_is_given_another_pool_has_its_workers() -> None:
    from reader.compat.paddle import DataLoader as Paddle

    with WorkerPool(2) as pool, WorkerPool(1) as other:
        loader = Paddle([np.float32(n) for n in range(8)], batch_size=4, pool=pool)
        assert len(list(loader)) == 2
        loader.pool = other
        assert len(list(loader)) == 2
        assert (loader.num_workers, len(pool.pids), len(other.pids)) == (1, 2, 1)
        loader.pool = None
        assert len(list(loader)) == 2
        assert loader.num_workers == 0
        assert not loader._persistent_workers
