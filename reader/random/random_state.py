"""The global random state of a process as a value: captured, written as JSON, and put back.

Imports numpy, `reader.errors` and the standard library, and uses torch only where it is already
imported. A captured state is a plain dict that belongs to the caller; the generators belong to the
user.
"""

from __future__ import annotations

import base64
import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from reader.errors import StateError, got
from reader.random.seeds import CapturedState

__all__ = [
    "capture",
    "from_json",
    "generator_state",
    "put_back",
    "set_generator",
    "swapped_in",
    "to_json",
]


def capture() -> dict[str, Any]:
    """Return the state of `random`, of numpy's legacy generator and of torch's CPU generator.

    The result can be pickled and, with `to_json`, written as JSON. It has torch's state if torch is
    imported.
    """
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        found["torch"] = generator_state(generator)
    return found


def put_back(state: dict[str, Any]) -> None:
    """Set the generators that `capture` reads; one that `state` lacks is left alone."""
    if "python" in state:
        random.setstate(state["python"])
    if "numpy" in state:
        np.random.set_state(state["numpy"])
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None and "torch" in state:
        set_generator(generator, state["torch"])


@contextlib.contextmanager
def swapped_in(state: dict[str, Any]) -> Iterator[None]:
    """Set the generators to `state` inside the block, and restore them on leaving."""
    put_own_back = CapturedState().put_back
    try:
        put_back(state)
        yield
    finally:
        put_own_back()


def generator_state(generator: Any) -> bytes:
    """Return the state of a torch.Generator on the CPU."""
    state: bytes = generator.get_state().numpy().tobytes()
    return state


def set_generator(generator: Any, state: bytes) -> None:
    """Set the state of a torch.Generator on the CPU."""
    torch = sys.modules["torch"]
    generator.set_state(torch.from_numpy(np.frombuffer(state, np.uint8).copy()))


def to_json(value: Any) -> Any:
    """Return a captured state as JSON values; `from_json` reads them."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        return {"dtype": little.dtype.str, "bytes": base64.b64encode(little.tobytes()).decode()}
    if isinstance(value, tuple):
        if len(value) > 16 and all(type(each) is int and 0 <= each < 2**32 for each in value):
            return {"tuple": to_json(np.array(value, np.uint32))}
        return {"tuple": [to_json(each) for each in value]}
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    return value


def from_json(value: Any) -> Any:
    """Read the result of `to_json`. StateError for any other value."""
    try:
        return _read(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(
            f"the random state in the loader's state cannot be read: {error}, in {got(value)}. The"
            " state is damaged: load another one"
        ) from error


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"bytes"}:
        return base64.b64decode(value["bytes"], validate=True)
    if value.keys() == {"dtype", "bytes"}:
        data = base64.b64decode(value["bytes"], validate=True)
        return np.frombuffer(data, np.dtype(value["dtype"])).copy()
    if value.keys() == {"tuple"}:
        found = value["tuple"]
        if isinstance(found, dict):
            return tuple(_read(found).tolist())
        return tuple(_read(each) for each in found)
    return {key: _read(each) for key, each in value.items()}
