"""A batch of an epoch, made again in the thread that asks: for a debugger, or after an error.

Imports the engine's types, epochs and orders. It keeps nothing: samplers, and datasets that change
while they are read, are copied, so that the loader and its iterators go on undisturbed.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

from reader._core.interpreter.signals import is_interrupt
from reader.checks import as_int
from reader.data.epochs import carried_epochs
from reader.data.wrapped import datasets_in
from reader.engine.state import batches_of
from reader.errors import ConfigError, InternalError
from reader.orders.base_sampler import (
    batching_of,
    has_state,
    is_seekable,
    is_sharding_sampler,
)
from reader.orders.step_batches import StepBatches

if TYPE_CHECKING:
    from reader.engine.engine import Engine

__all__ = ["make_again"]

# in the thread that asks, and leaving nothing behind
_ELSEWHERE: dict[str, Any] = {
    "num_workers": 0,
    "persistent_workers": False,
    "prefetch_next_epoch": False,
    "start_method": None,
    "worker_type": "process",
    "pool": None,
    "backend": None,
    "hang_after": None,
    "quarantine": None,
    "most_ahead": None,
    "auto": (False, False),
    "is_paced": False,
    "in_order": True,
    "keep_states": 0,
}


def make_again(engine: Engine, number: Any, epoch: Any) -> Any:
    """Return a batch of an epoch once more; see `EngineFace.replay`.

    Args:
        engine: of the loader.
        number: of the batch, or of the step of several places, from 0.
        epoch: its number; None: the one that began last, or that a loaded state is of.
    """
    number = as_int("n", number, low=0, remedy="It is the number of a batch in its epoch, from 0.")
    if epoch is not None:
        epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
    config = engine.config
    if config.is_iterable:
        raise ConfigError(
            f"batch {number} of an iterable dataset cannot be made again by itself: only the worker"
            " that has drawn what is before it can draw it. Load state_dict(trained="
            f"{number}) into another loader with the same number of workers: its first batch is"
            " this one"
        )
    if has_state(config.dataset):
        raise ConfigError(
            f"batch {number} cannot be made again by itself: {type(config.dataset).__name__} has a"
            " state, which the batches before it have changed. Load state_dict(trained="
            f"{number}) into another loader: its first batch is this one"
        )
    twin = _twin_of(engine)
    try:
        state = engine.state_before(number, epoch)
        if state is None:
            state = _state_of_other(engine, twin, number, epoch)
        twin.load_state_dict(state, grown="next_epoch")  # as its epoch has it
        for batch in iter(twin):
            return batch
    finally:
        twin.close()
    raise ConfigError(f"epoch {state['epoch']} has no batch {number}: it ends before. Pass less")


def _state_of_other(engine: Engine, twin: Engine, number: int, epoch: int | None) -> dict[str, Any]:
    """Return the state before a batch of an epoch that the engine has not begun, or not lately."""
    pending = engine.pending_state
    if pending is not None and epoch in (None, pending["epoch"]):
        twin.load_state_dict(pending)
        epoch = int(pending["epoch"])
    else:
        epoch = engine.epoch if epoch is None else epoch
        _check_repeats(engine, epoch)
        twin.set_epoch(epoch)
    begun = iter(twin)
    try:
        state = twin.state_before(number, epoch)
    finally:
        begun.close()
    if state is None:
        raise InternalError(f"epoch {epoch} was begun, and is not known")
    return state


def _check_repeats(engine: Engine, epoch: int) -> None:
    """Refuse an epoch whose order does not follow from its number."""
    batches = batches_of(engine.sampler, engine.batch_sampler)
    batching = batching_of(batches)
    source = batches if batching is None else batching.sampler
    inner = source.batch_sampler if isinstance(source, StepBatches) else source
    is_kept = is_seekable(batches, batching) or is_sharding_sampler(inner)
    if not is_kept or (has_state(inner) and getattr(inner, "seed", None) is None):
        raise ConfigError(
            f"the order of epoch {epoch} cannot be found again: {type(inner).__name__} drew it from"
            " a random state that this loader does not have. Pass seed= to the loader, or give the"
            " sampler a seed; or ask within the two epochs that this loader began last"
        )


def _twin_of(engine: Engine) -> Engine:
    """Return an engine of the same options without workers, with samplers of its own."""
    config, dataset = engine.config, engine.config.dataset
    memo: dict[int, Any] = {}
    try:
        if carried_epochs(dataset=dataset):
            dataset = copy.deepcopy(dataset)
        else:
            memo = {id(each): each for each in datasets_in(dataset)}
        memo[id(config.dataset)] = dataset
        samplers = copy.deepcopy((engine.sampler, engine.batch_sampler), memo)
    except Exception as error:
        if is_interrupt(error):
            raise
        raise ConfigError(
            "a batch is made again with copies of the samplers, and of a dataset that has an epoch,"
            f" and these cannot be copied: {error!r}. Give them a __deepcopy__"
        ) from error
    return engine.twin(dataclasses.replace(config, dataset=dataset, **_ELSEWHERE), *samplers)
