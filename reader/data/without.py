"""`without`: a dataset whose bad samples are left out.

Imports the Subset. Keeps no state.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from reader.checks import refuse_url
from reader.data.datasets import map_style
from reader.data.subset import Subset
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError, got
from reader.files import open_regular

__all__ = ["without"]

_EMPTY = "Samples of a stream have no indices"


def without(dataset: Any, bad: str | os.PathLike[str] | Iterable[int]) -> Subset[Any]:
    """Return a dataset without some of its samples.

    Args:
        dataset: map-style.
        bad: the indices of the samples to leave out; or the path of a file that a loader's
            `quarantine=` has named them in. Indices that are named twice count once.

    Returns:
        A Subset: the other samples, in their order.

    Raises:
        ConfigError, ConfigTypeError: the file cannot be read, or is no quarantine file; an index is
            no int, or outside of the dataset; or no sample is left.

    >>> list(without(list("abcd"), [1, 3]))
    ['a', 'c']
    """
    (dataset,) = map_style("without", [dataset], _EMPTY)
    refuse_url("bad", bad)
    count = len(dataset)
    is_left = np.ones(count, bool)
    where = f" in '{os.fsdecode(bad)}'" if isinstance(bad, (str, os.PathLike)) else ""
    for index in _indices_in(bad) if isinstance(bad, (str, os.PathLike)) else _each_of(bad):
        try:
            place = operator.index(index)
        except TypeError:
            raise ConfigTypeError(
                f"bad must hold indices of the dataset, got {got(index)}{where}: a sample of a"
                " stream, or one with another key, cannot be left out by its index"
            ) from None
        if not -count <= place < count:
            raise SampleIndexError(
                f"index {place}{where} is outside of {type(dataset).__name__}, which has {count}"
                " samples: were they those of another dataset?"
            )
        is_left[place] = False
    kept = np.flatnonzero(is_left)
    if not len(kept):
        raise ConfigError(
            f"all {count} samples of {type(dataset).__name__} would be left out{where}"
        )
    return Subset(dataset, kept.tolist())


def _each_of(bad: Any) -> Iterable[Any]:
    if not hasattr(bad, "__iter__"):
        raise ConfigTypeError(
            f"bad must be a list of indices, or the path of a quarantine file, got {got(bad)}"
        )
    found: Iterable[Any] = bad
    return found


def _indices_in(path: str | os.PathLike[str]) -> Iterable[Any]:
    """Yield the indices that a quarantine file names."""
    name = os.fsdecode(path)
    try:
        with open(path, "rb", opener=open_regular) as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ConfigError(f"the quarantine file '{name}' cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            sample = json.loads(line)
            yield sample["index"]
        except ValueError:
            if not line.startswith(b"{"):
                raise ConfigError(
                    f"line {number} of '{name}' is no JSON: {line[:80]!r}. Pass the file that a"
                    " loader's quarantine= has written"
                ) from None
            continue  # a process was killed while it wrote
        except (TypeError, KeyError) as error:
            raise ConfigError(
                f"line {number} of '{name}' names no sample: {line[:80]!r}. A quarantine file has a"
                ' line of JSON for each, with its "index"'
            ) from error
