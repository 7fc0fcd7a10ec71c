"""Command line of the PyTorch rows.

Run as ``python -m tools.bench.torch``.
"""

from __future__ import annotations

import sys

from tools.bench.row_command import RowCommand
from tools.bench.torch.rows import ROWS, goals
from tools.bench.torch.table import markdown, render

COMMAND = RowCommand(
    package="tools.bench.torch",
    description="Measure reader.compat.torch beside torch.utils.data, as programs see it.",
    rows=ROWS,
    goals=goals,
    render=render,
    markdown=markdown,
    timeout_s=120.0,
)
JSON, CONTESTANT, parse = COMMAND.json, COMMAND.contestant, COMMAND.parse

if __name__ == "__main__":
    sys.exit(COMMAND.main())
