"""A check that a saved state is plain data, as JSON has it, and a copy of such data.

Imports the errors. Pure functions.
"""

from __future__ import annotations

import math
from typing import Any

from reader.errors import StateError, got

__all__ = ["REMEDY", "check_plain", "plain_copy"]

REMEDY = "Load a state that state_dict() of a loader with the same dataset and options returned."
_MAX_DEPTH = 16  # of the containers in a state
_THEIRS_IN_ORDER = (("source",), ("iterator",), ("drawn",))
_THEIRS_IN_WORKER = (("state", "dataset"), ("state", "iterator"))


def check_plain(state: dict[str, Any]) -> None:
    """Refuse a state whose own entries are not plain data, as JSON has it.

    It comes before any comparison: NumPy's and torch's values compare as arrays. `state_dict` saves
    no instances of subclasses of numbers and texts. What users' own samplers,
    datasets and iterators put into a state is not checked.

    Raises:
        StateError: a value is not plain data; the text names the place of the first one.
    """
    todo: list[tuple[tuple[Any, ...], Any]] = [((), state)]
    while todo:
        path, value = todo.pop()
        if path[:1] == ("order",) and path[1:] in _THEIRS_IN_ORDER:
            continue
        if path[:1] == ("workers",) and path[2:] in _THEIRS_IN_WORKER:
            continue
        if isinstance(value, dict) and len(path) < _MAX_DEPTH:
            if not all(type(key) is str for key in value):
                raise StateError(
                    f"{_place(path)} must have str keys only, got {got(list(value))}. {REMEDY}"
                )
            todo += [((*path, key), each) for key, each in value.items()]
        elif isinstance(value, list) and len(path) < _MAX_DEPTH:
            todo += [((*path, at), each) for at, each in enumerate(value)]
        elif not _is_plain(value):
            raise StateError(
                f"{_place(path)} must be plain data (None, bool, int of 64 bits, finite float, str,"
                f" list or dict), got {got(value)}. {REMEDY}"
            )


def plain_copy(value: Any) -> Any:
    """Return a copy of plain data; quicker than `copy.deepcopy`, which any kind of object takes."""
    kind = type(value)
    if kind is dict:
        return {key: plain_copy(each) for key, each in value.items()}
    return [plain_copy(each) for each in value] if kind is list else value


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 64)
    return value is None or kind in (bool, str) or (kind is float and math.isfinite(value))


def _place(path: tuple[Any, ...]) -> str:
    inner = "".join(f"[{each!r}]" for each in path[1:])
    return f"{path[0]}{inner} in the state" if path else "the state"
