# Types of reader._core.structure, which is built from cython_ext/reader/_core/structure.pyx. Holds
# no code.

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import IntEnum
from typing import Any, TypeVar, final

import numpy as np

_T = TypeVar("_T")

class NodeKind(IntEnum):
    FIELD = 0
    OBJECT = 1
    DICT = 2
    LIST = 3
    TUPLE = 4
    NAMEDTUPLE = 5
    DATACLASS = 6
    CUSTOM = 7

@final
class Structure:
    @property
    def kind(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def cls(self) -> type[Any] | None: ...
    @property
    def keys(self) -> tuple[Any, ...] | None: ...
    @property
    def extra(self) -> Any: ...
    @property
    def children(self) -> list[Structure] | None: ...
    def restore(self, fields: Sequence[Any], objects: Sequence[Any] = ()) -> Any: ...
    def paths(self) -> tuple[list[str], list[str]]: ...
    def child_names(self) -> list[str]: ...

@final
class Flat:
    @property
    def fields(self) -> list[Any]: ...
    @property
    def objects(self) -> list[Any]: ...
    @property
    def structure(self) -> Structure: ...
    def __iter__(self) -> Iterator[Any]: ...

def flatten(value: Any) -> Flat: ...
def restore(structure: Structure, fields: Sequence[Any], objects: Sequence[Any] = ()) -> Any: ...
def register_container(
    cls: type[_T],
    flatten: Callable[[_T], tuple[list[Any], Hashable]],
    restore: Callable[[list[Any], Any], _T],
) -> None: ...
def register_array_converter(
    module: str,
    converter: Callable[[Any], tuple[np.ndarray[Any, Any], str | None] | None],
) -> None: ...
