"""Batches of bounded cost, dealt so that the ranks of a step have equally much to do.

Imports `reader.checks`, NumPy, the permutation, and the compiled dealing. It runs in the trainer
alone, and talks to no other rank: all compute the same plan, a window at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.plans.balance import cut, deal
from reader.checks import as_array, as_bool, as_int, is_flag
from reader.cores import local_ranks, usable_cores
from reader.data.distributed_env import refuse_fresh_orders, world_and_rank
from reader.data.padded import Even, as_even
from reader.data.sampler import SeededSampler, check_facts
from reader.data.seekable import as_position
from reader.errors import ConfigError, ConfigTypeError, StateError, got
from reader.random.permutation import Permutation, shuffled
from reader.random.seeds import order_key

__all__ = ["BalancedBatches"]

_Samples = npt.NDArray[np.int64]
_Costs = npt.NDArray[np.float64]
_Taken = tuple[tuple[int, int], ...]  # of an epoch, in turn: (ranks, steps that they took)

_WINDOW = 1 << 16
_CHUNK = 1 << 20  # costs looked at together
_PARTS = 8  # of the windows to count for each thread; windows that are counted first
_HALVINGS = 14  # of the limits between which the best one lies
_LARGEST = 2.0**53  # sums of whole numbers are exact below it
# How far the order in which samples are dealt departs from costliest first: by up to that share of
# their costs. The last one always fits.
_SPREADS = {False: (1.0, 0.25, 0.0), True: (0.1, 0.03, 0.0)}  # by `padded`


class BalancedBatches(SeededSampler[list[int]]):
    """Yield batches of indices that cost equally much on all ranks, each at most `max_cost`.

    A cost is what makes a sample take long: its tokens, frames, seconds or pixels. Batches have
    different numbers of samples. In each step the ranks' batches cost nearly the same, so that none
    waits for another; all ranks take equally many steps, and each sample comes once in an epoch.
    The ranks exchange nothing: batch n of a rank is a function of (costs, seed, epoch, n) and of
    the options. To start or to seek to any batch takes time for one window.

    The samples lie in windows, always the same ones; each epoch has the windows in another order,
    other batches in each window, and those in another order. ``len()`` is the same in each epoch.
    Another number of ranks can go on with an epoch from any step: no sample is lost, none repeated.

    Args:
        costs: of all samples, positive numbers; a few may be 0. A list or an array, which may be
            memory-mapped or made by `reader.share`; or a function without arguments that returns
            one, and is called once. It is kept, not copied; do not change it.
        max_cost: the most that a batch may cost, for floats up to rounding.
        padded: what a batch costs: False: the sum of its samples; True: its costliest sample times
            its samples, as where each is padded to the longest. Samples of like cost then share a
            batch.
        window: how many samples are planned together, at least; rounded up to a multiple of
            `world_size`. More of them are mixed better and planned at less speed.
        seed: an int in [0, 2**64), the same one in all ranks; None: a fresh order in each
            iteration, for one rank.
        rank: the number of this process, below `world_size`. None: as the training's library or
            launcher says; see `shard`.
        world_size: how many processes take part. None: likewise.
        even: what is done where there are fewer samples left than ranks, which is the case for
            batches of one sample: "repeat": a few samples come twice; "drop": they are left out;
            "pad": as "repeat", but they are marked; see `reader.Padded`.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid; a sample costs more than `max_cost`.

    >>> batches = [BalancedBatches([3, 9, 2, 8, 1, 7], 10, seed=1, rank=r, world_size=2)
    ...            for r in range(2)]
    >>> sorted(index for each in batches for batch in each for index in batch)
    [0, 1, 2, 3, 4, 5]
    >>> len(batches[0]), batches[0].stats()["filled"]
    (2, 0.75)
    """

    def __init__(
        self,
        costs: Sequence[float] | npt.NDArray[Any] | Callable[[], Any],
        max_cost: float,
        *,
        padded: bool = False,
        window: int = _WINDOW,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "repeat",
    ) -> None:
        super().__init__(seed)
        self.world_size, self.rank = world_and_rank(
            world_size, rank, ("world_size", "rank"), may_be_alone=True
        )
        refuse_fresh_orders(seed, self.world_size)
        self.max_cost = _as_limit(max_cost)
        self.padded = as_bool("padded", padded)
        self.even = as_even(even)
        window = as_int("window", window, low=1, remedy="It is a number of samples.")
        self.window = -(-window // self.world_size) * self.world_size
        self.costs = _as_costs(costs)
        self._total, self._digest = _looked_at(self.costs, self.max_cost, self.padded)
        is_whole = self.costs.dtype.kind in "iu"
        self.limit = self.max_cost if is_whole else self.max_cost * (1 + 1e-9)
        count = self.sample_count = len(self.costs)
        if self.even == "drop" and count < self.world_size:
            raise ConfigError(
                f"even='drop' leaves nothing of {count} samples for {self.world_size} ranks: pass"
                " even='repeat' or 'pad', or fewer ranks"
            )
        # Of no seed: how many steps a window has must be the same in each epoch.
        self._fixed = shuffled(count, 0, 0)
        self._tables: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        # Of the epoch of the last iteration, or that the next one goes on with: what other numbers
        # of ranks have taken of it, its window, and whose steps a position counts beyond that.
        self._taken: _Taken = ()
        self._epoch_window = self.window
        self._counted = self.world_size

    # -- the steps -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[list[int]]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """Iterate over the batches from `position` on; it plans none of the windows before."""
        position = as_position(position)
        is_loaded = self._loaded is not None
        seed, epoch = self._begin()
        if not is_loaded:
            self._taken, self._epoch_window, self._counted = (), self.window, self.world_size
        steps = max(0, position - sum(steps for _, steps in self._taken))
        if self._counted != self.world_size:
            self._taken, steps = (*self._taken, (self._counted, steps)), 0
            self._counted = self.world_size
        return self._batches(_Plan(self, seed, epoch, self._epoch_window), self._taken, steps)

    def _batches(self, plan: _Plan, taken: _Taken, steps: int) -> Iterator[list[int]]:
        place = _Place(0, None)
        for ranks, before in taken:
            place = plan.after(place, ranks, before)
        place, inside = plan.sought(place, self.world_size, steps)
        while (window := plan.window(place, self.world_size)) is not None:
            for step in range(inside, window.steps):
                indices = window.batch(step, self.rank)
                if window.is_over(step, self.rank) and self.even == "pad":
                    indices = indices + len(self.costs)
                yield indices.tolist()
            place, inside = _Place(place.at + 1, None), 0

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch; the first call computes it."""
        return int(self.window_steps(self.world_size, self.window).sum())

    def window_steps(self, ranks: int, window: int, numbers: Any = slice(None)) -> Any:
        """Return how many steps some windows have; kept, since all their samples are looked at."""
        table = self._tables.get((ranks, window))
        if table is None:  # 0: not counted
            table = self._tables[ranks, window] = np.zeros(self.window_count(window), np.int64)
        missing = np.arange(len(table))[numbers][table[numbers] == 0]

        def count(some: npt.NDArray[np.int64]) -> None:
            for number in some.tolist():
                table[number] = self.steps_of(self.window_samples(number, window), ranks)

        if len(missing) * window < _CHUNK:
            count(missing)
        else:  # sorting and dealing release the GIL
            threads = max(1, int(usable_cores() / local_ranks()))
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(count, np.array_split(missing, threads * _PARTS)))
        return table[numbers]

    def steps_in(self, number: int, ranks: int, window: int) -> int:
        """Return how many steps one window has."""
        table = self._tables.get((ranks, window))
        counted = 0 if table is None else int(table[number])
        return counted or int(self.window_steps(ranks, window, np.array([number]))[0])

    def window_count(self, window: int) -> int:
        """Return how many windows there are; the last one takes what is left, too."""
        return max(1, len(self.costs) // window)

    def window_samples(self, number: int, window: int) -> _Samples:
        """Return the samples of a window."""
        is_last = number == self.window_count(window) - 1
        end = len(self.costs) if is_last else (number + 1) * window
        return self._fixed.take(number * window, end)

    def costs_of(self, samples: _Samples) -> _Costs:
        """Return the costs of some samples."""
        return np.asarray(self.costs[samples], np.float64)

    def _least_steps(self, samples: _Samples, ranks: int) -> int:
        return _least_steps(self.costs_of(samples), ranks, self.limit, self.padded)

    def steps_of(self, samples: _Samples, ranks: int) -> int:
        """Return how many steps some samples make."""
        steps = self._least_steps(samples, ranks)
        if self.even == "drop" and steps * ranks > len(samples):
            return len(samples) // ranks
        return steps

    # -- its state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the last begun iteration, on this rank or any other.

        Beside "seed" and "epoch": the "world_size" whose steps a position counts, and in "taken"
        what other numbers of ranks had taken of the epoch before; the options and a digest of the
        costs, on which the order depends.
        """
        taken = [list(each) for each in self._taken]
        own = {"world_size": self._counted, "taken": taken, "window": self._epoch_window}
        return {**super().state_dict(), **own}

    def order_facts(self) -> dict[str, Any]:
        """Return what the order depends on beside seed, epoch, ranks and window; states have it."""
        return {
            "samples": len(self.costs),
            "max_cost": self.max_cost,
            "padded": self.padded,
            "even": self.even,
            "costs": self._digest,
        }

    def check_state(self, state: dict[str, Any]) -> tuple[int, int]:  # type: ignore[override]
        """Return the seed and epoch of a state. StateError: it is of another order, or none."""
        key = SeededSampler.check_state(state)
        check_facts(self, state)
        taken: Any = state.get("taken")
        is_right = isinstance(taken, list) and all(
            isinstance(each, (list, tuple)) and [*map(type, each)] == [int, int] for each in taken
        )
        counts = [state.get("world_size"), state.get("window")]
        counts += [ranks for ranks, _ in taken] if is_right else [None]
        is_right = all(type(count) is int and count > 0 for count in counts)
        if not is_right or min((steps for _, steps in taken), default=0) < 0:
            raise StateError(
                "the state of BalancedBatches has 'world_size', 'window' and 'taken', whole"
                f" numbers, got {got(state)}. Was the state damaged?"
            )
        return key

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration, and it alone, take the order that the state describes.

        The position that is passed to `iter_from` then counts the steps of the ranks that saved it.

        Raises:
            StateError: it is a state of other costs or options. Nothing has changed then.
        """
        self._loaded = self.check_state(state)
        self._counted, self._epoch_window = state["world_size"], state["window"]
        self._taken = tuple((ranks, steps) for ranks, steps in state["taken"])

    def stats(self) -> dict[str, Any]:
        """Return figures of an epoch.

        `samples`; `steps`: of each rank; `windows`; `filled`: the share of `max_cost` that the sum
        of a batch's costs fills, on average; `over`: how many samples come twice, or as padding;
        `dropped`: how many are left out.
        """
        ranks = self.world_size
        steps = self.window_steps(ranks, self.window)
        sizes = np.full(len(steps), self.window)
        sizes[-1] += len(self.costs) - sizes.sum()
        dropped = 0
        if self.even == "drop":
            for number in np.flatnonzero((steps == sizes // ranks) & (sizes % ranks > 0)).tolist():
                samples = self.window_samples(number, self.window)
                if self._least_steps(samples, ranks) > steps[number]:
                    dropped += int(sizes[number] % ranks)
        most = int(steps.sum()) * ranks * self.max_cost
        return {
            "samples": len(self.costs),
            "steps": int(steps.sum()),
            "windows": len(steps),
            "filled": self._total / len(self.costs) * (len(self.costs) - dropped) / most,
            "over": int(np.maximum(steps * ranks - sizes, 0).sum()),
            "dropped": dropped,
        }


class _Place(NamedTuple):
    """A place in an epoch: the window that is the `at`-th; what is left of it, None: all."""

    at: int
    rest: _Samples | None


class _Window:
    """The plan of one window: its samples, batch by batch, those of a step side by side."""

    def __init__(self, samples: _Samples, ends: npt.NDArray[np.int64], ranks: int) -> None:
        self._samples, self._ends, self._ranks = samples, ends, ranks
        self.steps = (len(ends) - 1) // ranks

    def is_over(self, step: int, rank: int) -> bool:
        """Whether there is no sample for this batch that another one lacks."""
        number = step * self._ranks + rank
        return bool(self._ends[number] == self._ends[number + 1])

    def batch(self, step: int, rank: int) -> _Samples:
        """Return the samples of a batch; where it is over, one of another rank's."""
        number = step * self._ranks
        begin, end = self._ends[number + rank], self._ends[number + rank + 1]
        if begin < end:
            return self._samples[begin:end]
        first, last = self._ends[number], self._ends[number + self._ranks]
        at = first + rank % (last - first)
        return self._samples[at : at + 1]

    def rest(self, step: int) -> _Samples:
        """Return the samples of the steps from one on."""
        return self._samples[self._ends[step * self._ranks] :]


class _Plan:
    """The windows of one epoch, in their order.

    Args:
        batches: whose plan it is.
        seed, epoch: of the order.
        window: how many samples a window has at least.
    """

    def __init__(self, batches: BalancedBatches, seed: int, epoch: int, window: int) -> None:
        self._batches, self._window = batches, window
        self._count = batches.window_count(window)
        self._key = functools.partial(order_key, seed, epoch)
        self._order = Permutation(self._count, self._key())

    def sought(self, place: _Place, ranks: int, steps: int) -> tuple[_Place, int]:
        """Return where so many steps behind a place end: a place, and steps within its window."""
        if steps and place.rest is not None:
            own = self._batches.steps_of(place.rest, ranks)
            if steps < own:
                return place, steps
            place, steps = _Place(place.at + 1, None), steps - own
        if not steps or place.at >= self._count:
            return place, 0
        at, some = place.at, _PARTS
        while at < self._count:  # in lots, so that no window far behind is looked at
            numbers = self._order.take(at, min(at + some, self._count))
            ends = np.cumsum(self._batches.window_steps(ranks, self._window, numbers))
            passed = int(np.searchsorted(ends, steps, "right"))
            steps -= int(ends[passed - 1]) if passed else 0
            at, some = at + passed, some * 2
            if passed < len(numbers):
                break
        return _Place(at, None), steps

    def after(self, place: _Place, ranks: int, steps: int) -> _Place:
        """Return the place at which so many ranks have taken so many steps."""
        place, inside = self.sought(place, ranks, steps)
        window = self.window(place, ranks) if inside else None
        return place if window is None else _Place(place.at, window.rest(inside))

    def window(self, place: _Place, ranks: int) -> _Window | None:
        """Plan what is left of a window for so many ranks; None: the epoch ends there."""
        if place.at >= self._count:
            return None
        number, batches = self._order[place.at], self._batches
        if place.rest is None:
            samples = batches.window_samples(number, self._window)
            steps = batches.steps_in(number, ranks, self._window)
        else:
            samples, steps = place.rest, batches.steps_of(place.rest, ranks)
        samples = samples[Permutation(len(samples), self._key(number + 1)).take(0, len(samples))]
        dealt = _dealt(batches.costs_of(samples), steps * ranks, batches.limit, batches.padded)
        if dealt is None:  # some are dropped, and then each batch has one
            samples = samples[: steps * ranks]
            dealt = np.arange(len(samples)), batches.costs_of(samples)
        batch_of, totals = dealt
        # Batches of like totals make a step. Which step comes when, and which rank has the batch
        # that costs most, is another question.
        by_total = np.argsort(-totals, kind="stable")
        turns = Permutation(steps, self._key(number + 1 + self._count)).take(0, steps)
        ranks_of = (np.arange(ranks) + turns[:, None]) % ranks
        places = np.empty(steps * ranks, np.int64)
        places[by_total] = (turns[:, None] * ranks + ranks_of).ravel()
        found = places[batch_of]
        ends = np.concatenate([[0], np.cumsum(np.bincount(found, minlength=steps * ranks))])
        return _Window(samples[np.argsort(found, kind="stable")], ends, ranks)


def _least_steps(costs: _Costs, ranks: int, limit: float, padded: bool) -> int:
    """Return in how many steps samples fit, dealt costliest first.

    It is the least number, or near it: what fits a number of batches may not fit one more.
    """
    if padded:
        ends, totals = np.empty(len(costs), np.int64), np.empty(len(costs))
        return max(1, -(-cut(-np.sort(-costs), limit, ends, totals) // ranks))
    large = np.count_nonzero(costs > limit / 2)  # no two of them fit into one batch
    paying, total = np.count_nonzero(costs), costs.sum()
    low: int = max(1, math.ceil(total / limit / ranks), -(-large // ranks))
    # A sample goes to the batch that costs least, which costs at most the mean of all. What the
    # mean leaves room for fits whatever was dealt before: only what costs more need be dealt.
    room = max(0, limit * (1 - 1e-9) - total / (low * ranks))
    costs = -np.sort(-costs[costs > room])
    batch_of = np.empty(len(costs), np.int32)

    def fits(steps: int) -> bool:
        return deal(costs, limit, batch_of, np.empty(steps * ranks))

    most = max(low, -(-paying // ranks))  # one sample each
    high, stride = low, 1
    while high < most and not fits(high):
        low, high, stride = high + 1, min(most, high + stride), stride * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return high


def _dealt(
    costs: _Costs, batches: int, limit: float, padded: bool
) -> tuple[_Samples, _Costs] | None:
    """Deal samples, in an order by chance, to batches: returns the batch of each, and the totals.

    Costliest first is what fits best, and always gives the same batches. So it is tried with much
    chance first, and then with less. None: they do not fit.
    """
    count = len(costs)
    for spread in _SPREADS[padded]:
        keys = costs * (1 + spread * (np.arange(count) / count))
        order = np.argsort(-keys, kind="stable")
        found = (_cut if padded else _deal)(costs[order], batches, limit)
        if found is not None:
            batch_of = np.empty(count, np.int64)
            batch_of[order] = found[0]
            return batch_of, found[1]
    return None


def _deal(costs: _Costs, batches: int, limit: float) -> tuple[Any, _Costs] | None:
    """Deal samples one by one; None: they do not fit. Those that cost nothing come last."""
    paying = np.flatnonzero(costs)
    given, totals = np.empty(len(paying), np.int32), np.empty(batches)
    if not deal(costs[paying], limit, given, totals):
        return None
    batch_of = np.empty(len(costs), np.int32)
    batch_of[paying] = given
    cheapest = np.argsort(totals, kind="stable")
    free = np.flatnonzero(costs == 0)
    batch_of[free] = cheapest[np.arange(len(free)) % batches]
    return batch_of, totals


def _cut(costs: _Costs, batches: int, limit: float) -> tuple[Any, _Costs] | None:
    """Cut a row of samples into batches of like padded costs; None: they do not fit."""
    ends, totals = np.empty(batches, np.int64), np.empty(batches)
    if cut(costs, limit, ends, totals) < 0:
        return None
    low, high = float(costs.max()), limit
    for _ in range(_HALVINGS):  # the lowest limit costs all batches the same
        middle = (low + high) / 2
        if cut(costs, middle, ends, totals) < 0:
            low = middle
        else:
            high = middle
    begin, end = 0, len(costs) + 1
    while end - begin > 1:  # where many lengths are equal, a lower one just fits the first part
        at = (begin + end) // 2
        if _cut_apart(costs, at, (low, high), ends, totals) < 0:
            end = at
        else:
            begin = at
    made = _cut_apart(costs, begin, (low, high), ends, totals)
    starts = np.concatenate([[0], ends[: made - 1]])
    while len(starts) < min(batches, len(costs)):  # some are still to be divided, the costliest
        sizes = np.diff(starts, append=len(costs))
        several = np.flatnonzero(sizes > 1)
        padded = np.maximum.reduceat(costs, starts)[several] * sizes[several]
        chosen = several[np.argsort(-padded, kind="stable")[: batches - len(starts)]]
        starts = np.sort(np.concatenate([starts, starts[chosen] + sizes[chosen] // 2]))
    sizes = np.diff(starts, append=len(costs))
    totals[: len(starts)] = np.maximum.reduceat(costs, starts) * sizes
    totals[len(starts) :] = 0
    return np.repeat(np.arange(len(starts)), sizes), totals


def _cut_apart(
    costs: _Costs, at: int, limits: tuple[float, float], ends: Any, totals: _Costs
) -> int:
    """Cut the samples before a place by one limit, and those behind it by another; see `cut`."""
    first = cut(costs[:at], limits[0], ends, totals)
    if first < 0:
        return -1
    second = cut(costs[at:], limits[1], ends[first:], totals[first:])
    if second < 0:
        return -1
    ends[first : first + second] += at
    return first + second


def _as_limit(max_cost: Any) -> float:
    is_number = isinstance(max_cost, (int, float, np.integer, np.floating))
    if not is_number or is_flag(max_cost) or not 0 < max_cost <= _LARGEST:
        kind = ConfigError if is_number else ConfigTypeError
        raise kind(
            f"max_cost must be a number above 0, at most 2**53, got {got(max_cost)}. It is what the"
            " samples of a batch may cost together, such as tokens, or seconds"
        )
    return int(max_cost) if isinstance(max_cost, (int, np.integer)) else float(max_cost)


def _as_costs(costs: Any) -> npt.NDArray[Any]:
    if callable(costs):
        costs = costs()
    found = as_array("costs", costs)
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise ConfigTypeError(
            f"costs must be one number for each sample, got {got(costs)} of shape {found.shape} and"
            f" dtype {found.dtype}. Pass a list or an array with one dimension, of ints or floats"
        )
    if not len(found):
        raise ConfigError("costs is empty: there are no samples to make batches of")
    return found


def _looked_at(costs: npt.NDArray[Any], max_cost: float, padded: bool) -> tuple[float, int]:
    """Return the sum of costs, and a digest of them. ConfigError: one of them cannot be."""
    total, digest = 0.0, 0
    for start in range(0, len(costs), _CHUNK):
        chunk = np.ascontiguousarray(costs[start : start + _CHUNK], np.float64)
        bad = ~((chunk >= 0) & (chunk <= max_cost))
        if padded:
            bad |= chunk == 0
        if bad.any():
            raise _bad_cost(costs, start + int(bad.argmax()), max_cost)
        total += float(chunk.sum())
        odd = np.arange(start, start + len(chunk), dtype=np.uint64) * 2 + 1  # so places count, too
        digest += int((chunk.view(np.uint64) * odd >> np.uint64(12)).sum())
    if not total:
        raise ConfigError(
            f"all {len(costs)} costs are 0: no batch would ever be full. Pass what the samples"
            " cost, or BatchSampler for batches of equally many"
        )
    return total, digest & (1 << 48) - 1


def _bad_cost(costs: npt.NDArray[Any], index: int, max_cost: float) -> ConfigError:
    cost = costs[index].item()
    if cost > max_cost:
        return ConfigError(
            f"costs[{index}] is {cost}, and max_cost is {max_cost}: that sample fits no batch. Pass"
            " a larger max_cost, or leave out such samples (reader.Subset), or shorten them"
        )
    return ConfigError(
        f"costs[{index}] is {cost}: a cost must be a number of 0 or more, and above 0 with"
        " padded=True. Leave out such samples (reader.Subset), or say what they cost"
    )
