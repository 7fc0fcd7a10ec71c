# Types of reader._core.wire.relay; the contract is in its .pyx. Holds no code.

from typing import Any, NamedTuple, final

import numpy as np

from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel

class RelayedTask(NamedTuple):
    seq: int
    epoch: int
    run: int
    kind: int
    payload: bytes

class Answer(NamedTuple):
    kind: int
    fields: int
    objects: int
    nbytes: int
    attached: int
    within: int
    sum: int
    schema: int
    full: tuple[int, int, int, bool] | None
    made: bytes = b""

class Arrival(NamedTuple):
    at_ns: int
    ahead_ns: int
    others_ns: int

@final
class AnswerRelay:
    def __init__(self, channel: WorkerChannel) -> None: ...
    def begin(self, task: RelayedTask) -> tuple[int, Any] | None: ...
    def take(self) -> tuple[Answer, np.ndarray | None] | None: ...
    def schema(self, number: int) -> bytes: ...
    def release(self) -> None: ...

@final
class TaskRelay:
    def __init__(
        self, channel: WorkerChannel, makes_stale: bool = False, is_shared: bool = False
    ) -> None: ...
    @property
    def channel(self) -> WorkerChannel: ...
    def next_task(self) -> RelayedTask | None: ...
    def knows(self, key: Any) -> bool: ...
    def keep(self, key: Any, pickled: bytes) -> None: ...
    def land(self, answer: Answer, data: Any, key: Any = None, arrival: Arrival = ...) -> None: ...
    def count(
        self, computed_ns: int, runnable_ns: int, stored_ns: int, clock_error_ns: int
    ) -> None: ...
    def count_bounded(self, ns: int) -> None: ...
    def note_idle(self) -> None: ...
    def note(self, seq: int, run: int, row: int, seconds: float) -> bool: ...

def progress_of(arena: Arena) -> tuple[int, int, int, float] | None: ...
