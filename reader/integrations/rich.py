"""A column for rich's progress bars that shows the part of the loop spent on waiting.

Imports rich and the words for waiting. The counters are read when the bar is drawn, in rich's
thread, and not at each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.integrations.libraries import missing
from reader.integrations.waiting import Waiting, steps_of

try:
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text
except ImportError as error:
    raise missing("rich", "rich", extra="profile") from error

__all__ = ["WaitColumn", "progress"]

_Column: Any = ProgressColumn


class WaitColumn(_Column):  # type: ignore[misc]
    """A column of `rich.progress.Progress` that shows for instance "waits 41 %".

    Args:
        loader: of this package, for all tasks of the bar; it is held weakly.

    Raises:
        ConfigTypeError: it is no loader of this package.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__()
        self._waiting = Waiting(loader, "WaitColumn")

    def render(self, task: Any) -> Any:
        """Return the text for rich."""
        return Text(str(self._waiting), style="progress.remaining")


def progress(loader: Any, description: str = "", **options: Any) -> Iterator[Any]:
    """Yield the batches of an epoch, and draw rich's bar with a `WaitColumn`.

    Args:
        loader: of this package.
        description: before the bar.
        **options: of `rich.progress.Progress`, such as `console`.

    Raises:
        ConfigTypeError: it is no loader of this package; at the call.
    """
    return _drawn(loader, WaitColumn(loader), description, options)


def _drawn(
    loader: Any, column: WaitColumn, description: str, options: dict[str, Any]
) -> Iterator[Any]:
    with Progress(*Progress.get_default_columns(), column, **options) as bar:
        task = bar.add_task(description, total=steps_of(loader))
        for batch in loader:
            yield batch
            del batch  # do not hold it while waiting for the next
            bar.advance(task)
