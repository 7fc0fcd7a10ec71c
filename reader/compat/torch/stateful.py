"""`torchdata.stateful_dataloader.StatefulDataLoader`: a DataLoader whose epochs can be resumed.

Imports the face's loader and its saved epochs. The engine owns the state; this class knows the
newest iterator, whose state it returns.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from torch.utils.data import Dataset, IterDataPipe, Sampler

from reader.checks import as_int, names_arguments
from reader.compat.torch import draws
from reader.compat.torch.begun_ahead import BegunAhead, with_workers
from reader.compat.torch.draws import OwnDraws
from reader.compat.torch.engine import EngineMaker
from reader.compat.torch.errors import OtherWorkers
from reader.compat.torch.inner import CollateFn, PeerIterator
from reader.compat.torch.iterator import EngineIterator
from reader.compat.torch.loader import ELSEWHERE, DataLoader
from reader.compat.torch.order import faster
from reader.compat.torch.saved import SavedEpoch, Standing, in_form
from reader.engine.engine import Engine
from reader.engine.face import as_grace
from reader.engine.state import check_begun
from reader.errors import StateError
from reader.orders.base_sampler import generator_states, has_state
from reader.random.random_state import generator_state, to_json
from reader.random.seeds import batch_seed

__all__ = ["StatefulDataLoader"]

if TYPE_CHECKING:
    import typing_extensions

    from reader.compat.torch.loader import OwnOptions

T_co = TypeVar("T_co", covariant=True)
_NO_BATCH = 1 << 48  # a number that no batch has: keys the order


class StatefulDataLoader(DataLoader[T_co]):
    """A DataLoader whose epochs another process can resume exactly.

    Arguments are those of DataLoader; `state_dict` means what it does in torchdata: see
    docs/torch.md. The order of the first epoch is that of DataLoader; without a generator, later
    epochs are drawn by the loader itself, so that a resume has them, too. Each batch of a map-style
    dataset is seeded by itself, from (base seed, epoch, number of the batch), so that a resume
    repeats random augmentation with any number of workers.

    Args:
        snapshot_every_n_steps: take the state of an iterable dataset once per so many batches of a
            worker, and that of a sampler once per so many draws; a resume draws again what came
            after the last state. The state of a map-style dataset is read with each batch.
            0 or None: never; a resume then draws samplers and streams from their beginning.
        keep_states: how many batches back `state_dict(trained=)` can go.
        reseed: as of DataLoader; works without `seed`, too, for a map-style dataset.
        own: the other arguments that PyTorch does not have, such as `seed` and `on_error`: as of
            DataLoader.
    """

    keeps_rng = True
    awaits_start = True

    @names_arguments(ELSEWHERE, DataLoader.__init__)
    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: CollateFn | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | Literal["auto"] | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
        keep_states: int = 64,
        **own: typing_extensions.Unpack[OwnOptions],
    ) -> None:
        if snapshot_every_n_steps is not None:
            remedy = "0 or None takes no state of datasets and samplers."
            as_int("snapshot_every_n_steps", snapshot_every_n_steps, low=0, remedy=remedy)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            **own,
        )
        self.snapshot_every_n_steps = snapshot_every_n_steps
        remedy = "It is how many batches back state_dict(trained=) can go."
        self.keep_states = as_int("keep_states", keep_states, low=0, remedy=remedy)
        self._saved: SavedEpoch | None = None  # loaded, and not yet resumed
        self._current: Any = None  # (engine, base seed, reference) of the newest iterator
        self._own_draws = OwnDraws()  # of the epochs' seeds, without a generator
        self._ahead: BegunAhead | None = None  # the first epoch, if its state was asked for before
        self._begun: EngineIterator | None = None  # kept until the initial states have come

    @property
    def opens_order_first(self) -> bool:
        """False: as with workers, the base seed is drawn before the order; a state has both."""
        return False

    @property
    def seeds_batches(self) -> bool:
        """Whether the base seed seeds each batch, as with a map-style dataset without `seed`."""
        return self.seed is None and not self.is_stream

    def order_seed(self, base_seed: int) -> int | None:
        """See DataLoader; the first epoch is drawn as DataLoader draws it."""
        return batch_seed(base_seed, self._epoch, _NO_BATCH) if self._epoch else None

    @property
    def order(self) -> Any:
        """The iterable of the next epoch's order."""
        return faster(self._index_sampler, self._one_shots, self._own_draws.draw)

    def prepared(self, state: Any) -> Any:
        """See DataLoader; the seed of an epoch comes from the loader's own draws."""
        found = self if state is None else state.prepared(self)
        if found is not self or not self._draws_own:
            return found
        is_late = state is not None and self._draws_in_trainer
        seed = self._own_draws.draw_alone() if is_late else self._own_draws.draw()
        return Standing(self, self._index_sampler, seed)

    @property
    def _draws_own(self) -> bool:
        """Whether epochs take their seeds from this loader's own draws."""
        # the seeds that shuffle DataPipes are drawn from the same generator
        return self.generator is None and not isinstance(self.dataset, IterDataPipe)

    @property
    def _draws_in_trainer(self) -> bool:
        """Whether the dataset draws from the trainer's own random state, and may set it."""
        return self.is_stream and not self.num_workers

    def _get_iterator(self) -> PeerIterator:
        self._check()
        if self.num_workers:
            self.check_worker_number_rationality()
        return self._begin(None)

    def _begin(self, last: Any) -> PeerIterator:
        ahead, self._ahead = self._ahead, None
        made: EngineIterator
        if ahead is None:
            made = self._begin_now(last)
        elif ahead.fits(self):
            made = ahead.batches
        else:
            made = self._begin_again(ahead)
        self._ahead = self._begun = None  # also one begun meanwhile by a signal's handler
        if made.awaits_initial_states:
            self._begun = made
            made.call_first(functools.partial(_release, weakref.ref(self)))
        peer: PeerIterator = made
        return peer

    def _begin_again(self, ahead: BegunAhead) -> EngineIterator:
        """Begin the first epoch anew: the loader was changed after it was begun for its state."""
        if ahead.has_epochs_of(self):
            with contextlib.suppress(StateError):  # the state does not fit another order
                self.load_state_dict(ahead.state)
        elif not self.is_stream:
            self._load_generator(ahead.generator)
        return self._begin_now(None)

    def _begin_now(self, last: Any) -> EngineIterator:
        saved, self._saved = self._saved, None
        if saved is not None and saved.refusal is not None:
            self._saved = saved
            raise OtherWorkers(saved.refusal)
        if saved is not None:
            self._epoch = int(saved.epoch or 0)
            last = None
            if saved.has_generator:
                self._load_generator(saved.generator)
        try:
            made = EngineIterator(self, last, saved)
        except BaseException:
            self._saved = saved
            raise
        is_new = saved is not None and saved.base_seed is None
        if is_new and self._draws_own and self._draws_in_trainer:
            draws.pass_global()  # not before: the dataset's state may set it
        self._current = (made.engine, made.base_seed, weakref.ref(made))
        return made

    def __getstate__(self) -> dict[str, Any]:
        own = self._own_draws.copied()
        if self._ahead is not None and self.generator is None:
            own.load(self._ahead.generator)
        parts = {"_current": None, "_ahead": None, "_begun": None, "_own_draws": own}
        return {**super().__getstate__(), **parts}

    if TYPE_CHECKING:  # a subclass may override it with torchdata's arguments, which are none

        def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...  # noqa: D102

    else:

        def state_dict(self, trained=None):
            """Return the position: after the last batch that the newest iterator delivered.

            `trained`: after so many batches of its epoch instead; see `reader.DataLoader`.

            JSON can hold it if it can hold the user's own states. Before the first batch of an
            epoch, with workers and a dataset or an iterator that has a state, it waits until each
            worker has begun, and before the first `iter()` it begins the epoch, which that `iter()`
            returns. Otherwise it blocks on nothing and starts nothing.

            Raises:
                RuntimeError: a worker died, or did not begin within `timeout`.
                ConfigError: the position after `trained` batches is not known.
            """
            if self._saved is not None:
                check_begun(trained, self._saved.steps, self._epoch)
                return copy.deepcopy(self._saved.state)
            if self._current is None or self._ahead is not None:
                check_begun(trained, 0, self._epoch)
            if self._ahead is not None:
                return copy.deepcopy(self._ahead.state)
            if self._current is None and self._begins_for_state:
                return self._begin_ahead()
            return self._state_now(trained)

    @property
    def _begins_for_state(self) -> bool:
        """Whether the first epoch must be begun before its state is known in full."""
        if self._iterator is not None or not self.in_order:
            return False
        if self.is_stream:
            return bool(self.snapshot_every_n_steps)
        return bool(self.num_workers) and has_state(self.dataset)

    def _begin_ahead(self) -> dict[str, Any]:
        """Begin the first epoch for the next `iter()`; return the state from before it."""
        before = None if self.is_stream else self._state_now()
        ahead = BegunAhead(self)
        batches = self._get_iterator()
        try:
            state = self._state_now()
        except BaseException:
            self._current = self._begun = None
            raise
        ahead.begun(batches, state if before is None else with_workers(before, state))
        self._ahead = ahead
        return copy.deepcopy(ahead.state)

    def _state_now(self, trained: int | None = None) -> dict[str, Any]:
        if self._current is None:
            engine, base_seed = self._engine_maker.make(self, self.dataset), None
            engine.begin_at(self._epoch)
            finished = False
        else:
            engine, base_seed, newest = self._current
            batches = newest()
            if batches is not None:
                batches.note_initial_states()
            finished = engine.is_between_epochs and trained is None
        state = engine.state_dict(trained)  # may draw the order
        self._begun = None
        workers, generator = int(self.num_workers), self._generator_state(engine)
        return in_form(state, base_seed, workers, finished, generator)

    def _generator_state(self, engine: Engine) -> Any:
        """Return the state of the epochs' source of seeds; None: the state of the order has it."""
        if self.generator is None:
            return engine.draws_state()
        own = to_json(generator_state(self.generator))
        if not self.is_stream and own in generator_states(self.order):
            return None
        return draws.saved(self.generator)

    def _load_generator(self, state: Any) -> None:
        if self.generator is None:
            self._own_draws.load(state)
        elif state is not None:
            draws.load(self.generator, state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next `iter()` resume where the state was saved; a live iterator is not changed.

        The number of workers may differ, and with a sampler for several ranks the number of ranks.

        Raises:
            StateError: the state is damaged, foreign or of another dataset; nothing has changed.
                While iterating: the sampler does not give the same order again. From `iter`, also
                an AssertionError: only the number of workers that saved it could resume it.
        """
        saved = SavedEpoch(state_dict)
        if saved.has_generator:
            draws.check(saved.generator, self.generator)
        seed = saved.base_seed if self.seeds_batches else None
        engine = self._engine_maker.make(self, self.dataset, seed=seed)
        saved.fit_to(engine)
        try:
            saved.check(engine)
        except StateError as error:
            if saved.num_workers == self.num_workers:
                raise
            # if as many workers as it was saved with could resume it, `iter` refuses it
            other = saved.with_its_workers(self)
            saved.check(EngineMaker().make(other, self.dataset, seed=seed))
            saved.refuse(str(error))
        self._saved = saved
        self._current = self._ahead = self._begun = None
        self._epoch = int(saved.epoch or 0)

    def close(self, grace: float | None = None) -> None:
        """Close persistent workers, and those that began for a state; see DataLoader."""
        grace_s = as_grace(grace)
        ahead, self._ahead, self._begun = self._ahead, None, None
        if ahead is not None:
            self._saved = SavedEpoch(ahead.state)
            self._current = None
            ahead.batches.engine.close(grace_s)
        super().close(grace)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; drops a loaded state of another epoch."""
        super().set_epoch(epoch)
        if self._saved is not None and self._saved.epoch != epoch:
            self._saved = None


def _release(loader: weakref.ref[StatefulDataLoader[Any]]) -> None:
    """Release the loader's newest iterator: its first batch brought all initial states."""
    found = loader()
    if found is not None:
        found._begun = None
