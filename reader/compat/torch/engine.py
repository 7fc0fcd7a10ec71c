"""Make an engine with PyTorch's promises from the current attributes of a loader.

Imports the engine and torch. Programs change attributes between epochs: an engine serves one
iterator, and with persistent workers the iterators of one loader, one after the other.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import operator
import threading
from collections.abc import Callable
from typing import Any

from reader.compat.torch.collate import TorchRules, with_extended
from reader.compat.torch.errors import reworded
from reader.compat.torch.inner import collate, context_name
from reader.compat.torch.worker import TorchWorker
from reader.config import MAX_TIMEOUT_S, PREFETCH_FACTOR, AutoCount, LoaderConfig, names_of
from reader.data.columns import columns_of, filler_of
from reader.engine.auto import AutoWorkers
from reader.engine.engine import Engine
from reader.frameworks import torch_adapter
from reader.orders.base_sampler import has_state
from reader.places import Place
from reader.policy import BatchPolicy, DispatchPolicy, ErrorPolicy, Policy, WorkerPolicy

__all__ = ["EngineMaker", "start_of"]

_POLICY = Policy(
    dispatch=DispatchPolicy(is_round_robin=True, restarts_round_robin=True, takes_any_key=True),
    worker=WorkerPolicy(rules=TorchRules(), collates_any_result=True, makes_stale=True),
    batch=BatchPolicy(is_as_collated=True),
    error_policy=ErrorPolicy(reword=reworded, raises_deaths=True, passes_exits=True),
)

_OWN = tuple(name for name in names_of("torch") if name != "worker_type")  # see `start_of`
# attributes of the loader that become options
_READ = (
    *("num_workers", "prefetch_factor", "timeout", "persistent_workers", context_name),
    *("worker_type", "in_order", "device", "is_stream", *_OWN),
)
# and the others that an engine without workers depends on
_PARTS = (
    *("dataset", "collate_fn", "batch_size", "drop_last"),
    *("snapshot_every_n_steps", "keep_states"),
)


class EngineMaker:
    """Makes the engines of one loader, from its current attributes.

    Attributes:
        auto: chose the workers of the newest engine; None: their number was passed.
    """

    def __init__(self) -> None:
        self.auto: AutoWorkers | None = None
        # the checked options, and the last engine without workers, each with its attributes
        self._options: tuple[tuple[Any, ...], LoaderConfig] | None = None
        self._engine: tuple[tuple[Any, ...], Engine] | None = None

    def options(self, loader: Any) -> LoaderConfig:
        """Return the options of a loader that depend on no dataset, from its current attributes.

        They are checked when the loader is made, and again only where a program sets another value.

        Raises:
            ConfigError, ConfigTypeError: see `LoaderConfig.build`.
        """
        read = _values(loader, _READ, _OPTIONS_OF)
        if self._options is not None and _are_same(self._options[0], read):
            return self._options[1]
        # programs make many loaders with the same options
        is_plain = loader.quarantine is None and _PLAIN.issuperset(map(type, read))
        key = (loader.seeds_batches, read, *map(type, read)) if is_plain else None
        config = None if key is None else _KNOWN.get(key)
        if config is None:
            config = self._checked(loader)
            if key is not None and len(_KNOWN) < _MOST_KNOWN:
                _KNOWN[key] = config
        self._options = (read, config)
        return config

    def _checked(self, loader: Any) -> LoaderConfig:
        own = {name: getattr(loader, name) for name in _OWN}
        if loader.seeds_batches:
            own["seed"] = 0  # the base seed, which is not drawn yet
        return LoaderConfig.build(
            (),
            num_workers=_as_count(loader.num_workers),
            prefetch_factor=_factor(loader.prefetch_factor, own["seed"]),
            timeout=min(loader.timeout, MAX_TIMEOUT_S) if loader.timeout > 0 else 0,  # nan is none
            persistent_workers=bool(loader.persistent_workers),
            framework="torch",
            **start_of(loader),
            places=loader.device,
            in_order=bool(loader.in_order),  # PyTorch takes any value
            snapshot_every_n_steps=0,
            **own,
        )

    def make(
        self,
        loader: Any,
        dataset: Any,
        worker_init_fn: Any = None,
        worker: TorchWorker | None = None,
        seed: int | None = None,
    ) -> Engine:
        """Make the engine for the attributes of a loader.

        Args:
            loader: the face.
            dataset: its dataset, as the workers get it.
            worker_init_fn: called in each worker after `worker`.
            worker: prepares and seeds each worker; None: there are none.
            seed: of every batch; None: that of the loader.
        """
        is_iterable = loader.is_stream
        is_batched = loader.batch_sampler is not None
        order = None if is_iterable else loader.order
        batch_sampler, sampler = (order, None) if is_batched else (None, order)
        if loader.num_workers or seed is not None:
            return self._made(loader, dataset, sampler, batch_sampler, worker_init_fn, worker, seed)
        # without workers the next loop needs an equal engine at another position
        read = (dataset, is_batched, *_values(loader, _READ + _PARTS, _PARTS_OF))
        if self._engine is None or not _are_same(self._engine[0], read):
            made = self._made(loader, dataset, sampler, batch_sampler)
            self._engine = (read, made)
            return made
        return self._engine[1].renewed(sampler, batch_sampler)

    def _made(
        self,
        loader: Any,
        dataset: Any,
        sampler: Any,
        batch_sampler: Any,
        worker_init_fn: Any = None,
        worker: TorchWorker | None = None,
        seed: int | None = None,
    ) -> Engine:
        is_iterable = loader.is_stream
        is_batched = loader.batch_sampler is not None
        collate_fn = loader.collate_fn
        if collate_fn is collate.default_collate and is_batched and _is_stacked_in_place(loader):
            collate_fn = None  # the engine does it, by TorchRules
        elif collate_fn is collate.default_collate or collate_fn is collate.default_convert:
            collate_fn = with_extended(collate_fn)
        size = loader.batch_size if is_iterable else 1
        policy = _policy(
            loader.keeps_rng and is_iterable and loader.num_workers > 0,
            loader.keeps_rng,
            loader.seed is None and seed is not None and worker is not None,
        )
        if worker is not None:
            worker_policy = dataclasses.replace(policy.worker, make_prepare=lambda: worker)
            policy = dataclasses.replace(policy, worker=worker_policy)
        if loader.device is not None:
            make_adapter = functools.partial(_adapter, loader.devices)
            batch_policy = dataclasses.replace(policy.batch, make_adapter=make_adapter)
            policy = dataclasses.replace(policy, batch=batch_policy)
        seed = loader.seed if seed is None else seed
        config = self.options(loader).of_dataset(
            dataset,
            is_iterable=is_iterable,
            batch_sampler=batch_sampler,
            batch_size=size if is_batched else None,
            drop_last=loader.drop_last if is_iterable else False,
            collate_fn=collate_fn,
            prefetch_factor=_factor(loader.prefetch_factor, seed),
            worker_init_fn=worker_init_fn,
            sampler=sampler,
            seed=seed,
            snapshot_every_n_steps=_snapshot_every(loader, dataset, is_iterable),
            keep_states=loader.keep_states,
        )
        made = Engine(
            config,
            policy,
            config.sampler,
            config.batch_sampler,
            failed=loader.failed_samples,
            times=loader._observed_times(),
            draws=loader._own_draws,
        )
        if made.auto is not None:
            made.auto.go_on(self.auto)
            self.auto = made.auto
        return made


_OPTIONS_OF, _PARTS_OF = operator.itemgetter(*_READ), operator.itemgetter(*_READ, *_PARTS)


def _values(loader: Any, names: tuple[str, ...], getter: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return attributes of a loader; `getter` gets them from its `__dict__`."""
    try:
        found: tuple[Any, ...] = getter(vars(loader))
    except KeyError:  # a subclass has one as a property
        return tuple(getattr(loader, name) for name in names)
    return found


def _are_same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return all(map(operator.is_, before, now))


# types whose values can be compared
_PLAIN = frozenset((type(None), bool, int, float, str))
# the checked options of loaders that were made before, by what they were made of
_KNOWN: dict[Any, LoaderConfig] = {}
_MOST_KNOWN = 64


@functools.lru_cache(maxsize=64)
def _policy(keeps_rng: bool, sends_initial_state: bool, heeds_seeding: bool) -> Policy:
    """Return the policy for a loader on the CPU with so many workers."""
    worker = dataclasses.replace(
        _POLICY.worker,
        keeps_rng=keeps_rng,
        sends_initial_state=sends_initial_state,
        heeds_seeding=heeds_seeding,
    )
    batch = dataclasses.replace(_POLICY.batch, make_adapter=_cpu_adapter)
    return dataclasses.replace(_POLICY, worker=worker, batch=batch)


def _cpu_adapter(place: Place) -> Any:
    return torch_adapter(place, keeps_arrays=True)


def _factor(given: int | None, seed: int | None) -> int:
    """Return how many batches of a worker are in flight.

    Without a seed the random state of workers continues from epoch to epoch, also over batches that
    were in flight when a loop was left: so as many as PyTorch's are in flight.
    """
    if given is not None:
        return given
    return 2 if seed is None else PREFETCH_FACTOR


def _as_count(value: Any) -> int:
    """Return a number of workers as an int; an AutoCount as it is."""
    return value if isinstance(value, AutoCount) else int(value)


def _is_stacked_in_place(loader: Any) -> bool:
    """Whether samples go straight into a batch.

    Without workers that pays off only for arrays, and for samples that write to their own rows.
    """
    dataset = loader.dataset
    return loader.num_workers > 0 or bool(columns_of(dataset) or filler_of(dataset))


def _adapter(devices: dict[Place, Any], place: Place) -> Any:
    """Return the adapter of a place; a loader's iterators share the stream of a device."""
    if place not in devices:
        devices[place] = torch_adapter(place, keeps_arrays=True)
    return devices[place]


def start_of(loader: Any) -> dict[str, Any]:
    """Return how to start a loader's workers, as the engine's options.

    A context whose Process is a thread, like MONAI's, means threads. A context of the user has the
    start method of the context in multiprocessing that it derives from.
    """
    context, kind = loader.multiprocessing_context, loader.worker_type
    if context is None or not loader.num_workers:
        return {"start_method": None, "worker_type": kind}
    process = getattr(context, "Process", None)
    if isinstance(process, type) and issubclass(process, threading.Thread):
        return {"start_method": None, "worker_type": "thread"}
    known = multiprocessing.get_all_start_methods()
    names = [
        context.get_start_method(),
        *(vars(each).get("_name") for each in type(context).__mro__),
    ]
    method = next((name for name in names if name in known), names[0])
    return {"start_method": method, "worker_type": kind}


def _snapshot_every(loader: Any, dataset: Any, is_iterable: bool) -> int:
    every = int(loader.snapshot_every_n_steps or 0)
    # the samples of a map-style dataset may change its state, and cannot be drawn again
    is_needed = loader.keeps_rng and not is_iterable and has_state(dataset)
    return max(1, every) if is_needed else every
