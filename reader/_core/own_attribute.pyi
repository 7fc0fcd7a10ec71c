# Types of reader._core.own_attribute, built from cython_ext/reader/_core/own_attribute.pyx.
# Holds no code.

from typing import Any

MISSING: Any

def own_attribute(value: Any, name: str, default: Any = None) -> Any: ...
