"""States that are damaged, or loaded under other options: they are refused, or the loader works.

Each case loads a state into a loader: one saved by a loader with other options, or one with wrong
values in one place or more. StateError refuses it, and nothing has changed then; or the loader
works, and ends within a bound. A state that nobody damaged is refused or resumes exactly.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np

import reader
from tests.fuzz.cases import Draws, try_cases
from tests.fuzz.sources import BOUND_S, SIZE, Dealt, Global, Items, Kept, Stateful

MOST_STEPS = 200

Make = Callable[[dict[str, Any]], reader.DataLoader[Any]]


def _with_torch(options: dict[str, Any]) -> reader.DataLoader[Any]:
    import torch

    generator = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(range(SIZE), generator=generator)
    return reader.DataLoader(Items(), sampler=sampler, **options)


KINDS: dict[str, Make] = {
    "sequence": lambda o: reader.DataLoader(Items(), **o),
    "seeded": lambda o: reader.DataLoader(Items(), shuffle=True, **{**o, "seed": 1}),
    "drawn": lambda o: reader.DataLoader(Items(), shuffle=True, **o),
    "replayed": lambda o: reader.DataLoader(Items(), sampler=Global(), **o),
    "stateful": lambda o: reader.DataLoader(Items(), sampler=Stateful(), **o),
    "ranks": lambda o: reader.DataLoader(
        Items(), sampler=reader.DistributedSampler(Items(), 2, 1, seed=4), **o
    ),
    "generator": _with_torch,
    "stream": lambda o: reader.DataLoader(Dealt(), **o),
    "kept": lambda o: reader.DataLoader(Kept(), **o),
}
STREAMS = ("stream", "kept")


def draw_options(draws: Draws, kind: str) -> dict[str, Any]:
    """Return the options of one loader."""
    options: dict[str, Any] = {
        "batch_size": draws.choice([1, 3, 4, 4, 4]),
        "num_workers": draws.choice([0, 2, 2, 3]),
        "timeout": BOUND_S / 2,
    }
    if options["num_workers"]:
        options["worker_type"] = "thread"
        options["in_order"] = draws.chance(0.6)
        options["persistent_workers"] = draws.chance(0.3)
    if draws.chance(0.3) and kind not in STREAMS:
        options["drop_last"] = True
    if draws.chance(0.3):
        options["seed"] = draws.choice([1, 2])
    if draws.chance(0.3):
        options["snapshot_every_n_steps"] = draws.choice([0, 2])
    return options


def scalars(draws: Draws) -> Any:
    """Return a value that belongs in no state, or only in another place."""
    import torch

    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: draws.choice([True, False]),
        lambda: draws.choice([0, 1, 2, 3, 5, 7, -1, 10**6, 2**31, 2**62, 2**63 - 1, 2**63, 2**64]),
        lambda: 10**400,
        lambda: draws.choice([0.0, 1.5, float("nan"), float("inf"), -0.0]),
        lambda: draws.choice([np.int64(1), np.float64(2.0), np.bool_(True), np.str_("map")]),
        lambda: draws.choice([np.array(3), np.arange(3), np.zeros(0), np.ones((2, 2)) > 0]),
        lambda: draws.choice([torch.tensor(1), torch.arange(3), torch.zeros(0)]),
        lambda: draws.choice(["", "x", "map", "iterable", "boundary", "replay", "entry", "world"]),
        lambda: draws.choice([b"", b"xyz", 1j, ..., object(), int, len, range(3), {1}, (1, 2)]),
        lambda: draws.choice([[], {}, [None], [[1, 2]], [[1, 2, 3]], {"x": 1}, {1: 2}, [[]], [1]]),
        lambda: [[0, 2**40, 1], [1, 2**40, 2]],
        lambda: {"dtype": draws.choice(["O", "<u4", "x"]), "bytes": draws.choice(["AAAA", "!", 5])},
        lambda: {"tuple": draws.choice([[], 5, {"bytes": "AAAA"}, [1, {"bytes": 1}]])},
    ]
    return draws.choice(makers)()


# states of users' own objects: how they treat wrong ones is up to them
THEIRS = ("source", "iterator", "dataset")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where a state can be damaged."""
    if path and path[-1] in THEIRS and len(path) > 1 and path[0] != "fit" and path[0] != "epochs":
        return
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from places(each, (*path, at))


def damage(state: Any, draws: Draws) -> tuple[Any, str]:
    """Return a copy with one wrong place or more, and what was done.

    As many choices are made whatever the state holds: batches out of order differ in each run.
    """
    made = copy.deepcopy(state)
    done = []
    for _ in range(draws.choice([1, 1, 1, 2, 3])):
        place, act = draws.randint(0, 1 << 16), draws.randint(0, 99)
        value, step = scalars(draws), draws.choice([-1, 1, 2, 100])
        more = draws.choice(["x", 5, None, "first", "over", "rank"])
        found = list(places(made))
        if not found or act == 99:
            made = value
            done.append(f"whole={made!r:.60}")
            break
        path = found[place % len(found)]
        at = made
        for key in path[:-1]:
            at = at[key]
        if act < 15:
            del at[path[-1]]
            done.append(f"del {path}")
        elif act < 25 and type(at[path[-1]]) is int:
            at[path[-1]] += step
            done.append(f"{path} -> {at[path[-1]]}")
        elif act < 30 and isinstance(at, list):
            at.insert(path[-1], copy.deepcopy(at[path[-1]]))
            done.append(f"twice {path}")
        elif act < 35 and isinstance(at, dict):
            at[more] = value
            done.append(f"more in {path[:-1]}")
        else:
            at[path[-1]] = value
            done.append(f"{path}={value!r:.60}")
    return made, "; ".join(done)


def facts(loader: reader.DataLoader[Any]) -> str:
    """Return everything that loading a state might change, for comparing."""
    found = [repr(loader.state_dict()), loader.epoch, repr(random.getstate())]
    found += [repr(np.random.get_state()), repr(getattr(loader.sampler, "__dict__", None))]
    found.append(repr(getattr(loader.dataset, "__dict__", None)))
    return repr(found)


class Saved:
    """A state, the batches delivered before it, and its options."""

    def __init__(self, kind: str, options: dict[str, Any], steps: int, most: int) -> None:
        self.kind, self.options = kind, options
        self.text = f"{kind} {options} after {steps} of {most}"
        np.random.seed(5)
        self.before: list[int] = []
        with KINDS[kind](options) as loader:
            if most:
                iterator = iter(loader)
                for _ in range(steps):
                    self.before += next(iterator).tolist()
            self.state = loader.state_dict()
            self.rest = [batch.tolist() for batch in iterator] if most else None


def save_some(draws: Draws, kind: str) -> Saved:
    """Return a state that a loader with some options saved somewhere in an epoch."""
    options = draw_options(draws, kind)
    with KINDS[kind](options) as loader:
        np.random.seed(5)
        most = sum(1 for _ in loader)
    if draws.chance(0.15):
        return Saved(kind, options, 0, 0)
    return Saved(kind, options, draws.randint(0, 1 << 16) % most, most)


def damaged_case(draws: Draws) -> str:
    """Run one case; returns its outcome."""
    random.seed(7)
    saved = save_some(draws, draws.choice(list(KINDS)))
    state, done = saved.state, "as saved"
    is_damaged = draws.chance(0.8)
    if is_damaged:
        state, done = damage(saved.state, draws)
    kind, options = saved.kind, saved.options
    is_crossed = draws.chance(0.4)
    if is_crossed:
        kind = draws.choice([kind, kind, draws.choice(list(KINDS))])
        options = draw_options(draws, kind)
    hypothesis.note(f"{saved.text}; {done}; into {kind} {options}")
    is_own = not is_damaged and kind == saved.kind
    return _load(kind, options, state, saved if is_own else None, is_crossed)


def _load(kind: str, options: dict[str, Any], state: Any, saved: Saved | None, cross: bool) -> str:
    with KINDS[kind](options) as loader:
        before = facts(loader)
        try:
            loader.load_state_dict(state)
        except reader.StateError:
            if facts(loader) != before:
                raise AssertionError("something changed although the state was refused") from None
            if saved is not None and not cross:
                raise
            return "refused"
        found: list[list[int]] = []
        try:
            repr(loader.state_dict())
            for step, batch in enumerate(loader):
                found.append(batch.tolist())
                if step == MOST_STEPS:
                    break
            repr(loader.state_dict())
        except reader.StateError:
            if saved is not None and not cross:
                raise
            return "refused when it began"
        if saved is not None:
            _compare(options, saved, found)
            return "resumed"
        return "worked"


def _compare(options: dict[str, Any], saved: Saved, found: list[list[int]]) -> None:
    """Assert that an undamaged state resumed exactly, if its options allow a comparison."""
    if saved.kind == "kept" and not saved.before:
        return  # nothing was delivered: any number of workers can begin
    if saved.rest is None or saved.options.get("drop_last") or options.get("drop_last"):
        is_same = (
            saved.rest is None or options != saved.options or _flat(found) == _flat(saved.rest)
        )
    else:
        is_same = _flat(found) == _flat(saved.rest)
    if not is_same:
        raise AssertionError(f"got {found}, not {saved.rest}")


def _flat(batches: list[list[int]]) -> list[int]:
    return sorted(number for batch in batches for number in batch)


def test_states_that_are_damaged_or_crossed_are_refused_or_work() -> None:
    outcomes = try_cases(damaged_case, 100)
    assert "refused" in outcomes
    assert outcomes.keys() & {"resumed", "worked"}
