"""Seeds and random generators that depend only on (seed, epoch, position).

The keyed functions are pure. `seed_known_libraries` and `CapturedState` touch the global
random state of `random`, `numpy.random` and, if they are already imported, the CPU generators of
torch and paddle; that state belongs to the user. Imports numpy, the core and
the checks.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import pickle
import random
import sys
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

from reader._core.interpreter.signals import interrupt_after
from reader._core.random.philox_key import philox_key
from reader.checks import as_int
from reader.config import SEED_LIMIT

__all__ = [
    "CapturedState",
    "as_seed",
    "batch_seed",
    "draws_rng",
    "fresh_seed",
    "order_key",
    "order_rng",
    "repetition_seed",
    "sample_rng",
    "seed_known_libraries",
    "torch_seed",
]

# The purposes of random numbers. The key has it, so that no two purposes share numbers.
_ORDER, _BATCH, _SAMPLE = 1, 2, 3
_PERMUTATION, _DRAWS = 4, 5
_REPETITION = 6
_WORD = 0xFFFF_FFFF
_INT64_MAX = 2**63 - 1  # a dataset may return its seed as a sample, which must fit an int64


def _key(purpose: int, seed: int, epoch: int, position: int) -> np.random.SeedSequence:
    """Mix a key. Each number takes two 32-bit words, so that no two keys are equal by chance."""
    return np.random.SeedSequence(
        [
            purpose,
            seed & _WORD,
            seed >> 32 & _WORD,
            epoch & _WORD,
            epoch >> 32 & _WORD,
            position & _WORD,
            position >> 32 & _WORD,
        ]
    )


class _PhiloxSeed(ISpawnableSeedSequence):
    """As the result of `_key`, but mixed by NumPy only if more than a Philox key is needed."""

    def __init__(self, *key: int) -> None:
        self._parts = key

    @functools.cached_property
    def _sequence(self) -> np.random.SeedSequence:
        return _key(*self._parts)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        if n_words == 2 and dtype is np.uint64:
            return philox_key(*self._parts)
        return self._sequence.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        return self._sequence.spawn(n_children)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)

    def __reduce__(self) -> Any:
        return self._sequence.__reduce__()


def as_seed(seed: Any, remedy: str) -> int:
    """Return the argument `seed`, an int in [0, 2**64). ConfigError: it is none."""
    return as_int("seed", seed, low=0, high=SEED_LIMIT - 1, remedy=remedy)


def fresh_seed() -> int:
    """Return a seed in [0, 2**63) from the system, touching no global random state."""
    return int.from_bytes(os.urandom(8), "little") & _INT64_MAX


def batch_seed(seed: int, epoch: int, n: int) -> int:
    """Return the seed, in [0, 2**63), of all random numbers in batch `n` of `epoch`.

    Args:
        seed: the loader's seed, in [0, 2**64).
        epoch: from 0.
        n: number of the batch in its epoch, from 0.
    """
    return int(philox_key(_BATCH, seed, epoch, n)[0]) & _INT64_MAX


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return a new generator for the sample at `index`: the same in every worker.

    Args:
        seed: the loader's seed, in [0, 2**64).
        epoch: from 0.
        index: dataset index, anything with `__index__`; only its low 64 bits are used.
    """
    key = _PhiloxSeed(_SAMPLE, seed, epoch, operator.index(index))
    return np.random.Generator(np.random.Philox(key))


def order_rng(seed: int | None, epoch: int) -> np.random.Generator:
    """Return the generator that shuffles `epoch`. Without `seed` the system seeds it."""
    key = np.random.SeedSequence() if seed is None else _key(_ORDER, seed, epoch, 0)
    return np.random.Generator(np.random.Philox(key))


@functools.lru_cache(64)
def repetition_seed(seed: int, number: int, count: int) -> int:
    """Return the seed, in [0, 2**63), of samples that come again in an epoch.

    Args:
        seed: that of the samples when they first come, in [0, 2**64).
        number: how often they came before, from 1.
        count: how many samples come again.
    """
    return int(philox_key(_REPETITION, seed, count, number)[0]) & _INT64_MAX


def order_key(seed: int, epoch: int, part: int = 0) -> int:
    """Return the key, in [0, 2**128), of the permutation that shuffles `epoch`.

    Args:
        seed: in [0, 2**64).
        epoch: from 0.
        part: the number of a part, of an order that has several.
    """
    low, high = _key(_PERMUTATION, seed, epoch, part).generate_state(2, np.uint64).tolist()
    return int(low) | int(high) << 64


def draws_rng(seed: int, epoch: int, chunk: int) -> np.random.Generator:
    """Return the generator of the `chunk`-th chunk, from 0, of an epoch of independent draws."""
    return np.random.Generator(np.random.Philox(_key(_DRAWS, seed, epoch, chunk)))


def seed_known_libraries(value: int, shown: int | None = None) -> None:
    """Seed the global generators that dataset code draws from.

    These are `random`, `numpy.random`, and the CPU generators of torch and paddle if those are
    already imported; this imports neither. Device generators are left alone, since seeding them in
    a forked worker would start the device there.

    Args:
        value: the seed, in [0, 2**64).
        shown: the value of `torch.initial_seed()` from now on; None: `value`.
    """
    random.seed(value)
    _seed_numpy(value)
    for generator in _framework_generators():
        generator.manual_seed(value)
    if shown is not None:
        generator = _torch_generator()
        state = generator.get_state()
        state.numpy()[:8] = np.frombuffer(shown.to_bytes(8, "little"), np.uint8)  # the seed's bytes
        generator.set_state(state)


def torch_seed() -> int | None:
    """Return the last seed of torch's generator; None while torch is not imported."""
    generator = _torch_generator()
    return None if generator is None else int(generator.initial_seed())


def _seed_numpy(value: int) -> None:
    # a third word, since `random` seeds the same kind of generator with the first two
    np.random.seed([value & _WORD, value >> 32 & _WORD, 1])
    if not isinstance(_bit_generator(), (np.random.MT19937, type(None))):
        # seed() keeps the spare deviate of standard_normal in any other generator
        state = np.random.get_state(legacy=False)
        np.random.set_state({**state, "has_gauss": 0, "gauss": 0.0})


def _torch_generator() -> Any:
    """Return torch's own CPU generator; None until torch is imported completely."""
    return getattr(sys.modules.get("torch"), "default_generator", None)


def _framework_generators() -> list[Any]:
    """Return the CPU generators of torch and paddle, if these are imported.

    A module that another thread is still importing may lack its generator: it is skipped.
    """
    found = []
    torch_generator = _torch_generator()
    if torch_generator is not None:
        found.append(torch_generator)
    core: Any = getattr(getattr(sys.modules.get("paddle"), "framework", None), "core", None)
    if hasattr(core, "default_cpu_generator"):
        found.append(core.default_cpu_generator())
    return found


class CapturedState:
    """A copy of the global random state that `seed_known_libraries` changes.

    Two copies are equal if nothing was drawn in between. A framework that was imported between the
    two is not compared or restored.
    """

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)
        self._frameworks = [(g, g.get_state()) for g in _framework_generators()]

    def put_back(self) -> None:
        """Restore this global random state."""
        random.setstate(self._python)
        _put_back_numpy(self._numpy)
        for generator, state in self._frameworks:
            generator.set_state(state)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CapturedState):
            return NotImplemented
        mine = {type(generator): _next_number(generator, s) for generator, s in self._frameworks}
        its = {type(generator): _next_number(generator, s) for generator, s in other._frameworks}
        return (
            self._python == other._python
            and pickle.dumps(self._numpy) == pickle.dumps(other._numpy)
            and all(mine[kind] == its[kind] for kind in mine.keys() & its.keys())
        )

    __hash__ = None  # type: ignore[assignment]


def _put_back_numpy(state: dict[str, Any]) -> None:
    """Set the state of NumPy's global generator.

    NumPy's own function takes 35 us. This writes the words of a MT19937 to the address in
    `BitGenerator.ctypes`; the spare deviate of `randn` is elsewhere.
    """
    generator, told = _bit_generator(), state["state"]
    is_known = type(generator) is np.random.MT19937 and state["bit_generator"] == "MT19937"
    if not is_known or state["has_gauss"]:
        np.random.set_state(state)
        return
    words = told["key"].tobytes() + int(told["pos"]).to_bytes(4, sys.byteorder)
    with interrupt_after():
        np.random.seed(0)  # drops the spare deviate
        ctypes.memmove(generator.ctypes.state_address, words, len(words))


def _bit_generator() -> Any:
    """Return the generator of NumPy's global functions; None: this NumPy hides it."""
    get = getattr(np.random, "get_bit_generator", None)  # since NumPy 1.24
    return None if get is None else get()


def _next_number(generator: Any, state: Any) -> Any:
    """Return a value that differs between states; Paddle's states do not show the difference."""
    if hasattr(state, "numpy"):  # a tensor, torch's
        return state.numpy().tobytes()
    before = generator.get_state()
    generator.set_state(state)
    number = generator.random()
    generator.set_state(before)
    return number
