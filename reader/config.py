"""The options of a loader as one table, and the rules that hold between them.

Each face calls `LoaderConfig.build` once with its arguments. This module imports `reader.checks`,
`reader.option_checks`, `reader.places`, `reader.errors` and the standard library; a built config is
frozen and owns no resource.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from reader.checks import as_bool, as_byte_count, as_int, as_reiterable, meant_by
from reader.errors import ConfigError, ConfigTypeError, got, shown
from reader.option_checks import (
    ERROR_BUDGET,
    FRAMEWORKS,
    MAX_TIMEOUT_S,
    PREFETCH_FACTOR,
    WORKER_KINDS,
    AutoCount,
    BackendOption,
    DefaultCount,
    PoolOption,
    as_auto,
    as_budget,
    as_callable,
    as_feed_list,
    as_framework,
    as_on_error,
    as_pin_limit,
    as_quarantine,
    as_sample_seconds,
    as_seconds,
    check_auto,
    check_dataset,
    check_workers,
    is_auto,
    of_backend,
    of_pool,
)
from reader.places import CPU, Place, parse_places

__all__ = [
    "FRAMEWORKS",
    "MAX_TIMEOUT_S",
    "OPTIONS",
    "PREFETCH_FACTOR",
    "SEED_LIMIT",
    "WORKER_KINDS",
    "AutoCount",
    "BackendOption",
    "LoaderConfig",
    "Option",
    "PoolOption",
    "as_auto",
    "as_feed_list",
    "as_seconds",
    "check_auto",
    "check_workers",
    "elsewhere_of",
    "names_of",
    "of_backend",
    "of_pool",
]

SEED_LIMIT = 2**64


# What an option concerns.
BATCHES = "batches"
INDICES = "datasets with indices"
WORKERS = "workers"
PROCESSES = "worker processes"
HERE = "workers of this machine"
SEEDED = "loaders with a seed"
FAILURES = "samples that fail, with on_error"
PLACES = "devices and places"
STATIC = "static programs of Paddle"
STATES = "states"
LOADERS = "all loaders"

# remedies for those who pass an option to a face that lacks it
_OF_PROGRAMS = "it is for static programs of Paddle"
_OF_PADDLE = "it is an argument of Paddle's loader; leave it out"


class Option(NamedTuple):
    """One option of a loader.

    Attributes:
        default: its value if it is left out.
        concerns: one of the texts above.
        check: called with the name and a value that is not the default: returns the value for the
            config, or raises an error with a remedy. None: a rule of several options checks it.
        faces: the faces that have it, under the same name, beside their library's arguments.
        elsewhere: the remedy for those who pass it to a face that lacks it; "": the face's own.
    """

    default: Any
    concerns: str
    check: Callable[[str, Any], Any] | None = None
    faces: tuple[str, ...] = ()
    elsewhere: str = ""


def _option(
    default: Any,
    concerns: str,
    check: Callable[[str, Any], Any] | None = None,
    faces: str = "",
    is_shown: bool = True,
    elsewhere: str = "",
) -> Any:
    """Return the field of an option; `OPTIONS` has its Option."""
    option = Option(default, concerns, check, tuple(faces.split()), elsewhere)
    return dataclasses.field(default=default, repr=is_shown, metadata={"option": option})


def _derived() -> Any:
    return dataclasses.field(init=False, repr=False)


def _number(low: int, remedy: str, high: int = sys.maxsize) -> Callable[[str, Any], int]:
    return lambda name, value: as_int(name, value, low=low, high=high, remedy=remedy)


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _bytes(low: int, remedy: str) -> Callable[[str, Any], int]:
    return lambda name, value: as_byte_count(name, value, low=low, remedy=remedy)


def _count(low: int, remedy: str) -> Callable[[str, Any], Any]:
    """Return the check of a number that may be "auto"."""
    number = _number(low, remedy)
    return lambda name, value: value if is_auto(value) else number(name, value)


def _sample_seconds(remedy: str) -> Callable[[str, Any], float]:
    return lambda name, value: as_sample_seconds(name, value, remedy)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LoaderConfig:
    """The options of one loader, checked. Make it with `LoaderConfig.build`.

    Every field has the name and the meaning of the argument of `DataLoader`. `timeout` 0 means no
    deadline (`timeout_s` is then None), and `places` is a tuple of Place. Some faces set
    `most_ahead` in place of `prefetch_factor`: the most batches that are made ahead. `auto`:
    whether `num_workers` and `prefetch_factor` are chosen while training; the fields are then the
    most. `is_paced`: the time of calls to workers on other machines decides how many batches are in
    flight, and `prefetch_factor` is the least.

    Attributes:
        has_workers: workers make the batches; else a thread of the trainer does.
        num_loops: how many loops make batches: one in each worker; without workers, one.
        is_on_cpu: batches land on the CPU, and not on devices.
        is_batched: samples are delivered in batches.
        samples_per_batch: how many samples a batch has; 1 without batching.
        snapshot_every: how many batches lie between two states of a dataset or sampler; 0: there
            are none.
        runs_functions: functions of the user run for each batch, beside the dataset.
        tolerates_failures: samples may fail without an exception.
    """

    dataset: Any = dataclasses.field(repr=False)
    feed_list: tuple[Any, ...] | None = _option(None, STATIC, elsewhere=_OF_PROGRAMS)
    places: tuple[Place, ...] = _option(
        (CPU,), PLACES, lambda _, value: parse_places(value), "gluon"
    )
    return_list: bool = _option(True, STATIC, as_bool, elsewhere=_OF_PROGRAMS)
    batch_sampler: Any = _option(None, INDICES, is_shown=False)
    batch_size: int | None = _option(
        1, BATCHES, _or_none(_number(1, "None delivers each sample unbatched."))
    )
    shuffle: bool = _option(False, INDICES, as_bool)
    drop_last: bool = _option(False, BATCHES, as_bool)
    collate_fn: Callable[[Any], Any] | None = _option(None, BATCHES, as_callable)
    num_workers: int = _option(0, WORKERS, _count(0, "0 starts no worker process."))
    use_buffer_reader: bool = _option(True, PLACES, as_bool, elsewhere=_OF_PADDLE)
    reader_buffer_size: int = _option(
        2,
        PLACES,
        _number(0, "It is how many batches are staged for the consumer; default 2."),
        elsewhere=_OF_PADDLE,
    )
    prefetch_factor: int = _option(
        PREFETCH_FACTOR,
        WORKERS,
        _count(1, "It is how many batches each worker may have in flight; default 2."),
    )
    use_shared_memory: bool = _option(True, WORKERS, as_bool, elsewhere=_OF_PADDLE)
    timeout: float = _option(
        0.0, WORKERS, lambda name, value: as_seconds(name, value, "0 waits without a deadline.")
    )
    worker_init_fn: Callable[[int], Any] | None = _option(None, WORKERS, as_callable)
    persistent_workers: bool = _option(False, WORKERS, as_bool)
    framework: str = _option("numpy", LOADERS, as_framework, "gluon")
    sampler: Any = _option(None, INDICES, is_shown=False)
    seed: int | None = _option(
        None,
        LOADERS,
        _or_none(_number(0, "None takes a fresh seed from the system.", SEED_LIMIT - 1)),
        "torch gluon",
    )
    reseed: Callable[[Any, int], Any] | None = _option(None, SEEDED, as_callable, "torch gluon")
    start_method: str | None = _option(None, HERE, None, "gluon")
    pool: PoolOption | None = _option(None, HERE, None, "torch paddle gluon")
    backend: Any = _option(None, WORKERS, None, "torch paddle gluon")
    worker_type: str = _option("process", HERE, None, "torch")
    seed_globals: bool = _option(True, SEEDED, as_bool)
    drop_last_group: bool | None = _option(False, PLACES, _or_none(as_bool), "paddle")
    prefetch_next_epoch: bool = _option(False, WORKERS, as_bool, "torch paddle")
    worker_retries: int = _option(
        1, PROCESSES, _number(0, "0 raises WorkerDied at the first death of a worker."), "torch"
    )
    max_bytes: int | None = _option(
        None,
        WORKERS,
        _or_none(_bytes(1, "None lets the shared memory of batches grow as needed.")),
        "torch",
    )
    pin_limit: int | None = _option(None, PLACES, as_pin_limit, "torch")
    in_order: bool = _option(True, WORKERS, as_bool)
    snapshot_every_n_steps: int | None = _option(
        1,
        STATES,
        _or_none(_number(0, "0 or None takes no state; batches are then drawn again.")),
    )
    keep_states: int = _option(
        64, STATES, _number(0, "It is how many batches back state_dict(trained=) can go.")
    )
    on_error: str = _option("raise", LOADERS, as_on_error, "torch")
    error_budget: int | float = _option(ERROR_BUDGET, FAILURES, as_budget, "torch")
    quarantine: str | None = _option(None, FAILURES, as_quarantine, "torch")
    warn_after: float | None = _option(
        30.0, WORKERS, _or_none(_sample_seconds("None tells of none")), "torch"
    )
    hang_after: float | None = _option(
        None,
        PROCESSES,
        _or_none(_sample_seconds("None waits for it, as long as it takes")),
        "torch",
    )
    auto: tuple[bool, bool] = (False, False)
    is_paced: bool = False
    most_ahead: int | None = None
    is_iterable: bool = False
    # what follows from the options, for those who ask as an epoch opens; `__post_init__` sets it
    has_workers: bool = _derived()
    num_loops: int = _derived()
    is_on_cpu: bool = _derived()
    is_batched: bool = _derived()
    samples_per_batch: int = _derived()
    snapshot_every: int = _derived()
    runs_functions: bool = _derived()
    tolerates_failures: bool = _derived()

    def __post_init__(self) -> None:
        """Derive what follows from the options."""
        own = vars(self)
        own["has_workers"] = self.num_workers > 0
        own["num_loops"] = self.num_workers or 1
        own["is_on_cpu"] = self.places[0].kind == "cpu"
        own["is_batched"] = self.batch_size is not None
        own["samples_per_batch"] = self.batch_size or 1
        own["snapshot_every"] = self.snapshot_every_n_steps or 0
        own["runs_functions"] = self.collate_fn is not None or self.reseed is not None
        own["tolerates_failures"] = self.on_error != "raise"

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
        """Whether threads of the trainer make one batch at a time, while the consumer waits for it.

        For each batch they seed state that the process has only once: its global random state, or
        the generators of the dataset.
        """
        seeds_shared = self.seed_globals or self.reseed is not None
        return self.uses_threads and self.seed is not None and seeds_shared

    @property
    def is_plain(self) -> bool:
        """Whether each step of an epoch without workers yields one plain batch."""
        is_usual = not self.tolerates_failures and not self.timeout
        is_one = len(self.places) == 1 and self.is_on_cpu and self.feed_list is None
        is_map = not self.is_iterable and self.is_batched
        return is_usual and is_one and is_map and not self.takes_turns

    @property
    def window(self) -> int:
        """How many batches may be made ahead of the consumer.

        It is `prefetch_factor` per worker, or per place if there are more places than workers. If a
        face works ahead with `num_workers=0`, the staging buffer of `use_buffer_reader` is added,
        as in Paddle.
        """
        if self.most_ahead is not None:
            return 1 + self.most_ahead  # beside the batch that the consumer waits for
        ahead = self.prefetch_factor * max(1, self.num_workers, len(self.places))
        if self.num_workers == 0 and self.use_buffer_reader:
            ahead += max(2, self.reader_buffer_size) * len(self.places)
        return ahead

    @property
    def step_size(self) -> int:
        """How many batches a step has, unless the batch sampler decides it: one for each place."""
        return len(self.places)

    def steps(self, batches: int) -> int:
        """Return the number of steps of so many batches."""
        places = self.step_size
        return -(-batches // places) if self.drop_last_group is False else batches // places

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
        for name in options.keys() - _DEFAULTS.keys():
            hint = meant_by(name, list(_DEFAULTS), {})
            raise ConfigTypeError(f"DataLoader has no argument {name!r}: {hint}")
        o = {**_DEFAULTS, **options}
        _check_each(o, OPTIONS)
        _take_pool(o)
        o["is_paced"] = _take_pace(o)
        o["auto"] = _take_auto(o, dataset, is_iterable)
        _take_backend(o)
        for rule in _RULES:
            rule(o)
        _check_samples(o, dataset, is_iterable)
        return cls._of(o, dataset, is_iterable)

    @classmethod
    def _of(cls, o: dict[str, Any], dataset: Any, is_iterable: bool) -> LoaderConfig:
        """Return a config with these options; the constructor takes ten times as long."""
        made = object.__new__(cls)
        vars(made).update(o, dataset=dataset, is_iterable=is_iterable)
        made.__post_init__()
        return made

    def of_dataset(self, dataset: Any, *, is_iterable: bool, **options: Any) -> LoaderConfig:
        """Return these options for another dataset, with those that depend on it; see `build`.

        Args:
            dataset: the dataset.
            is_iterable: whether the loader iterates over it instead of indexing it.
            options: replace these options, except those that say where and how workers run.
        """
        own = vars(self)
        o = {name: own[name] for name in _OF_ORDER} | options
        _check_each(o, [name for name in options if options[name] is not own[name]])
        if any(self.auto):
            workers, factor = (AutoCount(1) if found else 1 for found in self.auto)
            check_auto(workers, factor, dataset, is_iterable)
        _check_samples(o, dataset, is_iterable)
        return self._of({**vars(self), **o}, dataset, is_iterable)


OPTIONS: dict[str, Option] = {
    field.name: field.metadata["option"]
    for field in dataclasses.fields(LoaderConfig)
    if "option" in field.metadata
}
_DEFAULTS = {name: option.default for name, option in OPTIONS.items()} | {"most_ahead": None}


def names_of(face: str) -> tuple[str, ...]:
    """Name the options that a face has beside its library's arguments."""
    return tuple(name for name, option in OPTIONS.items() if face in option.faces)


def elsewhere_of(face: str, remedy: str) -> dict[str, str]:
    """Return the options that a face lacks, by name, with the remedy for each.

    `remedy`: for options that have none in the table.
    """
    lacking = {name: option for name, option in OPTIONS.items() if face not in option.faces}
    return {name: option.elsewhere or remedy for name, option in lacking.items()}


def _concerning(whom: str) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.concerns == whom)


# options whose errors depend on other options
_OF_FAILURES, _OF_HERE, _OF_INDICES = map(_concerning, (FAILURES, HERE, INDICES))


_OF_ORDER = ("batch_sampler", "batch_size", "drop_last", "sampler", "shuffle")


def _check_each(o: dict[str, Any], names: Iterable[str]) -> None:
    """Check and convert each of these options by itself, in place."""
    for name in names:
        default, _, check, _, _ = OPTIONS[name]
        value = o[name]
        if value is not default and check is not None:
            o[name] = check(name, value)


def _check_samples(o: dict[str, Any], dataset: Any, is_iterable: bool) -> None:
    """Check the dataset, and the options that decide which samples make which batch."""
    _check_order(o)
    if is_iterable:
        _check_stream(o)
    else:
        check_dataset(dataset, needs_len=o["sampler"] is None and o["batch_sampler"] is None)


def _take_pool(o: dict[str, Any]) -> None:
    """Take the number of workers from a WorkerPool, in place, and check what contradicts it."""
    pool = o["pool"]
    if pool is None:
        return
    o["num_workers"], o["persistent_workers"] = of_pool(pool, o["num_workers"], True)
    if o["worker_type"] != "process":
        raise ConfigError(
            f"a WorkerPool has worker processes, got worker_type={got(o['worker_type'])}. Leave out"
            " pool: threads start at once and share all there is"
        )
    if o["start_method"] not in (None, pool.start_method):
        raise ConfigError(
            f"start_method={got(o['start_method'])} contradicts pool={pool!r}, which starts the"
            " workers. Pass start_method to WorkerPool"
        )


def _take_pace(o: dict[str, Any]) -> bool:
    """Return whether the time of calls to other machines decides the batches in flight."""
    factor = as_auto("prefetch_factor", o["prefetch_factor"])
    is_paced = o["backend"] is not None and isinstance(factor, (AutoCount, DefaultCount))
    if is_paced:
        o["prefetch_factor"] = PREFETCH_FACTOR  # the least
    return is_paced


def _take_auto(o: dict[str, Any], dataset: Any, is_iterable: bool) -> tuple[bool, bool]:
    """Replace "auto" in the options `o` by numbers; returns which of the two were "auto"."""
    workers = as_auto("num_workers", o["num_workers"], o["backend"])
    factor = as_auto("prefetch_factor", o["prefetch_factor"])
    check_auto(workers, factor, dataset, is_iterable)
    o["num_workers"], o["prefetch_factor"] = int(workers), int(factor)
    if isinstance(factor, AutoCount) and not workers:
        raise ConfigError(
            'prefetch_factor="auto" is for workers, and num_workers=0 makes nothing ahead: pass'
            ' num_workers="auto" as well'
        )
    return isinstance(workers, AutoCount), isinstance(factor, AutoCount)


def _take_backend(o: dict[str, Any]) -> None:
    """Check the backend, in place: workers on other machines persist between epochs."""
    backend = o["backend"]
    if backend is None:
        return
    o["persistent_workers"] = of_backend(backend, o["num_workers"], o["persistent_workers"])
    for name in _OF_HERE:
        if o[name] != OPTIONS[name].default:
            raise ConfigError(
                f"{name}={got(o[name])} says how workers of this machine run, and"
                f" backend={backend!r} starts them elsewhere. Leave out {name}"
            )


def _check_feed_list(o: dict[str, Any]) -> None:
    o["feed_list"] = as_feed_list(o["feed_list"], o["framework"], o["return_list"])


def _check_reseed(o: dict[str, Any]) -> None:
    if o["reseed"] is not None and o["seed"] is None:
        raise ConfigError(
            "reseed is called with the seed of each batch, which follows from seed=, got"
            f" reseed={got(o['reseed'])} and seed=None. Pass seed= as well, or leave out reseed"
        )


def _check_workers(o: dict[str, Any]) -> None:
    check_workers(o["worker_type"], o["start_method"], o["num_workers"])


def _check_hangs(o: dict[str, Any]) -> None:
    is_thread = WORKER_KINDS[o["worker_type"]].is_in_trainer or not o["num_workers"]
    if o["hang_after"] is not None and is_thread:
        raise ConfigError(
            f"hang_after={o['hang_after']:g} ends the process of a worker that hangs, and a thread"
            " cannot be ended: pass num_workers=1 or more with worker_type='process', or leave it"
            " out"
        )


def _check_failures(o: dict[str, Any]) -> None:
    given = [name for name in _OF_FAILURES if o[name] is not OPTIONS[name].default]
    if given and o["on_error"] == "raise":
        raise ConfigError(
            f"{given[0]} is for samples that fail and are tolerated, and on_error is 'raise': pass"
            " on_error='skip' or 'replace' as well"
        )


def _check_order(o: dict[str, Any]) -> None:
    """Refuse contradictions between the options that decide which samples make which batch."""
    if o["batch_sampler"] is not None:
        if o["batch_size"] is None:
            raise ConfigError(
                "batch_size=None switches batching off and contradicts batch_sampler. Leave out"
                " batch_size, or pass the indices as sampler."
            )
        if o["shuffle"] or o["drop_last"] or o["batch_size"] != 1 or o["sampler"] is not None:
            given = [f"{name}={o[name]}" for name in ("shuffle", "drop_last") if o[name]]
            given += [f"batch_size={o['batch_size']}"] if o["batch_size"] != 1 else []
            given += [f"sampler={shown(o['sampler'])}"] if o["sampler"] is not None else []
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


def _check_places(o: dict[str, Any]) -> None:
    if not o["in_order"] and len(o["places"]) > 1:
        raise ConfigError(
            f"in_order=False delivers batches as they come, and {len(o['places'])} places take"
            " them in turn. Pass one place, or in_order=True."
        )


def _check_prefetch(o: dict[str, Any]) -> None:
    if o["prefetch_next_epoch"] and not (o["persistent_workers"] and o["num_workers"]):
        raise ConfigError(
            "prefetch_next_epoch=True needs workers that persist between epochs, got"
            f" persistent_workers={o['persistent_workers']} and"
            f" num_workers={o['num_workers']}. Pass persistent_workers=True and num_workers=1"
            " or more."
        )


# the rules between options, in the order of the checks
_RULES = (
    _check_feed_list,
    _check_reseed,
    _check_workers,
    _check_failures,
    _check_hangs,
    _check_places,
    _check_prefetch,
)


def _check_stream(o: dict[str, Any]) -> None:
    """Refuse what contradicts an iterable dataset, which has an order of its own."""
    for name in _OF_INDICES:
        if o[name] is not None and o[name] is not False:
            order = ", or pass reader.shuffle_buffer(dataset, 1000)" if name == "shuffle" else ""
            raise ConfigError(
                f"{name}={shown(o[name])} chooses indices, and an IterableDataset has none. Leave"
                f" out {name}, and let the dataset's __iter__ decide the order{order}."
            )
