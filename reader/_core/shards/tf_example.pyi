# Types of reader._core.shards.tf_example. Holds no code.

from typing import Any

def features_of(
    example: bytes, names: frozenset[str] | None, numbers: frozenset[str]
) -> dict[str, Any]: ...
