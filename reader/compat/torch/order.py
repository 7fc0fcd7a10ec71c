"""The order of samples as PyTorch draws it, without a Python list of all of them.

Imports torch and this project's batch sampler. The consumer draws an order, with exactly the draws
that PyTorch makes; an iteration keeps 8 bytes for each index.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch.utils.data.sampler import BatchSampler as TorchBatchSampler
from torch.utils.data.sampler import RandomSampler as TorchRandomSampler
from torch.utils.data.sampler import SequentialSampler as TorchSequentialSampler

from reader.compat.torch.draws import seed_from
from reader.data.batch_sampler import BatchSampler
from reader.data.sampler import SequenceSampler, in_chunks
from reader.errors import StateError, got
from reader.orders.one_shot import OneShot
from reader.random.random_state import generator_state, set_generator

__all__ = ["CountedOrder", "PermutedOrder", "draws_late", "faster"]


def faster(sampler: Any, one_shots: list[OneShot], draw: Callable[[], int] | None = None) -> Any:
    """Return what yields the same as a sampler or batch sampler of PyTorch, faster if possible.

    Only PyTorch's own classes are replaced, and only where every draw from a generator stays the
    same; subclasses and anything else are returned as they are.

    Args:
        sampler: of any kind.
        one_shots: the wrappers of one-shot iterators known so far; a new one is added.
        draw: draws the seed of a shuffled order without a generator; None: torch's global one does.
    """
    kind = type(sampler)
    if kind is TorchBatchSampler:
        inner = faster(sampler.sampler, one_shots, draw)
        if inner is sampler.sampler and not hasattr(inner, "iter_from"):
            return sampler
        return BatchSampler.of(inner, sampler.batch_size, sampler.drop_last)
    if kind is TorchSequentialSampler:
        return CountedOrder(sampler.data_source)
    if kind is TorchRandomSampler and not sampler.replacement and sampler._num_samples is None:
        return PermutedOrder(sampler, draw or seed_from)
    if isinstance(sampler, Iterator):
        for known in one_shots:
            if known.is_of(sampler):
                return known
        one_shots[:] = [OneShot("sampler", sampler)]
        return one_shots[0]
    return sampler


def draws_late(sampler: Any) -> bool:
    """Whether a sampler or batch sampler of PyTorch draws nothing before its first index."""
    if type(sampler) is TorchBatchSampler:
        sampler = sampler.sampler
    return type(sampler) in (TorchSequentialSampler, TorchRandomSampler)


class CountedOrder(SequenceSampler):
    """As `torch.utils.data.SequentialSampler`, which reads the length at the first index."""

    def _open_at(self, position: int) -> Iterator[int]:
        return chain.from_iterable(self._opened_at(position))  # no Python code for each index

    def _opened_at(self, position: int) -> Iterator[Iterator[int]]:
        yield super()._open_at(position)


class PermutedOrder:
    """Yields what `torch.utils.data.RandomSampler` without replacement yields.

    Args:
        sampler: PyTorch's; draws from its generator in the same way.
        draw: draws the seed of an iteration where the sampler has no generator.
    """

    def __init__(self, sampler: TorchRandomSampler, draw: Callable[[], int] = seed_from) -> None:
        self._sampler = sampler
        self._draw = draw
        self._drawn: dict[str, Any] = {}  # seed or generator state of the last begun iteration
        self._given: dict[str, Any] | None = None  # that of the next one, if it was loaded

    @property
    def generator(self) -> torch.Generator | None:
        """The generator it draws from; None: each iteration has a seed of its own."""
        found: torch.Generator | None = self._sampler.generator
        return found

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; the first draws the order."""
        return chain.from_iterable(self._chunks(position))  # no Python code for each index

    def _chunks(self, position: int) -> Iterator[list[int]]:
        count = len(self._sampler.data_source)
        generator = self._begin()
        order = torch.randperm(count, generator=generator).numpy()
        yield from in_chunks(order[position:])
        if self._sampler.generator is not None:
            # PyTorch draws one more permutation, of which it uses nothing here: draw it, too
            torch.randperm(count, generator=generator)

    def _begin(self) -> torch.Generator:
        given, self._given = self._given, None
        own: torch.Generator | None = self._sampler.generator
        if own is not None:
            if given is not None and "generator" in given:
                set_generator(own, base64.b64decode(given["generator"]))
            self._drawn = {"generator": base64.b64encode(generator_state(own)).decode()}
            return own
        found = None if given is None else given.get("seed")
        seed = self._draw() if found is None else int(found)
        self._drawn = {"seed": seed}
        made = torch.Generator()
        made.manual_seed(seed)
        return made

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the last begun iteration: a seed, or the generator's state."""
        return dict(self._drawn)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw the next iteration, and it alone, as the one whose state is passed.

        Raises:
            StateError: it is no state of such an order. Nothing has changed then.
        """
        self.check_state(state)
        self._given = dict(state)

    def check_state(self, state: dict[str, Any]) -> None:
        """Refuse what is no state of such an order. Raises StateError."""
        own = self._sampler.generator
        if own is None:
            seed = state.get("seed")
            if type(seed) is not int or not -(2**63) <= seed < 2**64:
                raise StateError(
                    f"'seed' in the state must be the seed of a shuffled order, got {got(seed)}."
                    " Load a state that was saved without generator="
                )
            return
        try:
            size = len(base64.b64decode(state["generator"], validate=True))
        except (KeyError, TypeError, ValueError):
            size = -1
        if size != len(own.get_state()):
            raise StateError(
                "'generator' in the state must be the state of a torch.Generator, as text, got"
                f" {got(state.get('generator'))}. Load a state that was saved with generator="
            )
