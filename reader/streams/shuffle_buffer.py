"""Shuffle a stream within a buffer: `shuffle_buffer`, and its iterator, which resumes by redrawing.

Imports seeds and permutations of `reader.random`, the context of workers and the stream wrapper. A
ShuffleIterator belongs to one worker and holds the samples of its buffer.
"""

from __future__ import annotations

from typing import Any

from reader.checks import as_int
from reader.errors import StateError, got
from reader.random.permutation import Permutation
from reader.random.seeds import as_seed, fresh_seed, order_key
from reader.streams.stream_wrapper import StreamWrapper, WrapperIterator, as_stream, read_state
from reader.worker.context import get_worker_info, loader_task

__all__ = ["ShuffledStream", "shuffle_buffer"]

_MOST = 1 << 31  # samples in a buffer


def shuffle_buffer(stream: Any, size: int, seed: int | None = None) -> ShuffledStream:
    """Shuffle a stream within a buffer of `size` samples.

    The buffer is filled first; then each new sample replaces one that is yielded, and at the end
    the rest is yielded. A sample comes less than `size` places early and less than 4 * `size`
    places late; a stream of at most `size` samples is shuffled completely.

    The order is a function of (seed, epoch, number of the worker), where the epoch is the loader's.
    So it differs between epochs and between workers, each of which shuffles its own share. Pass a
    different seed in each rank if ranks should differ too.

    A state holds no samples. If the stream, or its iterator, has a state, a resumed loader goes
    back to an earlier state and draws the samples since then again: at most 5 * `size`. Otherwise
    it draws all samples of the epoch again. Samples that are drawn again may get other numbers from
    global random generators, but not from `reader.sample_rng`.

    Args:
        stream: an iterable dataset, or any other object with a fresh iterator for each epoch. What
            is no stream, such as a list, is divided among the workers of a loader.
        size: how many samples the buffer holds, 1 or more; 1 leaves the order as it is.
        seed: an int in [0, 2**64); None: the key of `reader.sample_rng`, which is the loader's
            `seed`, or a number that the loader draws and saves in its state.

    Raises:
        ConfigError: an argument is invalid.

    >>> shuffled = shuffle_buffer(range(8), 4, seed=1)
    >>> sorted(shuffled) == list(range(8)) and list(shuffled) == list(shuffled)
    True
    """
    size = as_int("size", size, low=1, high=_MOST, remedy="It is how many samples are held.")
    if seed is not None:
        seed = as_seed(seed, "None takes the seed of the loader.")
    return ShuffledStream(as_stream("shuffle_buffer", stream), size, seed)


class ShuffledStream(StreamWrapper):
    """Yield the samples of a stream in random order; see `shuffle_buffer`."""

    def __init__(self, stream: Any, size: int, seed: int | None) -> None:
        super().__init__([stream])
        self.size = size
        self._seed = seed
        self._chosen_epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch if no loader counts epochs; passed on to a stream that takes it."""
        self._chosen_epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
        super().set_epoch(epoch)

    def __iter__(self) -> ShuffleIterator:
        return ShuffleIterator(self)

    def order_now(self) -> list[int]:
        """Return (seed, epoch, worker) of the order that begins in this thread."""
        seed, task, info = self._seed, loader_task(), get_worker_info()
        if seed is None:
            seed = fresh_seed() if task is None else task[0]
        epoch = self._chosen_epoch if task is None else task[1]
        return [seed, epoch, 0 if info is None else info.id]


class ShuffleIterator(WrapperIterator):
    """Draws into the buffer, and yields from it.

    A round of 2 * size steps takes each place of the buffer twice, in random order. So after a
    round all samples in the buffer were drawn since the round began. To resume, samples are drawn
    again from the beginning of the previous round.
    """

    def __init__(self, stream: ShuffledStream) -> None:
        super().__init__(stream.datasets)
        self._stream = stream
        self._size = stream.size
        self._order: list[int] = []  # (seed, epoch, worker), when the first sample is drawn
        self._buffer: list[Any] = []
        self._steps = 0  # samples that were yielded and replaced by a new one
        # a step, the buffer's place that it takes, and the new sample if it is drawn
        self._drawn: tuple[int, int, list[Any]] = (-1, 0, [])
        self._drained = 0  # samples yielded since the stream ended
        self._round: tuple[int, Permutation] | None = None  # its number and order

    def __next__(self) -> Any:
        (source,) = self.sources
        buffer = self._buffer
        if len(buffer) < self._size:
            self._order = self._order or self._stream.order_now()
            source.checkpoint(0)
            source.draw(buffer, self._size)
        place, drawn = self._step()
        if source.draw(drawn, 1):
            sample = buffer[place]
            buffer[place] = drawn[0]
            self._steps += 1
            return sample
        if self._drained == len(buffer):
            raise StopIteration
        place = self._drain_order()[self._drained]
        sample = buffer[place]
        buffer[place] = None
        self._drained += 1
        return sample

    def _step(self) -> tuple[int, list[Any]]:
        """Return the buffer's place that this step takes, and the list for the new sample."""
        steps = self._steps
        last, place, drawn = self._drawn
        if last == steps:
            return place, drawn
        number, at = divmod(steps, 2 * self._size)
        self.sources[0].checkpoint(number)
        if self._round is None or self._round[0] != number:
            self._round = number, self._permutation(2 * self._size, 1 + number)
        place, drawn = self._round[1][at] % self._size, []
        self._drawn = steps, place, drawn
        return place, drawn

    def _drain_order(self) -> Permutation:
        """Return the order in which the buffer is yielded after the stream has ended."""
        if self._round is None or self._round[0] != -1:
            self._round = -1, self._permutation(len(self._buffer), 0)
        return self._round[1]

    def _permutation(self, count: int, part: int) -> Permutation:
        seed, epoch, worker_id = self._order
        return Permutation(count, order_key(seed, epoch, worker_id << 32 | part))

    def _save(self) -> dict[str, Any]:
        return {
            "size": self._size,
            "order": list(self._order),
            "filled": len(self._buffer),
            "steps": self._steps,
            "drained": self._drained,
            "checkpoint": self.sources[0].older_checkpoint(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        size, order, filled, steps, drained = read_state(
            state, size=int, order=list, filled=int, steps=int, drained=int
        )
        if size != self._size:
            raise StateError(
                f"the state was saved with a buffer of {size} samples, and this one has"
                f" {self._size}: the order depends on it. Pass size={size}."
            )
        if state.get("checkpoint") is None:
            return  # nothing was drawn
        if len(order) != 3 or any(type(each) is not int or each < 0 for each in order):
            raise StateError(
                f"order in the state must be a seed, an epoch and a worker, got {got(order)}. Load"
                " a state that was saved with the same dataset."
            )
        (source,) = self.sources
        first, errors = source.go_back(state["checkpoint"])
        self._order = list(order)
        self._steps = first * 2 * size
        if first:
            self._buffer = [None] * size  # a round later, none of them is left
        source.draw_again(self._buffer, filled, errors)
        while self._steps < steps:
            place, drawn = self._step()
            source.draw_again(drawn, 1, errors)
            self._buffer[place] = drawn[0]
            self._steps += 1
        if filled < size:
            source.pass_errors(self._buffer, errors)
        else:
            source.pass_errors(self._step()[1], errors)
        for number in range(drained):
            self._buffer[self._drain_order()[number]] = None
        self._drained = drained
