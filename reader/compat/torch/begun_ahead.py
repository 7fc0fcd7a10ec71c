"""A first epoch that `state_dict` began before the first `iter()`.

Imports the epochs of datasets and samplers. A BegunAhead belongs to one StatefulDataLoader, whose
next `iter()` returns its iterator where nothing has changed meanwhile.
"""

from __future__ import annotations

from typing import Any

from reader.data.epochs import epoch_carriers, own_epoch

__all__ = ["BegunAhead", "with_workers"]

_OF_ONE = ("dataset_state", "fetcher_state")


class BegunAhead:
    """An epoch that was begun, and the loader's attributes and epochs at that time.

    Args:
        loader: the StatefulDataLoader, before the epoch is begun.

    Attributes:
        batches: the iterator.
        state: what `state_dict` returns until the epoch is taken over.
    """

    batches: Any
    state: dict[str, Any]

    def __init__(self, loader: Any) -> None:
        self._parts = _parts(loader)
        self._epochs = _epochs(loader)

    def begun(self, batches: Any, state: dict[str, Any]) -> None:
        """Keep what was begun, and its state."""
        self.batches, self.state = batches, state

    def has_epochs_of(self, loader: Any) -> bool:
        """Whether no other epoch was chosen since."""
        return _epochs(loader) == self._epochs

    def fits(self, loader: Any) -> bool:
        """Whether the loader would begin the same epoch now."""
        parts = _parts(loader)
        is_same = len(parts) == len(self._parts) and all(
            one is other for one, other in zip(parts, self._parts, strict=True)
        )
        return is_same and self.has_epochs_of(loader)

    @property
    def generator(self) -> Any:
        """The state of the generator from which epochs draw their seeds."""
        return self.state["_snapshot"]["_main_snapshot"]["_generator"]


def _parts(loader: Any) -> list[Any]:
    """Return the attributes of a loader that programs may replace."""
    own = [value for name, value in vars(loader).items() if not name.startswith("_")]
    return [*own, getattr(loader.batch_sampler, "sampler", None)]


def _epochs(loader: Any) -> list[int | None]:
    carriers = epoch_carriers(loader.dataset, loader.batch_sampler, loader.sampler)
    return [loader.epoch, *map(own_epoch, carriers)]


def with_workers(before: dict[str, Any], begun: dict[str, Any]) -> dict[str, Any]:
    """Return the state from before an epoch, with the initial states of its workers."""
    snapshots = begun["_snapshot"]["_worker_snapshots"]
    made = {**before, "_snapshot": {**before["_snapshot"], "_worker_snapshots": snapshots}}
    made.update((name, begun[name]) for name in _OF_ONE if name in begun)
    return made
