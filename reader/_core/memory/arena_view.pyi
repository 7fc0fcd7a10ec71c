from typing import NamedTuple

FILE_NAME: str

class ArenaHeader(NamedTuple):
    run: int
    heaps: int
    page_nbytes: int
    owned_bytes: int
    limit_nbytes: int
    is_waiting: bool
    is_closing: bool

class HeapView(NamedTuple):
    pid: int
    since_ns: int
    batches: int
    busy_ns: int
    tasks: int
    fetch_ns: int
    made_ns: int
    slowest_ns: int

def header_of(page: bytes) -> ArenaHeader | None: ...
def noted_place(header: ArenaHeader, page: bytes, index: int) -> tuple[int, int] | None: ...
def heap_of(page: bytes, noted: bytes, run: int) -> HeapView | None: ...
