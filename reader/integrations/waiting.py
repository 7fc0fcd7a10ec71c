"""What part of a loop was spent on waiting, in three words for a progress bar.

Imports the counters of a loader.
"""

from __future__ import annotations

from typing import Any

from reader.integrations.counters import Counters

__all__ = ["Waiting"]


class Waiting:
    """The part of a loop that it waited for batches, since this was made.

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
        """Return it in words, such as "waits 41 %"; "" where nothing is known yet."""
        now, begin = self._counters.read(), self._begin
        if now is None or begin is None or now.batches == 0:
            return ""
        share = (now.wait_s - begin.wait_s) / max(now.at_s - begin.at_s, 1e-9)
        return f"waits {min(1.0, max(0.0, share)):.0%}".replace("%", " %")
