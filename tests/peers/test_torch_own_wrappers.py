"""Programs that reach into a DataLoader, as known libraries do: PyTorch's and ours do the same.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from tests.peers.torch_parity import check_same
from tests.peers.torch_samples import Augmented, Rows, Stream

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Repeat:
    """Yields what another sampler yields, for ever."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


def numbers(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


@WORKERS
def test_endless_batch_sampler_set_by_unlocking_the_loader_is_used(workers: int) -> None:
    """As timm's loader does, to keep workers over epochs."""

    def act(loader: Any) -> Any:
        class Endless(loader):
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._DataLoader__initialized = False
                self.batch_sampler = Repeat(self.batch_sampler)
                self._DataLoader__initialized = True
                self.iterator = super().__iter__()

            def __len__(self) -> int:
                return len(self.batch_sampler.sampler)

            def __iter__(self) -> Iterator[Any]:
                for _ in range(len(self)):
                    yield next(self.iterator)

        made = Endless(Rows(7), 3, shuffle=True, num_workers=workers)
        found = [numbers(made) for _ in range(3)]
        del made.iterator
        return found

    check_same(act)


@WORKERS
def test_endless_batch_sampler_set_past_the_lock_is_used(workers: int) -> None:
    """As the loader of ultralytics does; it also ends workers by hand."""

    def act(loader: Any) -> Any:
        class Endless(loader):
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
                self.iterator = super().__iter__()

            def __len__(self) -> int:
                return len(self.batch_sampler.sampler)

            def __iter__(self) -> Iterator[Any]:
                for _ in range(len(self)):
                    yield next(self.iterator)

            def reset(self) -> None:
                self.iterator = self._get_iterator()

        made = Endless(Rows(7), 3, shuffle=True, num_workers=workers)
        found = [numbers(made), numbers(made)]
        made.reset()
        found.append(numbers(made))
        if workers:
            for worker in made.iterator._workers:
                if worker.is_alive():
                    worker.terminate()
            made.iterator._shutdown_workers()
        return found

    check_same(act)


@WORKERS
def test_sampler_set_in_the_batch_sampler_is_used(workers: int) -> None:
    """As Accelerate does."""

    def act(loader: Any) -> Any:
        made = loader(Rows(7), 3, True, num_workers=workers)
        found = [numbers(made)]
        made.batch_sampler.sampler = [5, 4, 3, 2]
        found.append(numbers(made))
        made.batch_sampler.batch_size = 2
        found.append(numbers(made))
        made.batch_sampler.sampler = [5, 4, 3]
        made.batch_sampler.drop_last = True
        return [*found, numbers(made), len(made)]

    check_same(act)


@WORKERS
def test_generator_set_in_the_sampler_is_used(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Rows(7), 3, True, num_workers=workers)
        found = [numbers(made)]
        made.sampler.generator = torch.Generator().manual_seed(4)
        return [*found, numbers(made), numbers(made), made.sampler.generator.get_state()]

    check_same(act)


@WORKERS
def test_loader_made_from_the_attributes_of_another_is_the_same(workers: int) -> None:
    """As Lightning does: each parameter of the constructor is asked of the loader by its name."""

    def act(loader: Any) -> Any:
        made = loader(Augmented(7), 3, True, num_workers=workers, drop_last=True)
        names = inspect.signature(data.DataLoader.__init__).parameters
        options = {name: vars(made).get(name, getattr(made, name, None)) for name in names}
        for name in ("self", "batch_sampler", "shuffle", "multiprocessing_context"):
            options.pop(name)
        options["sampler"] = data.SequentialSampler(made.dataset)
        again = type(made)(**options)
        return [list(again), again.drop_last, again.num_workers]

    check_same(act)


def test_every_argument_is_an_attribute_of_that_name() -> None:
    """So that a loader can be made from another's attributes, ours included."""
    import reader.compat.torch

    made = reader.compat.torch.DataLoader(Rows(7), 3, seed=5, num_workers=1, worker_retries=2)
    names = list(inspect.signature(type(made).__init__).parameters)
    left = [name for name in names[1:] if not hasattr(made, name)]
    assert left == ["shuffle"]  # PyTorch does not keep it either
    shown = made.seed, made.worker_type, made.worker_retries, made.prefetch_next_epoch
    assert shown == (5, "process", 2, False)


@WORKERS
def test_subclass_that_iterates_over_its_parent_gives_the_same(workers: int) -> None:
    """As Accelerate's shards do: one batch is held back, to know the last one."""

    def act(loader: Any) -> Any:
        class Shard(loader):
            def __iter__(self) -> Iterator[Any]:
                batches = super().__iter__()
                held = next(batches)
                for batch in batches:
                    yield held, False
                    held = batch
                yield held, True

        made = Shard(Augmented(7), 3, num_workers=workers)
        return [list(made), list(made)]

    check_same(act)


@WORKERS
def test_iterator_made_by_hand_and_kept_gives_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Rows(7), 3, num_workers=workers)
        batches = made._get_iterator()
        found = [next(batches)[1].tolist()]
        return [*found, numbers(batches), next(batches, "the end"), made._iterator]

    check_same(act)


@WORKERS
def test_persistent_iterator_that_was_dropped_is_made_anew(workers: int) -> None:
    """As Lightning does to end persistent workers: `loader._iterator = None`."""

    def act(loader: Any) -> Any:
        made = loader(Rows(7), 3, num_workers=workers, persistent_workers=workers > 0)
        found = [numbers(made)]
        if made._iterator is not None:
            made._iterator._shutdown_workers()
            made._iterator = None
        return [*found, numbers(made)]

    check_same(act)


@WORKERS
def test_index_sampler_and_collate_fn_can_be_overridden(workers: int) -> None:
    def act(loader: Any) -> Any:
        class Own(loader):
            @property
            def _index_sampler(self) -> Any:
                return [[3, 1], [2]]

        return numbers(Own(Rows(7), 4, num_workers=workers))

    check_same(act)


@WORKERS
def test_worker_init_fn_and_collate_fn_may_be_objects_and_methods(workers: int) -> None:
    class Collate:
        def __init__(self, offset: int) -> None:
            self.offset = offset

        def __call__(self, samples: list[Any]) -> Any:
            return [sample[1] + self.offset for sample in samples]

        def start(self, worker_id: int) -> None:
            self.offset += 100 * worker_id

    def act(loader: Any) -> Any:
        own = Collate(5)
        made = loader(Rows(7), 2, collate_fn=own, worker_init_fn=own.start, num_workers=workers)
        return list(made)

    check_same(act)


@WORKERS
def test_cycles_and_chains_of_loaders_give_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        first, second = (loader(Rows(n), 2, True, num_workers=workers) for n in (3, 4))
        both = itertools.chain(first, second, first)
        return [numbers(both), numbers(itertools.islice(itertools.cycle(first), 5))]

    check_same(act)


@WORKERS
def test_a_loader_as_the_data_of_another_gives_the_same(workers: int) -> None:
    class Streamed(data.IterableDataset[Any]):
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __iter__(self) -> Iterator[Any]:
            return iter(self.loader)

    def act(loader: Any) -> Any:
        inner = loader(Stream(5), 2, num_workers=0)
        return list(loader(Streamed(inner), None, num_workers=workers))

    check_same(act)
