"""A callback of transformers' `Trainer`.

Imports transformers and the watch of a loop. A callback serves one trainer, which it holds weakly.
"""

from __future__ import annotations

import weakref
from typing import Any

from reader.errors import ConfigTypeError, got
from reader.integrations.libraries import missing
from reader.integrations.loop_watch import LoopWatch, every_steps
from reader.observe.verdict import Verdict

try:
    from transformers import TrainerCallback
    from transformers.utils import logging
except ImportError as error:
    raise missing("transformers", "transformers") from error

__all__ = ["LoaderCallback"]

_Callback: Any = TrainerCallback
_logger = logging.get_logger("transformers.reader")


class LoaderCallback(_Callback):  # type: ignore[misc]
    """Log scalars of the training's loader, and at the end what bounded the loop.

    The scalars go through `trainer.log`: into `state.log_history` and to each tracker of
    `report_to`. The last sentence is a warning in transformers' log if the loop waits for its
    batches, otherwise information. Trainer makes its loaders itself: call
    `reader.compat.torch.install()` first, or they are PyTorch's.

    Args:
        trainer: to which it is added: `trainer.add_callback(LoaderCallback(trainer))`.
        every: optimizer steps from one point to the next.
        prefix: of each name.

    Raises:
        ConfigTypeError: the trainer has no `log`.
        ConfigError: `every` is below 1.

    Attributes:
        verdict: what bounded the last finished training; None: there is none.
    """

    def __init__(self, trainer: Any, every: int = 50, prefix: str = "reader/") -> None:
        if not callable(getattr(trainer, "log", None)):
            raise ConfigTypeError(
                f"trainer must have log(values), got {got(trainer)}: make the trainer first, then"
                " trainer.add_callback(LoaderCallback(trainer))"
            )
        self._trainer = weakref.ref(trainer)
        self._every = every_steps(every)
        self._prefix = prefix
        self._watch: LoopWatch | None = None
        self.verdict: Verdict | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Begin to watch the loader.

        Raises:
            ConfigTypeError: it is no loader of this package.
        """
        self._watch = LoopWatch(train_dataloader, self._every, self._prefix, "LoaderCallback")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the scalars at each `every`-th step."""
        trainer = self._trainer()
        scalars = self._watch.step() if self._watch is not None else None
        if scalars and trainer is not None and state.is_world_process_zero:
            trainer.log(scalars)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log what bounded the loop."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        self.verdict = watch.end()
        if state.is_world_process_zero:
            say = _logger.info if self.verdict.bound_by == "step" else _logger.warning
            say(self.verdict.sentence)
