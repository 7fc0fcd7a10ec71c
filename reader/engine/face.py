"""The methods of every loader on an engine: epochs, state, statistics and `close`.

Imports the engine. A face has its own arguments, texts and checks, and composes one engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

from reader.checks import as_reiterable
from reader.config import as_seconds
from reader.data.batch_sampler import BatchSampler, count_of
from reader.engine.auto import choice_of
from reader.engine.backends.backend import WorkerStatus
from reader.engine.backends.grace import grace_of
from reader.engine.engine import Engine
from reader.engine.failed_samples import FailedSample
from reader.engine.made_again import make_again
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["EngineFace", "as_grace", "engine_of"]

_Self = TypeVar("_Self", bound="EngineFace")


def engine_of(loader: Any) -> Engine | None:
    """Return the engine of a loader's newest iterator; None: there was none yet.

    It is for code that observes loaders of any face, also within wrappers such as those of
    Accelerate; users have `stats` and `workers`.
    """
    engine: Engine | None = getattr(loader, "_engine", None)
    return engine


def as_grace(value: object) -> float | None:
    """Return the argument `grace` of a `close`, checked."""
    if value is None:
        return None
    return as_seconds("grace", value, "0 interrupts the samples that workers are at, at once.")


class EngineFace:
    """The methods of a loader that pass the call on to its engine. A face sets `_engine`."""

    _engine: Engine

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` begins, from 0.

        It is not the current epoch: within the first epoch, which is number 0, this is 1. After
        `load_state_dict` it is the epoch that is resumed.
        """
        return self._engine.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the epoch that the next `iter()` begins.

        It calls `set_epoch` of the dataset, the sampler and the batch sampler where they have it;
        the workers do the same to their copies of the dataset when the epoch begins.
        """
        self._engine.set_epoch(epoch)

    @property
    def sampler(self) -> Any:
        """The iterable of indices; may be replaced between epochs.

        The loader then makes batches of its indices, as large as before. ConfigError: the loader
        has a batch sampler of the user, or no index.
        """
        return self._engine.sampler

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        batches = self._replaced("sampler", sampler)
        if type(batches) is BatchSampler and batches.sampler is self._engine.sampler:
            batches = BatchSampler(sampler, batches.batch_size, batches.drop_last)
        elif batches is not None:
            raise ConfigError(
                f"the batches of this loader are those of its batch_sampler, {got(batches)}, which"
                " does not ask loader.sampler. Replace loader.batch_sampler"
            )
        self._engine.use(sampler=sampler, batch_sampler=batches)

    @property
    def batch_sampler(self) -> Any:
        """The iterable of lists of indices; may be replaced between epochs.

        ConfigError: the loader has no batches of indices.
        """
        return self._engine.batch_sampler

    @batch_sampler.setter
    def batch_sampler(self, batch_sampler: Any) -> None:
        if self._replaced("batch_sampler", batch_sampler) is None:
            raise ConfigError(
                "this loader has batch_size=None, and so delivers each sample by itself: it takes"
                f" no batch_sampler, got {got(batch_sampler)}. Make another loader with it"
            )
        self._engine.use(batch_sampler=batch_sampler)

    def _replaced(self, name: str, value: Any) -> Any:
        """Check what takes the place of a sampler; return the batch sampler that there was."""
        as_reiterable(name, value)
        if self._engine.config.is_iterable:
            raise ConfigError(
                f"the dataset is iterated over, and has no indices that a {name} could yield, got"
                f" {got(value)}"
            )
        return self._engine.batch_sampler

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch. Starts workers unless idle ones persist; blocks on nothing else."""
        return iter(self._engine)

    def __call__(self) -> Iterator[Any]:
        """The same as `iter(loader)`."""
        return iter(self)

    def __len__(self) -> int:
        """The number of batches in an epoch, not divided by the number of places.

        TypeError when the sampler has no length, and for an iterable dataset.
        """
        if self._engine.config.is_iterable:
            raise ConfigTypeError(
                "the number of batches is not known: an IterableDataset yields until it ends. Count"
                " while iterating."
            )
        return count_of(self.sampler if self.batch_sampler is None else self.batch_sampler)

    @property
    def steps(self) -> int:
        """How often a loop over an epoch runs: the batches divided by the number of places."""
        return self._engine.config.steps(len(self))

    def state_dict(self, trained: int | None = None, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the loader's position: `load_state_dict` of another loader resumes there.

        The position is after the last batch that the newest iterator delivered, whatever was made
        ahead; an exception in a batch's place counts as that batch. After the loop it is the
        beginning of the next epoch. JSON can hold the state if it can hold the states of your own
        samplers and datasets. Its size and its cost do not depend on the position.

        A program that trains later than it takes batches, such as a pipeline or one that
        accumulates gradients, says how many it has trained: see docs/checkpoints.md.

        Args:
            trained: return the position after so many batches of the epoch, counted from its
                beginning, also where the epoch was resumed; with several places, after so many
                steps. From 0 to as many as were delivered. The orders of this package know every
                position; other orders, iterable datasets and loaders with `on_error` or
                `in_order=False` know the last `keep_states`. None: what was delivered is trained.
            epoch: the epoch in which `trained` counts: the one that began last, or the one before.
                None: the one that began last, also after its end.

        Raises:
            ConfigError: so many batches were not delivered, or their position is not known.
            ConfigTypeError: `trained` or `epoch` is no int.

        >>> from reader import DataLoader
        >>> loader = DataLoader(range(10), batch_size=2)
        >>> batches = iter(loader)
        >>> ahead = [next(batches) for _ in range(4)]  # of which the first is trained
        >>> again = DataLoader(range(10), batch_size=2)
        >>> again.load_state_dict(loader.state_dict(trained=1))
        >>> next(iter(again)).tolist()
        [2, 3]
        """
        return self._engine.state_dict(trained, epoch)

    def load_state_dict(
        self, state: dict[str, Any], *, grown: Literal["next_epoch", "now"] | None = None
    ) -> None:
        """Have the next `iter()` resume where `state` was saved; a live iterator is not changed.

        `set_epoch` of samplers and datasets is called at once; their own states are loaded when the
        iterator begins. The number of workers may differ: see the guide.

        Args:
            state: what `state_dict` returned.
            grown: when samples join that the dataset has got since, after the old ones:
                "next_epoch": this epoch keeps to the old ones; or "now": they come after those
                that are left of this epoch. None: such a state is refused. See
                docs/checkpoints.md.

        Raises:
            StateError: the state is damaged, or that of another kind of loader, or of other data.
                Nothing has changed then. While iterating: the sampler does not repeat its order.
            ConfigError: `grown` is another value.
        """
        self._engine.load_state_dict(state, grown)

    def replay(self, n: int, *, epoch: int | None = None) -> Any:
        """Make batch `n` of an epoch once more, in this thread: for a debugger, or after an error.

        It has the same samples and, where the loader has a `seed`, the same random augmentation,
        bit for bit. Iterators, workers, epoch and position of the loader stay as they are. Samplers
        are copied for it, and the dataset if it has an epoch; `worker_init_fn` is not called. Made
        so, a batch may fail again: what the dataset raises is raised here.

        Args:
            n: the number of the batch in its epoch, from 0, as exceptions tell it and `enumerate`
                counts; of the step, with several places. Orders that are drawn again know the last
                `keep_states` batches, all others every batch.
            epoch: its number, as exceptions tell it. None: the one that began last, or that of a
                loaded state. Where the loader, or its sampler, has a seed, also one that it has not
                begun.

        Raises:
            ConfigError: the place of this batch in the order cannot be found, the epoch has no such
                batch, or the dataset is iterable or has a state.
            ConfigTypeError: `n` or `epoch` is no int.

        >>> from reader import DataLoader
        >>> loader = DataLoader(range(10), batch_size=2, shuffle=True, seed=1)
        >>> batches = list(loader)
        >>> loader.replay(3).tolist() == batches[3].tolist()
        True
        """
        return make_again(self._engine, n, epoch)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy gets: options and epoch, and neither workers nor batches."""
        return {**self.__dict__, "_engine": self._engine.copied()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # not by setattr, which a face may refuse

    def stats(self) -> dict[str, Any]:
        """Return counts and times of the loader so far.

        `batches`: delivered. `wait_s`: seconds the consumer waited for batches in all, and
        `last_wait_s`: the last time or just now. `queued`: batches that are ready now; if
        always 0, the workers are the bottleneck. `stages`: the reader thread's counts: batches
        `received` from workers, `reordered` ones that came before their turn, slots `trimmed`.
        `arena`: memory and slots; None before there are any. Both are as the workers left them once
        they have ended: `is_open` of `arena` is False then. In it `uncached_from_bytes`: samples
        of batches from that size on are copied past the cache, since batches would have left it
        before they are read, and `copy_way`: by which instructions. `huge_pages`: "advised" for
        batches of 4 MiB or more, or the kernel's policy on memory files. Without workers `stages`
        is None.
        `devices`: of copies to devices; None where batches stay on the CPU. `copies`: issued, of
        them `late_copies` not done when their batch was handed over, and `unlocked_copies` from
        memory that is not page-locked. `wait_s`: seconds in which no more copies could be issued.
        `locked_slots` and `locked_bytes` (`locked_bytes_by_node`: by NUMA node, None where the
        system does not tell), `lock_limit` and `memlock_limit`: bytes that the loader, and that
        this process by itself, may lock. `lock_failure`: why locking ended; None: it did not.
        `failed_samples`: how many failed and were tolerated; see `on_error`.
        `room`: how many workers fit into the cluster; None: they are on this machine.
        `cache`: of `reader.cache`; None: the dataset has none. See the guide.
        `fetch`: of the process that fetches shards from stores (see docs/shards.md), summed over
        the caches of the dataset and of those that it wraps; None: it reads from no store. Of that
        process, for all who use it: `bytes` that came, by so many `requests`, `retries` of them,
        `hedged` of them made beside one that was late, and `transfer_s`: seconds of transfers,
        summed, so that some were under way side by side;
        pieces `damaged`, and fetched anew; `errors` that were told, by kind; bytes `kept` now, at
        most `limit`, and `evicted`; `ahead`:
        bytes that are there, or on their way, and that nobody has asked for yet. Of this dataset:
        bytes `given`, of them `hits` that were there already; `waits`: requests of workers that had
        to wait, and `wait_s`: their seconds in all. `is_running`: False where no process answers
        within a second: then these are the numbers that it told last, or 0. They begin anew with
        each such process. Workers on other machines have processes there, which are not asked.
        `mix`: of a `Mix` that is read in its order: by source what it gave in this epoch to all
        ranks together, in delivered batches: `samples`, `tokens` (None where shares are of
        samples), `passes`: see `Mix.given`. None: the dataset is no mix, or is shuffled.
        """
        return self._engine.stats()

    @property
    def chosen(self) -> dict[str, int]:
        """The current `num_workers` and `prefetch_factor`; "auto" changes them.

        Pass them to have what was found from the beginning: `DataLoader(dataset, **loader.chosen)`.
        """
        workers, factor = choice_of(self._engine.config, self._engine.auto)
        return {"num_workers": workers, "prefetch_factor": factor}

    @property
    def errors(self) -> list[FailedSample]:
        """The samples that failed and were tolerated, the last 1,000; see `on_error`.

        A sample is among them once its batch, or the exception in its place, was delivered, or the
        loop has passed it, as all its samples failed. `stats()["failed_samples"]` counts all.
        """
        return self._engine.failures()

    def _take_over(self, before: Engine) -> None:
        """Continue where another engine of the same loader stopped.

        It takes over the epoch, the log of times and the choice of "auto"; idle workers of the
        other engine end.
        """
        self._engine.take_over(before)

    def workers(self) -> list[WorkerStatus]:
        """Return what each worker does now: pid, activity, batch in hand, and since when.

        These are the workers of the newest iterator, or those that wait for the next epoch; the
        list is empty where none run. May be called from any thread; blocks on nothing.
        """
        return self._engine.workers()

    def close(self, grace: float | None = None) -> None:
        """End the workers and wait for it. Batches you hold stay valid. Idempotent.

        A worker process between two samples ends at once. One that is at a sample may finish that,
        then `SystemExit` is raised in it, so that `finally` blocks run; another second later it is
        killed. Worker threads cannot be interrupted: they are waited for 0.4 s, and end after their
        samples. Iterating again starts new workers.

        Args:
            grace: seconds for workers to finish their samples, 0 or more; None: 5. A later call may
                shorten it, also for workers that a loop left behind.

        Raises:
            ConfigError, ConfigTypeError: `grace` is no such number.
        """
        self._engine.close(as_grace(grace))

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(grace_of(kind))
