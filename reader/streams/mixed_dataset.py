"""Map-style datasets mixed in exact shares: `Mix` and its arguments.

Imports NumPy, the datasets, the orders, the schedule and the worker's context. A Mix holds the
datasets in `datasets` and copies no sample. Streams are mixed by `reader.streams.mix`.
"""

from __future__ import annotations

import bisect
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from reader.checks import as_int, described
from reader.config import SEED_LIMIT
from reader.data.dataset import Dataset
from reader.data.datasets import as_datasets, map_style
from reader.data.weighted_sampler import checked_weights, place_of
from reader.data.windowed_order import WindowedOrder, as_window, sharded, starts_of
from reader.data.wrapped import fetch_many, if_any_has, set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError, got
from reader.random.permutation import Order, Permutation
from reader.random.seeds import order_key
from reader.streams.mix_schedule import start_of, stretches_of
from reader.worker.context import Repetition

__all__ = [
    "Mix",
    "MixOrigin",
    "as_stop",
    "cycle_counts",
    "is_schedule",
    "listed",
    "named_datasets",
]

_STOPS = {
    "first": "ends with the first source that ends",
    "last": "with the last one, while others begin anew",
    "all": "takes each sample once",
    "never": "has `length` samples, and each source that ends begins anew",
}
_LONGEST = 1 << 16  # samples in a cycle
_MOST = 1 << 18  # samples in the cycles of all stretches
_MOST_STRETCHES = 1 << 10
_EXACT = 1e-9  # how far from a whole number of samples a share of a cycle may be


class MixOrigin(NamedTuple):
    """Where a sample of a mix comes from.

    Attributes:
        source: the name of its dataset, or its number where datasets have no names.
        position: among the samples of that dataset, from 0.
        origin: what the dataset's own `origin` returns for it; None: it has no such method.
    """

    source: str | int
    position: int
    origin: Any


class Mix(Dataset[Any]):
    """Hold the samples of several map-style datasets in exact shares.

    The order of sources is fixed, not random: after any n samples, the count of each source differs
    from its share of n by less than one. It is the same in every epoch and every run. Without
    `seed` the samples of a source come in their order 0, 1, 2, ... A mix is map-style, for any
    sampler and any number of workers and ranks, and finds any sample at once.

    A sample that comes again in an epoch has other numbers of `sample_rng`, and so other random
    augmentation.

    Weights may change: ``weights=[(0, first), (1_000_000, then)]`` has the shares `then` from
    sample 1,000,000 of the mix on. Shares are exact within each stretch of such a schedule. Each
    source continues at the change: no sample is lost, and none comes twice. Read such a mix in its
    order: a sampler that shuffles it undoes the schedule.

    Args:
        datasets: map-style datasets; their lengths are read once, now. A dict names them: errors
            and `origin` then use the names.
        weights: a positive number for each, of any sum, in a list, or in a dict by the names of the
            datasets; None: equal shares. Or a schedule: a list of (sample, weights), whose samples
            rise from 0, of 1,024 stretches at most; a source may have the weight 0 in some of them.
            Shares are exact if all weights are multiples of one number, such as 0.7, 0.2 and 0.1,
            and sum to 65536 times it at most; others are rounded, by less than 1/65536. In a
            schedule of more than 4 stretches it is 2**18 by their number instead of 65536.
        stop: where the mix ends. "first": at the first source that has no sample left when one is
            due. "last": when that has happened to each source; until then a source that ended
            starts again, so that its samples repeat. "all": likewise, but a source that ended is
            left out, and the others share by their weights: each sample comes once. "never": after
            `length` samples; a source that ended starts again.
        length: how many samples a mix has that ends "never"; None for the others.
        seed: each source gives its samples in a random order, a new one each time it starts and for
            each epoch that `set_epoch` chooses. None: in their order.
        window: with a seed: sources that have shards, such as `reader.Shards`, give them in the
            order of `reader.ShardOrder`: a number of samples, bytes such as "1GB", or "all".
            Sources without shards keep their random order. None: all have that.

    Raises:
        ConfigError, ConfigTypeError: there are no sources, or a source is a stream, or empty where
            `stop` is not "all"; an argument is invalid; no source has shards, and there is a
            window; the schedule has a source whose samples `stop` waits for, and that never come.

    >>> web, code = list("abcdef"), list("xyz")
    >>> mixed = Mix({"web": web, "code": code}, weights={"web": 2, "code": 1})
    >>> "".join(mixed[index] for index in range(len(mixed)))
    'axbcydezf'
    >>> mixed.origin(4)
    MixOrigin(source='code', position=1, origin=None)
    >>> changes = Mix([web, code], [(0, [1, 0]), (4, [1, 1])], stop="never", length=12)
    >>> "".join(changes[index] for index in range(len(changes)))
    'abcdexfyazbx'
    """

    __repr__ = described

    def __init__(
        self,
        datasets: Iterable[Any] | Mapping[str, Any],
        weights: Any = None,
        *,
        stop: Literal["first", "last", "all", "never"] = "first",
        length: int | None = None,
        seed: int | None = None,
        window: int | str | None = None,
    ) -> None:
        self.names, found = named_datasets("Mix", datasets)
        remedy = "Mix streams by reader.mix"
        self.datasets = map_style("Mix", found, remedy, self.names)
        self.stop = as_stop(stop, tuple(_STOPS))
        if seed is not None:
            remedy = "None takes the samples of each source in their order."
            seed = as_int("seed", seed, low=0, high=SEED_LIMIT - 1, remedy=remedy)
        self._seed = seed
        self._epoch = 0
        self._lengths = [len(dataset) for dataset in self.datasets]
        if self.stop != "all" and 0 in self._lengths:
            raise ConfigError(
                f"mix got an empty source {place_of(self.names, self._lengths.index(0))}, which has"
                " no sample to give at its turn. Leave it out."
            )
        plan = _planned(len(self.datasets), weights, self.names)
        limit = _as_limit(self.stop, length)
        self._stretches, self._length = stretches_of(
            plan, self._lengths, self.stop, limit, self.names
        )
        self._windows = self._checked_windows(window)
        self._newest = [_NO_ORDER] * len(self.datasets)

    def _checked_windows(self, window: Any) -> list[int | None]:
        """Return how many samples a group has, by source; None: all of the source's."""
        if window is None:
            return [None] * len(self.datasets)
        if self._seed is None:
            raise ConfigError(
                f"window={window!r} is for random orders, and without a seed the samples of each"
                " source come in their order. Pass seed= too, or no window"
            )
        found = [sharded(dataset) for dataset in self.datasets]
        if all(each is None for each in found):
            raise ConfigError(
                f"window={window!r} orders sources that have shards, and none of these has `starts`"
                " as reader.Shards does. Leave it out: other sources come in a random order"
            )
        for each in found:
            if each is not None:
                starts_of(each)  # refuses those that do not fit
        return [None if each is None else as_window(window, each) for each in found]

    def __getitem__(self, index: int, /) -> Any:
        source, position, passes = self._locate(index)
        if passes:
            with Repetition(passes, self._lengths[source]):
                return self.datasets[source][position]
        return self.datasets[source][position]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if one of the datasets has the method."""
        return if_any_has("__getitems__", self.datasets, self._fetch)

    def _fetch(self, indices: Iterable[int]) -> list[Any]:
        wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by source and pass
        for row, index in enumerate(indices):
            source, position, passes = self._locate(index)
            wanted.setdefault((source, passes), []).append((row, position))
        samples: dict[int, Any] = {}
        for (source, passes), rows in wanted.items():
            with Repetition(passes, self._lengths[source]):
                found = fetch_many(self.datasets[source], [position for _, position in rows])
            samples |= {row: sample for (row, _), sample in zip(rows, found, strict=True)}
        return [samples[row] for row in range(len(samples))]

    def origin(self, index: int) -> MixOrigin:
        """Return where a sample comes from; a negative index counts from the end."""
        source, position, _ = self._locate(index)
        own = getattr(self.datasets[source], "origin", None)
        name = self.names[source] if self.names else source
        return MixOrigin(name, position, own(position) if callable(own) else None)

    def _locate(self, index: int) -> tuple[int, int, int]:
        """Return the source of sample `index`, the position in it, and how often it began anew."""
        count = self._length
        if not -count <= index < count:
            raise SampleIndexError(
                f"index out of range: got index {index} of a mix of {count} samples. Take one in"
                f" [{-count}, {count})."
            )
        if index < 0:
            index += count
        stretches, place = self._stretches, 0
        if len(stretches) > 1:
            place = bisect.bisect_right(stretches, index, key=start_of) - 1
        start, schedule, sources, given = stretches[place]
        number, before = schedule.at(index - start)
        source = sources[number]
        passes, position = 0, given[source] + before
        if position >= self._lengths[source]:
            passes, position = divmod(position, self._lengths[source])
        if self._seed is not None:
            newest = self._newest[source]
            if newest.passes != passes or newest.epoch != self._epoch:
                newest = self._ordered(self._seed, source, passes)
                self._newest[source] = newest  # threads may all do so, with equal values
            position = newest.order[position]
        return source, position, passes

    def _ordered(self, seed: int, source: int, passes: int) -> _Ordered:
        """Return the random order of a source when it has begun anew `passes` times."""
        epoch, window = self._epoch, self._windows[source]
        part = source + 1 << 32 | passes
        if window is None:
            return _Ordered(epoch, passes, _shuffled(self._lengths[source], seed, epoch, part))
        starts = starts_of(sharded(self.datasets[source]))
        own_seed = order_key(seed, epoch, part) % SEED_LIMIT
        return _Ordered(epoch, passes, WindowedOrder(starts, window, own_seed, epoch))

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, of the orders by `seed`; passed on to datasets that take it."""
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
        set_epoch_of(epoch, *self.datasets)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process gets: it makes its orders itself."""
        return {**self.__dict__, "_newest": [_NO_ORDER] * len(self.datasets)}


class _Ordered(NamedTuple):
    """The order of one pass of a source."""

    epoch: int
    passes: int  # how many times the source has begun anew
    order: Order


_NO_ORDER = _Ordered(-1, -1, ())  # type: ignore[arg-type]  # of no epoch


@functools.lru_cache(256)
def _shuffled(count: int, seed: int, epoch: int, part: int) -> Permutation:
    return Permutation(count, order_key(seed, epoch, part))


# ---- arguments ---------------------------------------------------------------------------------


def named_datasets(taker: str, datasets: Any) -> tuple[list[str], list[Any]]:
    """Return the names of datasets, if they have any, and the datasets: one or more."""
    names: list[str] = []
    if isinstance(datasets, Mapping):
        for name in datasets:
            if not isinstance(name, str):
                raise ConfigTypeError(
                    f"the keys of datasets are the names of sources, strings, got {got(name)}. Pass"
                    f" {{{str(name)!r}: dataset}}, or list(datasets.values()) for sources without"
                    " names"
                )
        names, datasets = list(datasets), list(datasets.values())
    return names, as_datasets(taker, datasets, names)


def as_stop(stop: Any, stops: Sequence[str]) -> str:
    """Return `stop` if it is one of `stops`. Else ConfigError."""
    if not isinstance(stop, str) or stop not in stops:
        raise ConfigError(
            f"stop must be one of {', '.join(map(repr, stops))}, got {got(stop)}. "
            + "; ".join(f"{name!r} {_STOPS[name]}" for name in stops)
            + ("" if "never" in stops else ". reader.Mix has 'never', too, for map-style datasets")
        )
    return stop


def _as_limit(stop: str, length: Any) -> int:
    """Return how many samples a mix may have; it has these if it ends "never"."""
    if stop != "never" and length is not None:
        raise ConfigError(
            f"length={length!r} is for stop='never', and stop={stop!r} ends where its sources do."
            " Pass stop='never', or take a part of the mix by reader.Subset(mix, range(length))"
        )
    if stop != "never":
        return sys.maxsize
    remedy = "A mix with stop='never' has that many samples."
    return as_int("length", length, low=1, remedy=remedy)


def is_schedule(weights: Any) -> bool:
    """Whether weights are a list of (sample, weights)."""
    return isinstance(weights, (list, tuple)) and any(
        isinstance(each, (list, tuple))
        and len(each) == 2
        and (each[1] is None or hasattr(each[1], "__len__"))
        for each in weights
    )


def _planned(sources: int, weights: Any, names: list[str]) -> list[tuple[int, list[int]]]:
    """Return the stretches of a schedule: where each begins, and the samples of its cycle.

    Weights that are no schedule have one stretch.
    """
    if not is_schedule(weights):
        return [(0, cycle_counts(sources, weights, names))]
    if len(weights) > _MOST_STRETCHES:
        raise ConfigError(
            f"a schedule of weights has up to {_MOST_STRETCHES:,} stretches, got {len(weights):,}."
            " Change the weights less often"
        )
    longest = min(_LONGEST, _MOST // len(weights))
    plan: list[tuple[int, list[int]]] = []
    for number, stretch in enumerate(weights):
        where = f"weights[{number}]"
        if not isinstance(stretch, (list, tuple)) or len(stretch) != 2:
            raise ConfigTypeError(
                f"{where} of a schedule must be (sample, weights), got {got(stretch)}. Pass the"
                " sample of the mix from which on these weights hold, and the weights"
            )
        remedy = "It is the sample of the mix from which on the weights hold."
        start = as_int(f"{where}[0]", stretch[0], low=0, remedy=remedy)
        if not plan and start:
            raise ConfigError(
                f"a schedule of weights begins at sample 0, got {start} for its first stretch. Pass"
                f" (0, weights) before it"
            )
        if plan and start <= plan[-1][0]:
            raise ConfigError(
                f"the stretches of a schedule of weights must come in order, got sample {start} in"
                f" {where} after {plan[-1][0]}. Sort them, each at a sample of its own"
            )
        try:
            counts = cycle_counts(sources, stretch[1], names, longest, are_positive=False)
        except ConfigError as error:
            raise type(error)(f"weights from sample {start:,} on: {error}") from error
        plan.append((start, counts))
    for source in range(sources):
        if not any(counts[source] for _, counts in plan):
            raise ConfigError(
                f"the weight {place_of(names, source)} is 0 in all of the schedule. Leave the"
                " source out, or give it a weight from some sample on"
            )
    return plan


def cycle_counts(
    sources: int,
    weights: Any,
    names: Sequence[str] = (),
    longest: int = _LONGEST,
    *,
    are_positive: bool = True,
) -> list[int]:
    """Return how many samples of a cycle each source gives.

    The cycle is the shortest with whole shares, or otherwise the closest one of up to `longest`
    samples.

    Args:
        sources: how many there are.
        weights: a number for each, in a list or by name; they need not sum to 1. None: equal ones.
        names: of the sources; empty: they have positions.
        longest: how many samples a cycle may have.
        are_positive: whether a weight of 0 is refused.

    Raises:
        ConfigError: the weights cannot be shares of the sources.

    >>> cycle_counts(3, [0.7, 0.2, 0.1])
    [7, 2, 1]
    """
    if weights is None:
        return [1] * sources
    if isinstance(weights, Mapping):
        weights = _by_name(weights, names)
    found = checked_weights(weights, are_positive, names)
    if found.shape != (sources,):
        raise ConfigError(
            f"mix got {len(found)} weights for {sources} sources. Pass one weight for each source,"
            " or None for equal shares."
        )
    if not found.any():
        raise ConfigError("mix got weights that are all 0. Give one source a weight, or more")
    has_share = found > 0
    found /= found.max()  # the sum of large ones may be inf; the smallest may become 0
    shares: np.ndarray[Any, Any] = found / found.sum()
    least = int(np.where(has_share, shares, np.inf).argmin())
    if shares[least] * longest < 1:
        raise ConfigError(
            f"the weight {place_of(names, least)} is {shares[least]:.3g} of the sum of weights, and"
            f" the smallest share that mix gives is 1/{longest}. Raise it, or join sources first."
        )
    return _rounded(shares, longest)


def _rounded(shares: np.ndarray[Any, Any], longest: int) -> list[int]:
    """Return the samples of a cycle whose shares are these, or the closest to these."""
    lengths = np.arange(1, longest + 1)
    worst, total = np.zeros(longest), np.zeros(longest)
    for share in shares:
        nearest = np.maximum(np.rint(lengths * share), share > 0)
        worst = np.maximum(worst, np.abs(lengths * share - nearest))
        total += nearest
    worst[total != lengths] = np.inf
    exact = np.flatnonzero(worst < _EXACT)
    place = int(exact[0]) if len(exact) else int(np.argmin(worst / lengths))
    counts = np.maximum(np.rint(lengths[place] * shares), shares > 0).astype(np.int64)
    return [int(count) for count in counts]


def _by_name(weights: Mapping[Any, Any], names: Sequence[str]) -> list[Any]:
    if not names:
        raise ConfigError(
            f"weights by name are for datasets by name, got the weights of"
            f" {listed(weights)} and a list of datasets. Pass both as dicts, or both as lists"
        )
    missing = [name for name in names if name not in weights]
    unknown = [name for name in weights if name not in names]
    for wrong, what in ((unknown, "weights of unknown sources"), (missing, "no weight of")):
        if wrong:
            raise ConfigError(
                f"mix got {what} {listed(wrong)}. The sources are {listed(names)}: pass a weight"
                " for each of them"
            )
    return [weights[name] for name in names]


def listed(names: Iterable[Any]) -> str:
    """Return names as a message has them."""
    return ", ".join(map(repr, names))
