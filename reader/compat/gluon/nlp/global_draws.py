"""Samplers whose order is drawn from a global generator, unless they have a seed.

Imports `reader.data`. The generator belongs to the user; a sampler keeps the state that it had
before its last order was drawn, which draws that order again.
"""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from reader.data.sampler import SeededSampler
from reader.errors import StateError, got
from reader.random.random_state import from_json, swapped_in, to_json

__all__ = ["GlobalDrawSampler"]

T_co = TypeVar("T_co", covariant=True)


class GlobalDrawSampler(SeededSampler[T_co]):
    """Base class of samplers that draw an order from a global generator, unless they have a seed.

    Without a seed the state of an order is that of the generator before it was drawn.
    """

    _drawn_from: Any = None  # JSON: the generator before the last order was drawn
    _to_draw_from: Any = None  # and before the order that the next iteration must take

    @property
    @abc.abstractmethod
    def _draws_globally(self) -> bool:
        """Whether orders are drawn from the global generator."""

    @abc.abstractmethod
    def _generator_state(self) -> dict[str, Any]:
        """Return the state of the global generator, as `random_state.capture` does."""

    def _generator(self, state: Any) -> AbstractContextManager[None]:
        """Return the block in which to draw an order: of a state that was loaded, or a new one."""
        self._drawn_from = to_json(self._generator_state()) if state is None else state
        return nullcontext() if state is None else swapped_in(from_json(state))

    def _take_loaded(self) -> Any:
        """Return the state that this iteration must draw from; None: as the generator is."""
        state, self._to_draw_from = self._to_draw_from, None
        return state

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the order of the last begun iteration, as JSON values.

        Before the first iteration it is the order that the next one takes.
        """
        if not self._draws_globally:
            return super().state_dict()
        state = self._to_draw_from or self._drawn_from
        if state is None:
            state = self._to_draw_from = to_json(self._generator_state())
        return {"random": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration, and it alone, take the order that the state describes.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        self.check_state(state)
        if self._draws_globally:
            self._to_draw_from = state["random"]
        else:
            super().load_state_dict(state)

    def check_state(self, state: dict[str, Any]) -> Any:  # type: ignore[override]
        """Check a state. StateError: it is no state of such a sampler."""
        if not self._draws_globally:
            return super().check_state(state)
        found = from_json(state.get("random")) if isinstance(state, dict) else None
        if not isinstance(found, dict) or found.keys() != self._generator_state().keys():
            raise StateError(
                "the state of a sampler that draws without a seed is a dict with 'random', got"
                f" {got(state)}. Pass what state_dict() of such a sampler returned."
            )
        try:
            with swapped_in(found):
                return found
        except Exception as error:
            raise StateError(
                f"random in the state of a sampler cannot be set: {error!r}. Was the state damaged?"
            ) from error
