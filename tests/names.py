"""Names of parametrized tests: the text of a value, the same in every process.

Imports the standard library. Processes that share a run must collect the same names, so an address
in memory has no place in one. Holds nothing.
"""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """`str(value)` without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
