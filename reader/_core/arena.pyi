# Types of reader._core.arena, which is built from cython_ext/reader/_core/arena.pyx; the contract
# of each field is in arena.pxd. Holds no code.

from typing import TypedDict, final

class _Ledger(TypedDict):
    arenas: int
    held_slots: int

class _ArenaStats(TypedDict):
    owned_bytes: int
    limit_bytes: int
    promised_bytes: int
    free_slots: int
    writing_slots: int
    ready_slots: int
    held_slots: int
    locked_slots: int
    locked_bytes: int

def ledger() -> _Ledger: ...
def fork_generation() -> int: ...

def shared_huge_pages() -> str | None: ...

class Arena:
    @staticmethod
    def create(
        nworkers: int,
        in_flight: int,
        limit_nbytes: int | None = None,
        reserve_nbytes: int | None = None,
        has_file: bool = True,
        uncached_from: int = ...,
    ) -> Arena: ...
    @staticmethod
    def attach(fd: int, nbytes: int | None = None) -> Arena: ...
    @property
    def fd(self) -> int: ...
    def close(self) -> None: ...
    def stop(self) -> None: ...
    def release(self) -> None: ...
    def adopt(self) -> Arena: ...
    def stats(self) -> _ArenaStats: ...

@final
class Lease: ...

@final
class PageLock:
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def is_locked(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def node(self) -> int | None: ...
    def unlock(self) -> None: ...

@final
class Hold: ...
