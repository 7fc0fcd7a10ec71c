"""A disturbed trainer: it iterates over loaders of one kind, and counts its batches.

Run by the watchdog as ``python -m tools.soak.trainer KIND SEED SECONDS WORKERS FD TORMENTS``. It
imports reader and the ledger of the tests, and writes its counts to FD, one JSON a line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reader import ArenaFull
from tests.ledger import Ledger, adopt_orphans, settle
from tools.soak.account import Account
from tools.soak.kinds import KINDS, draw_life, make_loader
from tools.soak.samples import Walk, digest_of, numbers_of
from tools.soak.torments import TORMENTS, Alarm, Torments

__all__ = ["Trainer", "growth_of"]

REPORT_S = 0.3
MOST_KEPT = 12
MIN_GROWTH = 8 << 20  # bytes: less is noise of the allocators


class Trainer:
    """Runs the epochs of one kind of loader.

    Args:
        name: of the kind.
        seed: of all that is drawn.
        seconds: how long.
        workers: the most of a loader.
        report: a descriptor that counts are written to.
        torments: what is done to it; see `TORMENTS`.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        seconds: float,
        workers: int,
        report: int,
        torments: Sequence[str] = TORMENTS,
    ) -> None:
        self.kind = KINDS[name]
        self.rng = random.Random(f"{seed} {name}")
        self.counts: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.growth: list[tuple[float, int]] = []  # (when, bytes of private memory)
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._workers = workers
        self._report = report
        self._acts = set(torments)
        self._reported = 0.0
        self._torments = Torments(self.rng, self.counts, {Walk.__next__.__code__})
        self._kept: deque[tuple[Any, int]] = deque()
        self._loader: Any = None
        self._before: Ledger | None = None

    # -- the whole -------------------------------------------------------------------------------

    def run(self) -> None:
        """Live until the time is over."""
        while time.monotonic() < self._deadline:
            self._live()
            self.counts["lives"] += 1
            if self.counts["lives"] % 3 == 0 or self._before is None:
                self._drop_kept()
            self._check_leaks()
        self._drop_kept()
        self._check_leaks()
        growth = growth_of(self.growth)
        self.counts["growth_kib"] = growth >> 10
        if growth > MIN_GROWTH:
            self._fail("grows", f"{growth >> 20} MiB in {self.growth[-1][0]:.0f} s")
        self._torments.close()
        self._tell(is_end=True)

    def _live(self) -> None:
        """Make a loader, run some epochs, and end it."""
        self.life = draw_life(self.rng, self.kind, self._workers)
        self._loader = make_loader(self.kind, self.life)
        for _ in range(self.rng.randint(1, 5)):
            self._epoch()
            if time.monotonic() > self._deadline:
                break
        if self.rng.random() < 0.7 and hasattr(self._loader, "close"):
            self._loader.close()
        self._loader = None
        self._torments.clear()

    # -- an epoch --------------------------------------------------------------------------------

    def _epoch(self) -> None:
        account = Account(self.kind, self.life)
        self.counts["epochs"] += 1
        try:
            if self._iterate(account):
                lost = account.lost()
                self.counts["lost"] += len(lost)
                if lost:
                    self._fail("lost", f"{lost[:20]}", account)
        except Exception as error:
            text = "".join(traceback.format_exception(error)[-4:])
            self._fail("raised", f"{type(error).__name__}: {error}\n{text}"[:3000], account)
        self._torments.may_raise = False
        self.counts["twice"] += account.twice
        self.counts["wrong"] += len(account.strange)
        if account.twice or account.strange:
            self._fail("twice or wrong", f"{account.twice} twice", account)
        self.counts["samples"] += account.found.total()
        self.counts["told"] += len(account.told)

    def _plan(self) -> Iterator[str]:
        """Yield the action after each batch, or ""."""
        acts = ["break", "wake", *["interrupt"] * 3]
        is_fragile = self.kind.memory == "cgroup"  # a killed worker there was out of memory
        if self.kind.workers == "process" and not is_fragile:
            acts += ["kill", "kill", "segv", "stop"]
        if self.kind.has_state and not (self.kind.is_stream and self.life.shape.raising):
            acts += ["resume"]
        acts = [each for each in acts if each in self._acts] or [""]
        often = self.rng.choice([0.0, 0.02, 0.1, 0.3])
        while True:
            yield self.rng.choice(acts) if self.rng.random() < often else ""

    def _iterate(self, account: Account) -> bool:
        """Iterate over an epoch; False: it was left before its end."""
        torments, iterator, plan = self._torments, None, self._plan()
        while True:
            try:
                torments.may_raise = "start" in self._acts
                if iterator is None:
                    iterator = iter(self._loader)
                torments.may_raise = True
                for step in iterator:
                    torments.may_raise = False
                    self._take(account, step)
                    act = next(plan)
                    if act == "break":
                        self.counts["break"] += 1
                        return False
                    if act == "resume":
                        iterator = None
                        self._resume()
                        break
                    if act:
                        torments.add(act, self._pids())
                    torments.may_raise = True
                else:
                    torments.may_raise = False
                    return True
            except Alarm:
                torments.may_raise = False
            except Exception as error:
                torments.may_raise = False
                step = None
                if not account.tell(error):
                    raise
                if isinstance(error, ArenaFull):
                    self._drop_kept()  # the same batch of a stream may be asked for again
                if len(account.told) > 20 * self.life.shape.count:
                    raise  # the epoch makes no progress
            self._beat()

    def _pids(self) -> list[int]:
        if self.kind.workers != "process" or not hasattr(self._loader, "workers"):
            return []
        return [each.pid for each in self._loader.workers() if each.pid is not None]

    def _take(self, account: Account, step: Any) -> None:
        for batch in step if self.life.places > 1 else [step]:
            fields = batch[0] if isinstance(batch, (list, tuple)) else batch
            numbers, is_right = numbers_of(fields)
            account.take(numbers)
            self.counts["batches"] += 1
            if not is_right:
                self.counts["wrong"] += 1
                self._fail("wrong bytes", f"{numbers}", account)
            most = MOST_KEPT if not self.kind.memory else 2
            if self.rng.random() < 0.1:
                self._kept.append((fields, digest_of(fields)))
            while len(self._kept) > most:
                self._check_kept()
        self._beat()

    def _check_kept(self) -> None:
        fields, digest = self._kept.popleft()
        self.counts["kept"] += 1
        if digest_of(fields) != digest:
            self.counts["wrong"] += 1
            self._fail("a kept batch changed", "")

    def _drop_kept(self) -> None:
        while self._kept:
            self._check_kept()

    def _resume(self) -> None:
        """Go on in a fresh loader."""
        state = self._loader.state_dict()
        if self.kind.face != "stateful":  # its state may hold what JSON does not take
            state = json.loads(json.dumps(state))
        if self.rng.random() < 0.5 and hasattr(self._loader, "close"):
            self._loader.close()
        self._loader = make_loader(self.kind, self.life)
        self._loader.load_state_dict(state)
        self.counts["resume"] += 1

    # -- what is left behind ---------------------------------------------------------------------

    def _check_leaks(self) -> None:
        gc.collect()
        if self._kept:  # they hold their arenas
            return
        if self._before is None:  # what frameworks and the first loader open once
            self._before = Ledger.take()
            return
        excess = settle(self._before)
        if excess:
            self.counts["leaks"] += len(excess)
            faulthandler.dump_traceback(all_threads=True)
            self._fail("leaks", "; ".join(excess)[:2000])
            self._before = Ledger.take()
        self.growth.append((time.monotonic() - self._began, _private_bytes()))

    # -- reports ---------------------------------------------------------------------------------

    def _fail(self, what: str, text: str, account: Account | None = None) -> None:
        self.counts["failures"] += 1
        if len(self.failures) < 5:
            found = {} if account is None else account.describe()
            life = repr(getattr(self, "life", None))[:600]
            self.failures.append({"what": what, "text": text, "life": life, **found})
        self._tell()

    def _beat(self) -> None:
        if time.monotonic() - self._reported > REPORT_S:
            self._tell()

    def _tell(self, is_end: bool = False) -> None:
        self._reported = time.monotonic()
        found = {"counts": self.counts, "failures": self.failures, "is_end": is_end}
        os.write(self._report, json.dumps(found).encode() + b"\n")


def growth_of(found: list[tuple[float, int]]) -> int:
    """Return by how many bytes a line through the measurements rises, after the first third.

    Args:
        found: (seconds, bytes).
    """
    later = found[len(found) // 3 :]
    if len(later) < 6:
        return 0
    at = np.array([each for each, _ in later])
    size = np.array([each for _, each in later], dtype=float)
    slope, _ = np.polyfit(at, size, 1)
    return int(slope * (at[-1] - at[0]))


def _private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def main(arguments: list[str]) -> None:
    """Run as the watchdog asks for it."""
    name, seed, seconds, workers, report, torments = arguments
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.getLogger("reader").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    adopt_orphans()
    trainer = Trainer(
        name, int(seed), float(seconds), int(workers), int(report), torments.split(",")
    )
    sys.unraisablehook = lambda _: trainer.counts.update(swallowed=1)
    trainer.run()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1:])
