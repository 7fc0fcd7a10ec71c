"""States of the PyTorch face's StatefulDataLoader, beside a run that nobody interrupted.

Each case saves a state in one run, loads it in another whose random state differs, and compares
both with that run: what that gives next, the resumed run gives, in this epoch and in the next one;
with another number of workers it gives it too, or refuses.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from reader.compat.torch import (
    RandomSampler,
    StatefulDataLoader,
    StatefulDistributedSampler,
)
from reader.errors import StateError
from tests.fuzz.cases import Draws, try_cases
from tests.fuzz.sources import BOUND_S, FAR, SIZE, Counting, Items

SEED = 11  # of the run that nobody interrupts, and of the one that saves
EPOCHS = 5
Epoch = list[list[float]]


def _first() -> int:
    info = get_worker_info()
    return FAR * (info.id if info else 0)


class Drawing(Dataset[float]):
    """Adds a random number to each sample."""

    def __getitem__(self, index: int) -> float:
        return round(index + float(torch.rand(())), 4)

    def __len__(self) -> int:
        return SIZE


class StatefulDrawing(Drawing):
    """Its state is the random state that it draws from, as torchdata's own tests have it."""

    def state_dict(self) -> dict[str, Any]:
        """Return torch's random state."""
        return {"rng": torch.get_rng_state().tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set torch's random state."""
        torch.set_rng_state(torch.tensor(state["rng"], dtype=torch.uint8))


class Stream(IterableDataset[float]):
    """Each worker yields numbers of its own; its iterators have no state."""

    def __iter__(self) -> Iterator[float]:
        first = _first()
        yield from (float(first + each) for each in range(SIZE))


class DrawingStream(Stream):
    """Adds a random number to each item."""

    def __iter__(self) -> Iterator[float]:
        for each in super().__iter__():
            yield round(each + float(torch.rand(())), 4)


class StatefulStream(IterableDataset[float]):
    """The dataset has the state."""

    def __init__(self) -> None:
        self.at = 0
        self.epoch = 0

    def __iter__(self) -> Iterator[float]:
        first = _first()
        while self.at < SIZE:
            self.at += 1
            yield float(first + 10 * FAR * self.epoch + self.at - 1)
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, int]:
        """Return the position."""
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position."""
        self.at, self.epoch = state["at"], state["epoch"]


class StatefulIterators(IterableDataset[int]):
    """Its iterators have a state."""

    def __iter__(self) -> Iterator[int]:
        return Counting(_first())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _distributed() -> dict[str, Any]:
    made = StatefulDistributedSampler(Items(), num_replicas=2, rank=1, shuffle=True, seed=4)
    return {"sampler": made}


# dataset, and the options of its order
SOURCES: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "sequence": (Items, dict),
    "shuffle": (Items, lambda: {"shuffle": True}),
    "generator": (Items, lambda: {"shuffle": True, "generator": _generator()}),
    "sampler": (Items, lambda: {"sampler": RandomSampler(range(SIZE), generator=_generator())}),
    "drawn": (Items, lambda: {"sampler": RandomSampler(range(SIZE))}),
    "torch": (Items, lambda: {"sampler": torch.utils.data.RandomSampler(range(SIZE))}),
    "ranks": (Items, _distributed),
    "drawing": (Drawing, lambda: {"shuffle": True}),
    "stateful-drawing": (StatefulDrawing, lambda: {"shuffle": True}),
    "stream": (Stream, dict),
    "drawing-stream": (DrawingStream, dict),
    "stateful-stream": (StatefulStream, dict),
    "iterators": (StatefulIterators, dict),
}


@dataclass
class Setup:
    """One combination of options."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        """Whether the dataset is iterable."""
        return issubclass(SOURCES[self.kind][0], IterableDataset)  # type: ignore[arg-type]

    @property
    def persists(self) -> bool:
        """Whether the workers outlive an epoch."""
        return bool(self.options.get("persistent_workers"))

    @property
    def loses_draws(self) -> bool:
        """Whether random states that outlive an epoch are in no state."""
        is_unsaved = not self.options["snapshot_every_n_steps"]
        return self.kind == "drawing-stream" and self.persists and is_unsaved

    def make(self) -> StatefulDataLoader[Any]:
        """Make the loader."""
        dataset, order = SOURCES[self.kind]
        return StatefulDataLoader(dataset(), **order(), **self.options)


def draw_setup(draws: Draws) -> Setup:
    """Return a source and options."""
    kind = draws.choice(list(SOURCES))
    return Setup(kind, _draw_options(draws, kind))


def _draw_options(draws: Draws, kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "batch_size": draws.choice([None, 1, 3, 4, 4, 4, 5]),
        # without workers a stream draws from the trainer's random state, which is the program's
        "num_workers": draws.choice(
            [1, 2, 3] if kind == "drawing-stream" else [0, 0, 0, 1, 2, 2, 3]
        ),
        "snapshot_every_n_steps": draws.choice(
            [1, 1, 0, 2, 5] if kind != "stateful-stream" else [1, 2, 5]
        ),
    }
    if options["num_workers"]:
        options["timeout"] = BOUND_S
        options["persistent_workers"] = draws.chance(0.4)
        options["prefetch_factor"] = draws.choice([1, 2, 4])
        options["prefetch_next_epoch"] = options["persistent_workers"] and draws.chance(0.3)
    if options["batch_size"] is not None and draws.chance(0.3):
        options["drop_last"] = True
    return options


def values(batch: Any) -> list[float]:
    """Return the samples of a batch."""
    return [round(each, 4) for each in torch.as_tensor(batch).double().reshape(-1).tolist()]


def run(setup: Setup) -> list[Epoch]:
    """Return all epochs of a run that nobody interrupts."""
    torch.manual_seed(SEED)
    with setup.make() as loader:
        return [[values(batch) for batch in loader] for _ in range(EPOCHS)]


def torch_case(draws: Draws) -> str:
    """Run one case; return its outcome."""
    setup = draw_setup(draws)
    epoch, steps = draws.choice([0, 0, 1, 2]), draws.choice([0, 1, 2, 3, 5, 8, 99])
    where = draws.choice(["fresh", "begun"]) if not steps else "inside"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores
        hypothesis.note(f"{setup}, {where}, epoch {epoch}, {steps} steps")
        whole = run(setup)
        state = _save(draws, setup, whole, epoch, steps, where)
        if steps > len(whole[epoch]):  # the loop saw the end
            epoch, steps = epoch + 1, 0
        other = _other(draws, setup) if draws.chance(0.5) else setup
        hypothesis.note(f"into {other}")
        return _resume(draws, setup, other, state, whole, epoch, steps)


def _other(draws: Draws, setup: Setup) -> Setup:
    """Return a setup with other options, for the same data."""
    made = _draw_options(draws, setup.kind)
    for name in ("batch_size", "drop_last"):
        made.pop(name, None)
        if name in setup.options:
            made[name] = setup.options[name]
    return replace(setup, options=made)


def _save(
    draws: Draws, setup: Setup, whole: list[Epoch], epoch: int, steps: int, where: str
) -> Any:
    torch.manual_seed(SEED)
    with setup.make() as loader:
        for each in range(epoch):
            _same(f"epoch {each} of the run that saves", [values(b) for b in loader], whole[each])
        if where == "fresh":
            return _through_json(loader.state_dict())
        iterator = iter(loader)
        got = [values(batch) for batch in itertools.islice(iterator, steps)]
        _same("what came before", got, whole[epoch][:steps])
        state = _through_json(loader.state_dict())
        if draws.chance(0.3):
            _same("the same again", _through_json(loader.state_dict()), state)
        if draws.chance(0.5):
            rest = [values(batch) for batch in iterator]
            _same("the rest of the run that saved", rest, whole[epoch][steps:])
            _same("its next epoch", [values(batch) for batch in loader], whole[epoch + 1])
        return state


def _through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def _resume(
    draws: Draws,
    setup: Setup,
    other: Setup,
    state: Any,
    whole: list[Epoch],
    epoch: int,
    steps: int,
) -> str:
    torch.manual_seed(draws.randint(0, 1000 - 1))
    with other.make() as loader:
        try:
            # without snapshots a sampler goes on from where it is
            if draws.chance(0.2) and setup.options["snapshot_every_n_steps"]:
                list(loader)
            loader.load_state_dict(state)
            iterator = iter(loader)
        except StateError as error:
            if setup.options["num_workers"] == other.options["num_workers"]:
                raise
            return "refused: " + " ".join(str(error).split()[5:9])
        got = [values(batch) for batch in iterator]
        after = [values(batch) for batch in loader]
    workers = [each.options["num_workers"] for each in (setup, other)]
    if workers[0] != workers[1] and (setup.is_stream or setup.kind == "stateful-drawing"):
        return "worked with another number of workers"
    if setup.loses_draws and epoch > 0:
        return "resumed without the workers' random state"
    is_new = not steps and epoch > 0
    if setup.persists == other.persists or not is_new:
        _same("the rest", got, whole[epoch][steps:])
    if setup.persists != other.persists:  # then later epochs have other base seeds
        return "resumed the epoch"
    _same("the next epoch", after, whole[epoch + 1])
    return "resumed"


def _same(what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise AssertionError(f"{what}: got {got}, wanted {expected}")


def test_states_of_the_torch_face_give_what_the_uninterrupted_run_gives() -> None:
    outcomes = try_cases(torch_case, 8)
    assert outcomes["resumed"] > 1
