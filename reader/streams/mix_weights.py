"""The weights of a mix: read from arguments, and turned into a schedule in whole numbers.

Imports NumPy, the checks and the schedule. Keeps no state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reader.checks import as_int
from reader.data.weighted_sampler import checked_weights, place_of
from reader.errors import ConfigError, ConfigTypeError, got
from reader.streams.mix_schedule import ScheduleEntry

__all__ = [
    "Lengths",
    "as_lengths",
    "changed_entries",
    "cycle_counts",
    "is_schedule",
    "listed",
    "mean_lengths",
    "planned",
]

Lengths = int | np.ndarray[Any, Any]  # tokens of each sample of a source

_LINEAR = "linear"
_LONGEST = 1 << 16  # samples in a cycle
_MOST = 1 << 18  # samples in the cycles of all entries
_MOST_ENTRIES = 1 << 10
_EXACT = 1e-9  # how far from a whole number of samples a share of a cycle may be
_ENTRY = '(sample, weights) or (sample, weights, "linear")'


# ---- schedules ---------------------------------------------------------------------------------


def is_schedule(weights: Any) -> bool:
    """Whether weights are a list of (sample, weights), of which some may end in "linear"."""
    return isinstance(weights, (list, tuple)) and any(
        isinstance(each, (list, tuple))
        and len(each) in (2, 3)
        and (each[1] is None or hasattr(each[1], "__len__"))
        for each in weights
    )


def planned(weights: Any, names: Sequence[str], means: Sequence[float]) -> list[ScheduleEntry]:
    """Return the schedule of weights; those that are none have one entry.

    Args:
        weights: as a user passes them.
        names: of the sources; empty: they have positions.
        means: by source, what a sample counts: its tokens on average, or 1.

    Raises:
        ConfigError, ConfigTypeError: they are no weights.
    """
    if not is_schedule(weights):
        return [ScheduleEntry(0, cycle_counts(weights, names, means))]
    entries = _entries(weights, names, means, min(_LONGEST, _MOST // max(1, len(weights))))
    if entries[0].start:
        raise ConfigError(
            f"a schedule of weights begins at sample 0, got {entries[0].start} for its first"
            " stretch. Pass (0, weights) before it"
        )
    for source in range(len(means)):
        if not any(entry.has(source) for entry in entries):
            raise ConfigError(
                f"the weight {place_of(names, source)} is 0 in all of the schedule. Leave the"
                " source out, or give it a weight from some sample on"
            )
    return entries


def changed_entries(
    weights: Any, names: Sequence[str], means: Sequence[float]
) -> list[ScheduleEntry]:
    """Return the entries of a schedule that changes a mix while it is read.

    It may begin at any sample, or be empty. Its entries need no memory for their cycles, however
    many there are.

    Raises:
        ConfigError, ConfigTypeError: it is no schedule.
    """
    entries = _entries(weights, names, means, _LONGEST)
    return [each if each.then else each._replace(then=each.counts) for each in entries]


def _entries(
    weights: Sequence[Any], names: Sequence[str], means: Sequence[float], longest: int
) -> list[ScheduleEntry]:
    if len(weights) > _MOST_ENTRIES:
        raise ConfigError(
            f"a schedule of weights has up to {_MOST_ENTRIES:,} stretches, got {len(weights):,}."
            " Change the weights less often"
        )
    found: list[tuple[int, list[int], bool]] = []  # where each begins, its cycle; is it linear
    for number, entry in enumerate(weights):
        where = f"weights[{number}]"
        if not isinstance(entry, (list, tuple)) or len(entry) not in (2, 3):
            raise ConfigTypeError(
                f"{where} of a schedule must be {_ENTRY}, got {got(entry)}. Pass the sample of the"
                " mix from which on these weights hold, and the weights"
            )
        if len(entry) == 3 and not (isinstance(entry[2], str) and entry[2] == _LINEAR):
            raise ConfigError(
                f"{where} of a schedule must be {_ENTRY}, got {got(entry[2])} at its end. With"
                f' "{_LINEAR}" shares go linearly to those of the next entry'
            )
        remedy = "It is the sample of the mix from which on the weights hold."
        start = as_int(f"{where}[0]", entry[0], low=0, remedy=remedy)
        if found and start <= found[-1][0]:
            raise ConfigError(
                f"the stretches of a schedule of weights must come in order, got sample {start} in"
                f" {where} after {found[-1][0]}. Sort them, each at a sample of its own"
            )
        try:
            counts = cycle_counts(entry[1], names, means, longest, are_positive=False)
        except ConfigError as error:
            raise type(error)(f"weights from sample {start:,} on: {error}") from error
        found.append((start, counts, len(entry) == 3))
    if not found:
        return []
    if found[-1][2]:
        raise ConfigError(
            f'the last entry of a schedule, from sample {found[-1][0]:,} on, is "{_LINEAR}", and'
            " there are no weights for it to go to. Pass (sample, weights) behind it, with the"
            " sample at which these weights are reached"
        )
    entries = [
        ScheduleEntry(start, counts, then, stop - start)
        if is_linear
        else ScheduleEntry(start, counts)
        for (start, counts, is_linear), (stop, then, _) in itertools.pairwise(found)
    ]
    return [*entries, ScheduleEntry(*found[-1][:2])]


# ---- lengths -----------------------------------------------------------------------------------


def as_lengths(lengths: Any, datasets: Sequence[Any], names: Sequence[str]) -> list[Lengths]:
    """Return the tokens of the samples of each source.

    Args:
        lengths: as a user passes them: by name or in a list, for some sources or all; None: none.
        datasets: those without an entry say it themselves. See `Mix`.
        names: of the sources; empty: they have positions.

    Raises:
        ConfigError, ConfigTypeError: lengths that are missing, or cannot be.
    """
    passed: dict[int, Any] = {}
    if isinstance(lengths, Mapping):
        unknown = [each for each in lengths if each not in names]
        if unknown:
            raise ConfigError(
                f"lengths got unknown sources {listed(unknown)}. The sources"
                f" {'are ' + listed(names) if names else 'have no names: pass a list'}"
            )
        passed = {names.index(each): lengths[each] for each in lengths}
    elif lengths is not None:
        if not isinstance(lengths, (list, tuple)) or len(lengths) != len(datasets):
            raise ConfigTypeError(
                f"lengths must have an entry for each of {len(datasets)} sources, in a list or by"
                f" name, got {got(lengths)}. An entry is an array by sample, or one number for all"
                " samples of the source"
            )
        passed = {number: each for number, each in enumerate(lengths) if each is not None}
    found = []
    for number, dataset in enumerate(datasets):
        where = place_of(names, number)
        own = passed[number] if number in passed else _own_lengths(dataset, where)
        found.append(_checked_lengths(own, len(dataset), where))
    return found


def _own_lengths(dataset: Any, where: str) -> Any:
    """Return what a dataset says of the tokens of its samples."""
    # `length` of a class of somebody else's is often how many samples there are
    is_own = type(dataset).__module__.partition(".")[0] == "reader"
    length = getattr(dataset, "length", None) if is_own else None
    found = getattr(dataset, "lengths", None) if length is None else length
    if found is None or callable(found):
        raise ConfigError(
            f"unit='tokens' needs the tokens of each sample, and the source {where}"
            f" ({type(dataset).__name__}) has no lengths. Pass lengths= with an entry for it: an"
            " array by sample, or one number if all samples are of that length"
        )
    return found


def _checked_lengths(lengths: Any, count: int, where: str) -> Lengths:
    """Return lengths as one number, or as an array of whole numbers by sample."""
    try:
        array = np.asarray(lengths)
    except ValueError:  # lists of several lengths
        array = np.array(None)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise ConfigTypeError(
            f"lengths {where} must be a whole number, or an array of them by sample, got"
            f" {got(lengths)}. They are tokens"
        )
    if array.ndim and len(array) != count:
        raise ConfigError(
            f"lengths {where} must have one entry for each of its {count:,} samples, got"
            f" {len(array):,}. Pass those of this dataset, in its order"
        )
    least = int(array.min()) if array.size else 0
    if least < 0:
        raise ConfigError(f"lengths {where} must not be negative, got {least}. They are tokens")
    total = float(array.sum(dtype=float))
    if total >= 1 << 63:
        raise ConfigError(f"lengths {where} sum to {total:.3g} tokens: they are damaged")
    if not total:
        raise ConfigError(
            f"the source {where} has 0 tokens in {count:,} samples, and can give no share of"
            " tokens. Leave it out, or pass unit='samples'"
        )
    return array if array.ndim else int(array)


def mean_lengths(lengths: Sequence[Lengths]) -> list[float]:
    """Return the tokens that a sample of each source has on average."""
    return [
        float(each) if isinstance(each, int) else int(each.sum(dtype=np.int64)) / len(each)
        for each in lengths
    ]


# ---- cycles ------------------------------------------------------------------------------------


def cycle_counts(
    weights: Any,
    names: Sequence[str],
    means: Sequence[float],
    longest: int = _LONGEST,
    *,
    are_positive: bool = True,
) -> list[int]:
    """Return how many samples of a cycle each source gives.

    The cycle is the shortest with whole shares, or otherwise the closest one of up to `longest`
    samples.

    Args:
        weights: a number for each source, in a list or by name, of any sum; None: equal ones.
        names: of the sources; empty: they have positions.
        means: by source, what a sample counts; all 1: weights are shares of samples.
        longest: how many samples a cycle may have.
        are_positive: whether a weight of 0 is refused.

    Raises:
        ConfigError: the weights cannot be shares of the sources.

    >>> cycle_counts([0.7, 0.2, 0.1], (), [1, 1, 1]), cycle_counts([0.5, 0.5], (), [512, 2048])
    ([7, 2, 1], [4, 1])
    """
    sources = len(means)
    if weights is None:
        if len(set(means)) == 1:
            return [1] * sources
        weights = [1] * sources
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
    found /= means
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
