"""The lander of a trainer: the work of its processor, and the order of calls to actors.

Imports the product's rules for calls, and the cluster. It follows `reader.cluster.lander` and
`line`; their costs are measured.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from reader.cluster.line import has_time, lender
from reader.cluster.pace import is_quick, most_tasks
from tools.cluster_sim.cluster import Actor, Call, Cluster, Node

__all__ = ["Lander", "Line"]


class Line:
    """What goes to one remote worker, and comes from it.

    Attributes:
        worker: its number in the pool of the trainer.
        life: how many workers there were in this place.
        waiting: tasks that were not sent to it yet.
        under_way: its calls without a result.
        load: how many calls its actor has from this lander.
    """

    def __init__(self, lander: Lander, worker_id: int, number: int, node: Node) -> None:
        self._lander, self.worker, self.number, self.node = lander, worker_id, number, node
        self.life = 0
        self.waiting: deque[Any] = deque()
        self.under_way: list[Call] = []
        self.load = 0
        self.is_quick = False
        self.is_ended = True
        self.actor: Actor | None = None

    def open(self) -> None:
        """Begin with an actor that lives."""
        self.is_ended = False
        self.actor = self._lander.cluster.actor(self.number)
        self.actor.lines[self] = None
        if self.actor.is_started:
            self.begun(self.actor)

    def begun(self, actor: Actor) -> None:
        """The actor runs."""
        if actor is self.actor and not self.is_ended:
            self._lander.started[self] = None
            self._lander.ask()

    def lost(self, actor: Actor) -> None:
        """An actor of it, or one that makes its batches, has ended."""
        makes = any(call.actor is actor for call in self.under_way)
        if not self.is_ended and (actor is self.actor or makes):
            self.end()
            self._lander.died(self.worker)

    def end(self) -> None:
        """Release the worker."""
        self.is_ended = True
        self.life += 1
        self.waiting.clear()
        for call in self.under_way:
            self._lander.drop(call)
        self.under_way.clear()
        if self.actor is not None:
            self.actor.lines.pop(self, None)
        self._lander.started.pop(self, None)


class Lander:
    """A process with one thread that counts: it lands arrived batches, then sends tasks.

    Args:
        cluster: where the actors are.
        node: of the trainer.
        numbers: the places of the workers that it has lines to.
        land: called with (worker, tasks) of a call that has landed.
        died: called with a worker that has ended.

    Attributes:
        used_s: of the processor, in the time that counts.
        nbytes: of batches under way.
        dropped: batches that came after their worker had ended, and are made again.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        numbers: list[int],
        land: Callable[[int, list[Any]], None],
        died: Callable[[int], None],
    ) -> None:
        self.cluster, self.died = cluster, died
        self._land = land
        self.lines = [
            Line(self, worker_id, number, node) for worker_id, number in enumerate(numbers)
        ]
        self.started: dict[Line, None] = {}
        self._inbox: deque[Call] = deque()
        self._due: set[int] = set()  # lines with tasks that wait
        self._free_at = 0.0
        self._is_asked = False
        self.used_s = 0.0
        self.nbytes = self.dropped = 0

    def send(self, worker_id: int, task: Any) -> None:
        """A task was written to the ring of a worker."""
        self.lines[worker_id].waiting.append(task)
        self._due.add(worker_id)
        self.ask()

    def came(self, call: Call) -> None:
        """The result of a call has come."""
        self._inbox.append(call)
        self.ask()

    def ask(self) -> None:
        """Let it look at its lines: now, or after its present work."""
        if not self._is_asked:
            self._is_asked = True
            self.cluster.clock.at(self._free_at, self._look)

    def drop(self, call: Call) -> None:
        """Stop waiting for the result of a call under way."""
        self.nbytes -= self.cluster.setting.nbytes * len(call.tasks)
        call.maker.load -= 1
        self.cluster.free(call)

    def _look(self) -> None:
        self._is_asked = False
        cluster, measured = self.cluster, self.cluster.measured
        at = cluster.clock.now + measured.wake_s + measured.line_s * len(self.lines)
        while self._inbox:
            call = self._inbox.popleft()
            line = call.line
            if line.life != call.life:
                cluster.free(call)
                self.dropped += len(call.tasks)
                continue
            count = len(call.tasks)
            at += count * (measured.batch_s + cluster.setting.nbytes / measured.landing_rate)
            line.under_way.remove(call)
            call.maker.load -= 1
            line.is_quick = is_quick(call.seconds, count)
            self.nbytes -= cluster.setting.nbytes * count
            self._due.add(line.worker)
            cluster.clock.at(at, functools.partial(self._landed, call))
        at = self._send_all(at)
        if cluster.clock.now > cluster.setting.warm_s:
            self.used_s += at - cluster.clock.now
        self._free_at = at

    def _landed(self, call: Call) -> None:
        self.cluster.free(call)
        if call.line.life == call.life:
            self._land(call.line.worker, call.tasks)

    def _send_all(self, at: float) -> float:
        """Send the tasks that may go, line after line, as the product does; return the time."""
        cluster, setting = self.cluster, self.cluster.setting
        can_lend = True
        for worker_id in sorted(self._due):
            line = self.lines[worker_id]
            while not self.nbytes or self.nbytes < setting.max_in_flight_bytes:
                if line.is_ended or not line.waiting or not has_time(len(line.under_way)):
                    self._due.discard(worker_id)  # it is read again after the next arrival
                    break
                is_started = line in self.started
                maker = line if is_started else lender(self.started) if can_lend else None
                can_lend = maker is not None or is_started
                if maker is None:
                    break
                at += cluster.measured.send_s
                self._send(line, maker, at)
            else:
                break
        return at

    def _send(self, line: Line, maker: Line, at: float) -> None:
        cluster, setting = self.cluster, self.cluster.setting
        actor = maker.actor
        if actor is None:
            raise AssertionError("a line without an actor cannot make batches")
        count = min(len(line.waiting), most_tasks(line.is_quick, setting.nbytes))
        tasks = [line.waiting.popleft() for _ in range(count)]
        call = Call(line, line.life, maker, actor, tasks, self.came)
        actor.lines[line] = None
        line.under_way.append(call)
        maker.load += 1
        self.nbytes += setting.nbytes * count
        cluster.clock.at(at + cluster.measured.call_s / 2, lambda: actor.take(call))
