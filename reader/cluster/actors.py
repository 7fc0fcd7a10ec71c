"""Ray actors behind a line to a worker: the loader's own, or one that programs share.

Imports the backend and the release. Actors belong to the lander, which makes their actor classes
once.
"""

from __future__ import annotations

import abc
import contextlib
from typing import Any

from reader.cluster.ray_backend import Ray
from reader.cluster.release import release

__all__ = ["Actor", "OwnActor", "PoolActor"]

_NAMESPACE = "lodreader"


class Actor(abc.ABC):
    """The actor that makes the batches of a worker. Methods that return a reference do not wait.

    Args:
        ray: the module.
        actor: Ray's handle.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    @abc.abstractmethod
    def start(self) -> Any:
        """Return the reference to the result of RemoteWorker.start."""

    @abc.abstractmethod
    def work(self, tasks: list[tuple[Any, ...]]) -> Any:
        """Return the reference to the result of RemoteWorker.work."""

    @abc.abstractmethod
    def call(self, key: str, data: Any) -> Any:
        """Return the reference to the result of RemoteWorker.call; `data` may be a reference."""

    @abc.abstractmethod
    def release(self) -> Any:
        """Stop its work for this program; returns a reference to the call, or None."""

    @abc.abstractmethod
    def beat(self) -> None:
        """Show that this program is alive."""

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)


class OwnActor(Actor):
    """An actor that works for one loader, and ends with it.

    Args:
        ray: the module.
        kind: RemoteWorker as an actor class of Ray, with the options of the backend.
        config: reference to a SentConfig.
        worker_id: its number.
        in_flight: the most tasks that it may have.
    """

    def __init__(self, ray: Any, kind: Any, config: Any, worker_id: int, in_flight: int) -> None:
        super().__init__(ray, kind.remote(release(), config, worker_id, in_flight))

    def start(self) -> Any:
        """See Actor."""
        return self._actor.start.remote()

    def work(self, tasks: list[tuple[Any, ...]]) -> Any:
        """See Actor."""
        return self._actor.work.remote(tasks)

    def call(self, key: str, data: Any) -> Any:
        """See Actor."""
        return self._actor.call.remote(key, data)

    def beat(self) -> None:
        """See Actor. Not needed: Ray ends it with this program."""

    def release(self) -> Any:
        """See Actor."""
        self.kill()


class PoolActor(Actor):
    """An actor that works for all programs that name its pool, and ends with the last of them.

    Args:
        ray, config, worker, in_flight: see OwnActor.
        kind: PoolWorker as an actor class of Ray.
        backend: see Ray.
        user: a name of this program that no other will have.
    """

    def __init__(
        self,
        ray: Any,
        kind: Any,
        config: Any,
        worker_id: int,
        in_flight: int,
        backend: Ray,
        user: str,
    ) -> None:
        named = kind.options(
            name=f"{backend.pool}:{worker_id}",
            namespace=_NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            **backend.actor_options(),
        )
        super().__init__(ray, named.remote(worker_id))
        self._start = release(), config, in_flight
        self._user = user

    def start(self) -> Any:
        """See Actor."""
        return self._actor.start.remote(self._user, *self._start)

    def work(self, tasks: list[tuple[Any, ...]]) -> Any:
        """See Actor."""
        return self._actor.work.remote(self._user, tasks)

    def call(self, key: str, data: Any) -> Any:
        """See Actor."""
        return self._actor.call.remote(self._user, key, data)

    def beat(self) -> None:
        """See Actor."""
        self._actor.beat.remote(self._user)

    def release(self) -> Any:
        """See Actor."""
        return self._actor.release.remote(self._user)
