"""How often and how long a consumer waited for batches.

Imports the standard library alone. Written by the iterator in use, and read by whoever asks.
"""

from __future__ import annotations

import dataclasses

__all__ = ["WaitStats"]


@dataclasses.dataclass
class WaitStats:
    """What the consumer saw: how often and how long it waited for batches."""

    batches: int = 0
    wait_s: float = 0.0
    last_wait_s: float = 0.0
