"""What is measured beside the five works for PyTorch programs: rows, contestants and their goals.

Nothing here imports torch: the loaders are named by the module they come from. Imports the works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tools.bench.summary import Goal, Results, Spread, measured, ratio
from tools.bench.works import WORKS, Work

TORCH = "torch.utils.data"
TORCHDATA = "torchdata.stateful_dataloader"
OURS = "reader.compat.torch"

# At least so many times as long must PyTorch take for a batch.
FASTER = {"tiny": 25.0, "image": 10.0, "uint8": 10.0, "text": 40.0}
# At most so much of PyTorch's time may the start of 4 spawned workers take.
START = 0.6
RESUME_US = 5000.0


@dataclass(frozen=True)
class Entry:
    """One contestant of a row.

    Attributes:
        name: What the results call it.
        title: What the table calls it.
        face: Module its loader comes from.
        samples: Length of the dataset that is resumed; 0 elsewhere.
    """

    name: str
    title: str
    face: str
    samples: int = 0


@dataclass(frozen=True)
class Row:
    """One thing to measure, and who is measured; the first entry is ours.

    Attributes:
        name: What the command line and the results call it.
        title: One line for people.
        work: What is loaded.
        kind: "epochs": a step touches the batch; "starts": a turn is a program that starts 4
            spawned workers and takes a batch; "resumes": a turn loads a state and takes a batch.
        entries: Who takes part.
        is_tensors: Whether the samples are torch tensors.
        figure: Which figure of a turn counts.
        is_short: Whether an epoch is only as long as the work asks for.
    """

    name: str
    title: str
    work: Work
    kind: str
    entries: tuple[Entry, ...]
    is_tensors: bool = False
    figure: ClassVar[str] = "us"
    is_short: ClassVar[bool] = False

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


_PAIR = (Entry("reader", "reader", OURS), Entry("torch", "PyTorch", TORCH))


def _epochs(work: Work, is_tensors: bool) -> Row:
    name = f"{work.name}-tensors" if is_tensors else work.name
    kind = "tensors" if is_tensors else "arrays"
    title = f"{name}: {work.title} of {kind}, 2 workers; a batch"
    return Row(name, title, work, "epochs", _PAIR, is_tensors)


ROWS = {
    row.name: row
    for row in (
        *(_epochs(WORKS[name], is_tensors) for is_tensors in (False, True) for name in FASTER),
        Row(
            "spawn",
            "spawn: iter() to the first batch, 4 spawned workers of a program that imports torch",
            WORKS["tiny"],
            "starts",
            _PAIR,
        ),
        Row(
            "resume",
            "resume: a state at 90 % of a shuffled epoch to the next batch, no workers",
            WORKS["tiny"],
            "resumes",
            (
                Entry("reader", "reader, 10^8 samples", OURS, 10**8),
                Entry("torchdata", "StatefulDataLoader, 10^6 samples", TORCHDATA, 10**6),
            ),
        ),
    )
}


def times(row: Row, results: Results, name: str) -> Spread | None:
    """Return how many times as long `name` takes as ours; None unless both ran."""
    slow, fast = measured(results, name), measured(results, row.entries[0].name)
    return None if slow is None or fast is None else ratio(slow["us"], fast["us"])


def goals(rows: Mapping[str, Results]) -> Iterator[Goal]:
    """Yield every goal for the rows that were run."""
    for name, results in rows.items():
        row = ROWS[name]
        if row.kind == "epochs":
            limit = FASTER[row.work.name]
            yield Goal(name, "faster than PyTorch", times(row, results, "torch"), limit, True, "x")
        elif row.kind == "starts":
            ours, torch = measured(results, "reader"), measured(results, "torch")
            share = None if ours is None or torch is None else ratio(ours["us"], torch["us"])
            yield Goal(name, "of PyTorch's time", share, START, False, "x")
        else:
            facts: Mapping[str, Any] | None = measured(results, "reader")
            spread = None if facts is None else Spread.of(facts["us"])
            yield Goal(name, "to the next batch", spread, RESUME_US, False, "us")
