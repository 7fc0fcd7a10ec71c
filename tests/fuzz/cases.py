"""How many cases a fuzzer tries, and the choices of one case.

Imports Hypothesis, which makes the choices, remembers those of a case that fails, and looks for
fewer. `make test` tries a sample, the same in each run; `make nightly` asks for 200 times as many,
others each night: `--hypothesis-profile nightly`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis
import hypothesis.strategies as st

Value = TypeVar("Value")

_WORDS = [
    *(b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 4, bytes(4), b"\0\0\0\x40"),
    *(b"\xff" * 7 + b"\x7f", b"\xff" * 8, bytes(7) + b"\x80", b"\0\0\0\0\1\0\0\0"),
]


class Draws:
    """The choices of one case. The first of each is what a case that fails is reduced to."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def choice(self, values: Sequence[Value]) -> Value:
        """Return one of the values."""
        return self._data.draw(st.sampled_from(values))

    def randint(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return self._data.draw(st.integers(low, high))

    def chance(self, part: float) -> bool:
        """Whether something happens, with this probability."""
        return self.randint(1, 100) > 100 * (1 - part)


def try_cases(case: Callable[[Draws], str], few: int) -> Counter[str]:
    """Run cases, `few` or many times as many; return how often each outcome came."""
    outcomes: Counter[str] = Counter()

    @hypothesis.settings(
        max_examples=few * hypothesis.settings().max_examples // 100,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def run(data: Any) -> None:
        outcomes[case(Draws(data))] += 1

    run()
    return outcomes


def damaged(draws: Draws, content: bytes) -> bytes:
    """Return content with some bits turned, words put in place, or parts cut, doubled or ended."""
    found = bytearray(content)
    for _ in range(draws.choice([1, 1, 2, 4, 16])):
        place = draws.randint(0, len(found) - 1)
        how = draws.choice(["bit", "word", "cut", "twice", "end"])
        if how == "bit":
            found[place] ^= 1 << draws.randint(0, 7)
        elif how == "word":
            word = draws.choice(_WORDS)
            place -= place % 4  # where lengths and offsets lie
            found[place : place + len(word)] = word
        elif how == "cut" and len(found) > 100:
            del found[place : place + draws.choice([1, 8, 64])]
        elif how == "twice":
            found[place:place] = found[place : place + 8]
        elif draws.chance(0.2):
            del found[max(place, 1) :]
    return bytes(found)
