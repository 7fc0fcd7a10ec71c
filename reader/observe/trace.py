"""A profile as a trace: events in Chrome's format, which Perfetto reads.

Imports the timeline. Source: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.observe.timeline import Timeline

__all__ = ["trace_of"]

_PROGRAM = 1  # the number of the one process that is shown
_TRAINER = 0  # its track; those of workers follow
_SLOW = 10  # times as long as usual


def trace_of(seen: Timeline) -> dict[str, Any]:
    """Return a trace as JSON holds it; times in microseconds since the loop began."""
    events = [
        *_names(seen),
        *_trainer(seen),
        *_workers(seen),
        *_spans(seen, "transfer", "sent_ns", "came_ns", 1, "worker"),
        *_spans(seen, "landing", "came_ns", "landed_ns", 1, "worker"),
        *_spans(seen, "held", "handed_ns", "given_back_ns", _TRAINER),
        *_spans(seen, "copy", "issued_ns", "copied_ns", seen.measured.workers + 2, "place"),
        *_memory(seen),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"bound_by": seen.verdict.bound_by, "sentence": seen.verdict.sentence},
    }


def _event(phase: str, name: str, track: int, at_ns: int, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": _PROGRAM, "tid": track, "ts": at_ns / 1e3, **more}


def _names(seen: Timeline) -> Iterator[dict[str, Any]]:
    yield _event("M", "process_name", _TRAINER, 0, args={"name": "reader"})
    tracks = {_TRAINER: "trainer"}
    for worker_id in range(seen.measured.workers):
        tracks[worker_id + 1] = f"worker {worker_id}"
    if not seen.measured.workers:
        tracks[1] = "trainer, making batches"
    for place in range(len(seen.measured.copy_s)):
        tracks[seen.measured.workers + 2 + place] = f"copies to place {place}"
    for track, name in tracks.items():
        yield _event("M", "thread_name", track, 0, args={"name": name})
        yield _event("M", "thread_sort_index", track, 0, args={"sort_index": track})


def _trainer(seen: Timeline) -> Iterator[dict[str, Any]]:
    records, begun_ns = seen.records, seen.begun_ns
    for at, record in enumerate(records):
        args = {"batch": int(record["seq"]), "epoch": int(record["epoch"])}
        asked, delivered = (int(record[name]) - begun_ns for name in ("asked_ns", "delivered_ns"))
        if delivered > asked:
            wait_us = (delivered - asked) / 1e3
            yield _event("X", "wait", _TRAINER, asked, dur=wait_us, cat="trainer", args=args)
        after_ns = int(records[at + 1]["asked_ns"]) if at + 1 < len(records) else seen.ended_ns
        step_us = max(0, after_ns - begun_ns - delivered) / 1e3
        yield _event("X", "step", _TRAINER, delivered, dur=step_us, cat="trainer", args=args)


def _workers(seen: Timeline) -> Iterator[dict[str, Any]]:
    usual_ns = seen.measured.usual_sample_s * 1e9
    for number, record in enumerate(seen.records):
        if not record["begun_ns"]:
            continue  # its worker noted nothing
        track = max(0, int(record["worker"])) + 1
        args = {"batch": int(record["seq"]), "epoch": int(record["epoch"])}
        sent_at, begun, made = (
            int(record[name]) - seen.begun_ns for name in ("dispatched_ns", "begun_ns", "sent_ns")
        )
        fetch_ns = int(record["fetch_ns"])
        if begun > sent_at:  # these overlap
            for phase, at_ns in (("b", sent_at), ("e", begun)):
                yield _event(phase, "queue", track, at_ns, cat="queue", id=number, args=args)
        yield _event("X", "fetch", track, begun, dur=fetch_ns / 1e3, cat="worker", args=args)
        collate_us = max(0, made - begun - fetch_ns) / 1e3
        yield _event(
            "X", "collate", track, begun + fetch_ns, dur=collate_us, cat="worker", args=args
        )
        slowest_ns = int(record["slowest_ns"])
        if usual_ns and slowest_ns > _SLOW * usual_ns:
            key = int(record["slowest_key"])
            slow = {
                **args,
                "sample": None if key < 0 else key,
                "row": int(record["slowest_row"]),
                "ms": slowest_ns / 1e6,
            }
            yield _event("i", "slow sample", track, begun, s="t", cat="worker", args=slow)


def _spans(
    seen: Timeline, name: str, begin: str, end: str, track: int, by: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield overlapping spans on several tracks; the field `by` is the offset of the track."""
    for number, record in enumerate(seen.records):
        if not record[begin] or not record[end]:
            continue
        args = {"batch": int(record["seq"]), "epoch": int(record["epoch"])}
        at = track + (int(record[by]) if by else 0)
        for phase, key in (("b", begin), ("e", end)):
            at_ns = int(record[key]) - seen.begun_ns
            yield _event(phase, name, at, at_ns, cat=name, id=number, args=args)


def _memory(seen: Timeline) -> Iterator[dict[str, Any]]:
    for sample in seen.memory:
        parts = {
            "trainer": sample.trainer >> 20,
            "workers": sample.workers >> 20,
            "batches": sample.batches >> 20,
        }
        yield _event("C", "memory (MiB)", _TRAINER, sample.at_ns - seen.begun_ns, args=parts)
