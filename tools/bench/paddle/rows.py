"""What is measured beside the five works: the rows, who takes part in each, and their goals.

Nothing here imports paddle: the loaders are named by the module they come from. Imports the works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.bench.summary import Goal, Results, Spread, above_making, measured, ratio
from tools.bench.works import WORKS, Pictures, Work

PADDLE = "paddle.io"
OURS = "reader.compat.paddle"

STEP_US = 500.0
FIRST_US = 1000.0


@dataclass(frozen=True)
class Entry:
    """One contestant of a row.

    Attributes:
        name: What the results call it.
        title: What the table calls it.
        face: Module its DataLoader comes from; empty: it steps without a loader.
        beside: Entry of ours that it is compared with; empty: it is one of those.
        is_iterable: Whether the dataset is iterated by the workers, each its share.
        options: Arguments of the DataLoader beyond those that all have.
    """

    name: str
    title: str
    face: str
    beside: str = ""
    is_iterable: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One thing to measure, and who is measured.

    Attributes:
        name: What the command line and the results call it.
        title: One line for people.
        work: What is loaded.
        kind: "feed": a step is a run of a static program; "epochs": a step touches the batch;
            "breaks": a turn leaves one epoch and begins another.
        entries: Who takes part.
        figure: Which figure of a turn counts: "us", of a step; or "first_us", from ``iter()`` to
            the first batch of an epoch.
        is_short: Whether an epoch is only as long as the work asks for.
        bar: Entry whose time is taken off in the column "above"; empty: no such column.
    """

    name: str
    title: str
    work: Work
    kind: str
    entries: tuple[Entry, ...]
    figure: str = "us"
    is_short: bool = False
    bar: str = ""

    def entry(self, name: str) -> Entry:
        """Return the entry called `name`.

        Raises:
            ValueError: The row has none.
        """
        for entry in self.entries:
            if entry.name == name:
                return entry
        known = ", ".join(entry.name for entry in self.entries)
        raise ValueError(f"no contestant {name!r} in row {self.name!r}; known: {known}")


def _feed(name: str, face: str, workers: int, beside: str = "") -> Entry:
    who = "Paddle" if face == PADDLE else "reader"
    title = f"{who}, {workers or 'no'} workers"
    return Entry(name, title, face, beside, options=_workers(workers, workers > 0))


def _workers(workers: int, is_persistent: bool) -> dict[str, Any]:
    return {"num_workers": workers, "persistent_workers": is_persistent}


_KEPT, _FRESH = _workers(2, True), _workers(2, False)


def _iterable(work: Work) -> Row:
    return Row(
        f"iterable-{work.name}",
        f"datasets that 2 workers iterate or index: {work.title}; a batch",
        work,
        "epochs",
        (
            Entry("reader", "reader, iterable", OURS, is_iterable=True, options=_FRESH),
            Entry("reader-kept", "reader, iterable, persistent", OURS, "reader", True, _KEPT),
            # Its persistent workers hang on an IterableDataset that is read quickly.
            Entry("paddle", "Paddle, iterable", PADDLE, "reader", True, _FRESH),
            Entry("reader-map", "reader, map-style", OURS, options=_FRESH),
            Entry("paddle-map", "Paddle, map-style", PADDLE, "reader-map", options=_FRESH),
        ),
    )


_TINY = WORKS["tiny"]
_IMAGE = Work(
    "image",
    "14 x (3, 224, 224) float32, 8.4 MB",
    14,
    lambda samples: Pictures(samples, "float32", 8),
    24,
    40,
)
# Epochs of 20 batches.
_SHORT = Work("short", _TINY.title, _TINY.batch_size, _TINY.dataset, 20, 20)

ROWS = {
    row.name: row
    for row in (
        Row(
            "feed",
            f"static feed: exe.run(feed=batch) of {_IMAGE.title}; a step",
            _IMAGE,
            "feed",
            (
                _feed("reader-0", OURS, 0),
                _feed("paddle-0", PADDLE, 0, "reader-0"),
                _feed("reader-2", OURS, 2),
                _feed("paddle-2", PADDLE, 2, "reader-2"),
                Entry("again", "one zero-copy DenseTensor again and again", "", "reader-2"),
                Entry("array", "one ndarray again and again", "", "reader-2"),
                Entry("copy", "a fresh DenseTensor of one ndarray", "", "reader-2"),
            ),
            bar="again",
        ),
        Row(
            "start",
            f"persistent epoch: iter() to the first batch, 2 workers, {_SHORT.title}",
            _SHORT,
            "epochs",
            (
                Entry("reader", "reader", OURS, options=_KEPT),
                Entry(
                    "reader-ahead",
                    "reader, prefetch_next_epoch",
                    OURS,
                    "reader",
                    options={**_KEPT, "prefetch_next_epoch": True},
                ),
                Entry("paddle", "Paddle", PADDLE, "reader", options=_KEPT),
            ),
            figure="first_us",
            is_short=True,
        ),
        _iterable(_TINY),
        _iterable(_IMAGE),
        Row(
            "break",
            f"iterable break: break to the next epoch's first batch, 2 workers, {_TINY.title}",
            _TINY,
            "breaks",
            (
                Entry("reader", "reader", OURS, is_iterable=True, options=_FRESH),
                Entry("reader-kept", "reader, persistent", OURS, "reader", True, _KEPT),
                Entry("paddle", "Paddle", PADDLE, "reader", True, _FRESH),
            ),
        ),
    )
}


def times(row: Row, results: Results, name: str) -> Spread | None:
    """Return how many times as long `name` takes as ours it stands beside; None unless both ran."""
    entry = row.entry(name)
    slow, fast = measured(results, name), measured(results, entry.beside)
    return None if slow is None or fast is None else ratio(slow[row.figure], fast[row.figure])


def above(row: Row, results: Results, name: str) -> Spread | None:
    """Return the microseconds `name` takes more than the row's bar, each round."""
    facts, bar = measured(results, name), measured(results, row.bar)
    if facts is None or bar is None:
        return None
    return Spread.of([a - b for a, b in zip(facts[row.figure], bar[row.figure])])


def goals(rows: Mapping[str, Results]) -> Iterator[Goal]:
    """Yield every goal for the rows that were run."""
    if (results := rows.get("feed")) is not None:
        row = ROWS["feed"]
        for name in ("reader-0", "reader-2"):
            facts, more = measured(results, name), above(row, results, name)
            step = None if facts is None else Spread.of(facts["us"])
            note = "" if more is None else f"{more.middle:.0f} us above {row.entry('again').title}"
            yield Goal("feed", row.entry(name).title, step, STEP_US, False, "us", note)
    if (results := rows.get("start")) is not None:
        for name in ("reader", "reader-ahead"):
            facts = measured(results, name)
            first = None if facts is None else above_making(facts)
            title = f"{ROWS['start'].entry(name).title}, above making it"
            yield Goal("start", title, first, FIRST_US, False, "us")
