"""The lander's watches of remote workers: one actor per node, made when needed.

Imports NodeWatch. They belong to the lander, and end with it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from reader.cluster.node_watch import NodeWatch
from reader.cluster.remote_worker import Place
from reader.cluster.reply import Reply
from reader.errors import ReaderError

__all__ = ["Watch", "Watches"]

_PATIENCE_S = 2.0  # for the last look at a worker that died


class Watch:
    """Looks at one worker.

    Args:
        ray: the module.
        actor: a NodeWatch of its node.
        worker_id: its number.
        place: of the worker.
        wake: called when an answer has come.
    """

    def __init__(
        self, ray: Any, actor: Any, worker_id: int, place: Place, wake: Callable[[], None]
    ) -> None:
        self._ray, self._wake = ray, wake
        attach = functools.partial(actor.attach.remote, worker_id, place.pid, place.arena)
        self._look = functools.partial(actor.look.remote, worker_id, place.pid)
        self._attaching = Reply(attach, wake)
        self._looking: Reply | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is known if it can look."""
        return self._attaching.has_come

    @property
    def is_attached(self) -> bool:
        """Whether it looks."""
        return self._attaching.has_come and self._attaching.error is None

    @property
    def is_refused(self) -> bool:
        """Whether the node refuses to look; False also if the worker was gone by then."""
        error = self._attaching.error if self._attaching.has_come else None
        is_gone = isinstance(error, (FileNotFoundError, ProcessLookupError))
        return isinstance(error, (OSError, ReaderError)) and not is_gone

    def look(self) -> tuple[int, int, int, float] | None:
        """Return the worker's batch if a new look has come, and look again."""
        found = None
        if not self.is_attached:
            return None
        if self._looking is not None:
            if not self._looking.has_come:
                return None
            with contextlib.suppress(Exception):  # the node is gone: the line notices that
                found = self._looking.result()
        self._looking = Reply(self._look, self._wake)
        return found

    def last(self) -> tuple[int, int, int, float] | None:
        """Return the batch at which a worker died; None: it was idle, or its node is gone."""
        with contextlib.suppress(Exception):
            found: tuple[int, int, int, float] | None
            found = self._ray.get(self._look(), timeout=_PATIENCE_S)
            return found
        return None


class Watches:
    """Makes the watches.

    Args:
        ray: the module.
        wake: see Watch.
    """

    def __init__(self, ray: Any, wake: Callable[[], None]) -> None:
        self._ray, self._wake = ray, wake
        self._nodes: dict[str, Any] = {}

    def watch(self, worker_id: int, place: Place) -> Watch:
        """Begin to look at a worker."""
        if place.node not in self._nodes:
            ray = self._ray
            where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            options = {"num_cpus": 0, "scheduling_strategy": where(place.node, soft=False)}
            self._nodes[place.node] = ray.remote(NodeWatch).options(**options).remote()
        return Watch(self._ray, self._nodes[place.node], worker_id, place, self._wake)
