"""Runs the same act with PyTorch's loader and with ours, and compares all their results.

Imports torch and both loaders; runs them in this process, one after the other, from the same random
state. Holds the acts recorded of the test that runs, which its fixture puts there.
"""

from __future__ import annotations

import collections.abc
import gc
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data

import reader.compat.torch
from tests.peers.record import Acts

SEED = 20


class recorded:
    """Where the fixture of the running test puts its acts."""

    acts = Acts([], "run")


Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Told:
    """What an act showed: its result or exception, its warnings, and what it did to randomness.

    Recorded is its repr: with another name for it, or a field, nothing recorded is believed.
    """

    result: Any
    error: list[Any] | None
    warnings: list[tuple[str, str]]
    states: list[Any]


def told(act: Act, loader: Any) -> Told:
    """Run `act(loader)` from a fixed random state."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = describe(act(loader))
        except Exception as raised:
            error = [type(raised), str(raised)]
    gc.collect()
    state = np.random.get_state()
    states = [random.getstate(), state[1].tolist(), state[2:], torch.get_rng_state().tolist()]
    # from Python 3.12 on a fork warns where there are threads: those that happen to be left, too
    said = [
        (each.category.__name__, str(each.message))
        for each in caught
        if "use of fork() may lead to deadlocks" not in str(each.message)
    ]
    return Told(result, error, said, states)


def both(act: Act) -> tuple[Told, Told]:
    """Return the results of (PyTorch's loader, ours)."""
    theirs = told(act, torch.utils.data.DataLoader)
    ours = told(act, reader.compat.torch.DataLoader)
    return theirs, ours


def check_same(act: Act) -> Any:
    """Both give the same batches to the last bit, the same warnings and random states after it.

    PyTorch's loader does not run where ours gives what PyTorch's gave when it was recorded.
    """
    acts = recorded.acts
    if acts.is_believed:
        ours = told(act, reader.compat.torch.DataLoader)
        if acts.have(repr(ours)):
            return ours.result
    theirs, ours = both(act)
    acts.tell(repr(theirs))
    assert theirs.error is None, theirs.error
    assert theirs.result is not None, "there is nothing to compare"
    assert ours.error is None, ours.error
    assert ours.result == theirs.result
    assert ours.warnings == theirs.warnings
    assert ours.states == theirs.states
    return theirs.result


def check_same_result(act: Act, theirs_of: Any, ours_of: Any) -> None:
    """Both loaders give the same batches, whatever they draw and warn of. Recorded as above."""
    acts = recorded.acts
    ours = told(act, ours_of)
    if acts.is_believed and ours.error is None and acts.have(repr(ours.result)):
        return
    theirs = told(act, theirs_of)
    acts.tell(repr(theirs.result))
    assert theirs.error is None, theirs.error
    assert ours.error is None, ours.error
    assert ours.result == theirs.result


def check_same_error(act: Act, text: str) -> None:
    """Both raise: ours is of PyTorch's type, and has what its text says."""
    theirs, ours = both(act)
    assert theirs.error is not None, theirs.result
    assert ours.error is not None, ours.result
    assert issubclass(ours.error[0], theirs.error[0])
    assert text in theirs.error[1]
    assert text in ours.error[1]


def describe(value: Any) -> Any:
    """Describe a batch, to be compared with `==`: types, dtypes, shapes, strides and bytes."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return [kind, value.requires_grad, str(value.device), value.layout, *_content(value)]
    if isinstance(value, np.ndarray):
        return [kind, value.dtype, value.shape, value.strides, value.tobytes()]
    if isinstance(value, collections.abc.Mapping):
        return [
            kind,
            [[describe(key), describe(child)] for key, child in value.items()],
            _own(value),
        ]
    if isinstance(value, (list, tuple)):
        return [kind, [describe(child) for child in value], _own(value)]
    if isinstance(value, (str, bytes)):
        return [kind, value]
    if isinstance(value, float):
        return [kind, value.hex()]
    said = None if kind.__repr__ is object.__repr__ else repr(value)
    return [kind, said, _own(value)]


def _own(value: Any) -> Any:
    """Attributes that a container of the user's carries."""
    return {name: describe(each) for name, each in getattr(value, "__dict__", {}).items()}


def _content(tensor: torch.Tensor) -> list[Any]:
    if tensor.layout is not torch.strided or tensor.is_nested:
        parts = tensor.unbind() if tensor.is_nested else (tensor.to_dense(),)
        return [tensor.dtype, [describe(each.detach()) for each in parts]]
    plain = tensor.detach()
    if plain.is_quantized:
        kept = plain.qscheme(), str(plain)
        return [tensor.dtype, list(tensor.shape), tensor.stride(), kept, plain.int_repr().tolist()]
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    data = plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [tensor.dtype, list(tensor.shape), tensor.stride(), data]
