"""Facts that tell one dataset from another, for saved states.

Imports the wrapped datasets and NumPy. Nothing is read of a dataset but its length, the names and
sizes that it has in memory, and what its `__fingerprint__` returns.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reader._core.interpreter.own_attribute import own_attribute
from reader.errors import ConfigTypeError, got, shown

__all__ = ["are_alike", "digest_of", "fingerprint_of", "told_differences"]

_SEQUENCES = (list, tuple, range, np.ndarray)
_DEEPEST = 6  # datasets within datasets
_MOST_TEXTS = 1 << 13  # names that a digest is made of
_MOST_TOLD = 6
_LIBRARIES = {"builtins", "abc", "typing", "collections", "reader", "torch", "paddle", "mxnet"}


def fingerprint_of(dataset: Any, samples: int | None = None, depth: int = 0) -> dict[str, Any]:
    """Return what a dataset is, as JSON has it: its kind, how many samples it has, and more facts.

    A dataset says it by a method `__fingerprint__(samples)`, which returns a dict of plain facts.
    With `samples` it says what a dataset of its first so many samples would say: so a state tells
    whether a dataset is the one of before with more samples after the old ones. It reads no data,
    and names no credentials.

    Args:
        dataset: any.
        samples: None: all.
        depth: how many datasets it is within.

    Raises:
        ConfigTypeError: `__fingerprint__` returned something that is not plain.
    """
    method = getattr(type(dataset), "__fingerprint__", None)
    if method is not None:
        found = method(dataset, samples)
        if not isinstance(found, dict) or not _is_plain(found):
            raise ConfigTypeError(
                f"__fingerprint__ of {type(dataset).__name__} must return a dict of plain facts"
                f" (None, bool, int, finite float, str, list or dict; str keys), got {got(found)}"
            )
        return found
    kind = "sequence" if type(dataset) in _SEQUENCES else type(dataset).__qualname__
    length = len(dataset) if hasattr(type(dataset), "__len__") else None
    facts: dict[str, Any] = {"kind": kind, "samples": length if samples is None else samples}
    bases = [base.__qualname__ for base in type(dataset).__mro__[1:] if _is_users(base)]
    if bases:
        facts["bases"] = bases
    inner = own_attribute(dataset, "dataset", None)
    many = own_attribute(dataset, "datasets", None)
    if inner is dataset:
        return facts
    if depth < _DEEPEST and inner is not None:
        is_alike = samples is not None and hasattr(inner, "__len__") and len(inner) == length
        facts["of"] = fingerprint_of(inner, samples if is_alike else None, depth + 1)
    elif depth < _DEEPEST and type(many) in (list, tuple):
        facts["of"] = [fingerprint_of(each, None, depth + 1) for each in many]
    return facts


def digest_of(*values: Any) -> str:
    """Return a short digest of numbers and texts.

    Args:
        values: each a number, an array of numbers, or a sequence of texts. Of many texts some are
            taken, at places that depend on their number alone.
    """
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        texts = _texts_of(value)
        if texts is None:
            array = np.ascontiguousarray(value)
            digest.update(f"{array.dtype.kind}{array.shape}".encode())
            wide = array.dtype.kind in "iub" and array.dtype != np.uint64
            digest.update((array.astype("<i8") if wide else array).tobytes())
        else:
            digest.update(str(len(value)).encode())
            for text in texts:
                digest.update(b"\0" + text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _texts_of(value: Any) -> Iterable[str] | None:
    """Return some of the texts of a sequence; None: it has numbers."""
    if not isinstance(value, Sequence) or not len(value) or not isinstance(value[0], str):
        return None
    step = max(1, len(value) // _MOST_TEXTS)
    return [*value[::step], value[-1]]


def _is_users(kind: type) -> bool:
    """Whether a class is the user's: the base classes of libraries tell nothing of samples."""
    return kind.__module__.partition(".")[0] not in _LIBRARIES


def are_alike(was: Any, own: Any) -> bool:
    """Whether two fingerprints are equal, where a class stands for those that derive from it."""
    if isinstance(was, dict) and isinstance(own, dict):
        names = {*was, *own} - {"kind", "bases"}
        kinds = [[each.get("kind"), *each.get("bases", [])] for each in (was, own)]
        is_family = kinds[0][0] in kinds[1] or kinds[1][0] in kinds[0]
        return is_family and all(
            name in was and name in own and are_alike(was[name], own[name]) for name in names
        )
    if isinstance(was, list) and isinstance(own, list):
        return len(was) == len(own) and all(map(are_alike, was, own))
    return bool(was == own) and type(was) is type(own)


def told_differences(was: Any, own: Any) -> str:
    """Describe where two fingerprints differ."""
    told = list(_differences(was, own, ""))
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return "; ".join(told[:_MOST_TOLD]) + more


def _differences(was: Any, own: Any, place: str) -> Iterable[str]:
    if isinstance(was, dict) and isinstance(own, dict):
        for name in dict.fromkeys((*was, *own)):
            inner = f"{place}.{name}" if place else name
            yield from _differences(was.get(name, "not known"), own.get(name, "not known"), inner)
    elif isinstance(was, list) and isinstance(own, list) and len(was) == len(own):
        for at, (one, other) in enumerate(zip(was, own, strict=True)):
            yield from _differences(one, other, f"{place}[{at}]")
    elif was != own or type(was) is not type(own):
        yield f"{place} was {shown(was)} and is {shown(own)}"


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict) and depth < _DEEPEST:
        return all(type(key) is str and _is_plain(each, depth + 1) for key, each in value.items())
    if isinstance(value, list) and depth < _DEEPEST:
        return all(_is_plain(each, depth + 1) for each in value)
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return (
        value is None
        or type(value) in (bool, str)
        or (type(value) is float and math.isfinite(value))
    )
