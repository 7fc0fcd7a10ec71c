"""Run one program once and print the results as JSON.

Imports the programs. Run as ``python -m tools.verdict_bench.child NAME KIND OPTIONS``; OPTIONS:
those that the verdict named, as JSON; "": nothing was changed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from reader.observe.profile import Profile
from tools.verdict_bench.programs import KINDS, PROGRAMS, Loop

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run a program; see above."""
    name, kind, named = arguments
    options = {**KINDS[kind], **(json.loads(named) if named else {})}
    if options.get("worker_type") == "process" and not options["num_workers"]:
        del options["worker_type"]
    print(json.dumps(run(PROGRAMS[name].make(options, bool(named)))))
    return 0


def run(loop: Loop) -> dict[str, Any]:
    """Run a loop; return its seconds and, for a loader of ours, its profile's verdict."""
    loader = loop.loader
    with loop.around:
        if isinstance(loader, list):
            began = time.perf_counter()
            for batch in loader:
                loop.step(batch)
            return {"seconds": time.perf_counter() - began}
        with loader, Profile(loader) as seen:
            for _ in range(loop.epochs):
                for batch in loader:
                    loop.step(batch)
    found: dict[str, Any] = json.loads(seen.to_json())
    return {"seconds": seen.measured.seconds, **found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
