# Types of reader._core.round_robin, which is built from cython_ext/reader/_core/round_robin.pyx.
# Holds no code.

from collections import Counter
from collections.abc import Callable
from typing import final

@final
class RoundRobin:
    turn: int
    def __init__(self, workers: int, turn: int = 0, limit: int = 1) -> None: ...
    def watch(self, loads: Callable[[], Counter[int]]) -> None: ...
    def next_worker(self) -> int: ...
    def pass_on(self, worker: int) -> None: ...
