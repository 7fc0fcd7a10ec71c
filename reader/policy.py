"""What a face promises beyond the engine's own ways, in four parts.

Imports the standard library alone. A face makes one Policy; each part is handed whole to the room
that obeys it, and nothing changes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

__all__ = [
    "BatchPolicy",
    "CollateRules",
    "DispatchPolicy",
    "ErrorPolicy",
    "Policy",
    "Prepare",
    "WorkerPolicy",
]

Prepare = Callable[[int, int, Any], int]  # (worker_id, num_workers, dataset) -> seed


class CollateRules(Protocol):
    """How a face collates by default where it differs from stacking alike samples.

    Rules may have more: `is_strict`, true where samples are alike only with exactly the types of
    the first, tuples become lists, and a form is asked about once. `pack(objects, fields)`
    pickles what batches hold beside arrays, so that whole batches arrive as they were; it may add
    arrays and tensors to `fields`, and put `reader._core.tensor_array.field_of_batch` in their
    places. `revive(array, type name)` makes the tensor again that was stacked as an array.
    """

    def can_stack(self, sample: Any) -> bool:
        """Whether a first sample of a batch may be stacked in place. Raises for one of no batch."""

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of samples that are not alike."""


@dataclasses.dataclass(frozen=True)
class DispatchPolicy:
    """Which worker gets a task, and what a task may be; obeyed where tasks are drawn.

    Attributes:
        is_round_robin: batch n is made by worker n modulo num_workers.
        restarts_round_robin: worker 0 makes the first batch of each epoch, also where workers stay.
        takes_any_key: a sampler may yield anything that the dataset takes for an index, an empty
            batch too; the dataset alone says which indices there are.
        is_inline: with `num_workers=0` the thread that iterates makes the batches, by a
            `collate_fn` that is given.
    """

    is_round_robin: bool = False
    restarts_round_robin: bool = False
    takes_any_key: bool = False
    is_inline: bool = False


@dataclasses.dataclass(frozen=True)
class WorkerPolicy:
    """What a worker does; obeyed where workers are started and in each of them.

    Attributes:
        rules: how samples that are not alike are collated by default; None: they are refused.
        collates_any_result: `__getitems__` may return any number of samples in any form, which
            `rules` collate.
        keeps_rng: workers send their global random state along whenever they send that of the
            dataset, so that it goes on after a resume.
        makes_stale: workers that stay, and are not seeded for each batch, make what they were sent
            of an epoch that was left: their random state is the same however far they had come.
        heeds_seeding: the batches of a worker whose `worker_init_fn` seeded torch's generator are
            keyed by that seed, which torch goes on to tell as its own.
        make_prepare: called in the trainer whenever workers start; returns what prepares and seeds
            each of them, in it. None: nothing does.
    """

    rules: CollateRules | None = None
    collates_any_result: bool = False
    keeps_rng: bool = False
    makes_stale: bool = False
    heeds_seeding: bool = False
    make_prepare: Callable[[], Prepare] | None = None


@dataclasses.dataclass(frozen=True)
class BatchPolicy:
    """What the user's batch is made of; obeyed where the engine chooses adapters.

    Attributes:
        has_plain_containers: containers of a batch become dicts and lists.
        make_adapter: called with each place; returns what makes the user's batch there of a
            LoDTensorArray. None: the framework's does.
    """

    has_plain_containers: bool = False
    make_adapter: Callable[[Any], Callable[[Any], Any]] | None = None


@dataclasses.dataclass(frozen=True)
class ErrorPolicy:
    """The words of workers' exceptions; obeyed by `reader/engine/epoch_errors.py`.

    It is not applied with `num_workers=0`.

    Attributes:
        error_text: a note added to an exception in a batch's place, with {worker} and {type} in it.
        reword: called with an exception of a worker, the worker's number and its traceback there;
            may change the exception's text, and returns what to raise. It sets `__cause__` itself.
        tells_deaths: without retries, the death of a worker is raised even where it costs no batch.
    """

    error_text: str = ""
    reword: Callable[[BaseException, int, str], BaseException] | None = None
    tells_deaths: bool = False


@dataclasses.dataclass(frozen=True)
class Policy:
    """The promises of a face."""

    dispatch: DispatchPolicy = DispatchPolicy()
    worker: WorkerPolicy = WorkerPolicy()
    batch: BatchPolicy = BatchPolicy()
    errors: ErrorPolicy = ErrorPolicy()
