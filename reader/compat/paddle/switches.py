"""The process-wide switches of Paddle's loaders.

Imports this face's errors. This module owns each value. A loader reads it when it is made, and only
the loaders of this face do.
"""

from __future__ import annotations

from reader.compat.paddle.errors import ArgumentError
from reader.errors import got

__all__ = ["keep_data_loader_order", "pin_limit", "use_pinned_memory"]

_values: dict[str, bool | None] = {"pinned": None, "order": True}


def use_pinned_memory(*args: bool) -> bool | None:
    """Set whether batches go to devices from page-locked memory; without argument, return it.

    None, the initial value, means yes. Batches that stay on the CPU are not affected. Paddle's own
    loader leaves a batch for a GPU in such memory, in dynamic mode; here it is on the GPU.
    Source: paddle.io.reader.
    """
    return _switch("pinned", "use_pinned_memory", args)


def pin_limit() -> int | None:
    """Return the engine's `pin_limit` for the switch."""
    return 0 if _values["pinned"] is False else None


def keep_data_loader_order(*args: bool) -> bool | None:
    """Set whether generator loaders keep the order over several places; without one, return it.

    Here the order is always kept: without it Paddle leaves places empty.
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
