"""Mix datasets in exact shares: `mix`, and its stream for streams.

Imports `reader.streams.mixed_dataset` for the schedule, and the stream wrapper. A MixIterator
belongs to one worker; each worker mixes its own shares of the streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from reader.data.iterable import is_iterable_dataset
from reader.data.weighted_sampler import place_of
from reader.errors import ConfigError, StateError, got
from reader.streams.mix_schedule import MixSchedule
from reader.streams.mix_weights import cycle_counts, is_schedule, listed
from reader.streams.mixed_dataset import Mix, as_stop, named_datasets
from reader.streams.stream_wrapper import StreamWrapper, WrapperIterator, as_stream, read_state

__all__ = ["MixedStream", "mix"]


def mix(
    datasets: Iterable[Any] | Mapping[str, Any],
    weights: Any = None,
    stop: Literal["first", "last", "all"] = "first",
    seed: int | None = None,
    *,
    unit: Literal["samples", "tokens"] = "samples",
    lengths: Any = None,
) -> Mix | MixedStream:
    """Mix datasets in exact shares: map-style datasets into a `Mix`, or streams into one stream.

    The order of sources is fixed, not random: after any n samples, the count of each source differs
    from its share of n by less than one. It is the same in every epoch and every run.

    A mix of streams draws from each; each worker mixes its own shares, and a source ends for a
    worker when the worker's share ends. Its iterators have a state if all sources have one: then a
    resumed loader continues at once. Otherwise it draws all samples again.

    Args:
        datasets: map-style datasets, or iterable ones; not both. A dict names them: errors and
            states then use the names.
        weights: a positive number for each, of any sum, in a list, or in a dict by the names of the
            datasets; None: equal shares. Or, for map-style datasets, a schedule: see `Mix`. Shares
            are exact if all weights are multiples of one number, such as 0.7, 0.2 and 0.1, and sum
            to 65536 times it at most; others are rounded, by less than 1/65536.
        stop: where the mix ends. "first": at the first source that has no sample left when one is
            due. "last": when that has happened to each source; until then a source that ended
            starts again, so that its samples repeat. "all": likewise, but a source that ended is
            left out, and the others share by their weights: each sample comes once.
        seed: for map-style datasets: each gives its samples in a random order, a new one each time
            it starts and for each epoch that `set_epoch` chooses. None: in their order.
        unit: for map-style datasets: what weights are shares of, "samples" or "tokens"; see `Mix`.
        lengths: with "tokens", of the samples; see `Mix`.

    Raises:
        ConfigError: there are no sources, or both kinds, or one is a string; weights, `stop`,
            `seed`, `unit` or `lengths` are invalid, or for map-style datasets alone; a map-style
            source is empty and `stop` is not "all".

    >>> web, code = list("abcdef"), list("xyz")
    >>> mixed = mix({"web": web, "code": code}, weights={"web": 2, "code": 1})
    >>> "".join(mixed[index] for index in range(len(mixed)))
    'axbcydezf'
    >>> len(mix([web, code])), len(mix([web, code], stop="last"))
    (7, 12)
    """
    names, sources = named_datasets("mix", datasets)
    stop_at = as_stop(stop, ("first", "last", "all"))
    streams = [is_iterable_dataset(source) or isinstance(source, Iterator) for source in sources]
    if any(streams) and not all(streams):
        here, there = streams.index(True), streams.index(False)
        raise ConfigError(
            f"mix takes map-style datasets or streams, not both: got the stream"
            f" {got(sources[here])} {place_of(names, here)} and {got(sources[there])}"
            f" {place_of(names, there)}. Make a stream of the latter: an IterableDataset whose"
            " __iter__ returns reader.shard(dataset)."
        )
    if not any(streams):
        whole = dict(zip(names, sources, strict=True)) if names else sources
        return Mix(whole, weights, stop=stop, seed=seed, unit=unit, lengths=lengths)
    if seed is not None:
        raise ConfigError(
            f"seed={seed!r} orders the samples of map-style datasets by their indices, and streams"
            " have none. Shuffle the mix by reader.shuffle_buffer."
        )
    if unit != "samples" or lengths is not None:
        raise ConfigError(
            f"unit={unit!r} and lengths= are for map-style datasets: the tokens of a stream's"
            " samples are not known before they are drawn. Mix streams by shares of samples, or"
            " pass map-style datasets"
        )
    if is_schedule(weights):
        raise ConfigError(
            "weights that change, a list of (sample, weights), are for map-style datasets: each"
            " worker mixes its own shares of streams, and counts its own samples alone. Pass one"
            " weight for each stream"
        )
    counts = cycle_counts(weights, names, [1] * len(sources))
    return MixedStream([as_stream("mix", source) for source in sources], counts, stop_at, names)


class MixedStream(StreamWrapper):
    """Yield the samples of several streams in exact shares; see `mix`.

    Args:
        datasets: the streams, checked.
        counts: how many samples of a cycle each gives.
        stop: "first", "last" or "all".
        names: of the streams; empty: messages use positions.
    """

    def __init__(
        self, datasets: list[Any], counts: list[int], stop: str, names: Sequence[str] = ()
    ) -> None:
        super().__init__(datasets)
        self.names = list(names)
        self.counts = counts
        self.stop = stop
        self._schedule = MixSchedule(counts)

    def __iter__(self) -> MixIterator:
        return MixIterator(self.datasets, self._schedule, self.counts, self.stop, self.names)


class MixIterator(WrapperIterator):
    """Draws from each stream by the schedule."""

    def __init__(
        self,
        datasets: list[Any],
        schedule: MixSchedule,
        counts: list[int],
        stop: str,
        names: list[str],
    ) -> None:
        super().__init__(datasets, names)
        self._names = names
        self._counts = counts
        self._stop = stop
        # by source: whether it has ended once, and whether it is empty even after a restart
        self._ended = [False] * len(datasets)
        self._is_empty = [False] * len(datasets)
        self._is_over = False
        self._position = _Position(list(range(len(datasets))), schedule, 0)
        self._drawn: tuple[_Position, list[Any]] = (self._position, [])  # the sample at a position

    def __next__(self) -> Any:
        while not self._is_over:
            position = self._position
            sources, schedule, place = position
            source = sources[schedule.source_at(place)]
            after = _Position(sources, schedule, place + 1)
            if self._is_empty[source]:
                self._position = after
                continue
            if self._drawn[0] is not position:
                self._drawn = (position, [])
            drawn = self._drawn[1]
            if self.sources[source].draw(drawn, 1):
                sample = drawn[0]
                self._position = after
                self._drawn = (after, [])
                return sample
            self._note_end(source, drawn)
        raise StopIteration

    def _note_end(self, source: int, drawn: list[Any]) -> None:
        """Handle a source that has no sample when one is due."""
        self._ended[source] = True
        if self._stop == "first" or all(self._ended):
            self._is_over = True
        elif self._stop == "all":
            self._position = self._without_ended(0)
        else:
            self.sources[source].begin()
            # otherwise this would never end
            self._is_empty[source] = not self.sources[source].draw(drawn, 1)

    def _without_ended(self, place: int) -> _Position:
        """Return a place in the schedule of the sources that have not ended."""
        sources = [source for source, ended in enumerate(self._ended) if not ended]
        return _Position(sources, MixSchedule([self._counts[each] for each in sources]), place)

    def _save(self) -> dict[str, Any]:
        return {
            "names": list(self._names),
            "counts": list(self._counts),
            "stop": self._stop,
            "place": self._position.place,
            "ended": list(self._ended),
            "is_empty": list(self._is_empty),
            "is_over": self._is_over,
            "sources": [source.state() for source in self.sources],
        }

    def _load(self, state: dict[str, Any]) -> None:
        counts, stop, place, ended, is_empty, is_over, sources = read_state(
            state,
            counts=list,
            stop=str,
            place=int,
            ended=list,
            is_empty=list,
            is_over=bool,
            sources=list,
        )
        # states of older versions, and of a mix of a list, have no names
        (names,) = read_state({"names": [], **state}, names=list)
        if names and self._names and names != self._names:
            raise StateError(
                f"the state is that of a mix of the sources {listed(names)}, and this one has"
                f" {listed(self._names)}. Pass those of the mix that was saved, in its order."
            )
        if (counts, stop) != (self._counts, self._stop):
            raise StateError(
                f"the state is that of a mix of shares {counts} with stop={stop!r}, and this one"
                f" has {self._counts} and {self._stop!r}. Pass the weights and stop of the mix that"
                " was saved."
            )
        self._load_sources(sources, ended, is_empty)
        self._ended, self._is_empty, self._is_over = list(ended), list(is_empty), is_over
        if stop == "all" and any(ended) and not is_over:
            self._position = self._without_ended(place)
        else:
            self._position = self._position._replace(place=place)


class _Position(NamedTuple):
    """A place in the schedule of some of the sources."""

    sources: list[int]  # by their number in the schedule
    schedule: MixSchedule
    place: int
