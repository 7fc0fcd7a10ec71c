"""A saved epoch: the form that its state has here, checked, and how an iterator goes on with it.

Imports torch and the engine's errors. The form is that of torchdata's StatefulDataLoader as far as
programs look into it; what the engine keeps lies within. A SavedEpoch is read alone.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from reader.data.order_source import put_generators, random_generators
from reader.data.random_state import generator_state, to_json
from reader.errors import StateError, got

__all__ = ["SavedEpoch", "in_form"]

_REMEDY = "Load what state_dict() of reader.compat.torch.StatefulDataLoader returned"


def in_form(
    state: dict[str, Any], base_seed: int | None, workers: int, finished: bool
) -> dict[str, Any]:
    """Return the engine's state in the form that programs know.

    Args:
        state: of the engine.
        base_seed: of the iterator, None before the first.
        workers: how many there are.
        finished: the epoch was over, and the state is that of the next one.
    """
    main = dict(state)
    parts = main.pop("workers")
    snapshots = {}
    for worker, part in enumerate(parts or [_no_part() for _ in range(max(1, workers))]):
        own = dict(part["state"])
        dataset, iterator = own.pop("dataset", None), own.pop("iterator", None)
        fetcher = None
        if iterator is not None or part["ended"]:
            fetcher = {"dataset_iter_state": iterator, "fetcher_ended": part["ended"]}
        rest = {name: value for name, value in part.items() if name not in ("state", "ended")}
        snapshots[f"worker_{worker}"] = {
            "worker_id": worker,
            "dataset_state": dataset,
            "fetcher_state": fetcher,
            "part": {**rest, "state": own, "known": parts is not None},
        }
    return {
        "_snapshot": {
            "_snapshot_step": state["batches"],
            "_last_yielded_worker_id": state["last_worker"],
            "_main_snapshot": {"_num_workers": workers, "_base_seed": base_seed, "engine": main},
            "_worker_snapshots": snapshots,
        },
        "_steps_since_snapshot": 0,
        "_iterator_finished": finished,
    }


def _no_part() -> dict[str, Any]:
    return {"state": {}, "made": 0, "ended": False, "before": [], "draws": []}


class SavedEpoch:
    """A state that was loaded, opened as far as its form goes; the engine checks what is within.

    Args:
        state: what `in_form` returned.

    Raises:
        StateError: it is something else.
    """

    def __init__(self, state: Any) -> None:
        self.state = copy.deepcopy(state)
        self.is_finished = bool(_found(state, "_iterator_finished", bool))
        snapshot = _found(state, "_snapshot", dict)
        main = _found(snapshot, "_main_snapshot", dict)
        if "engine" not in main:
            raise StateError(
                "this state is torchdata's own, which has neither the seed of an order nor a"
                f" position in it. {_REMEDY}"
            )
        self.base_seed: int | None = main.get("_base_seed")
        if self.base_seed is not None and type(self.base_seed) is not int:
            raise StateError(f"_base_seed in the state must be an int, got {got(self.base_seed)}")
        self._engine_state = dict(_found(main, "engine", dict))
        self._engine_state["workers"] = self._parts(_found(snapshot, "_worker_snapshots", dict))
        self.epoch = self._engine_state.get("epoch")

    def _parts(self, snapshots: dict[str, Any]) -> list[dict[str, Any]] | None:
        parts = []
        for worker in range(len(snapshots)):
            saved = _found(snapshots, f"worker_{worker}", dict)
            part = dict(_found(saved, "part", dict))
            own = dict(_found(part, "state", dict))
            fetcher = saved.get("fetcher_state")
            if saved.get("dataset_state") is not None:
                own["dataset"] = saved["dataset_state"]
            if fetcher is not None and _found(fetcher, "dataset_iter_state") is not None:
                own["iterator"] = fetcher["dataset_iter_state"]
            ended = fetcher is not None and bool(_found(fetcher, "fetcher_ended", bool))
            is_known = _found(part, "known", bool)
            del part["known"]
            if is_known:
                parts.append({**part, "state": own, "ended": ended})
        return copy.deepcopy(parts) or None

    def check(self, engine: Any) -> None:
        """Have an engine check the state. Raises StateError; the engine is of no use then."""
        engine.load_state_dict(self._for(engine))

    def prepared(self, loader: Any) -> Any:
        """The loader as PyTorch's iterator is to see it: with nothing drawn that was drawn.

        Between two epochs the generators of the samplers are put where they were, and the next
        epoch's seed is drawn as ever, unless it was, or workers stay that have theirs.
        """
        order = self._engine_state.get("order")
        is_open = not self.is_finished if order is None else order.get("way") != "boundary"
        if is_open:
            return _Quiet(loader) if self.base_seed is not None else loader
        if order is not None:
            put_generators(loader._order, order.get("generators", []))
        stays = loader.persistent_workers and loader.num_workers
        if self.base_seed is not None and (stays or not self.is_finished):
            return _Quiet(loader)
        self.base_seed = None
        return loader

    def load_into(self, engine: Any) -> int:
        """Have the engine go on; returns how many batches of the epoch were delivered."""
        engine.load_state_dict(self._for(engine))
        return int(self._engine_state["batches"])

    def _for(self, engine: Any) -> dict[str, Any]:
        """The state as an engine made for it takes it."""
        state = dict(self._engine_state)
        if self.base_seed is None:  # drawn anew, and so the seed of the batches
            state["seed"] = engine.config.seed
            if engine.config.seed is not None:
                state["base_seed"] = engine.config.seed
        order = state.get("order")
        if isinstance(order, dict) and order.get("way") == "boundary" and "generators" in order:
            batches = engine.batch_sampler if engine.sampler is None else engine.sampler
            now = [to_json(generator_state(each)) for each in random_generators(batches)]
            if len(now) == len(order["generators"]):
                state["order"] = {**order, "generators": now}
        return state


class _Quiet:
    """A loader for which no seed is drawn, and whose sampler is not asked for an order."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._index_sampler = ()
        self.generator = torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _found(state: Any, name: str, kind: type | None = None) -> Any:
    if not isinstance(state, dict) or name not in state:
        raise StateError(f"the state lacks {name}: {got(state)}. {_REMEDY}")
    value = state[name]
    if kind is not None and not isinstance(value, kind):
        raise StateError(f"{name} in the state must be a {kind.__name__}, got {got(value)}")
    return value
