"""The process of one contestant of one row: opens its loader, then waits for commands.

Started as ``python -m tools.bench.torch.contestant NAME ROW``; it speaks as
`tools.bench.contestant` does. It owns the loader it opened, and ends with its input.
"""

from __future__ import annotations

import sys

from tools.bench.contestant import LoaderRun, Run, serve, take_replies
from tools.bench.torch.rows import ROWS


def main() -> None:
    """Serve the contestant and the row that the command line names."""
    name, row = sys.argv[1], ROWS[sys.argv[2]]
    entry = row.entry(name)
    replies = take_replies()
    # After the replies' channel is safe: an import may print.
    from tools.bench.torch.loaders import ResumeRun, StartRun, contestant_of

    def open_run(seconds: float, fresh: int) -> Run:
        if row.kind == "starts":
            return StartRun(entry)
        if row.kind == "resumes":
            return ResumeRun(entry)
        return LoaderRun(contestant_of(row, entry), row.work, seconds, fresh)

    serve(open_run, replies)


if __name__ == "__main__":
    main()
