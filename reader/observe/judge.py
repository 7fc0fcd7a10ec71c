"""The judge of a loop: finds what bounds it, and what a change would save.

Imports the measurements and the replay. A pure function of both.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from reader.observe.local_judge import LocalJudge
from reader.observe.loop_numbers import LITTLE, MOST
from reader.observe.measured import Measured
from reader.observe.replay import Replay
from reader.observe.verdict import Verdict, in_words

__all__ = ["judge"]

_MANY = 256  # most workers on a cluster that are advised
_BOUNDED = 0.2  # share of the workers' time: more than rounding to whole batches explains
_LONG_S = 5e-3  # transfer time of a batch that its bytes, not the latency, explain


def judge(seen: Measured, replay: Replay | None = None) -> Verdict:
    """Return what bounds the measured loop.

    Args:
        seen: the measurements.
        replay: the replay of the loop, for better forecasts; None: it had too few batches.
    """
    if seen.batches == 0:
        text = "No batch was delivered while the profile ran."
        return Verdict("start", text, "", seen.wait_share)
    return (_ClusterJudge if seen.is_remote else LocalJudge)(seen, replay).verdict()


class _ClusterJudge(LocalJudge):
    """A loop with workers on a cluster: its capacity counts, not this machine's cores."""

    no_more = "The cluster has no room for"
    others = "programs"
    waits_freely = "Waiting needs no core, so that less of resources= will do"

    def _bounded(self) -> Verdict | None:
        """Return the verdict if workers are held back: enough bytes are in flight."""
        share = self.seen.bounded_s / (max(1, self.seen.workers) * self.span_s)
        if share <= _BOUNDED:
            return None
        return self._say(
            "prefetch",
            f"in {share:.0%} of their time workers get nothing to do, since max_in_flight_bytes of"
            " batches are under way",
            "Raise max_in_flight_bytes= of reader.Ray, as far as the object stores have room; or"
            " have smaller batches.",
            None,
        )

    def _transfer(self) -> Verdict | None:
        return self._bounded() or self._moved()

    def _moved(self) -> Verdict | None:
        """Return the verdict if batches come as fast as the network allows."""
        replay = self.replay
        if replay is None:
            return super()._transfer()
        each_s = float(replay.travel_s.mean())
        together = float(replay.travel_s.sum()) / self.span_s
        saved_s = self._saved_s(0.0, travel_s=0.0 * replay.travel_s)
        if each_s < _LONG_S or together < 1.5 or saved_s <= MOST * self.lost_s:
            return super()._transfer()
        return self._say(
            "transfer",
            f"a batch takes {in_words(each_s)} from its node to this one, {together:.1f} at a time",
            "Move less: uint8 instead of float32, crops instead of pictures, and normalize on the"
            " device; or use nodes with a faster network.",
            saved_s,
        )

    def _start(self) -> Verdict | None:
        found = super()._start()
        if found is None:
            return None
        advice = (
            "Workers start on the cluster once, and later epochs have them; where Ray has no"
            " process to spare, that takes seconds."
        )
        return dataclasses.replace(found, advice=advice, gain=None, options={})

    def _collate(self) -> Verdict | None:
        found = super()._collate()
        return found if found is not None and self._is_worth_it(found) else None

    def _is_worth_it(self, found: Verdict) -> bool:
        """Whether faster making of batches helps: small ones may mostly take transfer time."""
        return found.gain is None or found.gain >= 1.0 + LITTLE

    def _cores(self) -> Verdict | None:
        if self.queues <= 0.25:
            return None
        changed: dict[str, Any] = {}
        if self.replay is not None:
            changed["make_s"] = self.replay.make_s * (1.0 - self.queues)
        found = self._say(
            "cores",
            f"{self.who} {self._have} no core in {self.queues:.0%} of the time that batches take",
            "More runs on their nodes than these have cores for: let each worker take more of"
            " resources=, or start fewer threads in it.",
            self._saved_s(self.seen.wait_s * self.queues, **changed),
        )
        return found if self._is_worth_it(found) else None

    def _storage(self) -> Verdict | None:
        found = super()._storage()
        if found is None or found.options.get("num_workers", 0) > self.seen.workers:
            return found
        advice = (
            "Waiting needs no core: let each worker take less of resources=, and have more of"
            f" them. {self._cache_of('what is read')}"
        ).rstrip()
        return dataclasses.replace(found, advice=advice, gain=None, options={})

    @property
    def _fills_cores(self) -> bool:
        return False

    @property
    def _other_programs(self) -> str:
        return ""

    def _named(self, workers: int) -> str:
        return f"num_workers={workers}"

    def _options(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers}

    @property
    def _room(self) -> str:
        return f" (the cluster has room for {self.seen.room})"

    def _most_workers(self, free: float) -> int | None:  # noqa: ARG002
        return None if self.seen.room is None else min(self.seen.room, _MANY)
