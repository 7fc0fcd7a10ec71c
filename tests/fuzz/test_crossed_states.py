"""States saved under one combination of options and loaded under another.

Each case resumes exactly, with the next epoch that an uninterrupted run has, or StateError refuses
it when the state is loaded or the iterator is made.
"""

from __future__ import annotations

import functools
import itertools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import numpy as np

import reader
from tests.fuzz.cases import Draws, try_cases
from tests.fuzz.sources import BOUND_S, FAR, SIZE, SOURCES, Bad, Raising, Source

EPOCHS = 5  # the most batches of a case


@dataclass
class Setup:
    """One combination of options."""

    kind: str
    seed: int | None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        """Where the samples come from."""
        return SOURCES[self.kind]

    @property
    def workers(self) -> int:
        """How many workers there are; none is the same as one."""
        return max(1, int(self.options["num_workers"]))

    @property
    def size(self) -> int:
        """Samples of a batch."""
        return int(self.options.get("batch_size") or 1)

    @property
    def places(self) -> int:
        """How many batches are one step."""
        return len(self.options.get("places", ["cpu"]))

    @property
    def in_order(self) -> bool:
        """Whether batches come in their order."""
        return self.places > 1 or bool(self.options.get("in_order", True))

    @property
    def drops(self) -> bool:
        """Whether short batches are left out."""
        return bool(self.options.get("drop_last", False))

    def make(self, bad: int | None = None) -> reader.DataLoader[Any]:
        """Make the loader."""
        made = self.source.make(bad)
        if isinstance(made, Raising):
            made.is_late = not self.in_order
        options = {"seed": self.seed, **self.source.options(self.seed), **self.options}
        if self.places > 1 and "in_order" in options:
            options["in_order"] = True  # several places take batches in turn
        return reader.DataLoader(made, timeout=BOUND_S, **options)


def draw_setup(draws: Draws, kind: str, seed: int | None) -> Setup:
    """Return options of one loader of a kind."""
    source = SOURCES[kind]
    options: dict[str, Any] = {"num_workers": draws.choice([0, 0, 1, 2, 2, 3])}
    if options["num_workers"]:
        is_process = draws.chance(0.5 if kind == "own" else 0.08)
        options["worker_type"] = "process" if is_process or kind == "own" else "thread"
        options["in_order"] = draws.chance(0.6)
        options["persistent_workers"] = draws.chance(0.4)
        options["prefetch_next_epoch"] = options["persistent_workers"] and draws.chance(0.3)
        options["prefetch_factor"] = draws.choice([1, 2, 2, 4])
    if not source.has_batches:
        options["batch_size"] = draws.choice([None, 1, 3, 4, 4, 4, 5])
        if options["batch_size"] is not None and draws.chance(0.3):
            options["drop_last"] = True
    if draws.chance(0.3):
        options["places"] = ["cpu"] * draws.choice([2, 3])
        options["drop_last_group"] = draws.chance(0.2)
    if draws.chance(0.3) or not options.get("in_order", True):
        options["seed_globals"] = False  # else threads make one batch at a time
    options["snapshot_every_n_steps"] = draws.choice([1, 1, 0, 2, 5])
    return Setup(kind, seed, options)


def draw_other(draws: Draws, setup: Setup) -> Setup:
    """Return the options of the loader that gets the state."""
    kind = setup.kind if draws.chance(0.9) else draws.choice(list(SOURCES))
    seed = setup.seed if draws.chance(0.9) else draws.choice([None, 1, 2])
    made = draw_setup(draws, kind, seed)
    if kind == setup.kind:  # some stay: else hardly any two fit
        stays = [name for name in made.options if name in setup.options and draws.chance(0.5)]
        made.options.update({name: setup.options[name] for name in stays})
        workers = made.options["num_workers"]
        if not workers:
            for name in ("worker_type", "in_order", "persistent_workers", "prefetch_next_epoch"):
                made.options.pop(name, None)
        elif made.options.get("prefetch_next_epoch"):
            made.options["persistent_workers"] = True
        if made.options.get("batch_size", 1) is None:
            made.options.pop("drop_last", None)
        if "places" not in made.options:
            made.options.pop("drop_last_group", None)
    return made


Batch = tuple[int, ...]


def batches_of(step: Any, setup: Setup) -> list[Batch]:
    """Return the batches of one step."""
    parts = step if setup.places > 1 else [step]
    return [tuple(np.asarray(part).ravel().tolist()) for part in parts]


@functools.cache
def orders(kind: str, seed: int | None) -> tuple[tuple[Batch, ...], ...]:
    """Return the order of each epoch of a known map-style source, cut where the source cuts."""
    np.random.seed(5)
    options = {} if SOURCES[kind].has_batches else {"batch_size": 1}
    with Setup(kind, seed, {"num_workers": 0, **options}).make() as loader:
        twin = Setup(kind, seed)
        return tuple(
            tuple(batch for step in loader for batch in batches_of(step, twin))
            for _ in range(EPOCHS)
        )


def chunks(samples: list[int], size: int) -> list[Batch]:
    """Cut samples into batches."""
    return [tuple(samples[at : at + size]) for at in range(0, len(samples), size)]


def flat(batches: Any) -> list[int]:
    """Return the samples of batches."""
    return [each for batch in batches for each in batch]


class Saved:
    """A state, and the delivered batches of its run."""

    def __init__(self, draws: Draws, setup: Setup) -> None:
        self.setup = setup
        source = setup.source
        self.bad = draws.randint(0, SIZE - 1) if source.can_raise and draws.chance(0.3) else None
        self.epoch = draws.choice([0, 0, 1, 2])
        if not source.is_known:  # the left-out samples would not be known
            setup.options.update(drop_last=False, drop_last_group=False)
            if setup.options["num_workers"]:
                setup.options["in_order"] = True
            if "places" not in setup.options:
                del setup.options["drop_last_group"]
        self.steps = draws.randint(0, 9) if draws.chance(0.8) else draws.randint(0, 30)
        self.delivered: list[Batch] = []
        self.told = 0
        self.is_finished = False
        self.rest: list[Batch] | None = None
        np.random.seed(5)
        with setup.make(self.bad) as loader:
            for _ in range(self.epoch):
                for _ in self._steps(iter(loader)):
                    pass
            self.told, self.is_finished = 0, False
            if self.steps or draws.chance(0.5):
                iterator = iter(loader)
                for step in itertools.islice(self._steps(iterator), self.steps):
                    self.delivered += batches_of(step, setup) if step is not None else []
                if draws.chance(0.5) and source.is_known:
                    del iterator
            self.state = json.loads(json.dumps(loader.state_dict()))
            if not source.is_known and self.delivered and not self.is_finished:
                self.rest = [batch for step in iterator for batch in batches_of(step, setup)]
        if self.is_finished:
            self.delivered, self.told, self.epoch = [], 0, self.epoch + 1

    def _steps(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield steps, and None in the place of an exception."""
        self.is_finished = False
        while True:
            try:
                yield next(iterator)
            except StopIteration:
                self.is_finished = True
                return
            except Bad:
                self.told += 1
                yield None

    def __str__(self) -> str:
        at = f"epoch {self.epoch}, {len(self.delivered)} batches and {self.told} exceptions"
        return f"{self.setup}, bad={self.bad}, {at} after {self.steps} steps"


def crossed_case(draws: Draws) -> str:
    """Run one case; return its outcome."""
    setup = draw_setup(draws, draws.choice(list(SOURCES)), draws.choice([None, 1, 1, 2]))
    hypothesis.note(f"saving with {setup}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a last group that is short is told
        saved = Saved(draws, setup)
        other = setup if draws.chance(0.1) else draw_other(draws, setup)
        hypothesis.note(f"{saved}\n  into {other}")
        return _resume(saved, other)


def _resume(saved: Saved, other: Setup) -> str:
    np.random.seed(6)
    with other.make() as loader:
        try:
            loader.load_state_dict(saved.state)
            iterator = iter(loader)
        except reader.StateError as error:
            if _must_work(saved.setup, other):
                raise
            return _reason(error)
        try:
            found = [batch for step in iterator for batch in batches_of(step, other)]
        except reader.StateError:
            if other.kind == saved.setup.kind:
                raise
            return "refused by a worker, which alone knows its copy of another dataset"
        after = [batch for step in loader for batch in batches_of(step, other)]
    if other.kind != saved.setup.kind:
        return "worked with another source"
    if other.source.is_stream:
        _check_stream(saved, other, found, after)
    else:
        _check_map(saved, other, found, after)
    return "resumed"


def _reason(error: reader.StateError) -> str:
    """Return the outcome: the first words of the refusal of the state."""
    text = str(error).removeprefix("this state cannot be resumed: ")
    return "refused: " + " ".join(text.split()[:3])


def _must_work(setup: Setup, other: Setup) -> bool:
    """Whether no option differs that may cause a refusal."""
    return (
        (setup.kind, setup.seed, setup.workers) == (other.kind, other.seed, other.workers)
        and setup.options.get("batch_size") == other.options.get("batch_size")
        and setup.in_order == other.in_order
    )


def _check_map(saved: Saved, other: Setup, found: list[Batch], after: list[Batch]) -> None:
    source, setup = saved.setup.source, saved.setup
    is_begun = bool(saved.delivered or saved.told)
    if source.is_known:
        every = orders(setup.kind, setup.seed)
        order = list(every[saved.epoch])
        following = list(every[saved.epoch + 1])
    else:
        order = chunks(flat(saved.delivered) + flat(saved.rest or []), 1)
        following = []
    if not source.has_batches:
        order = chunks(flat(order), setup.size)
    left = [batch for batch in order if batch not in saved.delivered]
    if saved.told and not _is_in_group(saved, order, left):
        left = [batch for batch in left if saved.bad not in batch]
    if not source.is_fixed and not is_begun:
        expected = None
    else:
        expected = left if other.size == setup.size else chunks(flat(left), other.size)
    _compare("the rest", other, found, expected)
    if source.is_fixed and not source.has_batches:
        following = chunks(flat(following), other.size)
    _compare("the next epoch", other, after, following if source.is_fixed else None)


def _is_in_group(saved: Saved, order: list[Batch], left: list[Batch]) -> bool:
    """Whether the exception came inside a group: it counts when the group is handed over."""
    at = next(at for at, batch in enumerate(order) if saved.bad in batch)
    return at > 0 and order[at - 1] in left and saved.setup.in_order


def _compare(what: str, other: Setup, found: list[Batch], expected: list[Batch] | None) -> None:
    """Assert that the batches of an epoch are those expected; None: each sample once."""
    is_cut = not other.source.has_batches
    if expected is None:
        expected = chunks(list(range(SIZE)), other.size)
        wanted = sorted(map(len, expected), reverse=True)
        got = sorted(map(len, found), reverse=True)
        is_same = len(set(flat(found))) == len(flat(found))
    else:
        wanted, got = list(map(list, expected)), list(map(list, found))  # type: ignore[arg-type]
        is_same = True
        if not other.in_order:
            wanted, got = sorted(wanted), sorted(got)
    if other.drops and is_cut and expected and len(expected[-1]) < other.size:
        short = expected[-1] if isinstance(wanted[0], int) is False else len(expected[-1])
        wanted.remove(list(short) if isinstance(short, tuple) else short)  # type: ignore[arg-type]
    if other.options.get("drop_last_group"):
        count = len(wanted) // other.places * other.places
        is_same &= len(got) == count
        wanted = wanted[:count]
    if not is_same or wanted != got:
        raise AssertionError(f"{what}: got {found}, wanted {expected}")


def _check_stream(saved: Saved, other: Setup, found: list[Batch], after: list[Batch]) -> None:
    """Assert the promise of a stream: each worker's items in order, once, and all of them."""
    setup = saved.setup
    before = flat(saved.delivered)
    workers = other.workers if setup.source.is_per_worker else 1
    whole = [FAR * worker + each for worker in range(workers) for each in range(SIZE)]
    lost = saved.told * setup.size  # by an exception in the place of a batch
    _check_items("the rest", setup, other, before, flat(found), whole, lost)
    _check_items("the next epoch", other, other, [], flat(after), whole)


def _check_items(
    what: str,
    setup: Setup,
    other: Setup,
    before: list[int],
    found: list[int],
    whole: list[int],
    may_miss: int = 0,
) -> None:
    missing = set(whole) - set(before) - set(found)
    for each in (setup, other):
        may_miss += each.workers * (each.size - 1) if each.drops else 0
    if other.options.get("drop_last_group"):
        may_miss += (other.places - 1) * other.size
    is_once = len(set(before + found)) == len(before + found)
    if not is_once or len(missing) > may_miss or set(found) - set(whole):
        raise AssertionError(f"{what}: got {found} after {before}, missing {sorted(missing)}")
    if other.in_order:
        for worker in range(len(whole) // SIZE):
            own = [each for each in found if each // FAR == worker]
            if own != sorted(own) and setup.source.is_per_worker:
                raise AssertionError(f"{what}: worker {worker} gave {own}")


def test_states_resume_exactly_or_are_refused_under_other_options() -> None:
    outcomes = try_cases(crossed_case, 40)
    assert outcomes["resumed"] > 10
    assert any(each.startswith("refused") for each in outcomes)
