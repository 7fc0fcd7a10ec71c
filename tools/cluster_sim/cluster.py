"""The machines: their network and stores, the actors on them, and their failures.

Imports the clock and the model. All belongs to one simulation.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from tools.cluster_sim.clock import Clock
from tools.cluster_sim.model import Measured, Setting

__all__ = ["Actor", "Call", "Cluster", "Node"]

_INLINE_NBYTES = 100 << 10  # answers up to this travel with the reply, as Ray has it


class Node:
    """A machine: a link to the others, which carries one thing after another, and a store.

    Attributes:
        number: from 0; those of trainers come first.
        is_alive: whether it was not lost.
        sent_s, got_s: how long its link was busy, in each direction.
        stored, most_stored: bytes in its store, now and at most.
        actors: how many there are on it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_alive = True
        self.sends_until = self.gets_until = self.starts_until = 0.0
        self.sent_s = self.got_s = 0.0
        self.stored = self.most_stored = 0
        self.actors = 0

    def store(self, nbytes: int) -> None:
        """Put bytes into the store; less than 0: take them out."""
        self.stored += nbytes
        self.most_stored = max(self.most_stored, self.stored)


@dataclasses.dataclass
class Call:
    """Tasks that were sent to an actor together.

    Attributes:
        line: of the lander.
        life: of the line then.
        maker: the line whose actor does them.
        actor: that one.
        tasks: (number, run, keys) of each.
        back: called when the answers are at the trainer's machine.
        seconds: that they took there.
        nbytes: of the answers.
        source: where the answers lie.
        ends: where they are stored.
    """

    line: Any
    life: int
    maker: Any
    actor: Actor
    tasks: list[Any]
    back: Callable[[Call], None]
    seconds: float = 0.0
    nbytes: int = 0
    source: Node | None = None
    ends: list[Node] = dataclasses.field(default_factory=list)


class Actor:
    """A remote worker, which does one call after another, whoever sent them.

    Attributes:
        number: of its place among the workers.
        busy_s: that it made batches, in the time that counts.
        lines: that are told when it ends.
    """

    def __init__(self, cluster: Cluster, number: int, node: Node, factor: float) -> None:
        self._cluster, self.number, self.node, self._factor = cluster, number, node, factor
        self.is_alive, self.is_started = True, False
        self.current: Call | None = None
        self.lines: dict[Any, None] = {}
        self._calls: deque[Call] = deque()
        node.actors += 1

    def begin(self) -> None:
        """It runs from now on."""
        self.is_started = self.is_alive
        for line in [*self.lines]:
            line.begun(self)
        self._next()

    def take(self, call: Call) -> None:
        """A call has come."""
        if self.is_alive:
            self._calls.append(call)
            self._next()

    def _next(self) -> None:
        if self.current is None and self._calls and self.is_started:
            call = self.current = self._calls.popleft()
            call.seconds = sum(self._cluster.work_s() * self._factor for _ in call.tasks)
            whole_s = call.seconds + self._cluster.measured.worker_s
            self._cluster.clock.after(whole_s, lambda: self._made(call, whole_s))

    def _made(self, call: Call, seconds: float) -> None:
        if not self.is_alive:
            return
        self.current = None
        self._cluster.note_made(self, call, seconds)
        self._cluster.move(call, self.node)
        self._next()


class Cluster:
    """All nodes and actors.

    Attributes:
        made: batches, in the whole time.
        failures, nodes_lost, starts: how many.
        busy: seconds of each worker's place in the time that counts.
        head_s: of the processor of the head service.
        longest_start_s: from a request for an actor till it ran.
    """

    def __init__(self, clock: Clock, measured: Measured, setting: Setting) -> None:
        self.clock, self.measured, self.setting = clock, measured, setting
        self._chance = random.Random(setting.seed)
        homes = -(-setting.trainers // setting.trainers_per_node)
        count = max(homes + 1, homes + -(-setting.workers // setting.workers_per_node))
        self.nodes = [Node(number) for number in range(count)]
        if setting.homes_work:
            count = max(homes, count - homes)
        self.homes = self.nodes[:homes]
        self._hosts = self.nodes[:] if setting.homes_work else self.nodes[homes:]
        self.actors: dict[int, Actor] = {}
        slow = round(setting.stragglers * setting.workers)
        self._slow = set(self._chance.sample(range(setting.workers), slow))
        self.busy = [0.0] * setting.workers
        self.made = self.failures = self.nodes_lost = self.starts = 0
        self._head_until = self.head_s = 0.0
        self.longest_start_s = 0.0
        if setting.failure_s:
            clock.after(setting.failure_s, self._fail)

    @property
    def hosts(self) -> list[Node]:
        """The machines that workers are or were on."""
        return self.nodes if self.setting.homes_work else self.nodes[len(self.homes) :]

    def home_of(self, trainer: int) -> Node:
        """Return the machine of a trainer."""
        return self.homes[trainer // self.setting.trainers_per_node]

    def work_s(self) -> float:
        """Return how long a worker of usual speed takes for the next batch."""
        setting = self.setting
        return setting.work_s * (1 + setting.spread * (self._chance.random() - 0.5))

    # -- actors ----------------------------------------------------------------------------------

    def actor(self, number: int) -> Actor:
        """Return the worker of a place; start one if none lives."""
        found = self.actors.get(number)
        if found is None or not found.is_alive:
            found = self.actors[number] = self._started(number)
        return found

    def _started(self, number: int) -> Actor:
        hosts = [node for node in self._hosts if node.is_alive]
        node = min(hosts, key=lambda each: (each.actors, each.number))
        factor = self.setting.slower if number in self._slow else 1.0
        actor = Actor(self, number, node, factor)
        self.starts += 1
        now, measured = self.clock.now, self.measured
        # the head takes one after another, and so does a machine
        self._head_until = max(now, self._head_until) + measured.head_start_s
        node.starts_until = max(self._head_until, node.starts_until) + measured.node_start_s
        self.head_s += measured.head_start_s
        at = max(node.starts_until, now + measured.start_s)
        if self.setting.is_warm and not now:
            at = self._head_until = node.starts_until = self.head_s = 0.0
        self.longest_start_s = max(self.longest_start_s, at - self.clock.now)
        self.clock.at(at, actor.begin)
        return actor

    def note_made(self, actor: Actor, call: Call, seconds: float) -> None:
        """Count what an actor made."""
        self.made += len(call.tasks)
        if self.clock.now > self.setting.warm_s:
            self.busy[actor.number] += min(seconds, self.clock.now - self.setting.warm_s)

    # -- network ---------------------------------------------------------------------------------

    def move(self, call: Call, source: Node) -> None:
        """Bring the answers of a call to the trainer's node, then notify its lander."""
        target: Node = call.line.node
        call.source, call.nbytes = source, self.setting.nbytes * len(call.tasks)
        half_s = self.measured.call_s / 2
        if call.nbytes > _INLINE_NBYTES:
            call.ends.append(source)
            source.store(call.nbytes)
            if target is not source:
                self._carry(call, source, target)
                return
        self.clock.after(half_s, lambda: call.back(call))

    def _carry(self, call: Call, source: Node, target: Node) -> None:
        now, setting = self.clock.now, self.setting
        seconds = call.nbytes / min(setting.network, self.measured_rate)
        sends = max(now, source.sends_until)
        source.sends_until = sends + seconds
        begins = max(sends, target.gets_until)  # each end is shared with its other transfers
        target.gets_until = begins + seconds
        if now > setting.warm_s:
            source.sent_s += seconds
            target.got_s += seconds
        self.clock.at(begins, lambda: self._arrives(call, target))
        self.clock.at(begins + seconds + self.measured.call_s / 2, lambda: call.back(call))

    @property
    def measured_rate(self) -> float:
        """Bytes per second that one machine's stores exchange at most."""
        return self.measured.node_rate

    def _arrives(self, call: Call, target: Node) -> None:
        if call.source is not None and call.source.is_alive:
            call.ends.append(target)
            target.store(call.nbytes)

    def free(self, call: Call) -> None:
        """Release the answers of a call."""
        for node in call.ends:
            node.store(-call.nbytes)
        call.ends.clear()

    # -- failures --------------------------------------------------------------------------------

    def _fail(self) -> None:
        self.clock.after(self.setting.failure_s, self._fail)
        alive = [actor for actor in self.actors.values() if actor.is_alive]
        if not alive:
            return
        self.failures += 1
        victim = self._chance.choice(alive)
        hosts = sum(node.is_alive for node in self._hosts)
        if hosts > 1 and self._chance.random() < self.setting.of_nodes:
            self.nodes_lost += 1
            lost, fresh = victim.node, Node(len(self.nodes))
            lost.is_alive = False
            self.nodes.append(fresh)  # another machine takes its place
            self._hosts[self._hosts.index(lost)] = fresh
            for actor in alive:
                if actor.node is lost:
                    self._end(actor)
        else:
            self._end(victim)

    def _end(self, actor: Actor) -> None:
        actor.is_alive = False
        actor.node.actors -= 1
        for line in [*actor.lines]:
            self.clock.after(self.measured.death_s, functools.partial(line.lost, actor))
