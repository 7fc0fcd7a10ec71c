"""The rank of this process in a distributed training: as passed, or as the launcher tells it.

Imports `reader.checks` and `reader.errors`, and looks for Ray Train in `sys.modules`. Asks it, and
the environment, at each call, talks to no other process and keeps no state.
"""

from __future__ import annotations

import os
import sys

from reader.checks import as_int
from reader.errors import ConfigError

__all__ = ["replicas_and_rank"]

# The variables that launchers set: (number of processes, number of this one).
_VARIABLES = (
    ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"),
    ("WORLD_SIZE", "RANK"),
)


def replicas_and_rank(num_replicas: object, rank: object) -> tuple[int, int]:
    """Return the number of processes and the rank of this one; None asks the launcher.

    Within a training function of Ray Train that is its context, else the environment.

    Raises:
        ConfigError: a number is out of range, or neither the caller nor a launcher gives it.
    """
    replicas = _or_from_environment("num_replicas", 0, num_replicas, low=1)
    number = _or_from_environment("rank", 1, rank, low=0)
    if number >= replicas:
        raise ConfigError(
            f"rank must be below num_replicas, got rank={number} with num_replicas={replicas}."
            f" Ranks count from 0 to {replicas - 1}."
        )
    return replicas, number


def _of_ray_train(column: int) -> int | None:
    """Return what Ray Train says, in whose training function this is called; None: in none."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        found = (context.get_world_size, context.get_world_rank)[column]()
    except Exception:  # of a kind that its versions differ in: this is no training function
        return None
    return found if isinstance(found, int) else None


def _or_from_environment(name: str, column: int, value: object, *, low: int) -> int:
    """Return `value`, or if it is None, what the launcher says."""
    if value is not None:
        return as_int(name, value, low=low, remedy="None reads it from the environment.")
    found = _of_ray_train(column)
    if found is not None:
        return found
    for variables in _VARIABLES:
        text = os.environ.get(variables[column])
        if text is None:
            continue
        if not text.strip().isdecimal() or int(text) < low:
            raise ConfigError(
                f"{name} must be an int of {low} or more, got {text!r} from the environment"
                f" variable {variables[column]}. Pass {name}= to the sampler."
            )
        return int(text)
    names = " nor ".join(variables[column] for variables in _VARIABLES)
    raise ConfigError(
        f"{name} must be given, because the environment has neither {names}. Start the program"
        f" by a launcher that sets them, or pass num_replicas=1, rank=0 for a single process."
    )
