"""What bounds a loop, in a word and a sentence, and what to change.

Imports the standard library alone. Immutable; `judge` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Verdict", "in_words"]


@dataclass(frozen=True)
class Verdict:
    """What bounds a loop.

    Attributes:
        bound_by: one of "step", "start", "sampler", "transfer", "memory", "sample", "straggler",
            "prefetch", "storage", "network", "collate", "gil", "cores", "workers", "decoding",
            "dataset".
        sentence: the same as a sentence.
        advice: what to change; "": nothing.
        share: share of the loop in which the consumer waited, from 0 to 1.
        gain: how many times as fast the loop should be after that, such as 1.8; None: unknown.
        options: the loader's options that the advice names; a WorkerPool is no option.
    """

    bound_by: str
    sentence: str
    advice: str
    share: float
    gain: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def gain_in_words(self) -> str:
        """The gain as text after the advice; "": unknown or none."""
        if self.gain is None or self.gain < 1.05:
            return ""
        return f" (up to {self.gain:.2g} times as fast)"


def in_words(seconds: float) -> str:
    """Return a time as text, such as "5.24 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
