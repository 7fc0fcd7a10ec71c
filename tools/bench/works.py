"""The works that every contestant loads: plain map-style datasets and their batch sizes.

A dataset keeps a bank of samples in memory and hands them out in turn, so that an epoch may be as
long as a measurement wants. A small bank stays in the processor's cache, as what was just decoded
does; a cold one is larger than the cache, as a dataset that lies in memory is. Imports numpy, and
Pillow and scikit-learn where the JPEG work needs them; nothing here knows a loader.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np


class Bank:
    """A dataset of any length over a few samples."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def resized(self, samples: int) -> Any:
        """Return a dataset of another length over the same samples."""
        other = copy(self)
        other.samples = samples
        return other


class Tiny(Bank):
    """Rows of a table: 8 float32 values and one integer label."""

    BANK = 1024

    def __init__(self, samples: int) -> None:
        rng = np.random.default_rng(1)
        self.rows = rng.random((self.BANK, 8), dtype=np.float32)
        self.labels = rng.integers(0, 10, self.BANK)
        super().__init__(samples)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], np.int64]:
        row = index % self.BANK
        return self.rows[row], self.labels[row]


class Numbered(Bank):
    """Eight float32 values and the index: the samples of a first program."""

    def __init__(self, samples: int) -> None:
        self.row = np.zeros(8, np.float32)
        super().__init__(samples)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        return self.row, index


class Pictures(Bank):
    """Decoded pictures of 3 x 224 x 224 values of one type."""

    def __init__(self, dtype: str, bank: int, samples: int) -> None:
        rng = np.random.default_rng(2)
        pixels = rng.integers(0, 256, (bank, 3, 224, 224), np.uint8)
        self.pictures = list(pixels.astype(dtype))
        super().__init__(samples)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        picture: np.ndarray[Any, Any] = self.pictures[index % len(self.pictures)]
        return picture


class Text(Bank):
    """Tokenised sentences: three rows of 512 int64 in a dict."""

    BANK = 256

    def __init__(self, samples: int) -> None:
        rng = np.random.default_rng(3)
        self.tokens = rng.integers(0, 30000, (self.BANK, 512))
        self.mask = np.ones_like(self.tokens)
        self.labels = np.roll(self.tokens, -1, axis=1)
        super().__init__(samples)

    def __getitem__(self, index: int) -> dict[str, np.ndarray[Any, Any]]:
        row = index % self.BANK
        return {"tokens": self.tokens[row], "mask": self.mask[row], "labels": self.labels[row]}


class Photographs(Bank):
    """JPEG files in memory, decoded and resized to 224 x 224 x 3 uint8 when asked for.

    The files are crops of scikit-learn's two photographs, of several sizes and qualities.
    """

    BANK = 32

    def __init__(self, samples: int) -> None:
        from PIL import Image

        photographs = import_module("sklearn.datasets").load_sample_images().images
        self.files = []
        for number in range(self.BANK):
            picture = photographs[number % len(photographs)]
            height, width = 330 + 97 * (number % 7) // 6, 440 + 200 * (number % 5) // 4
            top = (picture.shape[0] - height) * (number % 3) // 2
            left = (picture.shape[1] - width) * (number % 4) // 3
            crop = picture[top : top + height, left : left + width]
            encoded = io.BytesIO()
            Image.fromarray(crop).save(encoded, "JPEG", quality=80 + number % 16)
            self.files.append(encoded.getvalue())
        super().__init__(samples)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        from PIL import Image

        file = io.BytesIO(self.files[index % self.BANK])
        with Image.open(file) as picture:
            small = picture.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        return np.asarray(small)


class Table(Bank):
    """Arrays of a row for each sample: 1024 uint8 and one integer label. As many as samples."""

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        rows = np.random.default_rng(4).integers(0, 256, (samples, 1024), np.uint8)
        self.columns = [rows, np.arange(samples)]

    def resized(self, samples: int) -> Table:
        """Return a table of another length."""
        return Table(samples)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], np.int64]:
        rows, labels = self.columns
        return rows[index], labels[index]


def small_tensors(samples: list[Any]) -> dict[str, Any]:
    """A `collate_fn`: return 20 torch tensors of the samples' labels."""
    tensor = import_module("torch").tensor
    labels = [int(label) for _, label in samples]
    return {f"column {number}": tensor(labels) for number in range(20)}


@dataclass(frozen=True)
class Work:
    """One load: its dataset, how many samples make a batch, and how long an epoch must be.

    Attributes:
        name: What the command line and the results call it.
        title: One line for people who know the benchmark.
        plain: What a batch holds, for people who do not.
        batch_size: Samples in a batch.
        dataset: Makes the dataset with so many samples.
        shortest: Fewest batches of a measured epoch.
        longest: Most batches of one.
    """

    name: str
    title: str
    plain: str
    batch_size: int
    dataset: Callable[[int], Any]
    shortest: int
    longest: int = 50_000


WORKS = {
    work.name: work
    for work in (
        Work(
            "tiny",
            "32 x (8 float32, 1 int64)",
            "32 rows of a table, of 8 numbers and a label",
            32,
            Tiny,
            200,
        ),
        Work("numbered", "8 x (8 float32, 1 index)", "8 rows of 8 numbers", 8, Numbered, 40),
        Work(
            "image",
            "64 x (3, 224, 224) float32",
            "64 pictures of 224 x 224, ready for training (38.5 MB)",
            64,
            partial(Pictures, "float32", 8),
            32,
        ),
        Work(
            "uint8",
            "128 x (3, 224, 224) uint8",
            "128 pictures of 224 x 224, as bytes (19.3 MB)",
            128,
            partial(Pictures, "uint8", 16),
            32,
        ),
        Work(
            "text",
            "32 x 3 x 512 int64 in a dict",
            "32 texts of 512 tokens, in a dict",
            32,
            Text,
            200,
        ),
        Work(
            "jpeg",
            "64 images decoded and resized",
            "64 JPEG files, decoded and resized by the dataset",
            64,
            Photographs,
            24,
        ),
        Work(
            "image-cold",
            "64 x (3, 224, 224) float32, from a dataset larger than the cache",
            "64 pictures of 224 x 224, from a dataset in memory (38.5 MB)",
            64,
            partial(Pictures, "float32", 192),
            32,
        ),
        Work(
            "uint8-cold",
            "128 x (3, 224, 224) uint8, from a dataset larger than the cache",
            "128 pictures of 224 x 224, as bytes, from a dataset in memory (19.3 MB)",
            128,
            partial(Pictures, "uint8", 768),
            32,
        ),
        Work(
            "arrays",
            "256 x (1024 uint8, 1 int64), shuffled, from arrays of 10^6 rows",
            "256 rows of two arrays of a million rows, shuffled",
            256,
            Table,
            200,
            10**6 // 256,
        ),
        Work(
            "small-image",
            "14 x (3, 224, 224) float32",
            "14 pictures of 224 x 224, ready for training",
            14,
            partial(Pictures, "float32", 8),
            40,
        ),
    )
}
