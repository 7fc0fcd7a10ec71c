"""The ranks of a distributed training: how many there are, and which one this process is.

Imports the core, `reader.checks` and `reader.errors`; looks at libraries in `sys.modules` alone.
Everything that divides samples uses this rule; docs/guide.md has it for users. A worker knows what
the trainer knew, one value for each thread; other processes look at each call.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from reader._core.interpreter.environment import is_any_set
from reader._core.interpreter.signals import is_interrupt
from reader.checks import as_int
from reader.errors import ConfigError

__all__ = [
    "Ranks",
    "agreeing_on_steps",
    "are_steps_agreed",
    "known_ranks",
    "launched_ranks",
    "ranks_for_workers",
    "refuse_fresh_orders",
    "set_ranks",
    "world_and_rank",
]


class Ranks(NamedTuple):
    """A source of the number of ranks and of this rank; None: it lacks that number."""

    world_size: int | None
    rank: int | None
    source: str

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.source})"


# The variables that launchers set: (number of processes, number of this one).
_VARIABLES = (
    ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"),
    ("WORLD_SIZE", "RANK"),
)
# Of MPI, asked last: a launcher that it started on each host has its own.
_MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)
# srun sets these for ranks, and for programs that have nothing to do with each other
_SLURM_VARIABLES = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
_ALL_NAMES = tuple(
    name.encode() for names in (*_VARIABLES, *_MPI_VARIABLES, _SLURM_VARIABLES) for name in names
)
_ALONE = Ranks(1, 0, "no launcher")


_of_trainer = threading.local()  # its `ranks`, in a worker
_steps = threading.local()  # `agreed`: see `agreeing_on_steps`


def set_ranks(ranks: Ranks | ConfigError | None) -> None:
    """Set what `ranks_for_workers` returned in the trainer, in a worker; None: ask here."""
    _of_trainer.ranks = ranks


@contextlib.contextmanager
def agreeing_on_steps() -> Iterator[None]:
    """Mark what this thread does meanwhile: the ranks have agreed that each may have no batch."""
    before, _steps.agreed = are_steps_agreed(), True
    try:
        yield
    finally:
        _steps.agreed = before


def are_steps_agreed() -> bool:
    """Whether this thread is within `agreeing_on_steps`."""
    return getattr(_steps, "agreed", False)


def ranks_for_workers() -> Ranks | ConfigError:
    """Return the ranks for a worker, whose process may know less, or be on another machine."""
    try:
        return known_ranks() or _ALONE
    except ConfigError as error:  # the error is raised where ranks are needed
        return error


def world_and_rank(
    world_size: object, rank: object, names: tuple[str, str], *, may_be_alone: bool
) -> tuple[int, int]:
    """Return the number of ranks and this one: as passed, or as `known_ranks` says.

    Args:
        world_size: as passed; None: not.
        rank: likewise.
        names: those of the two arguments.
        may_be_alone: without any source this is the only rank; False: that is an error.

    Raises:
        ConfigError: a number is out of range, missing, or contradicts another one.
    """
    remedy = "None takes what the training's library or launcher says."
    if world_size is not None:
        world_size = as_int(names[0], world_size, low=1, remedy=remedy)
    if rank is not None:
        rank = as_int(names[1], rank, low=0, remedy=remedy)
    elif world_size == 1:
        rank = 0
    if world_size is None or rank is None:
        world_size, rank = _completed(world_size, rank, names, may_be_alone)
    if rank >= world_size:
        raise ConfigError(
            f"{names[1]} must be below {names[0]}, got {names[1]}={rank} with"
            f" {names[0]}={world_size}. Ranks count from 0 to {world_size - 1}."
        )
    return world_size, rank


def refuse_fresh_orders(seed: int | None, world_size: int) -> None:
    """Refuse an order without a seed for several ranks. ConfigError."""
    if seed is None and world_size > 1:
        raise ConfigError(
            f"seed must be an int, the same one in all {world_size} ranks, got None: each rank"
            " would take samples of an order of its own"
        )


def _completed(
    world_size: int | None, rank: int | None, names: tuple[str, str], may_be_alone: bool
) -> tuple[int, int]:
    """Return both numbers, of which one or none was passed."""
    is_asked_for_both = world_size is None and rank is None
    found = _known(is_half_enough=not is_asked_for_both) or Ranks(None, None, "")
    if is_asked_for_both and may_be_alone and found.world_size is None:
        found = _ALONE
    if world_size is not None and found.world_size not in (None, world_size):
        raise ConfigError(
            f"{names[0]}={world_size} was passed without {names[1]}, and this is {found}. Pass"
            f" {names[1]}= as well, or neither"
        )
    pair = (
        found.world_size if world_size is None else world_size,
        found.rank if rank is None else rank,
    )
    for column, number in enumerate(pair):
        if number is None:
            variables = " nor ".join(each[column] for each in _VARIABLES)
            raise ConfigError(
                f"{names[column]} must be given, because no library says that it trains on several"
                f" ranks, and the environment has neither {variables}. Start the program by a"
                f" launcher that sets them, or pass {names[0]}=1, {names[1]}=0 for a single"
                " process."
            )
    return pair  # type: ignore[return-value]


def known_ranks() -> Ranks | None:
    """Return the ranks that the process knows of; None: it knows none.

    In a worker these are what the trainer knew. Else the first of these sources counts: Ray Train's
    context, torch.distributed, paddle.distributed, JAX, each where it is initialised, the
    environment of Paddle's launcher and of torchrun, that of MPI. A UserWarning says once where two
    of them but MPI contradict each other.

    Raises:
        ConfigError: the sources give one of the two numbers, or invalid ones, or the only source is
            srun, which may have started ranks or independent programs.
    """
    return _known(is_half_enough=False)


def launched_ranks() -> Ranks | None:
    """Return what the environment of a launcher says of several ranks; None: there is one.

    It is for answers that must be the same before a program runs and after.
    """
    with contextlib.suppress(ConfigError):
        for each in _of_environment(_VARIABLES):
            if None not in each and each.world_size != 1:
                return each
    return None


def _known(*, is_half_enough: bool) -> Ranks | None:
    known: Ranks | ConfigError | None = getattr(_of_trainer, "ranks", None)
    if known is not None:
        if isinstance(known, ConfigError):
            raise known
        return None if known == _ALONE else known
    told = _of_libraries()
    if not told and not is_any_set(_ALL_NAMES):  # as in most programs
        return None
    try:
        told += _of_environment(_VARIABLES)
    except ConfigError:
        if not told:
            raise
    whole = [each for each in told if None not in each]
    for other in whole[1:]:
        if other[:2] != whole[0][:2]:
            _warn(
                f"this is {whole[0]}, and also {other}: the former is taken. If that is wrong, pass"
                " both numbers where samples are divided, or have both say the same"
            )
    if not told:
        told = [each for each in _of_environment(_MPI_VARIABLES) if None not in each]
    if not told:
        _refuse_srun()
        return None
    found = (whole or told)[0]
    if None in found and not is_half_enough:
        if found.world_size == 1:
            return found._replace(rank=0)
        raise ConfigError(
            f"the environment has one of {found.source} and not the other, got {found.world_size}"
            f" and {found.rank}. Set both, or pass the number of ranks and the rank where samples"
            " are divided"
        )
    return found


def _of_libraries() -> list[Ranks]:
    """Return the ranks by libraries that train on several now, the strongest first."""
    found = []
    for ask in _LIBRARIES:
        try:
            ranks = ask()
        except Exception as error:  # half imported, or of a version with other names
            if is_interrupt(error):
                raise
            continue
        if ranks is not None:
            found.append(ranks)
    ray = [ranks for ranks in found if ranks.source == _RAY]
    if ray and ray[0].world_size == 1 and len(found) > 1:
        found.remove(ray[0])  # some versions answer so outside of a training function
    return found


_RAY = "ray.train"


def _of_ray_train() -> Ranks | None:
    train: Any = sys.modules.get("ray.train")
    if train is None:
        return None
    context = train.get_context()
    world_size, rank = context.get_world_size(), context.get_world_rank()
    return Ranks(world_size, rank, _RAY) if isinstance(world_size, int) else None


def _of_torch() -> Ranks | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Ranks(distributed.get_world_size(), distributed.get_rank(), "torch.distributed")


def _of_paddle() -> Ranks | None:
    distributed: Any = sys.modules.get("paddle.distributed")
    if distributed is None or not distributed.is_initialized():
        return None
    return Ranks(distributed.get_world_size(), distributed.get_rank(), "paddle.distributed")


def _of_jax() -> Ranks | None:
    # `jax.process_count` would start JAX's backends where they are not started
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or state.client is None:
        return None
    return Ranks(state.num_processes, state.process_id, "jax.distributed")


_LIBRARIES: tuple[Callable[[], Ranks | None], ...] = (_of_ray_train, _of_torch, _of_paddle, _of_jax)


def _of_environment(variables: tuple[tuple[str, str], ...]) -> Iterator[Ranks]:
    """Yield the ranks in the environment, with one or both numbers."""
    for names in variables:
        world_size = _number(names[0], low=1)
        rank = _number(names[1], low=0)
        if world_size is None and rank is None:
            continue
        if names[0] == "PMI_SIZE" and _SLURM_VARIABLES[1] in os.environ:
            continue  # srun may set it, too
        if world_size is not None and rank is not None and rank >= world_size:
            raise ConfigError(
                f"the environment variable {names[1]} must be below {names[0]}, got {rank} of"
                f" {world_size}. Ranks count from 0: correct the variables, or pass both numbers"
            )
        yield Ranks(world_size, rank, f"{names[0]} and {names[1]}")


def _number(name: str, *, low: int) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < low:
        raise ConfigError(
            f"the environment variable {name} must be an int of {low} or more, got {text!r}. Set"
            " it right, or pass the number of ranks and the rank where samples are divided"
        )
    return int(text)


def _refuse_srun() -> None:
    tasks, number = (os.environ.get(name, "") for name in _SLURM_VARIABLES)
    if tasks.isdecimal() and int(tasks) > 1 and number.isdecimal():
        raise ConfigError(
            f"srun started {tasks} tasks of this program, and nothing says whether they train"
            f" together. If they do, initialise torch.distributed, paddle.distributed or"
            f" jax.distributed first, or pass the number of ranks ({tasks}) and the rank, which is"
            f" int(os.environ['SLURM_PROCID']); if each runs by itself, pass 1 and 0"
        )


@functools.cache
def _warn(text: str) -> None:
    """Warn, once in this process."""
    warnings.warn(text, stacklevel=2)
