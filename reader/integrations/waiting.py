"""For progress bars: the part of a loop spent on waiting, in three words, and its length.

Imports the counters of a loader.
"""

from __future__ import annotations

from typing import Any

from reader.integrations.counters import Counters

__all__ = ["Waiting", "steps_of"]


class Waiting:
    """The part of a loop that was spent on waiting for batches, since this object was made.

    Args:
        loader: of this package; it is held weakly.
        who: takes it, for the message.

    Raises:
        ConfigTypeError: it is no loader of this package.
    """

    def __init__(self, loader: Any, who: str) -> None:
        self._counters = Counters(loader, who)
        self._begin = self._counters.read()

    def __str__(self) -> str:
        """Return it in words, such as "waits 41 %"; "" if nothing is known yet."""
        now, begin = self._counters.read(), self._begin
        if now is None or begin is None or now.batches == 0:
            return ""
        share = (now.wait_s - begin.wait_s) / max(now.at_s - begin.at_s, 1e-9)
        return f"waits {min(1.0, max(0.0, share)):.0%}".replace("%", " %")


def steps_of(loader: Any) -> int | None:
    """Return the number of steps of an epoch; None: unknown."""
    try:
        return int(loader.steps if hasattr(loader, "steps") else len(loader))
    except TypeError:
        return None
