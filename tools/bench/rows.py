"""The rows of each table, and the contestants of each row; ours is first.

Nothing here imports a loader: contestants are named by the module they come from. Rows that have
no contestant but ours are measured beside an older wheel alone. Imports the works and the forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from typing import Any

from tools.bench.forms import FORMS, Form
from tools.bench.works import WORKS, Work, small_tensors

PREFETCH = 2


@dataclass(frozen=True)
class Contestant:
    """One loader of a row.

    Attributes:
        name: What the results call it.
        title: What tables and the chart call it.
        face: Module its DataLoader comes from; empty: it is a floor, opened by its name.
        is_optional: Whether a run without that module leaves it out, and the pages never show it.
        note: What docs/speed.md says of it besides its ratio.
        samples: Length of the dataset that is resumed; 0 elsewhere.
    """

    name: str
    title: str
    face: str = ""
    note: str = ""
    samples: int = 0
    is_optional: bool = False

    @property
    def is_left_out(self) -> bool:
        """Whether it is optional and not installed."""
        return self.is_optional and find_spec(self.face.partition(".")[0]) is None


@dataclass(frozen=True)
class Row:
    """One measurement, and its contestants.

    Attributes:
        name: What the command line and the results call it.
        title: What docs/speed.md calls it; rows of one title share a line there.
        work: What is loaded.
        contestants: Who takes part, ours first.
        kind: "epochs": a step touches the batch; "feed": a step is a run of a static program;
            "break": a turn leaves one epoch and begins another; "spawn": a turn is a program that
            starts 4 spawned workers; "resume": a turn loads a state. These three end with a
            batch. "new": each epoch has a new loader; "kept": all have one; "pool": a new loader's
            workers, to the first batch.
        options: Arguments of each DataLoader, the peers' included.
        samples: What the dataset hands out: "arrays", "tensors", or a "stream" of arrays. Of
            "columns" each loader gets the arrays themselves, in its own TensorDataset.
        batches: How many batches a "new", "kept" or "pool" epoch has; 0 elsewhere.
        places: How many places a step feeds, with a batch for each.
        figure: Which figure of a turn is compared with the peers.
        at_least: How many times as long each peer must take, by its name.
        at_most: What our own figures must not exceed, in microseconds.
        is_public: Whether it keeps to what every version of the package has.
    """

    name: str
    title: str
    work: Work
    contestants: tuple[Contestant, ...]
    kind: str = "epochs"
    options: Mapping[str, Any] = field(default_factory=lambda: workers(2))
    samples: str = "arrays"
    batches: int = 0
    places: int = 1
    figure: str = "us"
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    is_public: bool = True

    @property
    def in_flight(self) -> int:
        """How many batches are made ahead."""
        return int(self.options["num_workers"]) * PREFETCH

    @property
    def step_size(self) -> int:
        """How many samples a step takes: a batch for each place."""
        return self.work.batch_size * self.places

    @property
    def has_peer(self) -> bool:
        """Whether the row has another contestant than ours."""
        return len(self.contestants) > 1

    def contestant(self, name: str) -> Contestant:
        """Return the contestant called `name`.

        Raises:
            ValueError: The row has none.
        """
        for contestant in self.contestants:
            if contestant.name == name:
                return contestant
        known = ", ".join(contestant.name for contestant in self.contestants)
        raise ValueError(f"no contestant {name!r} in row {self.name!r}; known: {known}")


def workers(count: int, is_persistent: bool = True) -> dict[str, Any]:
    """Return the arguments of a DataLoader that every face takes for `count` workers."""
    if count == 0:
        return {"num_workers": 0}
    kept = {"persistent_workers": True} if is_persistent else {}
    return {"num_workers": count, "prefetch_factor": PREFETCH, **kept}


ENGINE, PADDLE_FACE, TORCH_FACE = "reader", "reader.compat.paddle", "reader.compat.torch"
OURS = "reader"  # the name of ours in every row

FLOOR = Contestant("floor", "bare floor")
STREAMING = Contestant("streaming", "streaming floor")
DECODE = Contestant("decode", "decode alone")
TAKE = Contestant("take", "numpy.take alone")
TORCH = Contestant("torch", "PyTorch", "torch.utils.data")
PADDLE = Contestant("paddle", "Paddle", "paddle.io")
SPDL_THREADS = Contestant("spdl-threads", "SPDL, threads", "spdl.dataloader", is_optional=True)
SPDL_POOL = Contestant("spdl-pool", "SPDL, segment pool", "spdl.pipeline", is_optional=True)
GRAIN = Contestant("grain", "Grain", "grain", is_optional=True)
TORCHDATA = Contestant(
    "torchdata",
    "StatefulDataLoader",
    "torchdata.stateful_dataloader",
    "torchdata's StatefulDataLoader with 10^6 samples",
    10**6,
)


def _ours(face: str, samples: int = 0) -> Contestant:
    return Contestant(OURS, "reader", face, samples=samples)


_TINY, _SMALL = WORKS["tiny"], WORKS["small-image"]
LARGE = ("image", "uint8", "image-cold", "uint8-cold")  # their batches are copied past the cache
_INLINE, _FRESH, _KEPT = workers(0), workers(2, is_persistent=False), workers(2)


def _engine() -> list[Row]:
    # At least so many times faster than PyTorch and Paddle, at most so far behind the floors.
    at_least = {
        "tiny": {"torch": 50.0, "paddle": 16.0, "floor": 1 / 1.4},
        "image": {"torch": 13.0, "paddle": 22.0, "floor": 1 / 1.15},
        "uint8": {"torch": 15.0, "paddle": 22.0, "floor": 1 / 1.15},
        "image-cold": {"torch": 13.0, "paddle": 22.0, "floor": 1 / 0.7},
        "uint8-cold": {"torch": 15.0, "paddle": 22.0, "floor": 1 / 0.7},
        "text": {"torch": 85.0, "paddle": 28.0, "floor": 1 / 1.4},
        "jpeg": {"decode": 1 / 1.06},
    }
    all_of = (_ours(ENGINE), TORCH, PADDLE, SPDL_THREADS, SPDL_POOL, GRAIN, FLOOR)
    most = {"cpu_us": 15.0}
    rows = []
    for name, least in at_least.items():
        work = WORKS[name]
        extra = (DECODE,) if name == "jpeg" else (STREAMING,) if name in LARGE else ()
        entries = (*all_of, *extra)
        rows.append(Row(name, work.title, work, entries, at_least=least, at_most=most))

    def alone(name: str, work: str, **others: Any) -> Row:
        return Row(
            f"{work}-{name}", f"{name}: {WORKS[work].title}", WORKS[work], all_of[:1], **others
        )

    arrays = WORKS["arrays"]
    return [
        *rows,
        Row(
            arrays.name,
            arrays.title,
            arrays,
            (_ours(ENGINE), TORCH, PADDLE, TAKE),
            options={**_KEPT, "shuffle": True},
            samples="columns",
            at_least={"torch": 100.0, "take": 1 / 1.2},
            at_most=most,
        ),
        *(alone("stream", work, samples="stream") for work in ("tiny", "uint8")),
        *(
            alone(name, "tiny", options={**_KEPT, "framework": name})
            for name in ("torch", "paddle")
        ),
    ]


def _inline() -> list[Row]:
    def row(name: str, title: str, work: str, samples: str = "arrays", **options: Any) -> Row:
        given = {**_INLINE, **options}
        both = (_ours(ENGINE), TORCH)
        least = {"torch": 1.0}
        return Row(name, title, WORKS[work], both, "epochs", given, samples, at_least=least)

    titles = {
        "tiny": "tiny batches; samples are arrays, or tensors",
        "image": "image, 38.5 MB",
        "uint8": "uint8, 19.3 MB",
        "text": "text, a dict of 3 x 512 int64",
    }
    collated = "a `collate_fn` that returns 20 small tensors of 32 labels"
    return [
        *(
            row(name, title, work, samples)
            for work, title in titles.items()
            for name, samples in (
                (f"{work}-inline", "arrays"),
                (f"{work}-tensors-inline", "tensors"),
            )
        ),
        row("tiny-stream-inline", "tiny batches of a stream", "tiny", "stream"),
        row("collated-inline", collated, "tiny", "tensors", collate_fn=small_tensors),
        *(_form(form) for form in FORMS),
    ]


def _form(form: Form) -> Row:
    """Return the row of a form of samples, of the face for PyTorch."""
    kind = ["stream"] if form.samples == "stream" else []
    name = "-".join(["form", form.work.name, *kind, *form.options])
    how = [f"a {each}" for each in kind]
    how += [f"`{name}={getattr(value, '__name__', value)}`" for name, value in form.options.items()]
    title = ", ".join([f"`reader.compat.torch`: {form.work.title}", *how])
    both, given = (_ours(TORCH_FACE), TORCH), {**_INLINE, **form.options}
    least = {"torch": 1.0}
    return Row(name, title, form.work, both, "epochs", given, form.samples, at_least=least)


def _paddle() -> list[Row]:
    ours = (_ours(PADDLE_FACE),)
    both = (*ours, PADDLE)
    feed = "static graph, `exe.run(feed=batch)` of 8.4 MB, a whole step, 2 workers"
    start = "`iter()` to the first batch of a later epoch, persistent workers"
    tiny = "an iterable dataset, tiny batches, 2 workers"
    small = "an iterable dataset, batches of 8.4 MB, 2 workers"
    leave = "`break` to the first batch of the next epoch, no persistent workers"
    most, first = {"us": 500.0}, {"first_us": 1000.0}
    return [
        Row("feed", feed, _SMALL, both, "feed", at_most=most),
        Row("feed-inline", "the same without workers", _SMALL, both, "feed", _INLINE, at_most=most),
        Row("start", start, _TINY, both, figure="first_us", at_most=first),
        # Not persistent: Paddle's persistent workers hang on a stream that is read quickly.
        Row("tiny-stream", tiny, _TINY, both, options=_FRESH, samples="stream"),
        Row("small-image-stream", small, _SMALL, both, options=_FRESH, samples="stream"),
        Row("break", leave, _TINY, both, "break", _FRESH, "stream"),
        Row("start-ahead", start, _TINY, ours, options={**_KEPT, "prefetch_next_epoch": True}),
        Row("small-image", "batches of 8.4 MB, 2 workers", _SMALL, ours),
        Row("tiny-inline", "tiny batches, no workers", _TINY, ours, options=_INLINE),
        Row("tiny-stream-kept", tiny, _TINY, ours, samples="stream"),
    ]


def _torch() -> list[Row]:
    ours = (_ours(TORCH_FACE),)
    both = (*ours, TORCH)
    titles = {
        "tiny": "tiny batches, 2 workers; samples are arrays, or tensors",
        "image": "image, 38.5 MB",
        "uint8": "uint8, 19.3 MB",
        "text": "text, a dict of 3 x 512 int64",
    }
    faster = {"tiny": 25.0, "image": 10.0, "uint8": 10.0, "text": 40.0}
    epochs = [
        Row(name, title, WORKS[work], both, samples=samples, at_least={"torch": faster[work]})
        for work, title in titles.items()
        for name, samples in ((work, "arrays"), (f"{work}-tensors", "tensors"))
    ]
    spawn = "`iter()` to the first batch, 4 spawned workers of a program that imports torch"
    resume = "a state at 90 % of a shuffled epoch of 10^8 samples to the next batch"
    far, near = (_ours(TORCH_FACE, 10**8), TORCHDATA), (_ours(TORCH_FACE, 10**5),)
    start, most = {"torch": 1 / 0.6}, {"us": 5000.0}
    return [
        *epochs,
        Row("spawn", spawn, _TINY, both, "spawn", workers(4), at_least=start),
        Row("resume", resume, _TINY, far, "resume", _INLINE, at_most=most, is_public=False),
        Row("resume-near", "a state of 10^5 samples", _TINY, near, "resume", _INLINE),
        Row("tiny-inline", "tiny batches, no workers", _TINY, ours, options=_INLINE),
        Row("tiny-stream", "tiny batches of a stream", _TINY, ours, samples="stream"),
    ]


def _places() -> list[Row]:
    both = (_ours(PADDLE_FACE), PADDLE)
    step = "static graph, `exe.run(feed=batch)` of 8.4 MB for each CPU place, 2 workers"
    return [
        Row("one-place", f"{step}; 1 place", _SMALL, both, "feed"),
        Row("two-places", f"{step}; 2 places", _SMALL, both, "feed", places=2),
    ]


def _opening() -> list[Row]:
    faces = {
        "torch": (_ours(TORCH_FACE), TORCH),
        "paddle": (_ours(PADDLE_FACE), PADDLE),
        "own": (_ours(ENGINE), TORCH),
    }
    how = {"new": "a new loader for each epoch", "kept": "one loader"}
    work = WORKS["numbered"]
    rows = []
    for (face, both), kind, is_shuffled in product(faces.items(), how, (False, True)):
        options = {**_INLINE, "shuffle": True} if is_shuffled else _INLINE
        shuffled = ", shuffled" if is_shuffled else ""
        title = f"`{both[0].face}`: {how[kind]}, epochs of 1, 4 and 16 batches{shuffled}"
        for batches in (1, 4, 16):
            name = f"{face}-{kind}-{batches}{'-shuffled' if is_shuffled else ''}"
            least = {both[1].name: 1.0}
            rows.append(
                Row(name, title, work, both, kind, options, at_least=least, batches=batches)
            )
    for face in ("torch", "own"):
        both, module = faces[face], f"`{faces[face][0].face}`"
        kept = f"{module}: 2 persistent workers, epochs of 4 batches"
        pool = f"{module}: 2 new workers, to the first batch"
        fast, soon = {"torch": 10.0}, {"torch": 1.0}
        rows += [
            Row(f"{face}-workers", kept, work, both, "kept", _KEPT, at_least=fast, batches=4),
            Row(f"{face}-pool", pool, work, both, "pool", _FRESH, at_least=soon, batches=4),
        ]
    return rows


TABLES: dict[str, dict[str, Row]] = {
    table: {row.name: row for row in rows}
    for table, rows in (
        ("engine", _engine()),
        ("inline", _inline()),
        ("opening", _opening()),
        ("paddle", _paddle()),
        ("torch", _torch()),
        ("places", _places()),
    )
}
