"""Ranks that ask each other before each step whether all have a batch: `EvenSteps`.

Imports `reader.checks`, the rule of ranks, and the errors; finds torch.distributed and
paddle.distributed in `sys.modules`. An EvenSteps belongs to the process and the thread that
iterate over it, and so does the group of ranks that it asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple

from reader.checks import described, has_method
from reader.data.distributed_env import agreeing_on_steps, known_ranks
from reader.errors import ConfigError, ConfigTypeError, DatasetError, StateError, got
from reader.log import log as _log

__all__ = ["EvenSteps"]

_ENDS = ("drop", "repeat", "pad")


class _Agreement(NamedTuple):
    """What the ranks told each other before a step."""

    all_have: bool  # a batch
    any_has: bool
    can_fill: bool  # each rank has a batch to give, be it one that it gave before
    failed: int | None  # the first rank whose loader raised an exception


class EvenSteps:
    """Iterate over a loader so that all ranks take equally many steps, whatever each of them has.

    It is for streams whose length nobody knows, and for ranks with unequal parts of the data: there
    a rank that ends before the others would leave them waiting. Before each step the ranks ask each
    other whether all have a batch: one message of 32 bytes, by torch.distributed or
    paddle.distributed, whichever the program has initialised. Datasets with an index need none:
    their samplers give all ranks equally many, see `reader.Padded`.

    All ranks must iterate, over as many epochs, and none may leave its loop before the others. If a
    rank's loader raises an exception, the other ranks raise a DatasetError that names the rank. A
    rank that dies is noticed by the library, after the timeout of its group at the latest.

    ``state_dict()`` is the position after the last batch that was given.

    Args:
        loader: what yields the batches of this rank: a loader of this package or another one.
        end: what happens when the first rank has no more: "drop": the epoch ends for all, and what
            the others have left is not given; "repeat": a rank that has no more gives its last
            batch again, until no rank has one (after a resume it is its first batch); "pad":
            likewise, and each step is a pair (batch, whether it counts), with False for a batch
            that was given before.
        group: the group of ranks that take steps together; None: all of them.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid. While iterating: several ranks run,
            and no library has joined them.
        DatasetError: while iterating: another rank failed; or a rank has no batch to repeat.

    >>> list(EvenSteps([[0, 1], [2]]))  # where there is one rank, nobody is asked
    [[0, 1], [2]]
    >>> list(EvenSteps([[0, 1], [2]], end="pad"))
    [([0, 1], True), ([2], True)]
    """

    __repr__ = described

    def __init__(
        self, loader: Any, end: Literal["drop", "repeat", "pad"] = "drop", *, group: Any = None
    ) -> None:
        if isinstance(loader, (str, bytes, type, Iterator)) or not has_method(loader, "__iter__"):
            raise ConfigTypeError(
                f"EvenSteps takes a loader, got {got(loader)}. Pass a DataLoader, or another object"
                " that can be iterated over in each epoch"
            )
        if not isinstance(end, str) or end not in _ENDS:
            kind = ConfigError if isinstance(end, str) else ConfigTypeError
            raise kind(f"end must be 'drop', 'repeat' or 'pad', got {got(end)}")
        self.loader = loader
        self.end = end
        self.group = group
        self._has_ended = False  # this rank has given all of an epoch that others still give
        self._next_epoch: int | None = None  # this rank had batches left when an epoch ended
        self._is_held = False  # a batch was drawn and not given

    def __iter__(self) -> Iterator[Any]:
        ask = _way_to_ask(self.group)
        return self._steps(ask) if ask is not None else self._alone()

    def _alone(self) -> Iterator[Any]:
        for batch in self.loader:
            yield (batch, True) if self.end == "pad" else batch

    def _steps(self, ask: Callable[[list[int]], list[int]]) -> Iterator[Any]:
        filler: list[Any] = []  # the batch that is given again where there is no other
        batches = iter([] if self._has_ended else self.loader)
        self._is_held, self._next_epoch = False, None
        while True:
            drawn = self._drawn(batches, filler, ask)
            filler = drawn or filler
            told = _agreement(ask, bool(drawn), bool(filler))
            if told.failed is not None:
                raise DatasetError(
                    f"rank {told.failed} failed before this step, so that no rank can take it. The"
                    " exception is in the output of that rank"
                )
            if not told.any_has or (self.end == "drop" and not told.all_have):
                break
            if not told.can_fill:
                raise DatasetError(
                    "a rank has no batch in this epoch, so that it cannot repeat one. Pass"
                    " end='drop', or give each rank some of the data"
                )
            counts = bool(drawn)
            self._is_held, self._has_ended = False, not counts
            yield (filler[0], counts) if self.end == "pad" else filler[0]
        self._finish(bool(drawn))

    def _drawn(
        self,
        batches: Iterator[Any],
        filler: list[Any],
        ask: Callable[[list[int]], list[int]],
    ) -> list[Any]:
        """Return a list of the next batch; empty: there is none. Tells the others of exceptions.

        Where there is none, and none was given before, it adds to `filler` the one to repeat.
        """
        self._is_held = not self._has_ended
        try:
            with agreeing_on_steps():
                drawn = [] if self._has_ended else list(islice(batches, 1))
                if not drawn and not filler and self.end != "drop":
                    filler += self._first_again()
        except Exception:
            self._is_held = False
            _agreement(ask, has=True, can_fill=True, failed=True)
            raise
        self._is_held = bool(drawn)
        return drawn

    def _finish(self, has_more: bool) -> None:
        """End the epoch: what this rank has left is not given."""
        self._is_held = self._has_ended = False
        if has_more:
            _log.info("the epoch ends here, since another rank has no more batches")
            self._next_epoch = getattr(self.loader, "epoch", None)

    def _first_again(self) -> list[Any]:
        """Return a list of a batch to give, where the last one was given before a resume."""
        if not hasattr(self.loader, "load_state_dict"):
            return []
        state = self.loader.state_dict()
        found = list(islice(self.loader, 1))
        self.loader.load_state_dict(state)
        return found

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; see `DataLoader.set_epoch`."""
        self._method("set_epoch")(epoch)
        self._is_held, self._has_ended, self._next_epoch = False, False, None

    def state_dict(self, trained: int | None = None) -> dict[str, Any]:
        """Return the position after the last batch that was given.

        Each rank saves and loads its own.

        Args:
            trained: return the position after so many batches of the loader; see
                `DataLoader.state_dict`. What is given again comes after the last of them.

        Raises:
            StateError: a batch was drawn, and the others did not answer: it was not given; or the
                loader has no state.
        """
        state_of = self._method("state_dict")
        if trained is not None:
            return {"loader": state_of(trained), "has_ended": False, "next_epoch": None}
        if self._is_held:
            raise StateError(
                "the ranks were interrupted while they agreed on a step: its batch was drawn and"
                " not given. Save a state between two steps"
            )
        return {
            "loader": state_of(),
            "has_ended": self._has_ended,
            "next_epoch": self._next_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration resume where the state was saved.

        Raises:
            StateError: it is no state of an EvenSteps, or does not fit the loader.
        """
        found = state if isinstance(state, dict) else {}
        ended, epoch = found.get("has_ended"), found.get("next_epoch")
        if type(ended) is not bool or not (epoch is None or (type(epoch) is int and epoch >= 0)):
            raise StateError(
                "the state of EvenSteps is a dict with 'loader', 'has_ended' and 'next_epoch', got"
                f" {got(state)}. Pass what its state_dict() returned; a loader's own state goes to"
                " the loader"
            )
        self._method("load_state_dict")(state["loader"])
        if epoch is not None:
            self.loader.set_epoch(epoch)
        self._is_held, self._has_ended, self._next_epoch = False, ended, epoch

    def _method(self, name: str) -> Callable[..., Any]:
        """Return a method of the loader. StateError: it has none of that name."""
        if not has_method(self.loader, name):
            raise StateError(
                f"the loader of this EvenSteps has no {name}, got {got(self.loader)}. Pass a"
                " DataLoader, or a StatefulDataLoader"
            )
        found: Callable[..., Any] = getattr(self.loader, name)
        return found


def _agreement(
    ask: Callable[[list[int]], list[int]], has: bool, can_fill: bool, failed: bool = False
) -> _Agreement:
    ranks = known_ranks()
    nobody, own = (1, 0) if ranks is None else (ranks.world_size or 1, ranks.rank or 0)
    least = ask([has, -has, can_fill, own if failed else nobody])
    all_have, any_has, all_can_fill = map(bool, least[:3])
    return _Agreement(all_have, any_has, all_can_fill, None if least[3] == nobody else least[3])


def _way_to_ask(group: Any) -> Callable[[list[int]], list[int]] | None:
    """Return the function that gives the least of each number over all ranks; None: it is alone.

    Raises:
        ConfigError: there are several ranks, and no library has joined them.
    """
    for module, find in (("torch", _of_torch), ("paddle", _of_paddle)):
        distributed: Any = sys.modules.get(f"{module}.distributed")
        found = None if distributed is None else find(sys.modules[module], distributed, group)
        if found is not None:
            return found
    ranks = known_ranks()
    if ranks is None or ranks.world_size == 1:
        return None
    raise ConfigError(
        f"EvenSteps asks the other ranks, and no library has joined them: this is {ranks}. Call"
        " torch.distributed.init_process_group or paddle.distributed.init_parallel_env first"
    )


def _of_torch(torch: Any, distributed: Any, group: Any) -> Callable[[list[int]], list[int]] | None:
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    backend = str(distributed.get_backend(group))
    is_on_cpu = any(name in backend for name in ("gloo", "mpi", "cpu"))
    device = "cpu" if is_on_cpu else torch.device("cuda", torch.cuda.current_device())

    def ask(numbers: list[int]) -> list[int]:
        told = torch.tensor(numbers, dtype=torch.int64, device=device)
        distributed.all_reduce(told, op=distributed.ReduceOp.MIN, group=group)
        return [int(each) for each in told.tolist()]

    return ask


def _of_paddle(
    paddle: Any, distributed: Any, group: Any
) -> Callable[[list[int]], list[int]] | None:
    if not distributed.is_initialized():
        return None

    def ask(numbers: list[int]) -> list[int]:
        told = paddle.to_tensor([int(each) for each in numbers], dtype="int64")
        distributed.all_reduce(told, op=distributed.ReduceOp.MIN, group=group)
        return [int(each) for each in told.tolist()]

    return ask
