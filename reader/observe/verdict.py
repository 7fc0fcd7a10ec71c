"""What bounds a loop over a loader, in a word and in a sentence, and what to change.

Imports the standard library alone. A record that never changes; `judge` makes it.
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
            "prefetch", "storage", "collate", "gil", "cores", "workers", "decoding", "dataset".
        sentence: the same in words.
        advice: what to change; "": nothing.
        share: of the loop that the consumer waited, from 0 to 1.
        gain: by how much faster the loop is expected to be after that, such as 1.8; None: unknown.
        options: those of the loader that the advice names, by name; a WorkerPool is none.
    """

    bound_by: str
    sentence: str
    advice: str
    share: float
    gain: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def gain_in_words(self) -> str:
        """The gain, as it is said behind the advice; "": it is not known, or nothing."""
        if self.gain is None or self.gain < 1.05:
            return ""
        return f" (up to {self.gain:.2g} times as fast)"


def in_words(seconds: float) -> str:
    """Return a time as a sentence has it, such as "5.24 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
