"""The process-wide switches of Paddle's loaders.

Imports this face's errors. Each value is owned by this module, is read when a loader is made, and
concerns the loaders of this face alone.
"""

from __future__ import annotations

from reader.compat.paddle.errors import ArgumentError
from reader.errors import got

__all__ = ["keep_data_loader_order", "use_pinned_memory"]

_values: dict[str, bool | None] = {"pinned": None, "order": True}


def use_pinned_memory(*args: bool) -> bool | None:
    """Set whether batches for a GPU pass through page-locked memory; without argument: tell.

    None, the value at first, means yes in dynamic and no in static mode. Batches that stay on the
    CPU are not touched by it. Source: paddle.io.reader.
    """
    return _switch("pinned", "use_pinned_memory", args)


def keep_data_loader_order(*args: bool) -> bool | None:
    """Set whether generator loaders deal batches out over several places in order; without: tell.

    Here the order is kept whatever the value, since Paddle's way without it leaves places empty.
    Source: paddle.base.reader.
    """
    return _switch("order", "keep_data_loader_order", args)


def _switch(key: str, name: str, args: tuple[bool, ...]) -> bool | None:
    if not args:
        return _values[key]
    if len(args) != 1 or not isinstance(args[0], bool):
        raise ArgumentError(
            f"{name} takes one bool or nothing, got {got(args)}. Pass True or False."
        )
    _values[key] = args[0]
    return None
