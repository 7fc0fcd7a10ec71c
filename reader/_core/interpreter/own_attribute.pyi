# Types of reader._core.interpreter.own_attribute. Holds no code.

from typing import Any

MISSING: Any

def own_attribute(value: Any, name: str, default: Any = None) -> Any: ...
def own_attributes(value: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]: ...
