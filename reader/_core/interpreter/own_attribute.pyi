# Types of reader._core.interpreter.own_attribute. Holds no code.

from typing import Any

MISSING: Any

def own_attribute(value: Any, name: str, default: Any = None) -> Any: ...
def note_owned(
    found: list[tuple[tuple[Any, ...], Any]],
    value: Any,
    path: tuple[Any, ...],
    one: tuple[str, ...],
    many: tuple[str, ...],
    depth: int,
    having: str | None = None,
) -> None: ...
