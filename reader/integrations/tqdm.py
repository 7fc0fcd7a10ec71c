"""A progress bar of tqdm that shows how much of the loop is spent on waiting.

Imports tqdm and the words for waiting. The counters are read when the bar is drawn, and not at
each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.integrations.libraries import missing
from reader.integrations.waiting import Waiting, steps_of

try:
    from tqdm.auto import tqdm
except ImportError as error:
    raise missing("tqdm", "tqdm") from error

__all__ = ["progress"]

_Bar: Any = tqdm


class _WaitingBar(_Bar):  # type: ignore[misc]
    """A bar whose postfix ends with what part of the loop was waiting."""

    waiting: Any = ""
    monitor_interval = 0  # tqdm's thread, which draws bars that skip steps: this one skips none

    @property
    def format_dict(self) -> dict[str, Any]:
        """What the bar is drawn of: asked for at each drawing."""
        found: dict[str, Any] = super().format_dict
        parts = (found.get("postfix"), str(self.waiting))
        found["postfix"] = ", ".join(part for part in parts if part) or None
        return found


def progress(loader: Any, **options: Any) -> Iterator[Any]:
    """Yield the batches of an epoch, and draw a bar that says for instance "waits 41 %".

    Args:
        loader: of this package.
        **options: of `tqdm.tqdm`, such as `desc` and `file`. `total` is how often the
            loop runs, where that is known.

    Raises:
        ConfigTypeError: it is no loader of this package; at the call.
    """
    waiting = Waiting(loader, "progress")
    if "total" not in options:
        options["total"] = steps_of(loader)
    return _drawn(loader, waiting, {"miniters": 1, **options})


def _drawn(loader: Any, waiting: Waiting, options: dict[str, Any]) -> Iterator[Any]:
    with _WaitingBar(**options) as bar:
        bar.waiting = waiting
        for batch in loader:
            yield batch
            del batch  # not to be held while the next one is waited for
            bar.update()
