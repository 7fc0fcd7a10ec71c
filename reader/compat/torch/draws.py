"""The seeds that a loader draws at the start of an epoch: its own, and that of a shuffle.

Imports torch. A loader that resumes exactly may not draw from torch's global generator: the user's
training draws from it, too, so the seeds would depend on where the run was stopped.
"""

from __future__ import annotations

import base64
from typing import Any

import torch

from reader.config import SEED_LIMIT
from reader.errors import StateError, got
from reader.random.random_state import generator_state, set_generator
from reader.random.seeds import batch_seed

__all__ = ["OwnDraws", "check", "load", "pass_global", "saved", "seed_from"]

_AHEAD = 2  # draws of a first epoch: the seed, and that of a shuffled order


class OwnDraws:
    """Draws seeds: of the first epoch as torch's global generator would, of later ones by a key.

    The seeds of the first epoch are drawn from a copy of that generator on first use; the first of
    them is the key. `draw` also takes a seed from the global generator, as PyTorch does. Belongs to
    one loader.
    """

    def __init__(self) -> None:
        self._ahead: list[int] = []
        self._count = 0

    def draw(self) -> int:
        """Return a seed."""
        self._look_ahead()
        pass_global()
        return self.draw_alone()

    def draw_alone(self) -> int:
        """As `draw`, without a draw from the global generator."""
        self._look_ahead()
        number, self._count = self._count, self._count + 1
        if number < _AHEAD:
            return self._ahead[number]
        return batch_seed(self._ahead[0], 0, number) % SEED_LIMIT

    def _look_ahead(self) -> None:
        if not self._ahead:
            found = torch.Generator()
            found.set_state(torch.default_generator.get_state())
            self._ahead = [seed_from(found) for _ in range(_AHEAD)]

    def state(self) -> list[int]:
        """Return the seeds of the first epoch, and how many were drawn."""
        self._look_ahead()
        return [*self._ahead, self._count]

    def load(self, state: list[int]) -> None:
        """Continue where `state` was taken."""
        *self._ahead, self._count = state

    def copied(self) -> OwnDraws:
        """Return an independent copy that continues from here."""
        made = OwnDraws()
        made._ahead, made._count = list(self._ahead), self._count
        return made


def seed_from(generator: torch.Generator | None = None) -> int:
    """Draw a seed as PyTorch's iterators do; None: from torch's global generator."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def pass_global() -> None:
    """Draw a seed from torch's global generator, and drop it."""
    seed_from()


def saved(generator: torch.Generator) -> str:
    """Return the state of a generator as text."""
    return base64.b64encode(generator_state(generator)).decode()


def load(generator: torch.Generator, text: str) -> None:
    """Set a generator to the state that `saved` returned."""
    set_generator(generator, base64.b64decode(text))


def check(state: Any, generator: torch.Generator | None) -> None:
    """Refuse a value that is no state of the generator or, without one, of own draws.

    Raises StateError.
    """
    if generator is None:
        is_right = isinstance(state, list) and len(state) == _AHEAD + 1
        if is_right and all(type(each) is int and 0 <= each < SEED_LIMIT for each in state):
            return
    elif state is None:
        return  # the order has it
    else:
        try:
            if len(base64.b64decode(state, validate=True)) == len(generator_state(generator)):
                return
        except (TypeError, ValueError):
            pass
    what = (
        "a list of ints, since the loader has no generator"
        if generator is None
        else "the state of a generator, as text"
    )
    raise StateError(
        f"_generator in the state must be {what}, got {got(state)}. Load what state_dict() of"
        " reader.compat.torch.StatefulDataLoader with the same generator argument returned"
    )
