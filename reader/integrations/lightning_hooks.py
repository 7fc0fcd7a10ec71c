"""The methods of Lightning's callback, for both names of its package.

Imports the watch of a loop, but not Lightning. A callback serves one training at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reader.errors import ConfigTypeError, got
from reader.integrations.counters import is_loader
from reader.integrations.loop_watch import LoopWatch, every_steps
from reader.observe.verdict import Verdict

__all__ = ["LightningHooks"]


class LightningHooks:
    """Log scalars to the trainer's loggers, and at the end what bounded the loop.

    Several loaders, such as those of a `CombinedLoader`, have a number in their names:
    "reader/0/wait_share".

    Args:
        every: batches from one point to the next.
        prefix: of each name.

    Raises:
        ConfigError: `every` is below 1.

    Attributes:
        verdicts: what bounded the last finished training, for each of its loaders.
    """

    say: Callable[[str], object] = staticmethod(print)

    def __init__(self, every: int = 50, prefix: str = "reader/") -> None:
        super().__init__()
        self._every = every_steps(every)
        self._prefix = prefix
        self._watches: list[LoopWatch] = []
        self.verdicts: list[Verdict] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch the trainer's loaders.

        Raises:
            ConfigTypeError: none of them is a loader of this package.
        """
        loaders = [each for each in _leaves(trainer.train_dataloader) if is_loader(each)]
        if not loaders:
            raise ConfigTypeError(
                "LoaderCallback watches loaders of this package, and the trainer has"
                f" {got(trainer.train_dataloader)}: return a DataLoader of reader.compat.torch"
                " from train_dataloader()"
            )
        numbers = [""] if len(loaders) == 1 else [f"{n}/" for n in range(len(loaders))]
        self._watches = [
            LoopWatch(loader, self._every, self._prefix + number)
            for number, loader in zip(numbers, loaders)
        ]

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Log the scalars at each `every`-th batch."""
        for watch in self._watches:
            scalars = watch.step()
            if scalars:
                for logger in trainer.loggers:
                    logger.log_metrics(scalars, step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what bounded the loop."""
        watches, self._watches = self._watches, []
        self.verdicts = [watch.end() for watch in watches]
        for verdict in self.verdicts:
            self.say(verdict.sentence)

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
        """Drop the loaders of a training that failed."""
        self._watches = []


def _leaves(loaders: Any) -> Iterator[Any]:
    """Yield a trainer's loaders: one, or those in a container."""
    inner = getattr(loaders, "iterables", None) if not is_loader(loaders) else None
    if inner is not None:  # a CombinedLoader
        yield from _leaves(inner)
    elif isinstance(loaders, dict):
        for each in loaders.values():
            yield from _leaves(each)
    elif isinstance(loaders, (list, tuple)):
        for each in loaders:
            yield from _leaves(each)
    else:
        yield loaders
