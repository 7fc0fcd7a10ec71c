"""MNIST, Fashion-MNIST and CIFAR, read from their published files.

Imports NumPy and the standard library; nothing is downloaded. The images lie in memory, those of
the dataset; a sample is a copy.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_bool, refuse_url
from reader.compat.gluon.arrays import as_nd
from reader.compat.gluon.datasets import Dataset
from reader.errors import ConfigError, DatasetError

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]

Path_ = str | os.PathLike[str]
Transform = Callable[[Any, Any], Any]

_DATASETS = "~/.mxnet/datasets"
_IMAGES, _LABELS = 2051, 2049  # the first number of such a file
_PIXELS = 3 * 32 * 32  # of an image of CIFAR


class _Archive(Dataset):
    """Images of 8 bits in memory, each with a label.

    Args:
        root: the folder of the files.
        train: whether to read the training part; otherwise the test part.
        transform: called with image and label; its result is the sample.
    """

    source: str  # where its files come from

    def __init__(self, root: Path_, train: bool, transform: Transform | None) -> None:
        refuse_url("root", root)
        self.root = Path(root).expanduser()
        self._transform = transform
        self._images, self._labels = self._read(as_bool("train", train))
        if len(self._images) != len(self._labels):
            raise DatasetError(
                f"the files of {type(self).__name__} in '{self.root}' have {len(self._images)}"
                f" images and {len(self._labels)} labels. Are they of one part?"
            )

    def _read(self, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        raise NotImplementedError

    def _paths(self, names: list[str], inner: str) -> list[Path]:
        """Return the files with these names in the folder or in `inner`; a name may lack .gz."""
        for folder in (self.root, self.root / inner):
            found = []
            for name in names:
                each = (folder / name, folder / name.removesuffix(".gz"))
                found += [path for path in each if path.is_file()][:1]
            if len(found) == len(names):
                return found
        raise ConfigError(
            f"{type(self).__name__} needs the files {', '.join(names)} in '{self.root}', and some"
            f" are missing. reader downloads nothing: take them from {self.source} and put them"
            " there, or pass another root="
        )

    def __getitem__(self, index: int, /) -> Any:
        image, label = as_nd(self._images[index].copy()), self._labels[index]
        return (image, label) if self._transform is None else self._transform(image, label)

    def __len__(self) -> int:
        return len(self._labels)


class MNIST(_Archive):
    """Handwritten digits: (image, label), 28 x 28 x 1 of 8 bits, and a NumPy int32 of 0 to 9.

    Args:
        root: the folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz and those of
            t10k; they may be unpacked.
        train: the 60000 images for training; False: the 10000 for testing.
        transform: called with image and label; its result is the sample.

    Raises:
        ConfigError: a file is not there.
        DatasetError: a file is damaged.
    """

    source = "https://github.com/cvdfoundation/mnist"

    def __init__(
        self,
        root: Path_ = f"{_DATASETS}/mnist",
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(root, train, transform)

    def _read(self, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        part = "train" if train else "t10k"
        names = [f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"]
        images, labels = self._paths(names, "")
        pixels = _idx(images, _IMAGES, 3)
        return pixels[..., np.newaxis], _idx(labels, _LABELS, 1).astype(np.int32)


class FashionMNIST(MNIST):
    """Pieces of clothing, in the form of MNIST: (image, label).

    Args:
        root: the folder of the files, which are named as those of MNIST.
        train: the 60000 images for training; False: the 10000 for testing.
        transform: called with image and label; its result is the sample.
    """

    source = "https://github.com/zalandoresearch/fashion-mnist"

    def __init__(
        self,
        root: Path_ = f"{_DATASETS}/fashion-mnist",
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(root, train, transform)


class CIFAR10(_Archive):
    """Small photographs: (image, label), 32 x 32 x 3 of 8 bits, and a NumPy int32 of 0 to 9.

    Args:
        root: the folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin, or of the
            folder cifar-10-batches-bin that holds them.
        train: the 50000 images for training; False: the 10000 for testing.
        transform: called with image and label; its result is the sample.

    Raises:
        ConfigError: a file is not there.
        DatasetError: a file is damaged.
    """

    source = "cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"

    def __init__(
        self,
        root: Path_ = f"{_DATASETS}/cifar10",
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(root, train, transform)

    def _read(self, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        parts = [f"data_batch_{number}.bin" for number in range(1, 6)]
        paths = self._paths(parts if train else ["test_batch.bin"], "cifar-10-batches-bin")
        return _cifar(paths, labels=1, which=0)


class CIFAR100(_Archive):
    """Small photographs of 100 kinds: (image, label), 32 x 32 x 3 of 8 bits, and a NumPy int32.

    Args:
        root: the folder of train.bin and test.bin, or of the folder cifar-100-binary that holds
            them.
        fine_label: the label is one of 100 kinds; False: one of 20 groups of them.
        train: the 50000 images for training; False: the 10000 for testing.
        transform: called with image and label; its result is the sample.

    Raises:
        ConfigError: a file is not there.
        DatasetError: a file is damaged.
    """

    source = "cifar-100-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"

    def __init__(
        self,
        root: Path_ = f"{_DATASETS}/cifar100",
        fine_label: bool = False,
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self._which = int(as_bool("fine_label", fine_label))
        super().__init__(root, train, transform)

    def _read(self, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        paths = self._paths(["train.bin" if train else "test.bin"], "cifar-100-binary")
        return _cifar(paths, labels=2, which=self._which)


def _idx(path: Path, magic: int, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array in an IDX file: a header of 32-bit numbers, then the elements."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        head = struct.Struct(f">{1 + dimensions}I")
        found, *shape = head.unpack_from(content)
        if found != magic:
            raise ValueError(f"it begins with {found}, not {magic}")
        return np.frombuffer(content, np.uint8, offset=head.size).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise _damage(path, error) from error


def _cifar(
    paths: list[Path], labels: int, which: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return images and labels of files in whose rows the labels stand before the pixels."""
    parts = []
    for path in paths:
        try:
            content = np.frombuffer(path.read_bytes(), np.uint8)
            parts.append(content.reshape(-1, labels + _PIXELS))
        except (OSError, ValueError) as error:
            raise _damage(path, error) from error
    rows = np.concatenate(parts)
    pixels = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), rows[:, which].astype(np.int32)


def _damage(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"'{path}' is damaged: {error}. Is the file whole, and of this dataset?")
