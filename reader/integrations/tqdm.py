"""A progress bar of tqdm that shows the part of the loop spent on waiting.

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
    """A bar whose postfix ends with the part of the loop spent on waiting."""

    waiting: Any = ""
    monitor_interval = 0  # no thread of tqdm's, which draws bars that skip steps

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values to draw; read at each drawing."""
        found: dict[str, Any] = super().format_dict
        parts = (found.get("postfix"), str(self.waiting))
        found["postfix"] = ", ".join(part for part in parts if part) or None
        return found


def progress(loader: Any, **options: Any) -> Iterator[Any]:
    """Yield the batches of an epoch, and draw a bar that shows for instance "waits 41 %".

    Args:
        loader: of this package.
        **options: of `tqdm.tqdm`, such as `desc` and `file`. `total` is the number of steps, if
            known.

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
            del batch  # do not hold it while waiting for the next
            bar.update()
