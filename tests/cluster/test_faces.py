"""The faces with workers on a cluster, beside workers of this machine."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from reader import Ray
from tests.peers.test_shared_workers import make

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
FACES = ["torch", "paddle", "gluon"]


def epochs_of(face: str, **options: Any) -> list[np.ndarray]:
    """Two epochs, whose samples have the random numbers of the face's own seeds."""
    random.seed(0)
    np.random.seed(0)
    with make(face, 1, num_workers=2, **options) as loader:
        return [np.asarray(batch) for _ in range(2) for batch in loader]


@pytest.mark.parametrize("face", FACES)
def test_batches_of_a_face_equal_those_of_local_workers(face: str, backend: Ray) -> None:
    options = {} if face == "gluon" else {"persistent_workers": True}
    own = epochs_of(face, **options)
    found = epochs_of(face, backend=backend)
    if face == "gluon":  # whose batches are seeded each, whoever makes them
        own, found = ([each[:, [0, 1, 3, 4]] for each in batches] for batches in (own, found))
    np.testing.assert_array_equal(found, own)


@pytest.mark.parametrize("face", FACES)
def test_faces_refuse_what_contradicts_a_backend(face: str, backend: Ray) -> None:
    with pytest.raises(ValueError, match="needs remote workers, got num_workers=0"):
        make(face, 1, backend=backend)
    with pytest.raises(TypeError, match=r"backend must be a reader\.Ray"):
        make(face, 1, num_workers=2, backend="ray")


class Noise:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        import torch

        assert torch.utils.data.get_worker_info().num_workers == 2
        return torch.tensor([index, os.getpid()]), torch.rand(2)


def test_state_of_the_stateful_loader_moves_between_local_and_remote_workers(backend: Ray) -> None:
    import torch

    from reader.compat.torch import StatefulDataLoader

    def loader(**options: Any) -> Any:
        return StatefulDataLoader(
            Noise(), batch_size=4, num_workers=2, seed=3, shuffle=True, **options
        )

    want = [(batch[0][:, 0].tolist(), batch[1].tolist()) for batch in loader()]
    found, state, pids = [], None, set()
    for options, count in (({}, 2), ({"backend": backend}, 2), ({}, 2)):
        with loader(**options) as each:
            if state is not None:
                each.load_state_dict(state)
            batches = iter(each)
            for _ in range(count):
                batch = next(batches)
                assert isinstance(batch[1], torch.Tensor)
                pids.add(int(batch[0][0, 1]))
                found.append((batch[0][:, 0].tolist(), batch[1].tolist()))
            state = each.state_dict()
    assert found == want
    assert os.getpid() not in pids
