"""The package's logger, whose lines say whose they are where the program sets up no logging.

Imports the standard library alone. Importing it adds one handler to the logger "reader", which
writes nothing as soon as any other handler gets its records.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["log"]

log = logging.getLogger("reader")


class _PlainLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes warnings to stderr as logging does where nobody has set it up, with the name."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless others do, or logging's own last resort was taken away."""
        others = [each for each in log.handlers if each is not self]
        if log.propagate:
            others += logging.getLogger().handlers
        if not others and logging.lastResort is not None:
            self.stream = sys.stderr  # as it is now
            super().emit(record)


def _add_handler() -> None:
    handler = _PlainLines()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("reader: %(message)s"))
    log.addHandler(handler)


_add_handler()
