"""The options of a loader, and the one place where they are checked.

`LoaderConfig.build` is called by `reader.loader.DataLoader` and by nobody else. This module imports
`reader.checks`, `reader.places`, `reader.errors`, numpy and the standard library; a built config is
frozen and owns no resource.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import multiprocessing
import numbers
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from reader.checks import as_bool, as_int, as_reiterable, has_method
from reader.errors import ConfigError, ConfigTypeError, got, shown
from reader.places import CPU, Place, parse_places

__all__ = ["FRAMEWORKS", "SEED_LIMIT", "LoaderConfig"]

FRAMEWORKS = ("numpy", "paddle", "torch")
SEED_LIMIT = 2**64
_MAX_TIMEOUT_S = 1e9  # a deadline in int64 nanoseconds must not overflow


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoaderConfig:
    """The options of one loader, checked. Make it with `LoaderConfig.build`.

    Every field has the name and the meaning of the argument of `DataLoader`. `timeout` 0 means no
    deadline (`timeout_s` says it as None), and `places` is a tuple of Place.
    """

    dataset: Any = dataclasses.field(repr=False)
    feed_list: tuple[Any, ...] | None = None
    places: tuple[Place, ...] = (CPU,)
    return_list: bool = True
    batch_sampler: Any = dataclasses.field(default=None, repr=False)
    batch_size: int | None = 1
    shuffle: bool = False
    drop_last: bool = False
    collate_fn: Callable[[Any], Any] | None = None
    num_workers: int = 0
    use_buffer_reader: bool = True
    reader_buffer_size: int = 2
    prefetch_factor: int = 2
    use_shared_memory: bool = True
    timeout: float = 0.0
    worker_init_fn: Callable[[int], Any] | None = None
    persistent_workers: bool = False
    framework: str = "numpy"
    sampler: Any = dataclasses.field(default=None, repr=False)
    seed: int | None = None
    start_method: str | None = None
    drop_last_group: bool | None = False
    prefetch_next_epoch: bool = False
    worker_retries: int = 1
    max_bytes: int | None = None
    is_iterable: bool = False

    @property
    def timeout_s(self) -> float | None:
        """The deadline of one batch in seconds, or None for no deadline."""
        return self.timeout if self.timeout > 0 else None

    @property
    def window(self) -> int:
        """How many batches may be made ahead of the consumer.

        With workers `prefetch_factor` for each of them, or for each place if those are more; with
        `num_workers=0` the staging buffer of `use_buffer_reader` comes on top, as in Paddle.
        """
        ahead = self.prefetch_factor * max(1, self.num_workers, len(self.places))
        if self.num_workers == 0 and self.use_buffer_reader:
            ahead += max(2, self.reader_buffer_size) * len(self.places)
        return ahead

    @property
    def feed_names(self) -> tuple[str, ...] | None:
        """The names in `feed_list`, in its order, or None without one."""
        if self.feed_list is None:
            return None
        return tuple(v if isinstance(v, str) else v.name for v in self.feed_list)

    @classmethod
    def build(cls, dataset: Any, *, is_iterable: bool = False, **options: Any) -> LoaderConfig:
        """Check the arguments of a loader, each alone and then together.

        `len(dataset)` is asked for only when the order of the samples depends on it, that is
        without `sampler` and `batch_sampler`; an exception of `__len__` passes through.

        Args:
            dataset: the dataset.
            is_iterable: it is to be iterated over, not indexed.
            options: the other arguments of `DataLoader`, by name; those left out get its defaults.

        Raises:
            ConfigTypeError: an argument has the wrong type, or there is no such argument.
            ConfigError: an argument is out of range, or two arguments contradict each other.
        """
        inner = ("dataset", "is_iterable")
        defaults = {f.name: f.default for f in dataclasses.fields(cls) if f.name not in inner}
        defaults["places"] = None
        for name in options.keys() - defaults.keys():
            near = difflib.get_close_matches(name, defaults, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(defaults)}."
            raise ConfigTypeError(f"DataLoader has no argument {name!r}. {hint}")
        o = {**defaults, **options}
        for name in _BOOLS:
            o[name] = as_bool(name, o[name])
        if o["drop_last_group"] is not None:
            o["drop_last_group"] = as_bool("drop_last_group", o["drop_last_group"])
        for name in ("collate_fn", "worker_init_fn"):
            _check_callable(name, o[name])
        _convert_numbers(o)
        _check_framework(o["framework"])
        o["places"] = parse_places(o["places"])
        o["feed_list"] = _as_feed_list(o["feed_list"], o["framework"], o["return_list"])
        _check_start_method(o["start_method"], o["num_workers"])
        _check_order(o)
        if o["prefetch_next_epoch"] and not (o["persistent_workers"] and o["num_workers"]):
            raise ConfigError(
                "prefetch_next_epoch=True makes the next epoch's first batches in workers that"
                f" stay, got persistent_workers={o['persistent_workers']} and"
                f" num_workers={o['num_workers']}. Pass persistent_workers=True and num_workers=1"
                " or more."
            )
        if is_iterable:
            _check_stream(o)
        else:
            needs_len = o["sampler"] is None and o["batch_sampler"] is None
            _check_dataset(dataset, needs_len=needs_len)
        return cls(dataset=dataset, is_iterable=is_iterable, **o)


def _check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise ConfigTypeError(
            f"{name} must be callable or None, got {got(value)}. Pass the function itself, or None"
            " for the default."
        )


_BOOLS = (
    "return_list",
    "shuffle",
    "drop_last",
    "use_buffer_reader",
    "use_shared_memory",
    "persistent_workers",
    "prefetch_next_epoch",
)
# (name, lowest value, remedy); None is let through where it is the default.
_NUMBERS = (
    ("batch_size", 1, "None delivers each sample unbatched."),
    ("num_workers", 0, "0 starts no worker process."),
    ("reader_buffer_size", 0, "It is how many batches are staged for the consumer; default 2."),
    ("prefetch_factor", 1, "It is how many batches each worker may have in flight; default 2."),
    ("worker_retries", 0, "0 raises WorkerDied at the first death of a worker."),
    ("max_bytes", 1, "None lets the arena grow as needed."),
)
_MAY_BE_NONE = ("batch_size", "max_bytes")


def _convert_numbers(o: dict[str, Any]) -> None:
    """Check and convert every number of the options `o`, in place."""
    for name, low, remedy in _NUMBERS:
        if o[name] is not None or name not in _MAY_BE_NONE:
            o[name] = as_int(name, o[name], low=low, remedy=remedy)
    if o["seed"] is not None:
        remedy = "None takes a fresh seed from the system."
        o["seed"] = as_int("seed", o["seed"], low=0, high=SEED_LIMIT - 1, remedy=remedy)
    o["timeout"] = _as_timeout(o["timeout"])


def _as_timeout(value: object) -> float:
    message = (
        f"timeout must be a number of seconds in [0, {_MAX_TIMEOUT_S:g}], got {got(value)}."
        " 0 waits without a deadline."
    )
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ConfigTypeError(message)
    number: Any = value
    if not 0 <= number <= _MAX_TIMEOUT_S:  # refuses nan too
        raise ConfigError(message)
    return float(number)


def _check_framework(value: object) -> None:
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


def _is_installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None


def _as_feed_list(value: Any, framework: str, return_list: bool) -> tuple[Any, ...] | None:
    if value is None:
        if not return_list:
            raise ConfigError(
                "return_list=False delivers {name: tensor} and needs feed_list, got feed_list=None."
                " Pass the static variables (or their names) as feed_list, or return_list=True."
            )
        return None
    wanted = "feed_list must be a list or tuple of variables with a .name, or of names"
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


def _check_start_method(value: object, num_workers: int) -> None:
    if value is None:
        return
    methods = multiprocessing.get_all_start_methods()
    message = (
        f"start_method must be None or one of {methods}, got {got(value)}."
        " None takes the default of Python."
    )
    if not isinstance(value, str):
        raise ConfigTypeError(message)
    if value not in methods:
        raise ConfigError(message)
    if num_workers == 0:
        raise ConfigError(
            f"start_method={value!r} contradicts num_workers=0, which starts no process."
            " Pass num_workers=1 or more, or start_method=None."
        )


def _check_order(o: dict[str, Any]) -> None:
    """Refuse contradictions among what decides which samples come in which batch."""
    if o["batch_sampler"] is not None:
        if o["batch_size"] is None:
            raise ConfigError(
                "batch_size=None switches batching off and contradicts batch_sampler. Leave out"
                " batch_size, or pass the indices as sampler."
            )
        given = [f"{name}={o[name]}" for name in ("shuffle", "drop_last") if o[name]]
        given += [f"batch_size={o['batch_size']}"] if o["batch_size"] != 1 else []
        given += [f"sampler={shown(o['sampler'])}"] if o["sampler"] is not None else []
        if given:
            raise ConfigError(
                "batch_sampler alone decides the batches and excludes batch_size, shuffle, sampler"
                f" and drop_last, got also {', '.join(given)}. Leave those out, or batch_sampler."
            )
        as_reiterable("batch_sampler", o["batch_sampler"])
    if o["sampler"] is not None:
        if o["shuffle"]:
            raise ConfigError(
                "sampler decides the order and excludes shuffle=True, got both. Leave out shuffle,"
                " or let the sampler shuffle."
            )
        as_reiterable("sampler", o["sampler"])
    if o["batch_size"] is None and o["drop_last"]:
        raise ConfigError(
            "drop_last=True drops a short last batch and contradicts batch_size=None, which makes"
            " no batches. Pass a batch_size, or drop_last=False."
        )


def _check_stream(o: dict[str, Any]) -> None:
    """Refuse what contradicts an iterable dataset, which has an order of its own."""
    for name in ("shuffle", "sampler", "batch_sampler"):
        if o[name] is not None and o[name] is not False:
            raise ConfigError(
                f"{name} chooses indices, and an IterableDataset has none: it was given with"
                f" {name}={shown(o[name])}. Leave it out, and let the dataset's __iter__ decide the"
                " order."
            )


def _check_dataset(dataset: Any, *, needs_len: bool) -> None:
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
    # Not len(): it would hide the refused value, and turn a wrong one into an error of Python's.
    as_int(
        "len(dataset)",
        type(dataset).__len__(dataset),
        low=0,
        remedy=f"Return the number of samples from {kind}.__len__.",
    )
