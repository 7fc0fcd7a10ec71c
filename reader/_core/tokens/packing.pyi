# Types of reader._core.tokens.packing. Holds no code.

from typing import Any, final

import numpy as np
import numpy.typing as npt

from reader._core.random.permutation import Permutation

_Numbers = npt.NDArray[np.int64]

@final
class RowCounter:
    tokens: int
    empty: int
    long: int
    left_out: int
    most_pieces: int
    longest: int
    def __init__(self, length: int, policy: int) -> None: ...
    def count(self, lengths: npt.NDArray[Any], begins: _Numbers, run: int) -> int: ...

def best_fit(counts: _Numbers, length: int) -> tuple[_Numbers, _Numbers]: ...

@final
class PackedWindow:
    size: int
    def __init__(
        self,
        filled: _Numbers,
        filled_ends: _Numbers,
        documents: _Numbers,
        firsts: _Numbers,
        order: Permutation | None,
    ) -> None: ...
    def __len__(self) -> int: ...

def pieces_of(
    windows: list[PackedWindow],
    window_of: _Numbers,
    places: _Numbers,
    lengths: npt.NDArray[Any],
    length: int,
    policy: int,
) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]: ...
def lay_out(
    firsts: _Numbers,
    counts: _Numbers,
    length: int,
    positions: npt.NDArray[np.int32] | None,
    segments: npt.NDArray[np.int32] | None,
    ends: npt.NDArray[np.int32] | None,
    longest: npt.NDArray[np.int32] | None,
) -> tuple[_Numbers, int]: ...
def move_on(
    values: npt.NDArray[Any], moved: npt.NDArray[Any], places: _Numbers, counts: _Numbers
) -> None: ...
