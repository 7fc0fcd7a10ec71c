"""What the trainer asks of remote workers beside batches: calls that they make between two tasks.

Imports the lines to workers. It belongs to the lander. A call is a pickle that Ray's store hands
out; neither the lander nor a line knows what it does.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reader.cluster.line import Line
from reader.cluster.reply import Reply

__all__ = ["CallResult", "WorkerCall", "WorkerCalls"]


class WorkerCall(NamedTuple):
    """Asks workers to make a call, whose pickle comes beside it.

    `key`: names it: a later one takes its place; `number`: 0: each worker makes it, also those that
    start later; else one worker of each node does, and its result is answered.
    """

    key: str
    number: int = 0


class CallResult(NamedTuple):
    """Tells the trainer the result of a call on a node.

    `value`: None: it failed, or there is no node; `left`: how many answers are still to come.
    """

    key: str
    number: int
    node: str
    value: Any
    left: int


class WorkerCalls:
    """Passes calls on to the workers of all lines, and their results to the trainer.

    Args:
        put: puts a value into Ray's store, and returns its reference.
        tell: sends the trainer a message; False: the trainer does not read.
        wake: called in Ray's thread when a result has come.
    """

    def __init__(
        self, put: Callable[[Any], Any], tell: Callable[[Any], bool], wake: Callable[[], None]
    ) -> None:
        self._put, self._tell, self._wake = put, tell, wake
        self._kept: dict[str, Any] = {}  # references to what each worker is told, by key
        self._told: weakref.WeakKeyDictionary[Line, dict[str, Any]] = weakref.WeakKeyDictionary()
        self._asked: list[tuple[WorkerCall, str, Reply]] = []

    def take(self, order: WorkerCall, call: bytes, lines: Sequence[Line]) -> None:
        """Pass a call on."""
        data = self._put(call)
        if not order.number:
            self._kept[order.key] = data
            return
        nodes: dict[str, Line] = {}
        for line in sorted(filter(_runs, lines), key=lambda line: line.load):
            nodes.setdefault(line.place.node, line)
        for node, line in nodes.items():
            if line.actor is not None:
                send = functools.partial(line.actor.call, order.key, data)
                self._asked.append((order, node, Reply(send, self._wake)))
        if not nodes:
            self._tell(CallResult(*order, "", None, 0))

    def step(self, lines: Sequence[Line]) -> None:
        """Tell workers that have started what the others know, and the trainer what has come."""
        if self._kept:
            for line in filter(_runs, lines):
                told = self._told.setdefault(line, {})
                for key, data in self._kept.items():
                    if told.get(key) is not data and line.actor is not None:
                        told[key] = data
                        line.actor.call(key, data)
        for each in [each for each in self._asked if each[2].has_come]:
            order, node, reply = each
            self._asked.remove(each)
            left = sum(other.number == order.number for other, _, _ in self._asked)
            value = reply.result() if reply.error is None else None
            self._tell(CallResult(*order, node, value, left))


def _runs(line: Line) -> bool:
    return line.is_started and not line.is_ended
