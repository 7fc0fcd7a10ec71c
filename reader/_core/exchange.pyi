# Types of reader._core.exchange, which is built from cython_ext/reader/_core/exchange.pyx; the
# contract is in exchange.pxd. Holds no code.

from typing import Any

def can_stack_tensor(value: Any) -> bool: ...
def is_plain_tensor(value: Any) -> bool: ...
