"""A callback of `paddle.Model`.

Imports paddle and the watch of a loop. A callback serves one training at a time.
"""

from __future__ import annotations

from typing import Any

from reader.integrations.counters import as_loader
from reader.integrations.libraries import missing
from reader.integrations.loop_watch import LoopWatch, every_steps
from reader.observe.verdict import Verdict

try:
    from paddle.callbacks import Callback
    from paddle.distributed import get_rank
except ImportError as error:
    raise missing("paddle", "paddlepaddle", extra="paddle") from error

__all__ = ["LoaderCallback"]

_Callback: Any = Callback


class LoaderCallback(_Callback):  # type: ignore[misc]
    """Log the scalars of a loader among the metrics of `fit`, and print what bounded the loop.

    They appear beside the loss wherever Paddle's own callbacks show it: in the lines of the
    progress bar and in VisualDL. The last sentence is printed, as those lines are.

    Args:
        loader: of this package, the one that `fit` gets as `train_data`.
        every: batches from one reading to the next.
        prefix: of each name.

    Raises:
        ConfigTypeError: it is no loader of this package.
        ConfigError: `every` is below 1.

    Attributes:
        verdict: what bounded the last finished training; None: there is none.
    """

    def __init__(self, loader: Any, every: int = 50, prefix: str = "reader/") -> None:
        super().__init__()
        self._loader = as_loader(loader, "LoaderCallback")
        self._every = every_steps(every)
        self._prefix = prefix
        self._watch: LoopWatch | None = None
        self._scalars: dict[str, float] = {}
        self.verdict: Verdict | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to watch the loader."""
        self._watch = LoopWatch(self._loader, self._every, self._prefix)
        self._scalars = {}

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        """Put the scalars among the metrics at each `every`-th batch."""
        scalars = self._watch.step() if self._watch is not None else None
        if scalars:
            self._scalars = scalars
            metrics = self.params["metrics"]  # one list for all callbacks
            metrics += [name for name in scalars if name not in metrics]
        if logs is not None:
            logs.update(self._scalars)

    def on_train_end(self, logs: Any = None) -> None:
        """Print what bounded the loop, unless `fit` is silent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            self.verdict = watch.end()
            if self.params.get("verbose") and get_rank() == 0:
                print(self.verdict.sentence)  # noqa: T201
