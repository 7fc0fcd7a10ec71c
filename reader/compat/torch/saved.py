"""A saved epoch: the form of its state in this face, its checks, and how an iterator resumes it.

Imports torch and the engine's errors. The form is that of torchdata's StatefulDataLoader as far as
programs look into it; the engine's state is inside. A SavedEpoch belongs to one loader.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from reader.config import SEED_LIMIT
from reader.data.epochs import carried_epochs
from reader.errors import StateError, got
from reader.orders.base_sampler import check_generators, generator_states, put_generators

__all__ = ["SavedEpoch", "Standing", "in_form", "quiet"]

_OF_ONE = ("dataset_state", "fetcher_state")  # at the top level where there are no workers
_FORMAT = 2  # format 1 saved neither the format nor a generator
_REMEDY = "Load what state_dict() of reader.compat.torch.StatefulDataLoader returned"


def in_form(
    state: dict[str, Any], base_seed: int | None, workers: int, finished: bool, generator: Any
) -> dict[str, Any]:
    """Return the engine's state in torchdata's form.

    Args:
        state: of the engine.
        base_seed: of the iterator, None before the first.
        workers: how many there are.
        finished: the epoch was over; the state is that of the next one.
        generator: the state of the source of later epochs' seeds; None: the order has it.
    """
    main = dict(state)
    cursors = main.pop("workers")
    snapshots = {}
    for worker_id, cursor in enumerate(cursors or [_no_cursor() for _ in range(max(1, workers))]):
        own = dict(cursor["state"])
        dataset, iterator = own.pop("dataset", None), own.pop("iterator", None)
        fetcher = None
        if state["kind"] == "iterable":
            fetcher = {"dataset_iter_state": iterator, "fetcher_ended": cursor["ended"]}
        others = {name: value for name, value in cursor.items() if name not in ("state", "ended")}
        snapshots[f"worker_{worker_id}"] = {
            "worker_id": worker_id,
            "dataset_state": dataset,
            "fetcher_state": fetcher,
            "part": {**others, "state": own, "known": cursors is not None},
        }
    own = {} if workers else {name: snapshots["worker_0"].pop(name) for name in _OF_ONE}
    return {
        **own,
        "_snapshot": {
            "_snapshot_step": state["batches"],
            "_last_yielded_worker_id": state["last_worker"],
            "_main_snapshot": {
                "_format": _FORMAT,
                "_num_workers": workers,
                "_base_seed": base_seed,
                "_generator": generator,
                "engine": main,
            },
            "_worker_snapshots": snapshots,
        },
        "_steps_since_snapshot": 0,
        "_iterator_finished": finished,
    }


def _no_cursor() -> dict[str, Any]:
    return {"state": {}, "made": 0, "ended": False, "before": [], "draws": []}


class SavedEpoch:
    """A state that was loaded. Checks torchdata's form; the engine checks its own state inside.

    Args:
        state: what `in_form` returned.

    Raises:
        StateError: the state is not of this form.
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
        self._engine_state = dict(_found(main, "engine", dict))
        self.base_seed = self._checked_seed(_found(main, "_base_seed"))
        self._engine_state["workers"] = self._cursors(_found(snapshot, "_worker_snapshots", dict))
        self._check_form(state, snapshot, main)
        self.num_workers: int = main["_num_workers"]
        self.refusal: str | None = None  # why the loader's number of workers cannot resume it
        self.has_generator = self._has_generator(main)
        self.generator = main.get("_generator")
        self.epoch = self._engine_state.get("epoch")
        self.steps = self._engine_state.get("steps", self._engine_state.get("batches"))

    def _checked_seed(self, value: Any) -> int | None:
        is_seed = type(value) is int and 0 <= value < SEED_LIMIT
        if is_seed or (value is None and not self._engine_state.get("batches")):
            return value  # type: ignore[no-any-return]
        raise StateError(f"_base_seed in the state must be a seed, got {got(value)}. {_REMEDY}")

    def _has_generator(self, main: dict[str, Any]) -> bool:
        """Whether the state has the source of the epochs' seeds; format 1 does not have it."""
        if "_format" not in main and "_generator" not in main:
            return False
        if _found(main, "_format", int) != _FORMAT:
            raise StateError(
                f"the state has format {got(main['_format'])}, and this version of reader reads"
                f" format {_FORMAT}. Load it with the version that saved it"
            )
        _found(main, "_generator")
        return True

    def _check_form(
        self, state: dict[str, Any], snapshot: dict[str, Any], main: dict[str, Any]
    ) -> None:
        """Check the fields of the form that repeat others."""
        step, last = self._engine_state.get("batches"), self._engine_state.get("last_worker")
        for holder, name, right in (
            (state, "_steps_since_snapshot", 0),
            (snapshot, "_snapshot_step", step),
            (snapshot, "_last_yielded_worker_id", last),
        ):
            value = _found(holder, name)
            if value != right or type(value) is not type(right):
                raise StateError(
                    f"{name} in the state must be {right}, got {got(value)}. {_REMEDY}"
                )
        workers = _found(main, "_num_workers")
        if type(workers) is not int or max(1, workers) != len(snapshot["_worker_snapshots"]):
            raise StateError(
                "_num_workers in the state must be the number of _worker_snapshots, got"
                f" {got(workers)}. {_REMEDY}"
            )
        if self.is_finished and step:
            raise StateError(
                "the state contradicts itself: it is that of a finished epoch, whose count of"
                f" batches must be 0, got {got(step)}. {_REMEDY}"
            )

    def _cursors(self, snapshots: dict[str, Any]) -> list[dict[str, Any]] | None:
        cursors = []
        for worker_id in range(len(snapshots)):
            saved = _found(snapshots, f"worker_{worker_id}", dict)
            if not any(name in saved for name in _OF_ONE):
                saved = {**saved, **{name: _found(self.state, name) for name in _OF_ONE}}
            if type(_found(saved, "worker_id")) is not int or saved["worker_id"] != worker_id:
                raise StateError(f"worker_id in worker_{worker_id} must be {worker_id}. {_REMEDY}")
            cursor = dict(_found(saved, "part", dict))
            own = dict(_found(cursor, "state", dict))
            fetcher = _found(saved, "fetcher_state")
            if _found(saved, "dataset_state") is not None:
                own["dataset"] = saved["dataset_state"]
            if fetcher is not None and _found(fetcher, "dataset_iter_state") is not None:
                own["iterator"] = fetcher["dataset_iter_state"]
            ended = fetcher is not None and bool(_found(fetcher, "fetcher_ended", bool))
            is_known = _found(cursor, "known", bool)
            del cursor["known"]
            cursor = {**cursor, "state": own, "ended": ended}
            if is_known:
                cursors.append(cursor)
            elif any(cursor.get(name) != value for name, value in _no_cursor().items()):
                raise StateError(
                    f"'part' of worker_{worker_id} in the state must be that of a worker that has"
                    f" not begun, got {got(cursor)}. {_REMEDY}"
                )
        return copy.deepcopy(cursors) or None

    def fit_to(self, engine: Any) -> None:
        """Take over the sampler of an engine, if the state is from before the first epoch.

        Accelerate takes the state of a loader first, and then replaces its sampler.
        """
        if self.base_seed is not None or self._engine_state.get("epoch") != 0:
            return
        own, fit = engine.state_dict(), self._engine_state.get("fit")
        if not isinstance(fit, dict) or own["kind"] != "map" or "sampler" not in fit:
            return
        fit = {**fit, "data": own["fit"]["data"]}  # states of earlier versions lack it
        if fit == own["fit"] and _generators(self._engine_state) == _generators(own):
            return  # the sampler is the same: it goes on from the generators that were saved
        if {**fit, "sampler": None} == {**own["fit"], "sampler": None}:
            self._engine_state.update({name: own[name] for name in ("fit", "order", "epochs")})

    def with_its_workers(self, loader: Any) -> Any:
        """Return a substitute for the loader, with the number of workers of the state."""
        return Standing(
            loader,
            (),
            num_workers=self.num_workers,
            prefetch_factor=None,
            timeout=0,
            persistent_workers=False,
            prefetch_next_epoch=False,
        )

    def refuse(self, why: str) -> None:
        """Have `iter` refuse it: the loader's number of workers cannot resume it."""
        self.refusal = why

    def check(self, engine: Any) -> None:
        """Have an engine check the state. After a StateError the engine is not usable."""
        engine.load_state_dict(self._for(engine))

    def prepared(self, loader: Any) -> Any:
        """Return a substitute for the loader with which PyTorch's iterator draws nothing twice.

        Between two epochs the generators of the samplers are restored, and the next epoch's seed is
        drawn, unless the state has it, or persistent workers have one.
        """
        order = self._engine_state.get("order")
        if self._is_open:
            return quiet(loader) if self.base_seed is not None else loader
        if order is not None:
            put_generators(loader.order, order.get("generators", []))
        stays = loader.persistent_workers and loader.num_workers
        if self.base_seed is not None and (stays or not self.is_finished):
            return quiet(loader)
        self.base_seed = None
        return loader

    def load_into(self, engine: Any) -> int:
        """Have the engine resume; return how many batches of the epoch were delivered."""
        state = self._for(engine)
        batches = int(state["batches"])
        if not self._is_open or (not batches and engine.config.is_iterable):
            # the program may have chosen the epochs of its samplers and datasets since it loaded
            state["epochs"] = carried_epochs(
                dataset=engine.config.dataset,
                batch_sampler=engine.batch_sampler,
                sampler=engine.sampler,
            )
        engine.load_state_dict(state)
        return batches

    @property
    def _is_open(self) -> bool:
        """Whether the state is of a begun epoch."""
        order = self._engine_state.get("order")
        return not self.is_finished if order is None else order.get("way") != "boundary"

    def _for(self, engine: Any) -> dict[str, Any]:
        """Return the state that `engine` loads."""
        state = dict(self._engine_state)
        if self.base_seed is None:  # it is drawn anew, and so is the seed of the batches
            state["seed"] = engine.config.seed
            if engine.config.seed is not None:
                state["base_seed"] = engine.config.seed
        order = state.get("order")
        if isinstance(order, dict) and order.get("way") == "boundary" and "generators" in order:
            batches = engine.batch_sampler if engine.sampler is None else engine.sampler
            check_generators(batches, order)
            state["order"] = {**order, "generators": generator_states(batches)}
        return state


class Standing:
    """Stands for a loader where PyTorch's iterator would draw a seed, and asks for an order.

    Args:
        loader: for all other attributes.
        index_sampler: is iterated over.
        base_seed: of the epoch; None: the state has it.
        others: attributes in the place of the loader's.
    """

    def __init__(
        self, loader: Any, index_sampler: Any, base_seed: int | None = None, **others: Any
    ) -> None:
        vars(self).update(others)
        self._loader = loader
        self._index_sampler = index_sampler
        self.base_seed = base_seed
        self.generator = torch.Generator()  # PyTorch draws nothing from the loader's generator then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def quiet(loader: Any) -> Standing:
    """Return the attributes with which PyTorch's iterator draws no seed and no order."""
    return Standing(loader, ())


def _generators(state: dict[str, Any]) -> int:
    """Return how many generators an order draws from."""
    order = state.get("order")
    found = order.get("generators") if isinstance(order, dict) else None
    return len(found) if isinstance(found, list) else 0


def _found(state: Any, name: str, kind: type | None = None) -> Any:
    if not isinstance(state, dict) or name not in state:
        raise StateError(f"the state lacks {name}: {got(state)}. {_REMEDY}")
    value = state[name]
    if kind is not None and not isinstance(value, kind):
        raise StateError(f"{name} in the state must be a {kind.__name__}, got {got(value)}")
    return value
