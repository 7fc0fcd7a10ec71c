"""torchdata's samplers with a state: the same names, draws and states.

Imports torch. Where a program had `from torchdata.stateful_dataloader.sampler import ...`, it has
`from reader.compat.torch.sampler import ...`. Each iterator belongs to the loop that made it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data.distributed
import torch.utils.data.sampler

from reader.errors import StateError, got
from reader.orders.base_sampler import has_state

__all__ = ["BatchSampler", "RandomSampler", "StatefulDistributedSampler"]

_CHUNK = 32  # indices that are drawn at once, with replacement; torchdata's number


class RandomSampler(torch.utils.data.sampler.Sampler[int]):
    """Yields indices in random order; its iterator has a state.

    Args:
        data_source: what is sampled from; its length counts at each iteration.
        replacement: an index may come again.
        num_samples: how many to yield; None: the length.
        generator: is drawn from, and goes on over epochs; None: one of its own, seeded from torch's
            global one now.
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(
                "num_samples should be a positive integer value, but got"
                f" num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """How many indices an iteration yields."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        return _RandomIterator(self)

    def __len__(self) -> int:
        return self.num_samples


class _RandomIterator:
    """Its state: what the generator was when it began, and how many indices were yielded."""

    def __init__(self, sampler: RandomSampler) -> None:
        self._sampler = sampler
        self._begin(sampler.generator.get_state(), 0)

    def _begin(self, state: torch.Tensor, yielded: int) -> None:
        self._state, self._yielded = state, yielded
        self._limit = self._sampler.num_samples
        self._count = len(self._sampler.data_source)
        self._drawn: list[int] = []
        self._at = 0
        self._draw()
        while yielded > len(self._drawn):
            yielded -= len(self._drawn)
            self._draw()
        self._at = yielded

    def _draw(self) -> None:
        generator, count = self._sampler.generator, self._count
        if self._sampler.replacement:
            drawn = torch.randint(count, (_CHUNK,), dtype=torch.int64, generator=generator)
        else:
            drawn = torch.randperm(count, generator=generator)
        self._drawn, self._at = drawn.tolist(), 0

    def __iter__(self) -> _RandomIterator:
        return self

    def __next__(self) -> int:
        if self._yielded == self._limit:
            raise StopIteration
        if self._at == len(self._drawn):
            self._draw()
        self._at += 1
        self._yielded += 1
        return self._drawn[self._at - 1]

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is."""
        return {"yielded": self._yielded, "generator": self._state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken; sets the sampler's generator."""
        self._sampler.generator.set_state(state_dict["generator"])
        self._begin(state_dict["generator"], state_dict["yielded"])


class BatchSampler(torch.utils.data.sampler.BatchSampler):
    """Makes batches of a sampler's indices; its iterator has a state, the sampler's inside."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return _BatchIterator(self.sampler, self.batch_size, self.drop_last)


class _BatchIterator:
    """Its state: how many indices were taken, and the states of the sampler and its iterator."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self._sampler = sampler
        self._indices = iter(sampler)
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._taken = 0

    def __iter__(self) -> _BatchIterator:
        return self

    def __next__(self) -> list[int]:
        batch = list(itertools.islice(self._indices, self._batch_size))
        self._taken += len(batch)
        if not batch or (self._drop_last and len(batch) < self._batch_size):
            raise StopIteration
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is."""
        found: dict[str, Any] = {"samples_yielded": self._taken}
        if has_state(self._sampler):
            found["sampler_state"] = self._sampler.state_dict()
        if has_state(self._indices):
            found["sampler_iter_state"] = self._indices.state_dict()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken; a sampler without a state is drawn from again."""
        if "sampler_state" in state_dict:
            _check_state("sampler_state", self._sampler)
            self._sampler.load_state_dict(state_dict["sampler_state"])
        self._taken = state_dict["samples_yielded"]
        self._indices = iter(self._sampler)
        if "sampler_iter_state" in state_dict:
            _check_state("sampler_iter_state", self._indices)
            self._indices.load_state_dict(state_dict["sampler_iter_state"])
        if not has_state(self._sampler) and not has_state(self._indices):
            for _ in itertools.islice(self._indices, self._taken):
                pass


def _check_state(name: str, holder: Any) -> None:
    if not has_state(holder):
        raise StateError(
            f"the state has {name}, and {type(holder).__name__} has no load_state_dict. Load a"
            " state that was saved with the same sampler"
        )


class StatefulDistributedSampler(torch.utils.data.distributed.DistributedSampler[Any]):
    """PyTorch's DistributedSampler, with torchdata's state: how many indices this rank took."""

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.yielded = 0
        self.next_yielded: int | None = None

    def __iter__(self) -> Iterator[Any]:
        self.yielded, self.next_yielded = self.next_yielded or 0, None
        for index in itertools.islice(super().__iter__(), self.yielded, None):
            self.yielded += 1
            yield index

    def state_dict(self) -> dict[str, Any]:
        """Return where the newest iteration is."""
        return {"yielded": self.yielded}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Begin the next iteration, and it alone, where the state was taken."""
        if "yielded" not in state_dict:
            raise StateError(f"Invalid state_dict: it lacks yielded, {got(state_dict)}")
        if state_dict["yielded"] < 0:
            raise StateError(
                f"Cannot load state_dict with negative yielded value {state_dict['yielded']}"
            )
        self.next_yielded = state_dict["yielded"]
