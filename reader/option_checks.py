"""Checks of single options of a loader, and the values that "auto", pools and clusters give.

The table in `reader.config` names them. This module imports `reader.checks`, `reader.cores`,
`reader.errors`, numpy and the standard library, and keeps no state.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib.util
import math
import multiprocessing
import numbers
import os
import sys
from mmap import PAGESIZE
from typing import Any

import numpy as np

from reader.checks import as_byte_count, as_int, has_method, refuse_url
from reader.cores import local_ranks, usable_cores
from reader.errors import ConfigError, ConfigTypeError, got, shown

__all__ = [
    "ERROR_BUDGET",
    "FRAMEWORKS",
    "MAX_TIMEOUT_S",
    "PREFETCH_FACTOR",
    "WORKER_KINDS",
    "AutoCount",
    "BackendOption",
    "DefaultCount",
    "PoolOption",
    "as_auto",
    "as_budget",
    "as_callable",
    "as_feed_list",
    "as_framework",
    "as_on_error",
    "as_pin_limit",
    "as_quarantine",
    "as_sample_seconds",
    "as_seconds",
    "check_auto",
    "check_dataset",
    "check_workers",
    "is_auto",
    "of_backend",
    "of_pool",
]

MAX_TIMEOUT_S = 1e9  # a deadline in int64 nanoseconds must not overflow
# of "auto": workers that wait for storage need no core
_MOST_WORKERS, _LEAST_MOST, _OVER, _MOST_FACTOR = 64, 4, 4, 8
_MOST_ELSEWHERE = 256  # on other machines; the cluster has its own limit
_ON_ERROR = ("raise", "skip", "replace")
ERROR_BUDGET = 0.05  # share of an epoch's samples: if more fail, something else is wrong
FRAMEWORKS = ("jax", "numpy", "paddle", "torch")


@dataclasses.dataclass(frozen=True)
class WorkerKind:
    """A kind of worker.

    Attributes:
        is_in_trainer: it runs in this process, on the loader's own dataset; nothing is pickled.
        takes_start_method: it is a process that multiprocessing starts.
        backend: the module and the class of its `Backend`, which is imported with the first epoch.
    """

    is_in_trainer: bool
    takes_start_method: bool
    backend: str


# By the argument `worker_type`.
WORKER_KINDS = {
    "process": WorkerKind(
        is_in_trainer=False,
        takes_start_method=True,
        backend="reader.engine.backends.process_pool:ProcessPool",
    ),
    "thread": WorkerKind(
        is_in_trainer=True,
        takes_start_method=False,
        backend="reader.engine.backends.thread_pool:ThreadPool",
    ),
}


class PoolOption(abc.ABC):
    """The type of the option `pool`: workers that several loaders share.

    Attributes:
        num_workers: how many there are.
        start_method: how they are started.
    """

    num_workers: int
    start_method: str | None

    @property
    @abc.abstractmethod
    def _shared(self) -> Any:
        """The processes, as `SharedWorkers`: for the engines of its loaders alone."""


class BackendOption:
    """The type of the option `backend`: workers on other machines.

    Attributes:
        pool: the name of workers that several programs share, or None.
    """

    pool: str | None


def as_callable(name: str, value: Any) -> Any:
    """Return a callable or None; refuse other values."""
    if value is not None and not callable(value):
        raise ConfigTypeError(
            f"{name} must be callable or None, got {got(value)}. Pass the function itself, or None"
            " for the default."
        )
    return value


def as_framework(_: str, value: Any) -> Any:
    """Return the name of a framework; refuse one that is not known, or not installed."""
    names = ", ".join(map(repr, FRAMEWORKS))
    if not isinstance(value, str):
        raise ConfigTypeError(f"framework must be one of {names}, got {got(value)}. Pass its name.")
    if value not in FRAMEWORKS:
        raise ConfigError(
            f"framework must be one of {names}, got {value!r}."
            ' framework="numpy" works with any framework that reads numpy arrays.'
        )
    if not _is_installed(value):
        raise ConfigError(
            f"framework={value!r} needs the package {value!r}, which is not installed here."
            f' Run: pip install "lodreader[{value}]"'
        )
    return value


def _is_installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None


def as_feed_list(value: Any, framework: str, return_list: bool) -> tuple[Any, ...] | None:
    """Return the variables or names of `feed_list` as a tuple, None for none."""
    if value is None:
        if not return_list:
            raise ConfigError(
                "return_list=False delivers {name: tensor} and needs feed_list, got feed_list=None."
                " Pass the static variables (or their names) as feed_list, or return_list=True."
            )
        return None
    wanted = "feed_list must be a list or tuple of variables with a .name, or of names"
    if isinstance(value, numbers.Number):
        raise ConfigTypeError(
            f"{wanted}, got {got(value)}. The second argument is feed_list, as in Paddle: pass"
            f" batch_size={shown(value)} by keyword, or use reader.compat.torch.DataLoader, which"
            " takes it there."
        )
    if not isinstance(value, (list, tuple)):
        raise ConfigTypeError(f"{wanted}, got {got(value)}. Pass [variable] for a single one.")
    if not value:
        raise ConfigError(f"{wanted}, got an empty {type(value).__name__}. Pass None for none.")
    names: list[str] = []
    for position, item in enumerate(value):
        name = item if isinstance(item, str) else getattr(item, "name", None)
        if not isinstance(name, str) or not name:
            raise ConfigTypeError(
                f"{wanted}, got {got(item)} at position {position}, which has no name. Pass what"
                " paddle.static.data returned, or its name."
            )
        if name in names:
            raise ConfigError(
                f"the names in feed_list must be distinct, got {name!r} at positions"
                f" {names.index(name)} and {position}. Name each variable once."
            )
        names.append(name)
    if framework != "paddle":
        raise ConfigError(
            f'feed_list names variables of Paddle and needs framework="paddle", got'
            f" framework={framework!r}. Change the framework, or pass feed_list=None."
        )
    return tuple(value)


def of_pool(pool: Any, num_workers: Any, is_persistent: Any) -> tuple[Any, Any]:
    """Return the number of workers, and whether they persist: a WorkerPool says both."""
    if pool is None:
        return num_workers, is_persistent
    if not isinstance(pool, PoolOption):
        raise ConfigTypeError(
            f"pool must be a reader.WorkerPool, got {got(pool)}. Pass reader.WorkerPool(4), the"
            " same to each loader that is to share its workers"
        )
    is_left_out = type(num_workers) is int and num_workers in (0, pool.num_workers)
    if not is_left_out:
        asked = '"auto"' if is_auto(num_workers) else got(num_workers)
        raise ConfigError(
            f"num_workers={asked} contradicts pool={pool!r}, which has"
            f" {pool.num_workers} workers for all of its loaders. Leave num_workers out"
        )
    return pool.num_workers, True


class DefaultCount(int):
    """A default, distinct from the same number passed by the user: it may be replaced."""


PREFETCH_FACTOR = DefaultCount(2)


class AutoCount(int):
    """The number for "auto": the most there may be.

    Faces show it as `num_workers`, which programs compare and count with; passed as an argument it
    means "auto" again.
    """


def is_auto(value: Any) -> bool:
    """Whether a value means "auto"."""
    return isinstance(value, AutoCount) or (isinstance(value, str) and value == "auto")


def as_auto(name: str, value: Any, backend: Any = None) -> Any:
    """Return "auto" as an AutoCount, anything else as it is.

    Args:
        name: "num_workers" or "prefetch_factor".
        value: what was passed for it.
        backend: where workers are; None: on this machine, whose cores bound them.
    """
    if not is_auto(value):
        return value
    if name == "prefetch_factor":
        return AutoCount(_MOST_FACTOR)
    if backend is not None:
        return AutoCount(_MOST_ELSEWHERE)
    most = int(_OVER * usable_cores() // local_ranks())
    return AutoCount(min(_MOST_WORKERS, max(_LEAST_MOST, most)))


def check_auto(workers: Any, factor: Any, dataset: Any, is_iterable: bool) -> None:
    """Refuse an AutoCount where each worker has samples or a state of its own."""
    names = {"num_workers": workers, "prefetch_factor": factor}
    found = [name for name, value in names.items() if isinstance(value, AutoCount)]
    if found and (is_iterable or hasattr(type(dataset), "state_dict")):
        what = "each worker has a dataset with a state of its own"
        if is_iterable:
            what = "an iterable dataset has a part for each worker"
        raise ConfigError(
            f'{found[0]}="auto" changes what there is while training, and {what}: pass a number'
        )


def of_backend(backend: Any, num_workers: Any, is_persistent: Any) -> Any:
    """Return whether workers persist between epochs: those that run elsewhere do."""
    if backend is None:
        return is_persistent
    if not isinstance(backend, BackendOption):
        raise ConfigTypeError(
            f"backend must be a reader.Ray, or None for workers of this machine, got {got(backend)}"
        )
    if isinstance(num_workers, int) and num_workers == 0:
        raise ConfigError(
            f"backend={backend!r} needs remote workers, got num_workers=0. Pass how many there are"
            " to be, as num_workers=8"
        )
    return True


def check_workers(worker_type: object, start_method: object, num_workers: int) -> None:
    """Refuse an unknown kind of worker, or way to start one, and contradictions between them."""
    if not isinstance(worker_type, str) or worker_type not in WORKER_KINDS:
        kinds = ", ".join(map(repr, WORKER_KINDS))
        message = f"worker_type must be one of {kinds}, got {got(worker_type)}."
        if not isinstance(worker_type, str):
            raise ConfigTypeError(f"{message} Pass its name.")
        raise ConfigError(f'{message} "thread" runs the workers in this process.')
    if start_method is None:
        return
    methods = multiprocessing.get_all_start_methods()
    is_name = isinstance(start_method, str)
    if not is_name or start_method not in methods:
        raise (ConfigError if is_name else ConfigTypeError)(
            f"start_method must be None or one of {methods}, got {got(start_method)}."
            " None takes the default of Python."
        )
    if not WORKER_KINDS[worker_type].takes_start_method:
        raise ConfigError(
            f"start_method={start_method!r} contradicts worker_type={worker_type!r}, which starts"
            " no process. Leave out one of them."
        )
    if num_workers == 0:
        raise ConfigError(
            f"start_method={start_method!r} contradicts num_workers=0, which starts no process."
            " Pass num_workers=1 or more, or start_method=None."
        )


def as_on_error(name: str, value: Any) -> Any:
    """Return how failed samples are handled, checked."""
    if value not in _ON_ERROR:
        raise ConfigError(
            f"{name} must be one of {', '.join(map(repr, _ON_ERROR))}, got {got(value)}."
            " 'raise' raises the exception of a sample that fails, 'skip' leaves the sample out,"
            " and 'replace' has another one take its place"
        )
    return value


def as_quarantine(name: str, path: Any) -> str | None:
    """Return the path of the file that failed samples are named in."""
    if path is None:
        return None
    refuse_url(name, path)
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ConfigTypeError(
            f"{name} must be the path of a file or None, got {got(path)}. Failed samples"
            " are named there, each in a line of JSON"
        ) from None


def as_seconds(name: str, value: object, remedy: str) -> float:
    """Return a number of seconds, 0 or more.

    Raises:
        ConfigError, ConfigTypeError: it is none. `remedy` ends the message.
    """
    number: Any = value
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if is_number and 0 <= number <= MAX_TIMEOUT_S:  # refuses nan too
        return float(number)
    raise (ConfigError if is_number else ConfigTypeError)(
        f"{name} must be a number of seconds in [0, {MAX_TIMEOUT_S:g}], got {got(value)}. {remedy}"
    )


def as_sample_seconds(name: str, value: Any, remedy: str) -> float:
    """Return a number of seconds above 0 that one sample may take."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not is_number or not 0 < value < math.inf:
        raise (ConfigError if is_number else ConfigTypeError)(
            f"{name} must be a number of seconds above 0 that one sample may take, or None, got"
            f" {got(value)}. {remedy}"
        )
    return float(value)


def as_pin_limit(name: str, value: Any) -> int | None:
    """Return how many bytes may be page-locked: none, a page or more, or (None) what is needed."""
    if value is None:
        return None
    remedy = "None page-locks what copies to devices read from; 0 page-locks nothing."
    found = as_byte_count(name, value, low=0, remedy=remedy)
    if 0 < found < PAGESIZE:
        raise ConfigError(
            f"pin_limit must be 0, None, or at least one page ({PAGESIZE} bytes), got"
            f" {found} bytes. Pass at least the size of a few batches, 0 to page-lock"
            " nothing, or None to page-lock what copies to devices read from"
        )
    return found


def as_budget(_: str, budget: Any) -> int | float:
    """Return how many samples of an epoch may fail, or what share of them; None: ERROR_BUDGET."""
    if budget is None:
        return ERROR_BUDGET
    is_number = isinstance(budget, numbers.Real) and not isinstance(budget, (bool, np.bool_))
    is_count = isinstance(budget, numbers.Integral)
    if is_number and budget >= 0 and (is_count or budget <= 1):
        return int(budget) if is_count else float(budget)
    raise (ConfigError if is_number else ConfigTypeError)(
        "error_budget must be how many samples of an epoch may fail, an int of 0 or more, or what"
        f" share of them, a float in [0, 1], got {got(budget)}"
    )


def check_dataset(dataset: Any, *, needs_len: bool) -> None:
    """Refuse objects that are no map-style datasets."""
    kind = type(dataset).__name__
    if isinstance(dataset, type):
        raise ConfigTypeError(
            f"dataset must be an instance, got the class {dataset.__name__}. Pass"
            f" {dataset.__name__}(...), with its arguments."
        )
    if not has_method(dataset, "__getitem__"):
        if has_method(dataset, "__next__"):
            raise ConfigTypeError(
                f"dataset must give a fresh iterator for each epoch, got the one-shot iterator"
                f" {got(dataset)}. Pass list(dataset), or an object whose __iter__ is the generator"
                " function (reader.IterableDataset)."
            )
        raise ConfigTypeError(
            f"dataset must have __getitem__(index) and __len__(), or __iter__(), got {got(dataset)}"
            " without __getitem__. Add the method, or pass a list of samples."
        )
    if not needs_len:
        return
    if not has_method(dataset, "__len__"):
        raise ConfigTypeError(
            f"dataset must have __getitem__(index) and __len__(), got {got(dataset)} without"
            " __len__. Add the method, or pass a sampler or batch_sampler that knows the indices."
        )
    _check_rows(dataset, kind)
    if getattr(dataset, "ndim", None) == 0:  # its len() says only that it has none
        raise ConfigTypeError(
            f"dataset must give a sample for each number from 0, got {got(dataset)} without a"
            " first axis. Pass an array of samples."
        )
    # Not len(): its own error would hide the refused value.
    as_int(
        "len(dataset)",
        type(dataset).__len__(dataset),
        low=0,
        remedy=f"Return the number of samples from {kind}.__len__.",
    )


def _check_rows(dataset: Any, kind: str) -> None:
    """Refuse a table or dict that takes the names of its columns where a loader passes numbers."""
    names = {
        f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(dataset).__mro__
    }
    if names & {"pandas.DataFrame", "cudf.DataFrame"}:
        remedy = (
            "Pass df.to_dict('records') for dicts of rows, or a Dataset whose __getitem__(i)"
            " returns what it needs of df.iloc[i], and __len__ len(df)."
        )
    elif names & {"polars.DataFrame", "pyarrow.Table", "pyarrow.RecordBatch"}:
        remedy = (
            "Pass table.to_dicts() (polars) or table.to_pylist() (pyarrow) for dicts of rows, or a"
            " Dataset whose __getitem__(i) returns what it needs of row i."
        )
    elif _is_plain_dict(dataset) and dataset and 0 not in dataset:
        remedy = (
            "Pass reader.TensorDataset(list(d.values())) where each value is a column of arrays,"
            " list(d.values()) where each is a sample, or the keys as sampler."
        )
    else:
        return
    raise ConfigTypeError(
        f"dataset must give a sample for each number from 0, got a {kind}, whose [...] takes"
        f" {'keys' if isinstance(dataset, dict) else 'names of columns'}. {remedy}"
    )


def _is_plain_dict(value: Any) -> bool:
    is_own = isinstance(value, dict) and type(value).__getitem__ is dict.__getitem__
    return is_own and not hasattr(value, "__missing__")
