"""Command line of the Paddle rows.

Run as ``python -m tools.bench.paddle``.
"""

from __future__ import annotations

import sys

from tools.bench.paddle.rows import ROWS, goals
from tools.bench.paddle.table import markdown, render
from tools.bench.row_command import RowCommand

COMMAND = RowCommand(
    package="tools.bench.paddle",
    description="Measure reader.compat.paddle beside paddle.io, as Paddle programs see it.",
    rows=ROWS,
    goals=goals,
    render=render,
    markdown=markdown,
    timeout_s=60.0,  # some of them hang, and no turn takes nearly as long
)
JSON, CONTESTANT, parse = COMMAND.json, COMMAND.contestant, COMMAND.parse

if __name__ == "__main__":
    sys.exit(COMMAND.main())
