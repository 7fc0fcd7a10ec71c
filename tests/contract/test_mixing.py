"""MixUp and CutMix as collate functions: batches of arrays or tensors, as the loader gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reader
from reader.images import CutMix, MixUp

OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 1, "worker_type": "thread"},
]


def samples(make: Any = lambda array: array) -> list[Any]:
    return [(make(np.full((3, 8, 8), number, np.float32)), number) for number in range(4)]


def mixed(loader: Any) -> list[Any]:
    return [(type(images), type(shares), images.shape) for images, shares in loader]


@pytest.mark.parametrize("mix", [MixUp, CutMix])
@pytest.mark.parametrize("options", OPTIONS)
def test_arrays_are_mixed_to_arrays(mix: Any, options: dict[str, Any]) -> None:
    collate = mix(4, layout="channels_first")
    loader = reader.DataLoader(samples(), batch_size=2, seed=1, collate_fn=collate, **options)
    assert mixed(loader) == [(np.ndarray, np.ndarray, (2, 3, 8, 8))] * 2


@pytest.mark.parametrize("mix", [MixUp, CutMix])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("has_tensors", [False, True])
def test_loaders_for_torch_give_tensors(
    mix: Any, options: dict[str, Any], has_tensors: bool
) -> None:
    torch = pytest.importorskip("torch")
    from reader.compat.torch import DataLoader

    data = samples(torch.from_numpy if has_tensors else np.array)
    collate = mix(4, layout="channels_first")
    for make, more in ((DataLoader, {}), (reader.DataLoader, {"framework": "torch"})):
        loader = make(data, batch_size=2, collate_fn=collate, **options, **more)
        assert mixed(loader) == [(torch.Tensor, torch.Tensor, (2, 3, 8, 8))] * 2


def test_a_mix_returns_the_type_that_it_gets() -> None:
    torch = pytest.importorskip("torch")
    collate = MixUp(4, layout="channels_first")
    (images, labels), (arrays, _) = zip(*samples(torch.from_numpy)), zip(*samples())
    for given, kind in ((torch.stack(images), torch.Tensor), (np.stack(arrays), np.ndarray)):
        found, shares = collate.apply(given, labels, np.random.default_rng(0))
        wanted, wanted_shares = collate.apply(np.stack(arrays), labels, np.random.default_rng(0))
        assert (type(found), type(shares)) == (kind, kind)
        assert np.array_equal(np.asarray(found), wanted)
        assert np.array_equal(np.asarray(shares), wanted_shares)
        assert np.array_equal(np.asarray(given), wanted)  # mixed in place
    assert type(collate(samples(torch.from_numpy))[0]) is torch.Tensor
    assert type(collate(samples())[0]) is np.ndarray
    again = collate.apply(torch.stack(images), torch.tensor(labels), np.random.default_rng(0))
    assert np.array_equal(np.asarray(again[0]), wanted)


def test_a_mix_gives_tensors_of_paddle() -> None:
    paddle = pytest.importorskip("paddle")
    images = paddle.to_tensor(np.zeros((2, 3, 4, 4), np.float32))
    found, shares = CutMix(2, layout="channels_first").apply(images, [0, 1])
    assert (type(found), type(shares)) == (paddle.Tensor, paddle.Tensor)


def test_a_tensor_that_is_no_array_is_refused() -> None:
    torch = pytest.importorskip("torch")
    for images in (
        torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16),
        torch.zeros(2, 3, 4, 4).to("meta"),
    ):
        with pytest.raises(
            reader.ConfigTypeError, match=r"(?s)images must be an array, .*\.cpu\(\)"
        ):
            MixUp(2, layout="channels_first").apply(images, [0, 1])
