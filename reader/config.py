"""The options of a loader, and the one place where they are checked.

Each face calls `LoaderConfig.build` with its arguments. This module imports
`reader.checks`, `reader.option_checks`, `reader.places`, `reader.errors`, numpy and the standard
library; a built config is frozen and owns no resource.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from mmap import PAGESIZE
from typing import Any

import numpy as np

from reader.checks import as_bool, as_byte_count, as_int, meant_by
from reader.errors import ConfigError, ConfigTypeError, got
from reader.option_checks import (
    FRAMEWORKS,
    PREFETCH_FACTOR,
    WORKER_KINDS,
    AutoCount,
    as_auto,
    as_feed_list,
    check_auto,
    check_callable,
    check_dataset,
    check_errors,
    check_framework,
    check_order,
    check_stream,
    check_watchdog,
    check_workers,
    of_backend,
    of_pool,
    take_auto,
    take_backend,
    take_pace,
    take_pool,
)
from reader.places import CPU, Place, parse_places

__all__ = [
    "FRAMEWORKS",
    "MAX_TIMEOUT_S",
    "PREFETCH_FACTOR",
    "SEED_LIMIT",
    "WORKER_KINDS",
    "AutoCount",
    "LoaderConfig",
    "as_auto",
    "as_feed_list",
    "as_seconds",
    "check_auto",
    "check_workers",
    "of_backend",
    "of_pool",
]

SEED_LIMIT = 2**64
MAX_TIMEOUT_S = 1e9  # a deadline in int64 nanoseconds must not overflow


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoaderConfig:
    """The options of one loader, checked. Make it with `LoaderConfig.build`.

    Every field has the name and the meaning of the argument of `DataLoader`. `timeout` 0 means no
    deadline (`timeout_s` is then None), and `places` is a tuple of Place. Some faces have
    `most_ahead`: the bound on batches that are made ahead, in place of `prefetch_factor`. `auto`:
    whether `num_workers` and `prefetch_factor` are found while training; they are the most then.
    `is_paced`: batches in flight follow what calls to workers elsewhere take, and `prefetch_factor`
    is the least.
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
    prefetch_factor: int = PREFETCH_FACTOR
    use_shared_memory: bool = True
    timeout: float = 0.0
    worker_init_fn: Callable[[int], Any] | None = None
    persistent_workers: bool = False
    framework: str = "numpy"
    sampler: Any = dataclasses.field(default=None, repr=False)
    seed: int | None = None
    reseed: Callable[[Any, int], Any] | None = None
    start_method: str | None = None
    pool: Any = None
    backend: Any = None
    worker_type: str = "process"
    seed_globals: bool = True
    drop_last_group: bool | None = False
    prefetch_next_epoch: bool = False
    worker_retries: int = 1
    max_bytes: int | None = None
    pin_limit: int | None = None
    in_order: bool = True
    snapshot_every_n_steps: int | None = 1
    on_error: str = "raise"
    error_budget: int | float = 0.05
    quarantine: str | None = None
    warn_after: float | None = 30.0
    hang_after: float | None = None
    auto: tuple[bool, bool] = (False, False)
    is_paced: bool = False
    most_ahead: int | None = None
    is_iterable: bool = False

    @property
    def timeout_s(self) -> float | None:
        """The deadline of one batch in seconds, or None for no deadline."""
        return self.timeout if self.timeout > 0 else None

    @property
    def may_change(self) -> bool:
        """Whether workers or batches in flight change while training."""
        return any(self.auto) or self.is_paced

    @property
    def uses_threads(self) -> bool:
        """Whether the dataset runs in this process."""
        return self.num_workers == 0 or WORKER_KINDS[self.worker_type].is_in_trainer

    @property
    def takes_turns(self) -> bool:
        """Whether threads of the trainer make one batch at a time, and only while it is waited for.

        For each batch they seed state that the process has only once: its global random state, or
        the generators of the dataset.
        """
        seeds_shared = self.seed_globals or self.reseed is not None
        return self.uses_threads and self.seed is not None and seeds_shared

    @property
    def is_plain(self) -> bool:
        """Whether an epoch without workers yields batches, one for each list of indices, alone."""
        is_usual = self.on_error == "raise" and self.hang_after is None and not self.timeout
        is_one = len(self.places) == 1 and self.places[0].kind == "cpu" and self.feed_list is None
        is_map = not self.is_iterable and self.batch_size is not None
        return is_usual and is_one and is_map and not self.takes_turns

    @property
    def window(self) -> int:
        """How many batches may be made ahead of the consumer.

        `prefetch_factor` per worker, or per place if there are more places than workers. Where a
        face works ahead with `num_workers=0`, the staging buffer of `use_buffer_reader` is added,
        as in Paddle.
        """
        if self.most_ahead is not None:
            return 1 + self.most_ahead  # beside the one that is waited for
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

        `len(dataset)` is read only when the order of the samples depends on it: without `sampler`
        and `batch_sampler`. An exception of `__len__` passes through.

        Args:
            dataset: the dataset.
            is_iterable: whether the loader iterates over it instead of indexing it.
            options: the other arguments of `DataLoader`, by name; those left out get its defaults.

        Raises:
            ConfigTypeError: an argument has the wrong type, or there is no such argument.
            ConfigError: an argument is out of range, or two arguments contradict each other.
        """
        inner = ("dataset", "is_iterable", "auto", "is_paced")
        defaults = {f.name: f.default for f in dataclasses.fields(cls) if f.name not in inner}
        defaults["places"] = defaults["error_budget"] = None
        for name in options.keys() - defaults.keys():
            hint = meant_by(name, list(defaults), {})
            raise ConfigTypeError(f"DataLoader has no argument {name!r}: {hint}")
        o = {**defaults, **options}
        for name in _BOOLS:
            o[name] = as_bool(name, o[name])
        if o["drop_last_group"] is not None:
            o["drop_last_group"] = as_bool("drop_last_group", o["drop_last_group"])
        for name in ("collate_fn", "worker_init_fn", "reseed"):
            check_callable(name, o[name])
        take_pool(o)
        o["is_paced"] = take_pace(o)
        o["auto"] = take_auto(o, dataset, is_iterable)
        _convert_numbers(o)
        take_backend(o)
        check_framework(o["framework"])
        o["places"] = parse_places(o["places"])
        o["feed_list"] = as_feed_list(o["feed_list"], o["framework"], o["return_list"])
        if o["reseed"] is not None and o["seed"] is None:
            raise ConfigError(
                "reseed is called with the seed of each batch, which follows from seed=, got"
                f" reseed={got(o['reseed'])} and seed=None. Pass seed= as well, or leave out reseed"
            )
        check_workers(o["worker_type"], o["start_method"], o["num_workers"])
        check_errors(o)
        check_watchdog(o)
        check_order(o)
        if not o["in_order"] and len(o["places"]) > 1:
            raise ConfigError(
                f"in_order=False delivers batches as they come, and {len(o['places'])} places take"
                " them in turn. Pass one place, or in_order=True."
            )
        if o["prefetch_next_epoch"] and not (o["persistent_workers"] and o["num_workers"]):
            raise ConfigError(
                "prefetch_next_epoch=True needs workers that persist between epochs, got"
                f" persistent_workers={o['persistent_workers']} and"
                f" num_workers={o['num_workers']}. Pass persistent_workers=True and num_workers=1"
                " or more."
            )
        if is_iterable:
            check_stream(o)
        else:
            needs_len = o["sampler"] is None and o["batch_sampler"] is None
            check_dataset(dataset, needs_len=needs_len)
        return cls(dataset=dataset, is_iterable=is_iterable, **o)


_BOOLS = (
    "return_list",
    "shuffle",
    "drop_last",
    "use_buffer_reader",
    "use_shared_memory",
    "persistent_workers",
    "prefetch_next_epoch",
    "seed_globals",
    "in_order",
)
# (name, lowest value, remedy); None passes for the names in _MAY_BE_NONE.
_NUMBERS = (
    ("batch_size", 1, "None delivers each sample unbatched."),
    ("num_workers", 0, "0 starts no worker process."),
    ("reader_buffer_size", 0, "It is how many batches are staged for the consumer; default 2."),
    ("prefetch_factor", 1, "It is how many batches each worker may have in flight; default 2."),
    ("worker_retries", 0, "0 raises WorkerDied at the first death of a worker."),
    ("max_bytes", 1, "None lets the shared memory of batches grow as needed."),
    ("pin_limit", 0, "None page-locks what copies to devices read from; 0 page-locks nothing."),
    ("snapshot_every_n_steps", 0, "0 or None takes no state; batches are then drawn again."),
)
_MAY_BE_NONE = ("batch_size", "max_bytes", "pin_limit", "snapshot_every_n_steps")
_BYTE_COUNTS = ("max_bytes", "pin_limit")


def _convert_numbers(o: dict[str, Any]) -> None:
    """Check and convert every number of the options `o`, in place."""
    for name, low, remedy in _NUMBERS:
        if o[name] is not None or name not in _MAY_BE_NONE:
            convert = as_byte_count if name in _BYTE_COUNTS else as_int
            o[name] = convert(name, o[name], low=low, remedy=remedy)
    if o["seed"] is not None:
        remedy = "None takes a fresh seed from the system."
        o["seed"] = as_int("seed", o["seed"], low=0, high=SEED_LIMIT - 1, remedy=remedy)
    if o["pin_limit"] is not None and 0 < o["pin_limit"] < PAGESIZE:
        raise ConfigError(
            f"pin_limit must be 0, None, or at least one page ({PAGESIZE} bytes), got"
            f" {o['pin_limit']} bytes. Pass at least the size of a few batches, 0 to page-lock"
            " nothing, or None to page-lock what copies to devices read from"
        )
    o["timeout"] = as_seconds("timeout", o["timeout"], "0 waits without a deadline.")


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
