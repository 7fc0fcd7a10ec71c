"""What a facade promises beyond the engine's own ways: its order, its seeds, its collating.

Imports the standard library alone. A class of loaders holds one Promises; the engine reads it when
a loader is made, and nothing changes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = ["Promises"]

Prepare = Callable[[int, int, Any], int]  # (worker_id, num_workers, dataset) -> seed


@dataclasses.dataclass(frozen=True)
class Promises:
    """Ways of a facade.

    `is_round_robin`: batch n is made by worker n modulo num_workers. `is_plain`: containers of a
    batch become dicts and lists. `rules`: how samples that are not alike are collated by default
    (see `reader.workers.loop.CollateRules`). `make_prepare`: called in the trainer whenever workers
    start; returns what prepares and seeds each of them, in it. `error_text`: added to the
    exceptions of workers, with {worker} and {type} in it. `reword`: called with an exception of a
    worker, the worker's number and its traceback there; may change the exception's text, and
    returns what to raise. `restarts_circle`: with `is_round_robin`, worker 0 makes the first batch
    of each epoch, also where workers stay. `takes_any_key`: a sampler may yield anything that the
    dataset takes for an index, the dataset alone says which there are, and its `__getitems__` may
    return any number of samples in any form. `tells_deaths`: without
    retries, the death of a worker is raised even where it costs no batch. `keeps_worker_rng`:
    workers send their global random state along whenever they send that of the dataset, so that it
    goes on after a resume. `is_iterable`: tells an iterable dataset from one with indices; None: as
    `reader.data.iterable` does. `adapter`: makes the user's batch of a LoDTensorArray; None: the
    framework's does. `is_inline`: with `num_workers=0` the thread that iterates makes the batches,
    by a `collate_fn` that is given. `makes_stale`: workers that stay, and are not seeded for each
    batch, make what they were sent of an epoch that was left, so that their random state is the
    same however far they had come. `heeds_seeding`: the batches of a worker whose `worker_init_fn`
    seeded torch's generator are keyed by that seed, which torch goes on to tell as its own.
    """

    is_round_robin: bool = False
    is_plain: bool = False
    rules: Any = None
    make_prepare: Callable[[], Prepare] | None = None
    error_text: str = ""
    reword: Callable[[BaseException, int, str], BaseException] | None = None
    restarts_circle: bool = False
    takes_any_key: bool = False
    keeps_worker_rng: bool = False
    tells_deaths: bool = False
    is_iterable: Callable[[Any], bool] | None = None
    adapter: Callable[[Any], Any] | None = None
    is_inline: bool = False
    makes_stale: bool = False
    heeds_seeding: bool = False
