"""The state of an engine: saved after the last batch delivered, checked, and resumed from.

Imports the progress of epochs, workers' cursors and orders. A LoaderState belongs to one engine.
The state it returns is the user's; the state it is given is copied.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from reader._core.interpreter.signals import is_interrupt
from reader.config import SEED_LIMIT, LoaderConfig
from reader.data.batch_sampler import NoBatching
from reader.data.epochs import carried_epochs, find_carriers
from reader.data.fingerprint import are_alike, fingerprint_of, told_differences
from reader.engine.plain_state import REMEDY, check_plain, plain_copy
from reader.engine.progress import Progress
from reader.engine.trail import Reached
from reader.engine.worker_cursors import WorkerCursor, WorkerCursors
from reader.errors import ConfigError, StateError, got, shown
from reader.orders.base_sampler import batching_of, has_state, state_of
from reader.orders.grown import grown_samplers
from reader.orders.order import boundary_state, check_order_state
from reader.orders.order_origin import Position
from reader.orders.step_batches import StepBatches
from reader.worker.worker_state import sends_snapshots

__all__ = ["LoaderState", "ResumePoint", "batches_of", "check_begun"]

_FORMAT = 1
_NO_WORKERS: dict[str, Any] = {"workers": None, "last_worker": None}
# the most batches that a saved position may have: times the batch size they must fit into 64 bits
_MAX_POSITION = 1 << 40


class ResumePoint(NamedTuple):
    """Where in an epoch an iterator begins.

    Attributes:
        base_seed: what keys `sample_rng`.
        at: what was delivered before.
        order: the state of the order; None: it begins anew.
        worker_cursors: of the workers; None: these have no state.
        turn: whose turn it is; None: see `Engine._next_turn`.
        beyond: batches after `at` that were delivered as well.
        is_resumed: workers are sent their cursors.
        failed: how many samples of the epoch have failed.
        steps: how many steps of the epoch come before; None: as many as its batches make.
        lengths: see Progress.
    """

    base_seed: int
    at: Position = Position(0, 0)
    order: dict[str, Any] | None = None
    worker_cursors: WorkerCursors | None = None
    turn: int | None = None
    beyond: tuple[int, ...] = ()
    is_resumed: bool = False
    failed: int = 0
    steps: int | None = None
    lengths: tuple[int, ...] = ()


class LoaderState:
    """Saves and loads the state of one engine.

    Args:
        config: the loader's options.
        keeps_rng: workers send their global random state along.
        base_seed: what keys `sample_rng`.

    Attributes:
        sends_snapshots: workers may send their states.
    """

    def __init__(self, config: LoaderConfig, keeps_rng: bool, base_seed: int) -> None:
        self._config = config
        self._num_workers = config.num_loops
        self.sends_snapshots = sends_snapshots(
            config.dataset, config.snapshot_every, keeps_rng, config.is_iterable
        )
        self.base_seed = base_seed
        self._progress: Progress | None = None  # of the iterator that the user got last
        self._former: Progress | None = None  # of the one before
        self._resumed: dict[str, Any] | None = None  # the state that it began with
        self.pending: dict[str, Any] | None = None  # loaded; no iterator has begun with it yet
        # what the dataset is, with the length that it had when it was asked
        self._data: tuple[int | None, dict[str, Any]] | None = None

    @property
    def progress(self) -> Progress | None:
        """The position of the iterator that the user got last."""
        self.count()
        return self._progress

    def count(self) -> None:
        """Count what the user got from the newest iterator."""
        if self._progress is not None:
            self._progress.count()

    # -- saving ----------------------------------------------------------------------------------

    def save(
        self,
        epoch: int,
        sampler: Any,
        batch_sampler: Any,
        draw_first: Callable[[], None],
        prefetched: Progress | None,
        trained: int | None = None,
        of_epoch: int | None = None,
    ) -> dict[str, Any]:
        """Return the state of the loader.

        Args:
            epoch: the number of the epoch that would begin next.
            sampler: the loader's.
            batch_sampler: the loader's.
            draw_first: has the open epoch draw its first batch of indices, unless it has.
            prefetched: the position in the next epoch, where it was begun ahead.
            trained: return the state behind so many steps; None: behind the last one.
            of_epoch: of which epoch they are; None: of the one that was begun last.

        Raises:
            ConfigError: the position behind `trained` steps is not known.
        """
        progress, resumed = self.progress, self._resumed
        chosen = None
        if trained is not None:
            chosen = self._chosen(trained, of_epoch, epoch, batch_sampler)
        if chosen is not None and trained is not None:
            if chosen is progress and not chosen.is_known:
                draw_first()
            if chosen.is_known:
                return self._state_behind(chosen, trained, sampler, batch_sampler)
            chosen.behind(trained)  # raises unless it is the position of the state below
        if self.pending is not None:
            return copy.deepcopy(self.pending)
        config = self._config
        if progress is not None and progress.is_finished and prefetched is not None:
            self.follow(prefetched)
            progress, resumed = prefetched, None
        is_open = progress is not None and not progress.is_finished
        if is_open and progress is not None and not progress.is_known:
            draw_first()
            if not progress.is_known and resumed is not None:
                return copy.deepcopy(resumed)  # dropped before anything was drawn
        if progress is not None and is_open and progress.is_known:
            return self._state_behind(progress, None, sampler, batch_sampler)
        state = self._head(sampler, batch_sampler)
        state.update(epoch=epoch, batches=0, samples=0, turn=None, beyond=[])
        if progress is not None and is_open:  # a sampler may have counted its epoch already
            state.update(epoch=progress.epoch, epochs=dict(progress.epochs))
        else:
            carriers = {"dataset": config.dataset, "batch_sampler": batch_sampler}
            state["epochs"] = carried_epochs(**carriers, sampler=sampler)
        cursors = self._cursors_between()
        if not config.is_iterable:
            origin = None if progress is None else progress.origin
            state["order"] = boundary_state(batches_of(sampler, batch_sampler), origin)
        return {**state, **(_NO_WORKERS if cursors is None else cursors.to_json())}

    def _head(self, sampler: Any, batch_sampler: Any) -> dict[str, Any]:
        """Return the entries that do not depend on the position."""
        return {
            "reader": _FORMAT,
            "kind": self._kind,
            "seed": self._config.seed,
            "base_seed": self.base_seed,
            "fit": self._fit(sampler, batch_sampler),
        }

    def before(
        self,
        number: int,
        of_epoch: int | None,
        sampler: Any,
        batch_sampler: Any,
        draw_first: Callable[[], None],
    ) -> dict[str, Any] | None:
        """Return the state before a step of an epoch; see `Engine.state_before`."""
        for progress in (self._progress, self._former) if self.pending is None else ():
            if progress is None or of_epoch not in (None, progress.epoch):
                continue
            if progress is self._progress and not progress.is_known:
                draw_first()
            with progress.lock:
                progress.count()
                batches, mark = progress.begin_of(number)
            at = Reached(number, batches, mark, [], None, 0)
            head = self._head(sampler, batch_sampler)
            return {**head, **self._open_state(progress, at, head["fit"])}
        return None

    def step_size(self, batch_sampler: Any) -> int | None:
        """Return how many batches each step has; None: the batch sampler decides it each time."""
        if isinstance(batch_sampler, StepBatches):
            return batch_sampler.step_size
        return self._config.step_size

    def _chosen(
        self, trained: int, of_epoch: int | None, epoch: int, batch_sampler: Any
    ) -> Progress | None:
        """Return the progress whose steps `trained` counts; None: of an epoch without any.

        Raises:
            ConfigError: this epoch, or so many steps of one that was not begun, are not known.
        """
        progress, state = self._progress, self.pending
        if state is None and progress is not None and of_epoch in (None, progress.epoch):
            return progress
        former = self._former if state is None else None
        if former is not None and former.epoch == of_epoch and former.is_known:
            return former
        had = 0
        if state is not None:
            epoch, steps = state["epoch"], self._steps(state)
            size = self.step_size(batch_sampler) or 1
            had = self._position(state).batches // size if steps is None else steps
        if of_epoch not in (None, epoch):
            raise ConfigError(
                f"epoch={of_epoch} is not known: this loader knows the positions of the two epochs"
                f" that it began last. It is before epoch {epoch}. Ask for the state of an epoch"
                " before the second one after it begins"
            )
        check_begun(trained, had, epoch)
        return None

    def _state_behind(
        self, progress: Progress, steps: int | None, sampler: Any, batch_sampler: Any
    ) -> dict[str, Any]:
        """Return the state within an epoch that is begun; None: behind the last step."""
        head = self._head(sampler, batch_sampler)
        with progress.lock:  # another thread may iterate meanwhile
            progress.count()
            at = progress.reached() if steps is None else progress.behind(steps)
            return {**head, **self._open_state(progress, at, head["fit"])}

    def _open_state(self, progress: Progress, at: Reached, fit: dict[str, Any]) -> dict[str, Any]:
        """Return the entries for a position within an epoch that is begun; `fit`: of the head."""
        state: dict[str, Any] = {
            "epoch": progress.epoch,
            "epochs": dict(progress.epochs),
            "batches": at.batches,
            "samples": None,
            "turn": None,
            "beyond": [],
        }
        if progress.lengths:
            length = progress.lengths[-1]
            state["grown"] = list(progress.lengths)
            state["fit"] = {**fit, "length": length, "data": self._data_of_first(length)}
        if at.steps != progress.steps_of(at.batches + len(at.beyond)):
            state["steps"] = at.steps
        if progress.origin is not None:
            state.update(turn=progress.turn_at(at.batches, self._num_workers), beyond=at.beyond)
            state["samples"] = progress.origin.samples(at.batches)
            state["order"] = progress.origin.state(at.batches, at.mark)
        if progress.failures is not None:
            state["failed"] = at.failed
        return {**state, **(_NO_WORKERS if at.cursors is None else at.cursors.to_json())}

    @property
    def _kind(self) -> str:
        return "iterable" if self._config.is_iterable else "map"

    def _fit(self, sampler: Any, batch_sampler: Any) -> dict[str, Any]:
        config = self._config
        own = config.batch_sampler is not None
        batching = batching_of(batch_sampler) if own else None
        source = sampler if batching is None else batching.sampler
        length = _length(config.dataset) if self._kind == "map" else None
        if self._data is None or self._data[0] != length:
            self._data = length, fingerprint_of(config.dataset)
        return {
            "data": plain_copy(self._data[1]),
            "length": length,
            "batch_size": None if own else config.batch_size,
            "batch_sampler": type(batch_sampler).__qualname__ if own else None,
            "sampler": None if source is None else type(source).__qualname__,
        }

    def _next_cursors(self) -> WorkerCursors | None:
        """Return the cursors with which the workers begin the next epoch."""
        config = self._config
        if not self.sends_snapshots and not config.is_iterable:
            return None
        size = config.samples_per_batch
        last = None if self.progress is None else self.progress.worker_cursors
        stays = config.persistent_workers or not config.has_workers
        if last is None or not stays:
            return self._new_cursors(size)
        return last.next_epoch(has_state(config.dataset))

    def _new_cursors(self, size: int) -> WorkerCursors:
        return WorkerCursors(self._num_workers, size)

    def _cursors_between(self) -> WorkerCursors | None:
        """As `_next_cursors`, with the current state of a dataset that runs in the trainer."""
        cursors = self._next_cursors()
        is_at_hand = not self._config.has_workers and has_state(self._config.dataset)
        if cursors is not None and is_at_hand and self.sends_snapshots:
            with suppress(AttributeError):  # some have no state before `__iter__`
                cursors.take([WorkerCursor({"dataset": state_of(self._config.dataset)})])
        return cursors

    # -- beginning -------------------------------------------------------------------------------

    def start(self) -> ResumePoint:
        """Return where the next iterator begins."""
        state = self.pending
        if state is None:
            return ResumePoint(self.base_seed, worker_cursors=self._next_cursors())
        order = state["order"] if self._kind == "map" else None
        return ResumePoint(
            self.base_seed,
            self._position(state),
            copy.deepcopy(order),
            self._saved_cursors(state),
            state["turn"],
            tuple(state["beyond"]),
            is_resumed=True,
            failed=state.get("failed", 0),
            steps=self._steps(state),
            lengths=tuple(state.get("grown", ())),
        )

    def follow(self, prefetched: Progress) -> None:
        """Replace the worker cursors of the prefetched epoch.

        The last batch of the epoch before was counted only after the prefetched epoch began. Call
        it before anything of the prefetched epoch is handed over.
        """
        if prefetched.worker_cursors is not None:
            prefetched.begin_with(self._next_cursors())

    def choose(self, epoch: int) -> None:
        """Drop a loaded state of another epoch than the one that the user chose."""
        if self.pending is not None and self.pending["epoch"] != epoch:
            self.pending = None

    def begun(self, progress: Progress) -> None:
        """Note the iterator that the user got."""
        self._former, self._progress = self._progress, progress
        self._resumed = self.pending
        self.pending = None

    def _position(self, state: dict[str, Any]) -> Position:
        if self._kind == "iterable":
            return Position(state["batches"], None)
        samples = state["samples"]
        if samples is None or self._is_of_size(state):
            return Position(state["batches"], samples)
        return Position(samples // self._config.samples_per_batch, samples)

    def _is_of_size(self, state: dict[str, Any]) -> bool:
        """Whether the batches of a state have the size of those of this loader."""
        return bool((state["fit"]["batch_size"] or 1) == self._config.samples_per_batch)

    def _steps(self, state: dict[str, Any]) -> int | None:
        """Return how many steps come before a state; None: as many as its batches make."""
        early = len(state["beyond"])
        steps = state["batches"] + early if early else None
        return state.get("steps", steps) if self._is_of_size(state) else None

    # -- loading ---------------------------------------------------------------------------------

    def load(self, state: Any, sampler: Any, batch_sampler: Any, grown: str | None = None) -> int:
        """Have the next iterator begin where `state` was saved; returns its epoch.

        Args:
            state: of a loader.
            sampler: the loader's.
            batch_sampler: the loader's.
            grown: what becomes of samples that came after it was saved; see `EngineFace`.

        Raises:
            StateError: the state is damaged, or of another kind of loader. Nothing has changed
                then.
        """
        config = self._config
        lengths = self._check(state, sampler, batch_sampler, grown)
        carriers = {"dataset": config.dataset, "batch_sampler": batch_sampler, "sampler": sampler}
        try:
            found = find_carriers(state["epochs"], **carriers)
        except KeyError as error:
            raise StateError(
                f"the state has an epoch for {error}, and this loader has no {error} with a"
                f" set_epoch method. {REMEDY}"
            ) from None
        self._saved_cursors(state)  # refuses what it cannot read
        try:
            taken = copy.deepcopy(state)
        except Exception as error:
            if is_interrupt(error):
                raise
            raise StateError(f"the state cannot be copied: {error!r}. {REMEDY}") from error
        for each, epoch in zip(found, taken["epochs"].values(), strict=True):
            each.set_epoch(epoch)
        if lengths:
            if taken["samples"] is not None:  # the last of the old batches may have been short
                taken["samples"] = min(taken["samples"], taken["fit"]["length"])
            taken.update(grown=lengths)
            taken["fit"].update(length=lengths[-1], data=self._data_of_first(lengths[-1]))
        self.base_seed = taken["base_seed"]
        self.pending = taken
        self._progress = self._former = None
        return int(taken["epoch"])

    def _check(self, state: Any, sampler: Any, batch_sampler: Any, grown: str | None) -> list[int]:
        """Check a state; return the lengths of a dataset that has grown in its epoch, or none."""
        if not isinstance(state, dict) or "reader" not in state:
            raise StateError(f"this is no state of a reader.DataLoader: {got(state)}. {REMEDY}")
        check_plain(state)
        if state["reader"] != _FORMAT or type(state["reader"]) is not int:
            raise StateError(
                f"the state has format {got(state['reader'])}, and this version of reader reads"
                f" format {_FORMAT}. Load it with the version that saved it"
            )
        for name, wanted, is_right in _CHECKS:
            if name not in state or not is_right(state[name]):
                value = got(state[name]) if name in state else "nothing"
                raise StateError(f"{name} in the state must be {wanted}, got {value}. {REMEDY}")
        for name, own in (("kind", self._kind), ("seed", self._config.seed)):
            if state[name] != own:
                raise _unlike(name, state[name], own)
        for name in ("failed", "steps"):
            if not _is_count(state.get(name, 0)):
                raise StateError(
                    f"{name} in the state must be a count, got {got(state[name])}. {REMEDY}"
                )
        if state.get("spare") is not None:
            raise StateError(
                "this state cannot be resumed: it was saved with on_error='skip' by a version that"
                " filled short batches up from the next one, and spare in it names the rows that"
                " were left. Load it with that version and save again at the end of the epoch, or"
                " begin the epoch anew"
            )
        self._check_beyond(state)
        fit = self._fit(sampler, batch_sampler)
        lengths = self._grown_lengths(state, fit["length"], grown)
        self._check_fit(state, fit, has_grown=bool(lengths))
        if self._kind == "map":
            every = self._config.snapshot_every
            if lengths:
                sampler, batch_sampler = grown_samplers(sampler, batch_sampler, lengths)
            batches = batches_of(sampler, batch_sampler)
            check_order_state(batches, state.get("order"), every, state["batches"] > 0)
        return lengths

    def _grown_lengths(self, state: dict[str, Any], own: Any, grown: str | None) -> list[int]:
        """Return the lengths of the dataset in the epoch of a state; none: it has not grown.

        Raises:
            StateError: it has grown, and what becomes of the new samples is not said.
        """
        was = state["fit"].get("length")
        lengths: list[int] = state.get("grown", [])
        is_right = isinstance(lengths, list) and all(map(_is_count, lengths))
        if is_right and lengths:
            is_right = lengths == sorted(set(lengths)) and lengths[-1] == was
        if not is_right:
            raise StateError(
                "grown in the state must be the lengths of the dataset in the epoch, in ascending"
                f" order and up to fit's, got {got(lengths)}. {REMEDY}"
            )
        if lengths and was > own:
            raise _unlike("length", was, own)
        if state["batches"] == 0 or not _is_count(was) or type(own) is not int or was >= own:
            return lengths
        data = state["fit"].get("data")
        if data is not None and data != self._data_of_first(was):
            return lengths  # these are other data: see `_check_data`
        if grown is None:
            raise StateError(
                f"this state cannot be resumed: length was {was} when it was saved, and this loader"
                f" has {own}: the data have grown. Say when the new samples join:"
                " load_state_dict(state, grown='next_epoch'), or grown='now', after those that are"
                " left of this epoch"
            )
        return [*(lengths or [was]), *([own] if grown == "now" else [])]

    def _data_of_first(self, samples: int) -> dict[str, Any]:
        """Return what the dataset would be with its first samples alone."""
        return fingerprint_of(self._config.dataset, samples)

    def _check_beyond(self, state: dict[str, Any]) -> None:
        """Refuse early batches in the state of a loader that delivers none early."""
        beyond = state["beyond"]
        before = [state["batches"], *beyond]
        if beyond and (
            self._kind != "map" or any(one >= other for one, other in itertools.pairwise(before))
        ):
            raise StateError(
                "beyond in the state must be the numbers of batches that were delivered early, each"
                f" above {state['batches']} and in ascending order, got {got(beyond)}. {REMEDY}"
            )
        if beyond and self._config.in_order:
            raise StateError(
                f"this state cannot be resumed: it was saved with in_order=False, when batches"
                f" {shown(beyond)} were delivered before batch {state['batches']}, and this loader"
                " has in_order=True. Pass in_order=False"
            )

    def _check_fit(self, state: dict[str, Any], own: dict[str, Any], has_grown: bool) -> None:
        known = state["fit"].get("data")  # states of earlier versions lack it
        same = self._data_of_first(state["fit"]["length"]) if has_grown else own["data"]
        # a new epoch sees the current dataset, and of its length alone more is said below
        if state["batches"] and _are_others(known, same):
            raise self._unlike_data(known, own["data"])
        for name, value in own.items():
            if name == "data":
                continue
            if name not in state["fit"]:
                raise StateError(f"fit in the state lacks {name}. {REMEDY}")
            was = state["fit"][name]
            if was == value and type(was) is type(value):
                continue
            if name == "length" and (state["batches"] == 0 or has_grown):
                continue  # a new epoch sees the current dataset and samplers
            if name == "batch_size" and self._can_resize(was, state):
                continue
            raise _unlike(name, was, value)

    @staticmethod
    def _unlike_data(was: Any, own: dict[str, Any]) -> StateError:
        return StateError(
            "this state cannot be resumed: the data are not those that it was saved with:"
            f" {told_differences(was, own)}. Load it into a loader with the former data, or"
            " begin the epoch anew by set_epoch, without the state. If they give the same samples"
            " in the same order, delete data from fit in the state"
        )

    def _can_resize(self, was: Any, state: dict[str, Any]) -> bool:
        """Whether the batch size may differ: the position is known in samples."""
        is_size = was is None or (type(was) is int and was >= 1)
        is_known = state["samples"] is not None and not state["beyond"]
        return is_size and (self._kind == "iterable" or is_known)

    def _saved_cursors(self, state: dict[str, Any]) -> WorkerCursors | None:
        saved = state["workers"]
        if saved is None:
            if self._kind == "iterable":
                raise StateError(f"workers in the state must be a list, got None. {REMEDY}")
            return self._next_cursors()
        cursors = WorkerCursors(self._num_workers, self._config.samples_per_batch)
        found = [WorkerCursor.from_json(each) for each in saved]
        last = state["last_worker"]
        if type(last) is not int or not 0 <= last < len(found):
            raise StateError(
                f"last_worker in the state must be a worker's number, got {got(last)}. {REMEDY}"
            )
        if len(found) == self._num_workers:
            cursors.take(found, last)
            cursors.count_before(state["batches"])
        elif any(each.made or each.state.keys() - {"iterator"} for each in found):
            size = self._config.samples_per_batch
            count, batches = self._num_workers, state["batches"]
            return WorkerCursors.divided_anew(found, last, count, size, batches)
        return cursors


def _unlike(name: str, was: Any, own: Any) -> StateError:
    return StateError(
        f"this state cannot be resumed: {name} was {was!r} when it was saved, and this loader has"
        f" {own!r}. {REMEDY}"
    )


def check_begun(trained: Any, had: Any, epoch: int) -> None:
    """Check `trained` in an epoch that this loader has handed out no batch of.

    Args:
        trained: of `state_dict`.
        had: how many steps an earlier run had.
        epoch: its number.

    Raises:
        ConfigError: it is another number.
    """
    if trained not in (None, had):
        raise ConfigError(
            f"trained={shown(trained)} is not known: this loader has handed out no batch of epoch"
            f" {epoch} yet, which begins behind batch {had}. Pass trained={had}"
        )


def batches_of(sampler: Any, batch_sampler: Any) -> Any:
    """Return the iterable of lists of keys: the batch sampler, or a NoBatching."""
    return NoBatching(sampler) if batch_sampler is None else batch_sampler


def _are_others(known: Any, data: dict[str, Any]) -> bool:
    """Whether two fingerprints differ in more than how many samples there are."""
    if not isinstance(known, dict):
        return known is not None
    return not are_alike({**known, "samples": None}, {**data, "samples": None})


def _length(dataset: Any) -> int | None:
    return len(dataset) if hasattr(type(dataset), "__len__") else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= sys.maxsize


def _is_position(value: Any) -> bool:
    return _is_count(value) and value <= _MAX_POSITION


def _is_seed(value: Any) -> bool:
    return type(value) is int and 0 <= value < SEED_LIMIT


_CHECKS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("kind", "a kind of dataset", lambda each: type(each) is str),
    ("epoch", "the number of an epoch", _is_count),
    ("batches", "a count", _is_position),
    ("samples", "a count or None", lambda each: each is None or _is_position(each)),
    ("seed", "a seed or None", lambda each: each is None or _is_seed(each)),
    ("base_seed", "a seed", _is_seed),
    ("turn", "a worker's number or None", lambda each: each is None or _is_count(each)),
    ("last_worker", "a worker's number or None", lambda each: each is None or _is_count(each)),
    (
        "beyond",
        "a list of counts",
        lambda each: isinstance(each, list) and all(map(_is_position, each)),
    ),
    ("fit", "a dict", lambda each: isinstance(each, dict)),
    ("workers", "a list or None", lambda each: each is None or isinstance(each, list)),
    (
        "epochs",
        "a dict of epochs",
        lambda each: (
            isinstance(each, dict)
            and all(type(key) is str and _is_count(value) for key, value in each.items())
        ),
    ),
)
