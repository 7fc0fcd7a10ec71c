"""A sampler of a Mix whose weights change while a training reads it: `MixSampler`.

Imports the samplers, the mix and its weights. It runs in the trainer. Its changes belong to it;
the order of an epoch refers to the list, so that saved states have all that were made.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reader.checks import as_int
from reader.data.distributed_env import world_and_rank
from reader.data.distributed_sampler import DistributedSampler
from reader.errors import ConfigError, ConfigTypeError, StateError, got
from reader.files import open_regular
from reader.streams.mix_schedule import MixPlan, ScheduleEntry
from reader.streams.mix_weights import changed_entries, is_schedule
from reader.streams.mixed_dataset import Mix

__all__ = ["MixSampler"]


class MixSampler(DistributedSampler):
    """Yield the samples of a mix in its order, by weights that may change while it is read.

    It runs in the trainer, and yields for each sample its source and how many that source gave
    before. So workers need no weights: a change holds for all that is drawn after it, with any
    number of workers. Each source continues at a change: no sample is lost, and none comes twice.

    Samples are counted from the beginning of the first epoch: sample k of epoch e has the number
    ``e * len(mix) + k``. A change holds until the next one, in later epochs too. All ranks must
    make the same changes. They are part of `loader.state_dict()`, and a loader that resumes repeats
    them; no rank then needs to make them again.

    Loaders draw ahead of the training: a change must begin at a sample that is not drawn yet.
    `position` is the first of these. Batches in flight, times the batch size and the number of
    ranks, is how far it may be ahead of what the loop got.

    Args:
        mix: a `Mix` with ``stop="never"`` or ``stop="all"``, or "repeat" or "hand_on" by source:
            these have the same number of samples by any weights.
        num_replicas: how many processes take part. None: as the training's library or launcher
            says, or 1.
        rank: the number of this process, below `num_replicas`. None: likewise.
        changes: the path of a JSON file of changes: a list of [sample, weights] or
            [sample, weights, "linear"], weights in a list or by name. Samples rise, and need not
            begin at 0. Ranks read it again at each `every` samples of the mix, before they draw the
            first from there on. An entry must stand in the file before a rank draws its sample, and
            stay there. Write another file, and rename it: of half a file a rank warns, and reads it
            at the next time.
        every: how many samples lie between two reads of the file, the same in all ranks.
        drop_last: leave out the samples over at the end, rather than take a few samples twice.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid. While it is iterated over: the file
            cannot be read, or has an entry of which samples were drawn before.

    >>> from reader import DataLoader, Mix
    >>> mix = Mix({"web": range(9), "code": range(100, 109)}, stop="never", length=12)
    >>> sampler = MixSampler(mix)
    >>> sampler.change_weights({"web": 3, "code": 1}, at=4)
    >>> [batch.tolist() for batch in DataLoader(mix, batch_size=4, sampler=sampler)]
    [[0, 100, 1, 101], [2, 3, 102, 4], [5, 6, 103, 7]]
    """

    def __init__(
        self,
        mix: Mix,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        changes: str | os.PathLike[str] | None = None,
        every: int = 10_000,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(mix, Mix):
            raise ConfigTypeError(f"MixSampler takes a reader.Mix, got {got(mix)}")
        stops = [mix.stop] if isinstance(mix.stop, str) else mix.stop.values()
        if not {"first", "last", "stop"}.isdisjoint(stops):
            raise ConfigError(
                f"a mix with stop={mix.stop!r} has as many samples as its weights say, and"
                " MixSampler changes these. Pass stop='never' with a length, or stop='all', or by"
                " source 'repeat' or 'hand_on'"
            )
        ranks, rank = world_and_rank(
            num_replicas, rank, ("num_replicas", "rank"), may_be_alone=True
        )
        super().__init__(mix, ranks, rank, shuffle=False, drop_last=drop_last)
        self._mix = mix
        self.every = as_int("every", every, low=1, remedy="It is a number of samples.")
        self._path = None if changes is None else _as_file(changes, mix)
        # entries, as lists; it changes in place: the orders of epochs refer to it
        self.changes: list[list[Any]] = []
        self._plan: tuple[int, MixPlan] | None = None  # the newest one, and its epoch
        self._front = 0  # the first sample that no iteration has drawn
        self._next_read = 0
        self._iterations = 0
        self._lock = threading.Lock()  # the loop's thread changes what another one may draw from
        self._read_changes()

    # -- changes ---------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The first sample that this rank has not drawn, from the beginning of the first epoch."""
        return self._front

    def change_weights(self, weights: Any, at: int | None = None) -> None:
        """Change the weights from a sample on. Earlier changes from there on no longer hold.

        Call it in the thread that iterates, or any other.

        Args:
            weights: as those of `Mix`. Or a schedule, whose samples count from the beginning of the
                first epoch: the first is where it begins.
            at: the sample from which on they hold, `position` or beyond; None with a schedule.

        Raises:
            ConfigError, ConfigTypeError: it is drawn already, or the arguments are invalid. Nothing
                has changed then.
        """
        if is_schedule(weights) != (at is None):
            raise ConfigError(
                f"change_weights takes weights with at=, or a schedule without it, got at={at!r}:"
                " the sample of the mix from which on the weights hold"
            )
        schedule = weights if at is None else [(at, weights)]
        entries = changed_entries(schedule, self._mix.names, self._mix.means)
        with self._lock:
            self._change(entries, self._front)

    def _change(self, entries: list[ScheduleEntry], front: int) -> None:
        """Replace what holds from the first of some entries on."""
        start = entries[0].start
        if start < front:
            raise ConfigError(
                f"weights cannot change at sample {start:,}: this rank has drawn the samples before"
                f" {front:,}, which workers make already. Change them at a later sample, the same"
                " one in all ranks"
            )
        kept = [each for each in self.changes if each[0] < start]
        self._set([*kept, *map(_listed, entries)])

    def _set(self, changes: list[list[Any]]) -> None:
        before = list(self.changes)
        self.changes[:] = changes
        self._plan = None
        now = self._epoch if self._begun is None else self._begun[1]
        try:
            for epoch in (now + 1, now):  # the weights hold in later epochs, too
                self.plan(epoch)
        except ConfigError:
            self.changes[:] = before
            raise

    def plan(self, epoch: int) -> MixPlan:
        """Return the plan of an epoch by the changes so far."""
        if self._plan is None or self._plan[0] != epoch:
            count = len(self._mix)
            shifted = [ScheduleEntry(*each) for each in self.changes]
            shifted = [each._replace(start=each.start - epoch * count) for each in shifted]
            begun = [each for each in shifted if each.start <= 0][-1:]
            later = [each for each in shifted if each.start > 0]
            first = later[0].start if later else count
            own = begun or [each for each in self._mix.entries if each.start < first]
            self._plan = epoch, self._mix.plan_of([*own, *later])
        return self._plan[1]

    def given(self, epoch: int, count: int) -> dict[str | int, dict[str, Any]]:
        """Return what each source gives in the first `count` samples of an epoch; see `Mix`."""
        with self._lock:
            plan = self.plan(epoch)
        return self._mix.given_by(count, epoch, plan)

    # -- the file --------------------------------------------------------------------------------

    def _read_changes(self) -> None:
        """Take the entries of the file from the first sample on that is not drawn."""
        if self._path is None:
            return
        front = self._front
        try:
            entries = [*map(_listed, _read(self._path, self._mix))]
        except ConfigError:
            raise
        except (OSError, ValueError) as error:
            warnings.warn(
                f"'{self._path}' cannot be read as JSON: {error}. The weights stay until it is read"
                f" again at sample {front + self.every:,}. Write another file, and rename it",
                stacklevel=2,
            )
            return
        begun = [each for each in self.changes if each[0] < front]
        if begun != entries[: len(begun)] or (
            len(entries) > len(begun) and entries[len(begun)][0] < front
        ):
            raise ConfigError(
                f"'{self._path}' has other weights for samples before {front:,} than those by which"
                " this rank has drawn them. Keep the entries of samples that are drawn, and add one"
                f" {self.every:,} samples or more before its own: ranks read the file that often"
            )
        if entries != self.changes:
            self._set(entries)

    # -- iterating -------------------------------------------------------------------------------

    def _open_at(self, position: int) -> Iterator[Any]:
        consumed = self._consumed
        places = super()._open_at(position)
        epoch = 0 if self._begun is None else self._begun[1]
        with self._lock:
            self._iterations += 1
            self._front = epoch * len(self._mix) + consumed + position * self.num_replicas
            self._next_read = -(-self._front // self.every) * self.every
            return self._keys(places, epoch, self._iterations)

    def _keys(self, places: Iterator[int], epoch: int, iteration: int) -> Iterator[tuple[int, int]]:
        begin = epoch * len(self._mix)
        for place in places:
            with self._lock:
                if iteration == self._iterations:
                    if begin + place >= self._next_read:
                        self._read_changes()
                        self._next_read = ((begin + place) // self.every + 1) * self.every
                    self._front = max(self._front, begin + place + 1)
                key = self.plan(epoch).at(place)
            yield key

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the last begun iteration, and the changes."""
        return {**super().state_dict(), "changes": [list(each) for each in self.changes]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration, and it alone, be the one of a state; take its changes.

        Changes that were made before the first iteration are kept: of samples that the state has
        not reached.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        changes = self.check_changes(state.get("changes") if isinstance(state, dict) else None)
        super().load_state_dict(state)
        self.load_changes(changes, state["epoch"] * len(self._mix) + self._consumed)

    def check_changes(self, changes: Any) -> list[list[Any]]:
        """Return the changes of a state. StateError: they are not those of such a mix."""
        size = len(self._mix.means)
        is_right = isinstance(changes, list) and all(_is_change(each, size) for each in changes)
        if not is_right or any(one[0] >= other[0] for one, other in itertools.pairwise(changes)):
            raise StateError(
                f"changes in the state must be those of a mix of {size} sources, got"
                f" {got(changes)}. Load a state that was saved with the same mix"
            )
        return [list(each) for each in changes]

    def load_changes(self, changes: list[list[Any]], taken: int | None = None) -> None:
        """Take the changes of a state that was saved after `taken` samples; see load_state_dict.

        None: it was saved at the beginning of the epoch that comes next.
        """
        taken = self._epoch * len(self._mix) if taken is None else taken
        with self._lock:
            own = [each for each in self.changes if each not in changes]
            if own and self._iterations:
                warnings.warn(
                    f"the change of weights at sample {own[0][0]:,} is not in the state that was"
                    " loaded, and no longer holds: change_weights again, once the loop has begun",
                    stacklevel=2,
                )
                own = []
            self._front = taken
            self._set(changes)
            if own and self._path is None:
                self._change([ScheduleEntry(*each) for each in own], taken)

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def _is_change(change: Any, size: int) -> bool:
    """Whether a value of a state is an entry for so many sources, as JSON has it."""
    if not isinstance(change, list) or len(change) != len(ScheduleEntry._fields):
        return False
    start, counts, then, samples = change
    return (
        type(start) is type(samples) is int
        and start >= 0 < samples
        and all(
            isinstance(each, list)
            and len(each) == size
            and all(type(count) is int and count >= 0 for count in each)
            and any(each)
            for each in (counts, then)
        )
    )


def _listed(entry: ScheduleEntry) -> list[Any]:
    """Return an entry as JSON has it."""
    return [entry.start, entry.counts, entry.then, entry.samples]


def _as_file(path: Any, mix: Mix) -> Path:
    """Return the path of a file of changes. ConfigError: it cannot be read."""
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigTypeError(f"changes must be the path of a JSON file, got {got(path)}")
    found = Path(path).expanduser().absolute()  # the program may change its folder
    try:
        _read(found, mix)
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"changes={str(path)!r} cannot be read as JSON: {error}. Make the file before the"
            " training begins: [] has no changes"
        ) from error
    return found


def _read(path: Path, mix: Mix) -> list[ScheduleEntry]:
    """Return the entries of a file.

    Raises:
        OSError, ValueError: it cannot be read as JSON.
        ConfigError, ConfigTypeError: it has no changes of such a mix.
    """
    with open(path, encoding="utf-8", opener=open_regular) as file:
        entries = json.load(file)
    if not isinstance(entries, list):
        raise ConfigTypeError(
            f"'{path}' must have a list of [sample, weights], got {got(entries)}. [] has no changes"
        )
    try:
        return changed_entries(entries, mix.names, mix.means)
    except ConfigError as error:
        raise type(error)(f"'{path}': {error}") from error
