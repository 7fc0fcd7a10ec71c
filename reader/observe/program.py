"""Run an unchanged script, and measure each loader that it iterates over.

Imports the engine and the measurement. While a script runs, the engine reports each epoch that
begins; a loader is known by its log of times, which outlives its engines.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reader._core.epoch.iterator import EpochIterator
from reader._core.wire.times_log import TimesLog
from reader.caching.cached_dataset import caches_of, sum_of
from reader.checks import refuse_url
from reader.data.distributed_env import launched_ranks
from reader.engine.backends.backend import Backend, WorkerStatus
from reader.engine.copier import copier_stats
from reader.engine.engine import Engine
from reader.errors import ConfigError, ReaderError, printable
from reader.files import open_to_write
from reader.observe.chart import plot_refusal
from reader.observe.measurement import Measurement
from reader.observe.observed import Observed, ObservedOptions, options_of
from reader.observe.profile import Profile
from reader.stores.fetch_stats import stats_of, uses_of
from reader.stores.shard_cache import CacheUse

__all__ = [
    "LoaderOfProgram",
    "check_reports",
    "measured_loaders",
    "of_rank",
    "run_script",
    "text_of",
    "write_reports",
]

_MOST = 16  # concurrent measurements, before those of dropped loaders are ended
_OURS = f"{Path(__file__).parents[1]}{os.sep}"


class LoaderOfProgram(Observed):
    """A loader of a program, seen through its engines.

    Attributes:
        place: where the program began to iterate over it, such as "train.py:31".
        profile: of all its loops, set when the program has ended.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine_ref = weakref.ref(engine)  # weak: a dropped loader must end its workers
        self._batches_ref: weakref.ref[EpochIterator] | None = None
        self._devices: dict[str, Any] | None = None  # the last counts of copies
        self._options = options_of(engine)
        self._caches = [weakref.ref(each) for each in caches_of(engine.config.dataset)]
        self._uses = [(weakref.ref(use.cache), use.name) for use in uses_of(engine.config.dataset)]
        self._cached = sum_of(caches_of(engine.config.dataset))  # the last counts
        self._times = engine.times
        self._opened_ns: list[int] = []
        self._thread = threading.get_ident()
        self.place = _place()
        self.dataset = type(engine.config.dataset).__name__
        self.profile: Profile | None = None
        self._measurement = Measurement(self)

    def _observed_engine(self) -> Engine | None:
        return self._engine_ref()

    def _observed_options(self) -> ObservedOptions:
        return self._options

    def _observed_times(self) -> TimesLog:
        return self._times

    def _observed_workers(self) -> list[WorkerStatus]:
        engine, batches = self._engine_ref(), self._batches()
        if engine is not None or batches is None:
            return super()._observed_workers()
        batches.give_way()
        backend: Backend = batches.epoch.backend
        return backend.statuses()  # `for batch in DataLoader(...)` keeps only the iterator

    def _observed_stats(self) -> dict[str, Any] | None:
        engine, batches = self._engine_ref(), self._batches()
        caches = [cache for each in self._caches if (cache := each()) is not None]
        self._cached = sum_of(caches) or self._cached
        found: dict[str, Any] = {"arena": None, "cache": self._cached}
        if engine is not None:
            found = engine.counts()
            self._devices = found["devices"]
        elif batches is not None:
            self._devices = copier_stats(batches.epoch.copiers)
            arena = batches.epoch.backend.arena
            with suppress(ReaderError):  # it is closed at the iterator's end
                found["arena"] = None if arena is None else {**arena.stats(), "is_open": True}
        return {**found, "devices": self._devices}

    def _observed_fetches(self) -> dict[str, Any] | None:
        uses = [CacheUse(cache, name) for each, name in self._uses if (cache := each()) is not None]
        return stats_of(uses)

    @property
    def is_dropped(self) -> bool:
        """Whether neither the loader nor an iterator of it is left."""
        return self._engine_ref() is None and self._batches() is None

    def _batches(self) -> EpochIterator | None:
        return None if self._batches_ref is None else self._batches_ref()

    def opened(self, engine: Engine) -> None:
        """Note that an epoch begins."""
        self._engine_ref = weakref.ref(engine)
        self._options = options_of(engine)
        self._opened_ns.append(time.monotonic_ns())

    def follow(self, batches: EpochIterator) -> None:
        """Note the iterator over an epoch: it may outlive the loader."""
        self._batches_ref = weakref.ref(batches)

    def stop(self) -> None:
        """End the measurement at the last batch: later work of the program is no step."""
        if self.profile is not None:
            return
        is_other = threading.get_ident() != self._thread
        self.profile = Profile.of(self._measurement, self._opened_ns, is_other)

    def __str__(self) -> str:
        return printable(f"loader over {self.dataset}, iterated at {self.place}")


@contextmanager
def measured_loaders() -> Iterator[list[LoaderOfProgram]]:
    """Measure each loader that is iterated over within the block, in this process."""
    found: dict[int, LoaderOfProgram] = {}
    listed: list[LoaderOfProgram] = []
    begin: Callable[[Engine], Any] = Engine.__iter__
    pid = os.getpid()

    def begun(engine: Engine) -> Any:
        if os.getpid() == pid:
            loader = found.get(id(engine.times))
            if loader is None:
                if sum(each.profile is None for each in listed) >= _MOST:
                    _stop_dropped(listed)
                loader = found[id(engine.times)] = LoaderOfProgram(engine)
                listed.append(loader)
            loader.opened(engine)
            batches = begin(engine)
            loader.follow(batches)
            return batches
        return begin(engine)

    Engine.__iter__ = begun  # type: ignore[method-assign]
    try:
        yield listed
    finally:
        Engine.__iter__ = begin  # type: ignore[method-assign]
        for loader in listed:
            loader.stop()


def _stop_dropped(loaders: Sequence[LoaderOfProgram]) -> None:
    """End the measurements of dropped loaders: each has a thread."""
    for loader in loaders:
        if loader.is_dropped:
            loader.stop()


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a script as `python script.py arguments` does; its exceptions pass through.

    The module of the script stays `__main__`: worker processes find its classes there, and spawned
    ones import it.

    Args:
        script: its path.
        arguments: the rest of `sys.argv`.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: it is no Python.
    """
    with io.open_code(str(Path(script).absolute())) as file:
        code = compile(file.read(), script, "exec")
    main = types.ModuleType("__main__")
    main.__file__ = script
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [script, *arguments]
    sys.path[0] = str(Path(script).absolute().parent)
    exec(code, vars(main))


def text_of(loaders: Sequence[LoaderOfProgram]) -> str:
    """Return the report on a finished program's loaders."""
    lines = []
    ranks = launched_ranks()
    whose = "" if ranks is None else f"rank {ranks.rank} of {ranks.world_size}: "
    for loader in loaders:
        if loader.profile is not None:
            lines += ["", f"-- {whose}{loader}", str(loader.profile)]
    if not lines:
        lines += [
            "",
            f"-- {whose} no loader of reader was iterated over (--torch and --paddle put it in",
        ]
        lines += ["   the place of PyTorch's and Paddle's)"]
    return "\n".join(lines)


def of_rank(path: str) -> str:
    """Return the path of this rank's own file, such as "FILE-rank1.json", if ranks are several."""
    ranks = launched_ranks()
    if ranks is None:
        return path
    found = Path(path)
    return str(found.with_name(f"{found.stem}-rank{ranks.rank}{found.suffix}"))


def check_reports(
    json_path: str | None = None, trace_path: str | None = None, plot_path: str | None = None
) -> list[str]:
    """Return which files cannot be written, and why, as far as known before a program runs.

    Args: see `write_reports`.
    """
    refused, seen = [], set()
    for option, path in (("json", json_path), ("trace", trace_path), ("plot", plot_path)):
        if path is None:
            continue
        place = Path(path).absolute()
        why = _refusal_of(place)
        try:
            refuse_url(f"--{option}", path)
        except ConfigError as error:
            why = str(error)
        if not why and place in seen:
            why = f"--{option} names the file of another report"
        if not why and option == "plot":
            why = plot_refusal(path)
        if why:
            refused.append(f"{path!r} cannot be written: {why}")
        seen.add(place)
    return refused


def _refusal_of(place: Path) -> str:
    """Return why a file cannot be written; "": it can."""
    if place.is_dir():
        return "it is a folder"
    if place.is_fifo():
        return _fifo_refusal(place)
    if place.exists():
        return "" if os.access(place, os.W_OK) else "it is there, and may not be written to"
    if not place.parent.is_dir():
        return f"there is no folder {str(place.parent)!r}"
    return "" if os.access(place.parent, os.W_OK) else "its folder may not be written to"


def _fifo_refusal(place: Path) -> str:
    """Return why a pipe cannot be written; "": it has a reader."""
    try:
        os.close(open_to_write(place, os.O_WRONLY))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write_reports(
    loaders: Sequence[LoaderOfProgram],
    json_path: str | None = None,
    trace_path: str | None = None,
    plot_path: str | None = None,
) -> list[str]:
    """Write the reports of each loader; return which could not be written, and why.

    Args:
        loaders: of a finished program.
        json_path: of a file for a list with all loaders; None: write none.
        trace_path: of a file for the trace of the first loader; names of others get "-2", ...
        plot_path: the same for pictures.
    """
    entries, failed = [], []

    def write(path: str | Path, how: Callable[[Path], Any]) -> None:
        try:
            how(Path(path))
        except (OSError, ValueError, ReaderError) as error:
            failed.append(f"{str(path)!r} cannot be written: {error}")

    for number, loader in enumerate(loaders, 1):
        seen = loader.profile
        if seen is None:
            continue
        entries.append(
            {
                "place": loader.place,
                "dataset": loader.dataset,
                "verdict": asdict(seen.verdict),
                "measured": asdict(seen.measured),
            }
        )
        if trace_path is not None:
            write(_numbered(trace_path, number), seen.to_trace)
        if plot_path is not None:
            write(_numbered(plot_path, number), seen.plot)
    if json_path is not None:
        text = json.dumps(entries, indent=2)
        write(json_path, lambda path: _write_text(path, text))
    return failed


def _write_text(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=open_to_write) as file:
        file.write(text)


def _numbered(path: str, number: int) -> Path:
    found = Path(path)
    return found if number == 1 else found.with_name(f"{found.stem}-{number}{found.suffix}")


def _place() -> str:
    """Return the program's line that iterates: the innermost one outside of libraries."""
    frame: types.FrameType | None = sys._getframe()
    outer = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and not name.startswith("<"):
            here = f"{Path(name).name}:{frame.f_lineno}"
            if "site-packages" not in name:
                return here
            outer = outer or here
        frame = frame.f_back
    return outer or "an unknown place"
