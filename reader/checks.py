"""Checks of single arguments, shared by every public constructor.

Imports `reader.errors`, numpy and the standard library. Each check returns the converted value, or
raises ConfigError or ConfigTypeError with the value, the limit and a remedy. Keeps no state.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import operator
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, ParamSpec

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got

__all__ = [
    "MIX_HINT",
    "as_array",
    "as_bool",
    "as_byte_count",
    "as_byte_size",
    "as_folder",
    "as_int",
    "as_reiterable",
    "described",
    "has_method",
    "is_flag",
    "is_key",
    "meant_by",
    "names_arguments",
    "refuse_mask",
    "refuse_text",
    "refuse_url",
]

_P = ParamSpec("_P")


def names_arguments(
    elsewhere: Mapping[str, str], others: Callable[..., None] | None = None
) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Decorate an `__init__`: it refuses unknown arguments by name, and says what is meant.

    Args:
        elsewhere: by the name of another library's argument, what to do here instead.
        others: takes the keyword arguments that this one passes on, as ``**name``; its signature
            has them then. None: nothing is passed on.
    """

    def decorate(init: Callable[_P, None]) -> Callable[_P, None]:
        signature = inspect.signature(init)
        if others is not None:
            own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
            taken = signature.parameters
            theirs = inspect.signature(others).parameters.values()
            more = [each for each in theirs if each.kind == each.KEYWORD_ONLY]
            own += [each for each in more if each.name not in taken]
            signature = signature.replace(parameters=own)
        known = list(signature.parameters)[1:]

        @functools.wraps(init)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> None:
            for name in kwargs:
                if name not in known:
                    raise ConfigTypeError(  # begins with Python's words: programs look for them
                        f"{init.__qualname__}() got an unexpected keyword argument {name!r}:"
                        f" {meant_by(name, known, elsewhere)}"
                    )
            init(*args, **kwargs)

        # inspect.getfullargspec does not look through a wrapper
        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return decorate


def meant_by(name: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    """Return a hint for an unknown argument: the known one it may mean, or what to do instead."""
    if name in elsewhere:
        return elsewhere[name]
    plain = {each.replace("_", ""): each for each in known}
    near = difflib.get_close_matches(name.lower().replace("_", ""), plain, 1)
    if near:
        return f"did you mean {plain[near[0]]}?"
    return f"the arguments are {', '.join(known)}"


def _dtype_of(value: object) -> str:
    """Return the name of an array's, a tensor's or a NumPy number's dtype; "": it has none."""
    return str(getattr(value, "dtype", "")).rpartition(".")[2].lower()


def is_flag(value: object) -> bool:
    """Whether a value is a bool, or an array of them: also NumPy's, or that of a framework."""
    if type(value) is int:  # as most are
        return False
    return isinstance(value, bool) or _dtype_of(value) == "bool"


def is_key(value: object) -> bool:
    """Whether a value may name a sample: hashable, and no flag, fraction or array of many."""
    dtype = _dtype_of(value)
    if value is None or isinstance(value, (bool, float, complex)):
        return False
    if dtype.startswith(("bool", "float", "bfloat", "complex")):
        return False
    if dtype and not isinstance(value, np.generic) and getattr(value, "shape", None) != ():
        return False  # a tensor's hash says where it is, not what is in it
    try:
        hash(value)
    except TypeError:
        return False
    return True


def refuse_mask(indices: object) -> None:
    """Refuse a mask in the place of indices. ConfigTypeError."""
    first = indices[0] if isinstance(indices, (list, tuple)) and indices else indices
    if is_flag(first):
        raise ConfigTypeError(
            f"indices are whole numbers or keys, got {got(indices)}, a mask: its values would be"
            " the indices 0 and 1. Pass the places that are True: np.flatnonzero(mask)"
        )


def as_int(name: str, value: object, *, low: int, high: int = sys.maxsize, remedy: str) -> int:
    """Return `value` as an int within [low, high]; anything with `__index__` but a bool passes."""
    number: int | None = None
    if not is_flag(value):
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if low <= number <= high:
                return number
    is_open = high == sys.maxsize and (number is None or number < low)
    limit = f"an int of {low} or more" if is_open else f"an int in [{low}, {high}]"
    if is_open and low == -sys.maxsize:
        limit = "an int"
    kind = ConfigTypeError if number is None else ConfigError
    raise kind(f"{name} must be {limit}, got {got(value)}. {remedy}")


def as_byte_count(name: str, value: object, *, low: int, remedy: str) -> int:
    """Return a number of bytes as an int: also a float that is a whole number, such as 2e9."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    return as_int(name, value, low=low, remedy=remedy)


def as_byte_size(name: str, value: object) -> int:
    """Return a number of bytes, which may be given as a string such as "8GB" or "512 MiB"."""
    remedy = 'Pass a number of bytes, or a string such as "8GB" or "512MiB".'
    if not isinstance(value, str):
        return as_byte_count(name, value, low=1, remedy=remedy)
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgtKMGT]?)(i?)[bB]?\s*", value)
    if found is None or (found[3] and not found[2]):
        raise ConfigError(f"{name} must be a number of bytes, got {got(value)}. {remedy}")
    step = 1024 if found[3] else 1000
    factor = step ** ("KMGT".index(found[2].upper()) + 1 if found[2] else 0)
    return as_byte_count(name, round(float(found[1]) * factor), low=1, remedy=remedy)


def as_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return numbers of any kind as an array, without a copy where possible.

    Raises:
        ConfigTypeError: they cannot be read as an array, or some are masked.
    """
    try:
        found = values.detach() if hasattr(values, "detach") else values  # may require a gradient
        found = np.asanyarray(found.numpy() if hasattr(found, "numpy") else found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigTypeError(
            f"{name} must be an array of numbers, got {got(values)}: {error}. Pass a list, or an"
            " array or tensor on the CPU."
        ) from error
    if isinstance(found, np.ma.MaskedArray):
        raise ConfigTypeError(
            f"{name} must be an array of numbers, got a masked array: its masked values would be"
            " taken as they are. Pass filled(value), or leave such samples out"
        )
    return np.asarray(found)


def as_bool(name: str, value: object, *, remedy: str = "Pass True or False.") -> bool:
    """Return `value` as a bool; only `bool` and `numpy.bool_` pass."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigTypeError(f"{name} must be a bool, got {got(value)}. {remedy}")
    return bool(value)


def as_folder(name: str, value: Any) -> str:
    """Return the whole path of a folder; it need not be there yet."""
    try:
        path = os.fsdecode(value)
    except TypeError:
        path = None
    refuse_url(name, path)
    if not path or "\0" in path:
        kind = ConfigTypeError if path is None else ConfigError
        raise kind(
            f"{name} must be the path of a folder, got {got(value)}. Pass a path such as"
            f' "/data/{name}", or "." for the folder that the program runs in.'
        )
    return str(Path(path).absolute())


# a note to the errors in which other libraries refuse shuffle=True of a stream
MIX_HINT = "reader: a stream is mixed by reader.shuffle_buffer(dataset, 1000), without shuffle="

# a Path has one slash of the two
_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]+)://|(?:abfss?|az|file|ftp|gcs|gs|hdfs|hf|https?|oss|s3|wasbs?):/"
)


def refuse_url(name: str, path: Any) -> None:
    """Refuse the address of something that is not on this machine, where a path is wanted.

    Raises:
        ConfigError: `path` begins with "s3://", "gs://", "https://", "file://" or the like.
    """
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    found = _URL.match(text)
    if found is None or os.path.exists(text):  # noqa: PTH110  a Path would change the text
        return
    if text.lower().startswith("file:"):
        remedy = f"pass the path alone: {'/' + text[len(found[0]) :].lstrip('/')!r}"
    else:
        remedy = (
            "it has to be on a disk of this machine: copy it (aws s3 sync, gsutil rsync, rclone),"
            " or mount the bucket (s3fs, gcsfuse), and pass that path"
        )
        if "://" not in found[0]:
            remedy = (
                "pathlib drops a slash of it: pass the text, where files in stores are read, and"
                f" elsewhere a path of this machine. Otherwise {remedy}"
            )
    raise ConfigError(
        f"{name} must be the path of a file or folder, got the URL {text!r}; {remedy}"
    )


def described(value: Any) -> str:
    """Return what a dataset or sampler is, for `repr`: kind, length, and options that are short."""
    parts = []
    with contextlib.suppress(Exception):  # it has none, or its source has none
        parts.append(str(len(value)))
    for name, each in getattr(value, "__dict__", {}).items():
        if name.startswith("_"):
            continue
        if isinstance(each, (bool, int, float, str, os.PathLike)):
            text = repr(str(each) if isinstance(each, os.PathLike) else each)
            if len(text) <= _LONGEST:
                parts.append(f"{name}={text}")
        elif name in _SOURCES:
            parts.append(f"{name}={type(each).__name__}")
    return f"{type(value).__name__}({', '.join(parts)})"


_LONGEST = 80  # letters of an option that is shown
_SOURCES = ("dataset", "data_source", "sampler", "batch_sampler", "stream")


def as_reiterable(name: str, value: Any) -> Any:
    """Return `value` if each epoch can iterate over it afresh; refuse a one-shot iterator."""
    what = "lists of indices" if name == "batch_sampler" else "dataset indices"
    if isinstance(value, type):
        raise ConfigTypeError(
            f"{name} must be an iterable of {what}, got the class {value.__name__}. Pass an"
            f" instance of it: {value.__name__}(...)."
        )
    if isinstance(value, (str, bytes)) or not has_method(value, "__iter__", "__getitem__"):
        raise ConfigTypeError(
            f"{name} must be an iterable of {what}, got {got(value)}. Pass a list, or an object"
            " whose __iter__ returns a fresh iterator for each epoch."
        )
    if hasattr(type(value), "__next__") and isinstance(value, Iterator):
        raise ConfigError(
            f"{name} must give a fresh iterator for each epoch, got the one-shot iterator"
            f" {got(value)}, which would be empty from the second epoch on. Pass list({name}), or"
            " an object whose __iter__ is the generator function."
        )
    return value


def refuse_text(what: str, value: Any, where: str = "") -> None:
    """Refuse a string, bytes or path where a dataset is taken: it names a file at best.

    Args:
        what: begins the message, such as "dataset must hold samples".
        value: what was passed.
        where: of several, such as " at position 1".
    """
    if isinstance(value, (str, bytes, PurePath)):
        is_name = isinstance(value, PurePath)
        held = "bytes" if isinstance(value, bytes) else "characters"
        raise ConfigTypeError(
            f"{what}, got {got(value)}{where}, which {'is a name' if is_name else f'holds {held}'}."
            " Open the file that it names:"
            " reader.TableRows has the rows of Parquet, Arrow, CSV and JSON files, reader.RecordIO"
            " records, reader.TokenWindows tokens, reader.images.ImageFolder pictures, and"
            " Path(name).read_text().splitlines() lines; or pass list(text) where its items are the"
            " samples"
        )


def has_method(value: object, *names: str) -> bool:
    """Say whether the type of `value` has one of the special methods (None switches one off)."""
    return any(getattr(type(value), name, None) is not None for name in names)
