"""The verdicts of PyTorch's and SPDL's instruments on the same programs, beside a profile's.

Run as ``python -m tools.verdict_bench --peers``; a child runs one program with one library. Imports
the programs, and torch or SPDL when they run. Sources: torch.profiler; SPDL's guide on pipeline
statistics, after which the stage that bounds a pipeline is the first whose queue is mostly empty.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from tools.verdict_bench.programs import KINDS, PROGRAMS, Loop, Program

__all__ = ["LEFT_OUT", "SaidOfSpdl", "SaidOfTorch", "kind_of", "said_by"]

LEFT_OUT = {
    "copies to a device": "the device is simulated, and only this package knows it",
    "two loaders on a pool": "workers of a loader are its own there",
}
_MUCH = 0.1  # a share of the loop
_EMPTY = 0.5  # an occupancy below which a queue is mostly empty
_QUEUE = re.compile(r"\[\d+:(\d+):(\w+)(?:\[\d+\])?_queue\].*Occupancy rate: (\d+)%")


@dataclass(frozen=True)
class SaidOfTorch:
    """The output of torch.profiler and PyTorch's warnings for a loop.

    Attributes:
        share: of the loop that was spent in the row `enumerate(DataLoader)#...__next__`.
        rows: other rows of the table that took a tenth of the loop or more.
        warned: texts of warnings.
    """

    share: float
    rows: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SaidOfSpdl:
    """The output of SPDL's log for a loop.

    Attributes:
        occupancy: of the queue behind each stage, from 0 to 1.
    """

    occupancy: dict[str, float]

    @property
    def stage(self) -> str:
        """The first stage whose queue is mostly empty; "consumer": none is."""
        for name, share in self.occupancy.items():
            if share < _EMPTY:
                return name
        return "consumer"


def kind_of(program: Program) -> str:
    """Return the kind of loader by which peers run a program."""
    return next(kind for kind in ("2", "1", "2 threads") if kind in program.kinds)


def said_by(library: str, name: str) -> dict[str, Any] | None:
    """Run a program by a library, in a process; return what was said, None: it is not installed.

    Args:
        library: "torch" or "spdl".
        name: of the program.

    Raises:
        RuntimeError: it failed.
    """
    if find_spec(library) is None:
        return None
    command = [sys.executable, "-m", "tools.verdict_bench.peers", library, name]
    with PROGRAMS[name].around():
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} by {library} ended with {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- in the child ------------------------------------------------------------------------------


def _torch_loader(data: Any, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    options.pop("worker_type", None)
    return DataLoader(data, **options)


class _SpdlLoader:
    """A pipeline that works as a loader: batches of indices, fetched, then collated."""

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        num_workers: int = 2,
        batch_sampler: Iterable[list[int]] | None = None,
        collate_fn: Any = None,
        worker_init_fn: Any = None,
        prefetch_factor: int = 2,
        **_options: Any,
    ) -> None:
        count = len(data)
        order = [list(range(i, min(i + batch_size, count))) for i in range(0, count, batch_size)]
        self._data = data
        self._batches = order if batch_sampler is None else batch_sampler
        self._collate = collate_fn or np.stack
        self._workers = num_workers
        self._ahead = prefetch_factor * num_workers
        self._begin = worker_init_fn or int

    def fetch(self, indices: list[int]) -> list[Any]:
        return [self._data[index] for index in indices]

    def collate(self, samples: list[Any]) -> Any:
        return self._collate(samples)

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder, StatsQueue, TaskStatsHook

        # threads for each stage, so that no task waits for one
        executor = ThreadPoolExecutor(2 * self._workers, "worker", self._begin, (0,))
        by: Any = {"concurrency": self._workers, "executor": executor, "output_order": "input"}
        builder = PipelineBuilder().add_source(iter(self._batches))
        builder.pipe(self.fetch, name="fetch", **by).pipe(self.collate, name="collate", **by)
        builder.add_sink(self._ahead)
        pipeline = builder.build(
            num_threads=1,
            queue_class=StatsQueue,
            task_hook_factory=lambda info: [TaskStatsHook(info)],
        )
        with pipeline.auto_stop(), executor:
            yield from pipeline


def _run(loop: Loop) -> float:
    began = time.perf_counter()
    with loop.around:
        for _ in range(loop.epochs):
            for batch in loop.loader:
                loop.step(batch)
    return time.perf_counter() - began


def _by_torch(name: str) -> dict[str, Any]:
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        program = PROGRAMS[name]
        loop = program.make({**KINDS[kind_of(program)], "made_by": _torch_loader}, False)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            seconds = _run(loop)
    rows = {row.key: row.cpu_time_total * 1e-6 / seconds for row in seen.key_averages()}
    own = {key for key in rows if key.startswith("enumerate(DataLoader)")}
    others = [key for key in rows.keys() - own if rows[key] > _MUCH]
    texts = sorted({str(each.message) for each in warned})
    return vars(SaidOfTorch(sum(rows[key] for key in own), others, texts))


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _by_spdl(name: str) -> dict[str, Any]:
    log, lines = logging.getLogger("spdl"), _Lines()
    log.setLevel(logging.INFO)
    log.addHandler(lines)
    options = {"num_workers": 2, "worker_type": "thread", "made_by": _SpdlLoader}
    _run(PROGRAMS[name].make(options, False))
    found: dict[tuple[int, str], list[float]] = {}
    for line in lines.lines:
        if match := _QUEUE.search(line):
            stage = match[2].replace("src", "source")
            found.setdefault((int(match[1]), stage), []).append(int(match[3]) / 100)
    return {"occupancy": {key[1]: sum(each) / len(each) for key, each in sorted(found.items())}}


if __name__ == "__main__":
    by = {"torch": _by_torch, "spdl": _by_spdl}[sys.argv[1]]
    print(json.dumps(by(sys.argv[2])))
