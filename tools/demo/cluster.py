"""The digits again, by workers on a cluster of three nodes, of which one is killed in the middle.

Run as ``python -m tools.demo.cluster``, which `make demo-cluster` does. The network is two layers
of NumPy, so that it needs nothing but Ray and scikit-learn.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import reader
from tools.demo.digits import PIXELS, DigitImages, Split, load
from tools.local_cluster import LocalCluster

__all__ = ["Training", "main", "train"]

_HIDDEN = 64
_WORKERS = 6


class _Slow(DigitImages):
    """The digits with their numbers, each of which takes as long as a decoded image would."""

    seconds = 0.001

    def __getitem__(self, index: int) -> Any:
        threading.Event().wait(self.seconds)
        return index, *super().__getitem__(index)


class Training(NamedTuple):
    """The result of a training.

    Attributes:
        weights: of the network, at the end.
        digest: of all batches, in their order.
        counts: for each epoch, how often each sample came.
        accuracy: the part of the test images whose label the network finds.
        seconds: that it took.
    """

    weights: list[NDArray[np.float32]]
    digest: str
    counts: list[Counter[int]]
    accuracy: float
    seconds: float

    def is_whole(self, samples: int) -> bool:
        """Whether every sample of each epoch came once."""
        return all(count == Counter(range(samples)) for count in self.counts)

    def equals(self, other: Training) -> bool:
        """Whether each batch and the network are those of another training, to the last bit."""
        same = (np.array_equal(a, b) for a, b in zip(self.weights, other.weights))
        return self.digest == other.digest and all(same)


def train(
    splits: tuple[Split, Split], epochs: int, at_batch: Callable[[int], None], **options: Any
) -> Training:
    """Train a network from the same beginning; `at_batch` is called with the number of each one."""
    rng = np.random.default_rng(0)
    sizes = (PIXELS * PIXELS, _HIDDEN, 10)
    weights = [
        (rng.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32)
        for a, b in itertools.pairwise(sizes)
    ]
    digest, counts, number = hashlib.sha256(), [], 0
    began = time.monotonic()
    dataset = _Slow(splits[0], reader.sample_rng)
    with reader.DataLoader(
        dataset, batch_size=32, shuffle=True, seed=7, worker_retries=10, **options
    ) as loader:
        for _ in range(epochs):
            count: Counter[int] = Counter()
            for indices, images, labels in loader:
                count.update(indices.tolist())
                digest.update(images.tobytes())
                _step(weights, images.reshape(len(images), -1), labels)
                at_batch(number)
                number += 1
            counts.append(count)
    test = splits[1]
    scores = np.maximum(test.images.reshape(len(test.labels), -1) @ weights[0], 0) @ weights[1]
    accuracy = float((scores.argmax(1) == test.labels).mean())
    return Training(weights, digest.hexdigest(), counts, accuracy, time.monotonic() - began)


def _step(
    weights: list[NDArray[np.float32]],
    images: NDArray[Any],
    labels: NDArray[Any],
    rate: float = 0.2,
) -> None:
    """Take a step of gradient descent."""
    hidden = np.maximum(images @ weights[0], 0)
    scores = hidden @ weights[1]
    found = np.exp(scores - scores.max(1, keepdims=True))
    found /= found.sum(1, keepdims=True)
    found[np.arange(len(labels)), labels] -= 1
    found /= len(labels)
    back = (found @ weights[1].T) * (hidden > 0)
    weights[1] -= rate * (hidden.T @ found)
    weights[0] -= rate * (images.T @ back)


def main(arguments: list[str] | None = None) -> int:
    """Train, kill a node, and compare; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args(arguments)
    splits = load()
    samples = len(splits[0].labels)
    steps = options.epochs * -(-samples // 32)
    print(f"{samples} digits, {options.epochs} epochs, {steps} steps. First with 2 workers here.")
    local = train(splits, options.epochs, lambda _: None, num_workers=2)
    print(f"They find {local.accuracy:.1%} of the test digits, in {local.seconds:.1f} s.\n")
    print(f"Now with {_WORKERS} workers on a cluster of three nodes, as Ray starts it here.")
    with LocalCluster() as cluster:
        node = cluster.others[-1]

        def kill(number: int) -> None:
            if number == steps // 2:
                lost = len(cluster.actors_of(node))
                cluster.kill_node(node)
                print(f"At step {number} of {steps} a node was killed, with {lost} workers on it.")

        backend = reader.Ray(address=cluster.address, resources={"CPU": 0.5})
        remote = train(splits, options.epochs, kill, num_workers=_WORKERS, backend=backend)
    print(f"They find {remote.accuracy:.1%} of the test digits, in {remote.seconds:.1f} s.\n")
    is_whole, is_equal = remote.is_whole(samples), remote.equals(local)
    print(f"Every sample of each epoch came once: {'yes' if is_whole else 'NO'}.")
    print(f"Every batch and the network are those of the first run: {'yes' if is_equal else 'NO'}.")
    return 0 if is_whole and is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
