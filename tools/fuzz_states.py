"""Fuzz the states of loaders: `python -m tools.fuzz_states --count N --seed S`.

Each case loads a state into a loader: one saved by a loader with other options, or one with wrong
values in one place or more. It must be refused by StateError, and nothing has changed then; or the
loader works, and ends within a bound. A state that nobody damaged is refused or resumes exactly;
`--crossed` tries that alone, for pairs of all options that may differ between two loaders, and
`--torch` does for the PyTorch face's StatefulDataLoader. Imports the package and numpy; the number
of a failed case and the seed repeat it.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import functools
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import reader
from tools.crossed_states import crossed_case
from tools.state_sources import BOUND_S, SIZE, Dealt, Global, Items, Kept, Stateful, Wrong

MOST_STEPS = 200
MOST_MEMORY = 6 << 30


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


def draw_options(rng: random.Random, kind: str) -> dict[str, Any]:
    """Return the options of one loader."""
    options: dict[str, Any] = {
        "batch_size": rng.choice([1, 3, 4, 4, 4]),
        "num_workers": rng.choice([0, 2, 2, 3]),
        "timeout": BOUND_S / 2,
    }
    if options["num_workers"]:
        options["worker_type"] = "thread"
        options["in_order"] = rng.random() < 0.6
        options["persistent_workers"] = rng.random() < 0.3
    if rng.random() < 0.3 and kind not in STREAMS:
        options["drop_last"] = True
    if rng.random() < 0.3:
        options["seed"] = rng.choice([1, 2])
    if rng.random() < 0.3:
        options["snapshot_every_n_steps"] = rng.choice([0, 2])
    return options


def scalars(rng: random.Random) -> Any:
    """Return a value that belongs in no state, or only in another place."""
    import torch

    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: rng.choice([True, False]),
        lambda: rng.choice([0, 1, 2, 3, 5, 7, -1, 10**6, 2**31, 2**62, 2**63 - 1, 2**63, 2**64]),
        lambda: 10**400,
        lambda: rng.choice([0.0, 1.5, float("nan"), float("inf"), -0.0]),
        lambda: rng.choice([np.int64(1), np.float64(2.0), np.bool_(True), np.str_("map")]),
        lambda: rng.choice([np.array(3), np.arange(3), np.zeros(0), np.ones((2, 2)) > 0]),
        lambda: rng.choice([torch.tensor(1), torch.arange(3), torch.zeros(0)]),
        lambda: rng.choice(["", "x", "map", "iterable", "boundary", "replay", "entry", "world"]),
        lambda: rng.choice([b"", b"xyz", 1j, ..., object(), int, len, range(3), {1}, (1, 2)]),
        lambda: rng.choice([[], {}, [None], [[1, 2]], [[1, 2, 3]], {"x": 1}, {1: 2}, [[]], [1]]),
        lambda: [[0, 2**40, 1], [1, 2**40, 2]],
        lambda: {"dtype": rng.choice(["O", "<u4", "x"]), "bytes": rng.choice(["AAAA", "!", 5])},
        lambda: {"tuple": rng.choice([[], 5, {"bytes": "AAAA"}, [1, {"bytes": 1}]])},
    ]
    return rng.choice(makers)()


# the states of users' own objects: what they do with wrong ones is theirs
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


def damage(state: Any, rng: random.Random) -> tuple[Any, str]:
    """Return a copy with one wrong place or more, and what was done."""
    made = copy.deepcopy(state)
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = list(places(made))
        if not found or rng.random() < 0.01:
            made = scalars(rng)
            done.append(f"whole={made!r:.60}")
            break
        path = rng.choice(found)
        at = made
        for key in path[:-1]:
            at = at[key]
        act = rng.random()
        if act < 0.15:
            del at[path[-1]]
            done.append(f"del {path}")
        elif act < 0.25 and type(at[path[-1]]) is int:
            at[path[-1]] += rng.choice([-1, 1, 2, 100])
            done.append(f"{path} -> {at[path[-1]]}")
        elif act < 0.3 and isinstance(at, list):
            at.insert(path[-1], copy.deepcopy(at[path[-1]]))
            done.append(f"twice {path}")
        elif act < 0.35 and isinstance(at, dict):
            at[rng.choice(["x", 5, None, "first", "over", "rank"])] = scalars(rng)
            done.append(f"more in {path[:-1]}")
        else:
            at[path[-1]] = scalars(rng)
            done.append(f"{path}={at[path[-1]]!r:.60}")
    return made, "; ".join(done)


def facts(loader: reader.DataLoader[Any]) -> str:
    """Return what loading a state might change, for comparing."""
    found = [repr(loader.state_dict()), loader.epoch, repr(random.getstate())]
    found += [repr(np.random.get_state()), repr(getattr(loader.sampler, "__dict__", None))]
    found.append(repr(getattr(loader.dataset, "__dict__", None)))
    return repr(found)


class Saved:
    """A state, what was delivered before it, and the options it was saved with."""

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


def save_some(rng: random.Random, kind: str) -> Saved:
    """Return a state that a loader with some options saved somewhere in an epoch."""
    options = draw_options(rng, kind)
    with KINDS[kind](options) as loader:
        np.random.seed(5)
        most = sum(1 for _ in loader)
    if rng.random() < 0.15:
        return Saved(kind, options, 0, 0)
    return Saved(kind, options, rng.randint(0, most - 1), most)


def one_case(rng: random.Random, saved: list[Saved]) -> str:
    """Run one case; returns its outcome."""
    each = rng.choice(saved)
    state, done = each.state, "as saved"
    is_damaged = rng.random() < 0.8
    if is_damaged:
        state, done = damage(each.state, rng)
    kind, options = each.kind, dict(each.options)
    is_crossed = rng.random() < 0.4
    if is_crossed:
        other = rng.choice(saved)
        options = other.options
        kind = rng.choice([kind, kind, other.kind])
        if kind in STREAMS:
            options = {name: v for name, v in options.items() if name != "drop_last"}
    text = f"{each.text}; {done}; into {kind} {options}"
    try:
        is_own = not is_damaged and kind == each.kind
        outcome = _load(kind, options, state, each if is_own else None, is_crossed)
    except Exception as error:
        raise Wrong(f"{text}\n{type(error).__name__}: {error}") from error
    return outcome


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
    """Assert that an undamaged state resumed exactly, as far as its options allow to say."""
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


def main() -> int:
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--crossed", action="store_true", help="save and load under two combinations of options"
    )
    parser.add_argument(
        "--torch", action="store_true", help="the PyTorch face's StatefulDataLoader, likewise"
    )
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument(
        "--status", default=os.devnull, help="a file for the number of the case, if one hangs"
    )
    parser.add_argument("--most", type=int, default=20, help="how many failures are shown")
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, limit))
    case = crossed_case
    if options.torch:
        from tools.torch_states import torch_case as case
    elif not options.crossed:
        rng = random.Random(options.seed)
        saved = [save_some(rng, kind) for kind in KINDS for _ in range(12)]
        case = functools.partial(one_case, saved=saved)
    outcomes: collections.Counter[str] = collections.Counter()
    failed: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    status = os.open(options.status, os.O_WRONLY | os.O_CREAT, 0o644)
    numbers = range(options.count) if options.only is None else [options.only]
    for number in numbers:
        np.random.seed(5)
        random.seed(7)
        faulthandler.dump_traceback_later(BOUND_S * 2, exit=True)
        os.lseek(status, 0, os.SEEK_SET)
        os.write(status, f"{number:12}\n".encode())
        try:
            outcomes[case(random.Random(f"{options.seed}/{number}"))] += 1
        except Wrong as wrong:
            where = traceback.extract_tb(wrong.__cause__.__traceback__)[-1]  # type: ignore[union-attr]
            place = f"{where.filename.rpartition('/')[2]}:{where.lineno} {where.line}"
            failed[place] += 1
            if failed[place] <= 2 and sum(failed.values()) <= options.most:
                print(f"case {number} of seed {options.seed}: {wrong}\n    at {place}", flush=True)
                if options.only is not None:
                    traceback.print_exception(wrong.__cause__)
        faulthandler.cancel_dump_traceback_later()
    took = time.monotonic() - began
    total = sum(failed.values())
    print(f"{len(numbers)} cases in {took:.0f} s: {dict(outcomes)}; {total} failed {dict(failed)}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
