"""Map-style datasets mixed in exact shares: `Mix`.

Imports NumPy, the datasets, the orders, the plan and the worker's context. A Mix holds the datasets
in `datasets` and copies no sample. Streams are mixed by `reader.streams.mix`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from reader.checks import as_int, described
from reader.config import SEED_LIMIT
from reader.data.dataset import Dataset
from reader.data.datasets import as_datasets, map_style
from reader.data.fingerprint import digest_of, fingerprint_of
from reader.data.weighted_sampler import place_of
from reader.data.windowed_order import WindowedOrder, as_window, sharded, starts_of
from reader.data.wrapped import fetch_many, if_any_has, set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError, got
from reader.random.permutation import Order, Permutation
from reader.random.seeds import order_key
from reader.streams.mix_schedule import MixPlan, ScheduleEntry, Stop
from reader.streams.mix_weights import Lengths, as_lengths, listed, mean_lengths, planned
from reader.streams.seeded_dataset import SeededDataset
from reader.worker.context import Repetition

__all__ = ["Mix", "MixOrigin", "as_stop", "named_datasets"]

_TOLD = 8  # stretches of weights that a state has in full
_STOPS = {
    "first": "ends with the first source that ends",
    "last": "with the last one, while others begin anew",
    "all": "takes each sample once",
    "never": "has `length` samples, and each source that ends begins anew",
}
_STOPS_OF_SOURCES = {
    "repeat": "begins the source anew",
    "hand_on": "leaves it out, and the others share by their weights",
    "stop": "ends the mix",
}
_UNITS = ("samples", "tokens")
_CHUNK = 1 << 16  # lengths that are summed at a time


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


class Mix(SeededDataset, Dataset[Any]):
    """Hold the samples of several map-style datasets in exact shares.

    The order of sources is fixed, not random: after any n samples, the count of each source differs
    from its share of n by less than one. It is the same in every epoch and every run. Without
    `seed` the samples of a source come in their order 0, 1, 2, ... A mix is map-style, for any
    sampler and any number of workers and ranks, and finds any sample at once.

    A sample that comes again in an epoch has other numbers of `sample_rng`, and so other random
    augmentation.

    Weights may change: ``weights=[(0, first), (1_000_000, then)]`` has the shares `then` from
    sample 1,000,000 of the mix on, and ``[(0, first, "linear"), (1_000_000, then)]`` goes linearly
    from one to the other. Shares are exact within each stretch of such a schedule. In a linear one
    the count of each of k sources differs from the integral of its share by ceil(log2(k)) / 2 at
    most: by half a sample of two sources, and by one of four. Each source continues at the change:
    no sample is lost, and none comes twice. Read such a mix in its order: a sampler that shuffles
    it undoes the schedule. `MixSampler` changes the weights of a training that runs.

    With ``unit="tokens"`` weights are shares of tokens: each source gives samples by its weight
    divided by the tokens of its samples, on average over one pass of it. Where all samples of a
    source have one length, its tokens after any n samples differ by less than one of its samples
    from its share of the tokens that n samples have on average; of two sources, by less than one
    sample of the longer length from its share of the tokens that were given. Where lengths vary,
    that holds at the ends of passes, and in between the tokens differ by what the lengths of the
    samples that came so far differ from the average of all: for a random order, by about a
    standard deviation of the lengths times the square root of their number. Between the ends of a
    linear stretch it is the shares of samples that are linear.

    Args:
        datasets: map-style datasets; their lengths are read once, now. A dict names them: errors
            and `origin` then use the names.
        weights: a positive number for each, of any sum, in a list, or in a dict by the names of the
            datasets; None: equal shares. Or a schedule: a list of (sample, weights), whose samples
            rise from 0, of 1,024 stretches at most; a source may have the weight 0 in some of them.
            An entry (sample, weights, "linear") goes linearly to the weights of the next one.
            Shares are exact if all weights are multiples of one number, such as 0.7, 0.2 and 0.1,
            and sum to 65536 times it at most; others are rounded, by less than 1/65536. In a
            schedule of more than 4 stretches it is 2**18 by their number instead of 65536.
        stop: where the mix ends. "first": at the first source that has no sample left when one is
            due. "last": when that has happened to each source; until then a source that ended
            starts again, so that its samples repeat. "all": likewise, but a source that ended is
            left out, and the others share by their weights: each sample comes once. "never": after
            `length` samples; a source that ended starts again. Or, for sources with names, what the
            end of each does: "repeat" starts it again, "hand_on" leaves it out, "stop" ends the
            mix: ``{"web": "hand_on", "code": "repeat"}``.
        length: how many samples a mix has that ends "never"; None for the others. With a `stop` by
            source the mix ends there at the latest; it is needed where a source repeats, and none
            stops the mix.
        seed: each source gives its samples in a random order, a new one each time it starts and for
            each epoch of the loader. None: in their order.
        window: with a seed: sources that have shards, such as `reader.Shards`, give them in the
            order of `reader.ShardOrder`: a number of samples, bytes such as "1GB", or "all".
            Sources without shards keep their random order. None: all have that.
        unit: what weights are shares of, "samples" or "tokens".
        lengths: with "tokens", of the samples of each source, by name or in a list: an array by
            sample, or one number for all of them. None, or a source without an entry: what it says
            itself by `lengths`, or by `length` if it is a dataset of this package, such as
            `TokenWindows`.

    Raises:
        ConfigError, ConfigTypeError: there are no sources, or a source is a stream, or empty where
            `stop` is not "all"; an argument is invalid; no source has shards, and there is a
            window; the schedule has a source whose samples `stop` waits for, and that never come;
            lengths are missing, are all 0, or are as many as another dataset has samples.

    >>> web, code = list("abcdef"), list("xyz")
    >>> mixed = Mix({"web": web, "code": code}, weights={"web": 2, "code": 1})
    >>> "".join(mixed[index] for index in range(len(mixed)))
    'axbcydezf'
    >>> mixed.origin(4)
    MixOrigin(source='code', position=1, origin=None)
    >>> changes = Mix([web, code], [(0, [1, 0]), (4, [1, 1])], stop="never", length=12)
    >>> "".join(changes[index] for index in range(len(changes)))
    'abcdexfyazbx'
    >>> tokens = Mix([web, code], unit="tokens", lengths=[512, 1024])
    >>> "".join(tokens[index] for index in range(len(tokens)))
    'axbcydezf'
    """

    __repr__ = described

    def __init__(
        self,
        datasets: Iterable[Any] | Mapping[str, Any],
        weights: Any = None,
        *,
        stop: Literal["first", "last", "all", "never"] | Mapping[str, str] = "first",
        length: int | None = None,
        seed: int | None = None,
        window: int | str | None = None,
        unit: Literal["samples", "tokens"] = "samples",
        lengths: Any = None,
    ) -> None:
        self.names, found = named_datasets("Mix", datasets)
        remedy = "Mix streams by reader.mix"
        self.datasets = map_style("Mix", found, remedy, self.names)
        self.stop: Stop = (
            _stop_by_name(stop, self.names)
            if isinstance(stop, Mapping)
            else as_stop(stop, tuple(_STOPS))
        )
        super().__init__(seed, "takes the samples of each source in their order")
        self._lengths = [len(dataset) for dataset in self.datasets]
        for number, count in enumerate(self._lengths):
            ends = self.stop if isinstance(self.stop, str) else self.stop[self.names[number]]
            if not count and ends not in ("all", "hand_on"):
                raise ConfigError(
                    f"mix got an empty source {place_of(self.names, number)}, which has no sample"
                    " to give at its turn. Leave it out."
                )
        self._limit = _as_limit(self.stop, length)
        self._tokens = self._checked_tokens(unit, lengths)
        self.means = mean_lengths(self._tokens or [1] * len(self.datasets))
        self.entries = planned(weights, self.names, self.means)
        self._plan = self.plan_of(self.entries)
        self._length = self._plan.length
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

    def _checked_tokens(self, unit: Any, lengths: Any) -> list[Lengths] | None:
        """Return the tokens of the samples of each source; None: shares are of samples."""
        if not isinstance(unit, str) or unit not in _UNITS:
            raise ConfigError(
                f"unit must be 'samples' or 'tokens', got {got(unit)}. It is what weights are"
                " shares of"
            )
        if unit == "tokens":
            return as_lengths(lengths, self.datasets, self.names)
        if lengths is not None:
            raise ConfigError(
                "lengths= are the tokens of samples, and with unit='samples' weights are shares of"
                " samples. Pass unit='tokens' too, or no lengths"
            )
        return None

    def plan_of(self, entries: list[ScheduleEntry]) -> MixPlan:
        """Return the plan with these entries. ConfigError: `stop` waits for what never comes."""
        return MixPlan(entries, self._lengths, self.stop, self._limit, self.names)

    def __getitem__(self, index: Any, /) -> Any:
        source, position, passes = self._locate(index)
        if passes:
            with Repetition(passes, self._lengths[source]):
                return self.datasets[source][position]
        return self.datasets[source][position]

    @property
    def __getitems__(self) -> Callable[[Sequence[Any]], list[Any]]:
        """Fetch many samples; exists only if one of the datasets has the method."""
        return if_any_has("__getitems__", self.datasets, self._fetch)

    def _fetch(self, indices: Iterable[Any]) -> list[Any]:
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

    def origin(self, index: Any) -> MixOrigin:
        """Return where a sample comes from; a negative index counts from the end."""
        source, position, _ = self._locate(index)
        own = getattr(self.datasets[source], "origin", None)
        name = self.names[source] if self.names else source
        return MixOrigin(name, position, own(position) if callable(own) else None)

    def given(self, count: int) -> dict[str | int, dict[str, Any]]:
        """Return what each source has given in the first samples of an epoch.

        It is computed from the count: nothing is fetched. With a seed and lengths that vary, the
        lengths of the samples of the current pass are summed.

        Args:
            count: how many samples of the mix.

        Returns:
            By the name of the source, or its number: its `samples`; its `tokens`, None with
            ``unit="samples"``; and `passes`: how often it has given all its samples, a fraction.

        >>> Mix({"web": range(4), "code": range(8)}, [3, 1], stop="last").given(8)["web"]
        {'samples': 6, 'tokens': None, 'passes': 1.5}
        """
        count = as_int("count", count, low=0, high=self._length, remedy="The mix has no more.")
        return self.given_by(count, self.epoch_now)

    def given_by(
        self, count: int, epoch: int, plan: MixPlan | None = None
    ) -> dict[str | int, dict[str, Any]]:
        """Return what `given` does in an epoch, by the mix's own plan or another one."""
        return {
            self.names[source] if self.names else source: {
                "samples": samples,
                "tokens": self._tokens_in(source, samples, epoch),
                "passes": samples / self._lengths[source] if samples else 0.0,
            }
            for source, samples in enumerate((self._plan if plan is None else plan).given(count))
        }

    def _tokens_in(self, source: int, samples: int, epoch: int) -> int | None:
        """Return the tokens of the first samples of a source; None: lengths are not known."""
        if self._tokens is None:
            return None
        lengths = self._tokens[source]
        if isinstance(lengths, int):
            return samples * lengths
        passes, rest = divmod(samples, len(lengths))
        total = passes and passes * int(lengths.sum(dtype=np.int64))
        if self._seed is None:
            return total + int(lengths[:rest].sum(dtype=np.int64))
        for start in range(0, rest, _CHUNK):
            stop = min(start + _CHUNK, rest)
            indices = self._order_of(source, passes, epoch).take(start, stop)
            total += int(lengths[indices].sum(dtype=np.int64))
        return total

    def _locate(self, index: Any) -> tuple[int, int, int]:
        """Return the source of sample `index`, the position in it, and how often it began anew.

        A tuple (source, count), as `MixSampler` yields, is the sample behind the first `count` of
        a source: it needs no plan.
        """
        if type(index) is tuple:
            source, position = index
            if position < 0 or not 0 <= source < len(self._lengths):
                raise SampleIndexError(
                    f"got the key {index} of a mix of {len(self._lengths)} sources. Keys are for"
                    " the mix whose MixSampler yields them"
                )
        else:
            count = self._length
            if not -count <= index < count:
                raise SampleIndexError(
                    f"index out of range: got index {index} of a mix of {count} samples. Take one"
                    f" in [{-count}, {count})."
                )
            source, position = self._plan.at(index if index >= 0 else index + count)
        passes = 0
        if position >= self._lengths[source]:
            passes, position = divmod(position, self._lengths[source])
        if self._seed is not None:
            position = self._order_of(source, passes, self.epoch_now)[position]
        return source, position, passes

    def _order_of(self, source: int, passes: int, epoch: int) -> Order:
        """Return the random order of a pass of a source."""
        newest = self._newest[source]
        if newest.passes != passes or newest.epoch != epoch:
            newest = self._ordered(source, passes, epoch)
            self._newest[source] = newest  # threads may all do so, with equal values
        return newest.order

    def _ordered(self, source: int, passes: int, epoch: int) -> _Ordered:
        """Return the random order of a source when it has begun anew `passes` times."""
        seed = 0 if self._seed is None else self._seed
        window = self._windows[source]
        part = source + 1 << 32 | passes
        if window is None:
            return _Ordered(epoch, passes, _shuffled(self._lengths[source], seed, epoch, part))
        starts = starts_of(sharded(self.datasets[source]))
        own_seed = order_key(seed, epoch, part) % SEED_LIMIT
        return _Ordered(epoch, passes, WindowedOrder(starts, window, own_seed, epoch))

    def __len__(self) -> int:
        return self._length

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return the shares and the sources; see `fingerprint_of`. More samples are another mix."""
        return {
            "kind": "Mix",
            "samples": self._length,
            "names": self.names,
            "stop": self.stop,
            "weights": [list(entry) for entry in self.entries[:_TOLD]],
            "later_weights": digest_of([repr(entry) for entry in self.entries[_TOLD:]]),
            "seed": self._seed,
            "windows": self._windows,
            "of": [fingerprint_of(dataset) for dataset in self.datasets],
        }

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch where no loader of this package counts; datasets that take it get it."""
        super().set_epoch(epoch)
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


def _stop_by_name(stop: Mapping[Any, Any], names: list[str]) -> Stop:
    """Return by source what its end does, in the order of the sources. Else ConfigError."""
    if not names:
        raise ConfigError(
            f"a stop by source is for datasets by name, got {got(stop)} and a list of datasets."
            " Pass both as dicts"
        )
    for name in names:
        if not isinstance(stop.get(name), str) or stop[name] not in _STOPS_OF_SOURCES:
            raise ConfigError(
                f"stop of the source {name!r} must be one of"
                f" {', '.join(map(repr, _STOPS_OF_SOURCES))}, got"
                f" {got(stop[name]) if name in stop else 'nothing'}. "
                + "; ".join(f"{each!r} {what}" for each, what in _STOPS_OF_SOURCES.items())
            )
    unknown = [name for name in stop if name not in names]
    if unknown:
        raise ConfigError(
            f"stop got unknown sources {listed(unknown)}. The sources are {listed(names)}"
        )
    return {name: stop[name] for name in names}


def _as_limit(stop: Stop, length: Any) -> int:
    """Return how many samples a mix may have; it has these if it ends "never"."""
    if isinstance(stop, dict):
        needs_length = "repeat" in stop.values() and "stop" not in stop.values()
        if length is None and not needs_length:
            return sys.maxsize
    elif stop != "never":
        if length is None:
            return sys.maxsize
        raise ConfigError(
            f"length={length!r} is for stop='never', and stop={stop!r} ends where its sources do."
            " Pass stop='never', or take a part of the mix by reader.Subset(mix, range(length))"
        )
    remedy = f"A mix with stop={stop!r} has that many samples."
    return as_int("length", length, low=1, remedy=remedy)
