"""Guess which code of a dataset decodes images, without running it.

Imports the images of this package when they are loaded already. It reads the names in functions,
and calls nothing.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

__all__ = ["decoder_of"]

_MOST = 200  # objects to look at
# functions that decode; common names count only with their library's name
_DECODERS = {
    "imread": "imread",
    "imdecode": "imdecode",
    "decode_jpeg": "decode_jpeg",
    "decode_image": "decode_image",
    "read_image": "read_image",
    "default_loader": "torchvision's loader",
    "pil_loader": "PIL",
    "Image": "PIL.Image",
}
_OURS = "reader.images"


def decoder_of(dataset: Any) -> str:
    """Return the decoder of images in a dataset, such as "PIL.Image"; "": none is known."""
    for seen in _within(dataset):
        if type(seen).__module__.startswith(_OURS):
            return _OURS
        if isinstance(seen, types.FunctionType):
            names = _names(seen.__code__)
            for name in sorted(names & _DECODERS.keys()):
                if name != "Image" or "open" in names:
                    return _DECODERS[name]
    return ""


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _within(dataset: Any) -> Iterator[Any]:
    """Yield a dataset, its methods, and its attributes down to three levels."""
    found: list[tuple[Any, int]] = [(dataset, 0)]
    seen: set[int] = set()
    while found and len(seen) < _MOST:
        each, depth = found.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, types.FunctionType) and depth < 3:
            called = (each.__globals__.get(name) for name in sorted(_names(each.__code__)))
            found += [(value, depth + 1) for value in called if type(value) is types.FunctionType]
        if depth == 3 or isinstance(each, types.FunctionType | type | types.ModuleType):
            continue
        for name, value in _functions(type(each)):
            if not name.startswith("__") or name in ("__getitem__", "__getitems__", "__iter__"):
                found.append((value, depth + 1))
        held = getattr(each, "__dict__", None)
        held = [*held.values()] if isinstance(held, dict) else []
        if isinstance(each, list | tuple):
            held = list(each[:16])
        found += [(value, depth + 1) for value in held if _may_decode(value)]


def _may_decode(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "__getitem__")


def _functions(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__[:-1]:
        for name, value in vars(base).items():
            if isinstance(value, types.FunctionType):
                yield name, value
