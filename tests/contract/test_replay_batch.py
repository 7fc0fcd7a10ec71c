"""`loader.replay`: a batch made again, for a debugger, without disturbing anything."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from reader import BatchSampler, ConfigError, ConfigTypeError, DataLoader, DistributedSampler
from tests.contract.test_state import Longer, Noisy, values
from tests.contract.test_state_samplers import EXACT, Global, Stateful, make
from tests.datasets import Fails, Indices, OddError
from tests.streams import RangeStream


def bits(batch: Any) -> list[bytes]:
    return [np.asarray(field).tobytes() for field in batch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("threads", [False, True])
def test_06_batches_are_made_again_bit_for_bit(workers: int, threads: bool) -> None:
    options: Any = {"batch_size": 4, "shuffle": True, "seed": 3, "num_workers": workers}
    options["worker_type"] = "thread" if threads and workers else "process"
    with DataLoader(Noisy(), **options) as loader:
        epochs: list[list[Any]] = [[bits(batch) for batch in loader] for _ in range(2)]
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        batches = iter(loader)
        third = [bits(next(batches)) for _ in range(3)]
        for n in (0, 7, 3):
            assert bits(loader.replay(n, epoch=1)) == epochs[1][n]
            assert bits(loader.replay(n, epoch=0)) == epochs[0][n]  # two epochs ago
        later = loader.replay(5)  # not delivered yet
        assert bits(loader.replay(1)) == third[1]
        assert loader.epoch == 3
        assert loader.state_dict()["batches"] == 3
        third += [bits(batch) for batch in batches]
        assert bits(later) == third[5]
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        assert before[:2] == after[:2]
        assert before[2].equal(after[2])
        fourth = [bits(batch) for batch in loader]
    with DataLoader(Noisy(), **options) as loader:  # in a program that begins anew
        assert bits(loader.replay(6, epoch=3)) == fourth[6]
        assert loader.epoch == 0
        assert [bits(batch) for batch in loader] == epochs[0]
        assert loader.stats()["failed_samples"] == 0


@pytest.mark.parametrize("kind", EXACT)
def test_each_kind_of_order_finds_a_batch_again(kind: str) -> None:
    with make(kind) as other, make(kind) as loader:
        first, wanted = ([values([batch])[0] for batch in other] for _ in range(2))
        assert [values([batch])[0] for batch in loader] == first
        batches, found = iter(loader), []
        for at in range(6):
            found.append(values([next(batches)])[0])
            for n in (0, at // 2, at):
                assert values([loader.replay(n)])[0] == found[n]
        assert found + [values([batch])[0] for batch in batches] == wanted
        for n in (0, len(wanted) - 1):
            assert values([loader.replay(n)])[0] == wanted[n]
        with pytest.raises(ConfigError):
            loader.replay(len(wanted) + 5)


def test_orders_without_a_seed_are_known_while_they_are_kept() -> None:
    for sampler in (Global(), Stateful(), None):
        options: Any = {"sampler": sampler} if sampler is not None else {"shuffle": True}
        with DataLoader(Indices(50), keep_states=3, **options) as loader:
            batches = iter(loader)
            found = []
            for _ in range(10):
                found.append(values([next(batches)])[0])
                loader.state_dict()
            assert values([loader.replay(8)])[0] == found[8]
            if sampler is None:
                assert values([loader.replay(0)])[0] == found[0]
            else:
                with pytest.raises(ConfigError, match=r"batch 1 in the order of epoch 0 .*keep_st"):
                    loader.replay(1)
            with pytest.raises(ConfigError, match="order of epoch 7 cannot be found again"):
                loader.replay(1, epoch=7)
            rest = [values([batch])[0] for batch in batches]
            assert sorted(found + rest) == [[index] for index in range(50)]


def test_a_batch_of_a_loaded_state_is_made_before_it_is_iterated_over() -> None:
    options: Any = {"batch_size": 4, "shuffle": True}
    with DataLoader(Noisy(), **options) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        wanted = [values(batch)[:2] for batch in batches]
    with DataLoader(Noisy(), **options) as loader:
        loader.load_state_dict(state)
        assert values(loader.replay(4))[:2] == wanted[1]
        assert loader.state_dict() == state
        assert [values(batch)[:2] for batch in loader] == wanted


def test_steps_of_several_places_and_ranks_are_made_again() -> None:
    options: Any = {"batch_size": 4, "seed": 2, "shuffle": True, "places": ["cpu"] * 3}
    with DataLoader(Noisy(), num_workers=2, **options) as loader:
        steps = [[bits(batch) for batch in step] for step in loader]
        for n in (2, 0, 1):
            assert [bits(batch) for batch in loader.replay(n)] == steps[n]
    sampler = DistributedSampler(Indices(50), 2, 1, seed=4)
    with DataLoader(Indices(50), batch_sampler=BatchSampler(sampler, 4, False)) as loader:
        lists = [batch.tolist() for batch in loader]
        assert loader.replay(3).tolist() == lists[3]
        assert DataLoader(Indices(50), batch_size=4, sampler=sampler).replay(3, epoch=0).tolist()


def test_a_batch_that_failed_fails_again_here() -> None:
    with DataLoader(Longer(), sampler=[0, 1, 31, 2], num_workers=1) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        with pytest.raises(OddError):
            next(batches)
        with pytest.raises(OddError):
            loader.replay(2)
        assert values(next(batches))[0] == [2]
    options: Any = {"on_error": "replace", "error_budget": 9, "seed": 1, "batch_size": 4}
    with DataLoader(Fails(5, 16), **options) as loader:
        found = [batch.tolist() for batch in loader]
        assert loader.replay(1).tolist() == found[1]
        assert loader.stats()["failed_samples"] == 1  # that of the loop


class Epochs(Indices):
    """Samples that depend on the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> int:
        return 1000 * self.epoch + index


def test_a_dataset_with_an_epoch_is_at_the_epoch_of_the_batch() -> None:
    with DataLoader(Epochs(20), batch_size=4, shuffle=True, seed=3) as loader:
        epochs = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            epochs.append([batch.tolist() for batch in loader])
        assert loader.replay(2, epoch=1).tolist() == epochs[1][2]
        assert loader.replay(2, epoch=0).tolist() == epochs[0][2]
        assert loader.dataset.epoch == 2  # type: ignore[attr-defined]


def test_what_cannot_be_made_again_is_refused_with_a_way_on() -> None:
    with DataLoader(RangeStream(9)) as stream:
        next(iter(stream))
        with pytest.raises(ConfigError, match=r"iterable dataset .*state_dict\(trained=0\)"):
            stream.replay(0)

    class Kept(Indices):
        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: Any) -> None:
            pass

    with DataLoader(Kept(9)) as kept, pytest.raises(ConfigError, match="Kept has a state"):
        kept.replay(0)

    class Fixed(Stateful):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("no copies")

    fixed = DataLoader(Indices(9), sampler=Fixed())
    with pytest.raises(ConfigError, match=r"no copies.*__deepcopy__"):
        fixed.replay(0)
    with DataLoader(Indices(9), batch_size=2, shuffle=True, seed=1) as loader:
        for wrong in (1.5, "1", None):
            with pytest.raises(ConfigTypeError, match="n must be an int"):
                loader.replay(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="n must be"):
            loader.replay(-1)
        with pytest.raises(ConfigError, match="epoch 0 has no batch 5"):
            loader.replay(5)
        with pytest.raises(ConfigError, match="epoch must be"):
            loader.replay(0, epoch=-2)
