"""Warn, once, of a loader that gives each rank of a training all samples, or ends it on its own.

Imports the rule of `reader.data.distributed_env`. It calls no method of the user's samplers and
datasets but `__len__`; the epoch's progress calls the listener that is made here.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from typing import Any

from reader._core.interpreter.signals import is_interrupt
from reader.config import LoaderConfig
from reader.data.distributed_env import Ranks, are_steps_agreed, known_ranks
from reader.engine.progress import Progress
from reader.errors import ConfigError

__all__ = ["warn_if_undivided"]

# of objects that divide by themselves: samplers of this package, of torch, Paddle and Accelerate,
# streams of Hugging Face and Streaming
_OF_RANKS = (
    *("num_replicas", "nranks", "world_size", "rank", "num_processes", "process_index"),
    *("num_parts", "part_index", "_distributed", "distributed_env", "_unique_rank_world"),
)
_DEEPEST = 8  # objects within objects


def warn_if_undivided(
    config: LoaderConfig, progress: Progress, sampler: Any, batch_sampler: Any
) -> None:
    """Warn where several ranks train together, and each reads all samples of a loader.

    For a stream the warning comes with its first batch: only then it is known. Where a stream is
    divided, and nothing says that the ranks have equally many batches, a warning comes when it ends
    outside of `reader.EvenSteps`.

    Args:
        config: the loader's.
        progress: of its first epoch.
        sampler: the user's, or what the loader made; None: there is none.
        batch_sampler: likewise.
    """
    try:
        ranks = known_ranks()
    except ConfigError:  # they are unknown; the error is raised where they are needed
        return
    if ranks is None or ranks.world_size == 1:
        return
    if _knows_ranks([config.dataset, sampler, batch_sampler]):
        return
    if progress.is_stream:
        _watch_stream(config.dataset, progress, ranks)
    elif config.sampler is None and config.batch_sampler is None:
        _warn_of_dataset(config, ranks)
    elif not _is_part(sampler if batch_sampler is None else batch_sampler, config.dataset):
        given = config.sampler if config.batch_sampler is None else config.batch_sampler
        _warn_of_sampler(type(given).__name__, ranks)


def _warn_of_dataset(config: LoaderConfig, ranks: Ranks) -> None:
    own = f"num_replicas=1, rank=0, shuffle={config.shuffle}"
    warnings.warn(
        f"every rank reads all samples: this is {ranks}, and the order of all"
        f" {len(config.dataset)} samples of {type(config.dataset).__name__} is not divided among"
        " the ranks. Pass sampler=reader.DistributedSampler(dataset), whose shuffle= is True by"
        " default, in the place of shuffle. If the dataset has this rank's samples alone, or each"
        f" rank is to read all, say so by sampler=reader.DistributedSampler(dataset, {own})",
        stacklevel=_level_of_loop(),
    )


def _warn_of_sampler(name: str, ranks: Ranks) -> None:
    warnings.warn(
        f"every rank reads all samples, unless the sampler ({name}) divides them among the ranks by"
        f" itself: this is {ranks}. Pass a reader.DistributedSampler or"
        " reader.DistributedBatchSampler; or give the sampler that divides by itself an attribute"
        " num_replicas, which says so",
        stacklevel=_level_of_loop(),
    )


def _watch_stream(dataset: Any, progress: Progress, ranks: Ranks) -> None:
    """Warn of a stream that is not divided, at its first batch, or that ends on its own."""
    name, found = type(dataset).__name__, weakref.ref(progress)  # it calls the listener

    def look() -> None:
        own, text = found(), None
        if own is None or (own.division != "none" and not own.is_finished):
            return
        own.listen(None)
        if own.division == "none":
            text = _undivided(name, ranks)
        elif own.division != "even" and not are_steps_agreed():
            text = _uneven(own.batches, ranks)
        if text is not None:
            warnings.warn(text, stacklevel=_level_of_loop())

    progress.listen(look)


def _undivided(name: str, ranks: Ranks) -> str:
    return (
        f"every rank reads all samples, unless {name} divides them among the"
        f" ranks by itself: this is {ranks}, and no reader.shard was at work in its first"
        " batch. Iterate over reader.shard(items) in __iter__, which divides them among ranks"
        " and workers, or over reader.shard(items, rank=0, world_size=1), which gives each rank"
        " all; or give the dataset that divides by itself an attribute world_size, which says"
        " so"
    )


def _uneven(batches: int, ranks: Ranks) -> str:
    return (
        f"this is {ranks}, whose stream has ended after {batches} batches, and nothing says that"
        " the others have as many: a rank that takes more steps waits for this one, or is given its"
        " steps of the next epoch. Iterate over reader.EvenSteps(loader), with which all ranks end"
        " together; or, where the items have a length, over reader.shard(items, even='drop')"
    )


def _level_of_loop() -> int:
    """Return the `stacklevel` of the user's loop for its caller: a step has one frame or two."""
    level, frame = 1, inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None and frame.f_globals.get("__name__", "").startswith("reader."):
        level, frame = level + 1, frame.f_back
    return level


def _knows_ranks(found: list[Any], depth: int = 0) -> bool:
    """Whether one of these objects, or one inside of them, divides samples among ranks."""
    for each in found:
        # not getattr, which may run code of the user
        if any(inspect.getattr_static(each, name, None) is not None for name in _OF_RANKS):
            return True
        held = getattr(each, "__dict__", {})
        inner = [held[name] for name in ("sampler", "batch_sampler", "dataset") if name in held]
        if isinstance(held.get("datasets"), (list, tuple)):
            inner += held["datasets"]
        if depth < _DEEPEST and _knows_ranks(inner, depth + 1):
            return True
    return False


def _is_part(sampler: Any, dataset: Any) -> bool:
    """Whether a sampler is known to yield fewer indices than the dataset has samples."""
    batch_size = getattr(sampler, "batch_size", 1)
    inner = getattr(sampler, "sampler", None)
    try:
        count = len(sampler if inner is None else inner)
        if isinstance(sampler, (list, tuple)):
            count = sum(len(each) if hasattr(each, "__len__") else 1 for each in sampler)
        elif inner is None and isinstance(batch_size, int):
            count *= batch_size
        return count < len(dataset)
    except Exception as error:  # it has no length, or one that its author did not think of
        if is_interrupt(error):
            raise
        return False
