from collections.abc import Callable
from typing import Any

def collate_alike(batch: Any, functions: dict[Any, Any], library: Callable[..., Any]) -> Any: ...
