"""What tests of generator loaders feed: the place, and the inputs of their programs.

Imports paddle. Holds no state.
"""

from __future__ import annotations

from typing import Any

import paddle

CPU = paddle.CPUPlace()


def inputs() -> list[Any]:
    """Rows of three floats and one integer, in the current program."""
    return [
        paddle.static.data("x", [None, 3], "float32"),
        paddle.static.data("y", [None, 1], "int64"),
    ]
