"""The policy of a face: where it departs from the engine's defaults, in four parts.

Imports the standard library alone. A face makes one Policy; each part is passed whole to the
package that obeys it, and nothing changes it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = [
    "BatchPolicy",
    "CollateRules",
    "DispatchPolicy",
    "ErrorPolicy",
    "Policy",
    "Prepare",
    "Reseed",
    "WorkerPolicy",
]

# (worker_id, num_workers, dataset): prepares and seeds a worker as the face's own library does, and
# returns the seed in its `get_worker_info`
Prepare = Callable[[int, int, Any], int]
Reseed = Callable[[Any, int], Any]  # (dataset, seed of a batch); its result is ignored


class CollateRules(abc.ABC):
    """How a face collates by default, where it does more than stack samples that are alike.

    Attributes:
        is_strict: samples are alike only if their types are exactly those of the first, tuples
            become lists, and `can_stack` is called once for each form.
        keeps_aliases: an object that `collate_fn` put at two places of a batch stays one object.
        has_origins: batches that `collate_fn` made say which fields were arrays of NumPy; so do all
            that `pack` pickles.
        pack: called with the objects and fields of a batch: pickles what it holds besides arrays,
            so that the whole batch arrives unchanged. It may add arrays and tensors to the fields,
            and put `reader._core.batch.tensor_array.field_of_batch` in their places. It returns
            None where objects share memory with fields, and is then called with the whole batch as
            one object. None: containers are described, and single objects pickled.
        revive: called with an array and the name of its type, or None, turns it back into the
            tensor that was stacked. None: arrays stay arrays.
    """

    is_strict: bool = False
    keeps_aliases: bool = True
    has_origins: bool = False
    pack: Callable[..., Any] | None = None
    revive: Callable[[Any, str | None], Any] | None = None

    @abc.abstractmethod
    def can_stack(self, sample: Any) -> bool:
        """Whether the first sample of a batch may be stacked; raises if no batch may hold it."""

    @abc.abstractmethod
    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of samples that are not alike."""


@dataclasses.dataclass(frozen=True)
class DispatchPolicy:
    """Which worker gets a task, and what a task may be; the source of tasks obeys it.

    Attributes:
        is_round_robin: batch n is made by worker n modulo num_workers.
        restarts_round_robin: worker 0 makes the first batch of each epoch, with persistent workers
            too.
        takes_any_key: a sampler may yield anything that the dataset takes as an index, and empty
            batches; only the dataset checks the indices.
        works_ahead: with `num_workers=0` a thread makes batches ahead; else the thread that
            iterates makes each when it asks for it.
    """

    is_round_robin: bool = False
    restarts_round_robin: bool = False
    takes_any_key: bool = False
    works_ahead: bool = False


@dataclasses.dataclass(frozen=True)
class WorkerPolicy:
    """What a worker does; the pool and each worker obey it.

    Attributes:
        rules: how samples that are not alike are collated by default; None: they are refused.
        fetches_many: `__getitems__` of a dataset is called once for each batch, where it has one;
            else only where it says that its samples are pure.
        collates_any_result: `__getitems__` may return any number of samples in any form, which
            `rules` collate.
        keeps_rng: workers send their global random state with that of the dataset, so that a
            resume continues it.
        sends_initial_state: workers whose dataset or iterator has a state send it when they begin
            an epoch, before they make a batch; not with `in_order=False`, nor of a stream with a
            seed, whose iterator is made with its first batch.
        makes_stale: persistent workers that are not seeded for each batch still make the tasks they
            were sent in an abandoned epoch, so that their random state does not depend on timing.
        heeds_seeding: if `worker_init_fn` seeds torch's generator, that seed keys the batches of
            the worker, and `torch.initial_seed()` still returns it.
        make_prepare: called in the trainer whenever workers start; returns the function that
            prepares and seeds a worker, which is called in each. None: there is none.
    """

    rules: CollateRules | None = None
    fetches_many: bool = True
    collates_any_result: bool = False
    keeps_rng: bool = False
    sends_initial_state: bool = False
    makes_stale: bool = False
    heeds_seeding: bool = False
    make_prepare: Callable[[], Prepare] | None = None


@dataclasses.dataclass(frozen=True)
class BatchPolicy:
    """How the user's batch is made; the engine chooses its adapters by it.

    Attributes:
        has_plain_containers: containers of a batch become dicts and lists.
        is_as_collated: what `collate_fn` returns in the thread that iterates is the user's batch.
        reads_bfloat16: a field of uint16 has the bits of bfloat16, where the framework is Paddle.
        make_adapter: called with each place; returns the function that makes the user's batch there
            from a LoDTensorArray, or a Device that copies it there. None: the framework's own.
    """

    has_plain_containers: bool = False
    is_as_collated: bool = False
    reads_bfloat16: bool = False
    make_adapter: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True)
class ErrorPolicy:
    """The words of workers' exceptions; obeyed by `reader/engine/epoch_errors.py`.

    With `num_workers=0` only `passes_exits` is applied.

    Attributes:
        error_text: a note for an exception in a batch's place; has {worker} and {type} in it.
        reword: called with an exception of a worker, the worker's number and its traceback there;
            may change the exception's text, and returns what to raise. It sets `__cause__` itself.
        raises_deaths: without retries, a death is raised even where it costs no batch.
        passes_exits: with `num_workers=0`, exceptions of the dataset or a sampler that are not an
            Exception, such as SystemExit, are raised as they are.
    """

    error_text: str = ""
    reword: Callable[[BaseException, int, str], BaseException] | None = None
    raises_deaths: bool = False
    passes_exits: bool = False

    def passes(self, error: BaseException) -> bool:
        """Whether an exception of the dataset or a sampler is raised as it is; see passes_exits."""
        return self.passes_exits and not isinstance(error, Exception)


@dataclasses.dataclass(frozen=True)
class Policy:
    """Where a face departs from the engine's defaults."""

    dispatch: DispatchPolicy = DispatchPolicy()
    worker: WorkerPolicy = WorkerPolicy()
    batch: BatchPolicy = BatchPolicy()
    error_policy: ErrorPolicy = ErrorPolicy()

    def without_round_robin(self) -> Policy:
        """Return this policy without round robin.

        With num_workers="auto" the number of workers changes: the least busy takes each task.
        """
        dispatch = dataclasses.replace(self.dispatch, is_round_robin=False)
        return dataclasses.replace(self, dispatch=dispatch)
