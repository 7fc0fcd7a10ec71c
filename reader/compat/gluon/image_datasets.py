"""Datasets of images: in files of records, in folders, and named by lists.

Imports Pillow, by `reader.frameworks.pillow`, and the records of this face. Images are decoded in a
worker, one by one as they are asked for; each belongs to the caller.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_int, refuse_url
from reader.compat.gluon.arrays import as_nd
from reader.compat.gluon.datasets import Dataset, RecordFileDataset
from reader.compat.gluon.recordio import unpack
from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.frameworks.pillow import decode, require_pillow
from reader.stores.shard_cache import ShardCache

__all__ = ["ImageFolderDataset", "ImageListDataset", "ImageRecordDataset"]

Transform = Callable[[Any, Any], Any]

_ENDINGS = (".jpg", ".jpeg", ".png")


class ImageRecordDataset(RecordFileDataset):
    """The images of a RecordIO file, each with its label.

    A sample is (image, label), the image height x width x channels of 8 bits, the label a float, or
    an array of float32 where the record has several.

    Args:
        filename: of the records, such as "train.rec" or "s3://bucket/train.rec"; the index is
            "train.idx" beside it.
        flag: 1: red, green and blue; 0: grey, one channel.
        transform: called with image and label; its result is the sample.
        cache, store: as for `RecordFileDataset`.

    Raises:
        ConfigError: there is no such file, its index is of another one, or Pillow is missing.

    A record that cannot be read raises DatasetError, which names it, when it is asked for.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        flag: int = 1,
        transform: Transform | None = None,
        *,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        self._flag = _as_flag(flag)
        self._transform = transform
        super().__init__(filename, cache=cache, store=store)

    def __getitem__(self, index: int, /) -> Any:
        record = super().__getitem__(index)
        try:
            header, content = unpack(record)
            image = as_nd(decode(content, self._flag))
        except DatasetError as error:
            raise DatasetError(
                f"the record with key {self.keys[index]} of '{self.path}' has no image: {error}"
            ) from error
        if self._transform is None:
            return image, header.label
        return self._transform(image, header.label)


class ImageFolderDataset(Dataset):
    """The images in the folders of a folder, each with the number of its folder.

    A sample is (image, number), the image height x width x channels of 8 bits. The folders are
    numbered in the order of their names, and the images sorted by theirs.

    Args:
        root: a folder that holds a folder of .jpg, .jpeg and .png files for each class.
        flag: 1: red, green and blue; 0: grey, one channel.
        transform: called with image and number; its result is the sample.

    Raises:
        ConfigError: there is no such folder, or Pillow is missing.

    Attributes:
        synsets: the names of the folders, by number.
        items: (path, number) of each image.
    """

    def __init__(
        self, root: str | os.PathLike[str], flag: int = 1, transform: Transform | None = None
    ) -> None:
        refuse_url("root", root)
        self._flag = _as_flag(flag)
        self._transform = transform
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise ConfigError(
                f"there is no folder '{folder}'. Pass the folder that contains one subfolder per"
                " class"
            )
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        ignored: list[Path] = []
        for inner in sorted(folder.iterdir()):
            if not inner.is_dir():
                ignored.append(inner)
                continue
            number = len(self.synsets)
            self.synsets.append(inner.name)
            for path in sorted(inner.iterdir()):
                if path.suffix.lower() in _ENDINGS:
                    self.items.append((str(path), number))
                else:
                    ignored.append(path)
        if ignored:
            warnings.warn(
                f"Ignoring {len(ignored)} files of '{folder}', such as '{ignored[0]}': images must"
                f" be {', '.join(_ENDINGS)} files in one subfolder per class",
                stacklevel=2,
            )

    def __getitem__(self, index: int, /) -> Any:
        path, number = self.items[index]
        image = _read(path, self._flag)
        return (image, number) if self._transform is None else self._transform(image, number)

    def __len__(self) -> int:
        return len(self.items)


class ImageListDataset(Dataset):
    """The images that a list names, each with its labels.

    A sample is (image, labels), the image height x width x channels of 8 bits, the labels an array
    of float32.

    Args:
        root: the folder that the paths begin in.
        imglist: the path of a list within `root`, with a line "key<tab>label<tab>...<tab>path" for
            each image, as im2rec writes it; or a list of [label, path], [label, label, path] or
            [[label, label], path].
        flag: 1: red, green and blue; 0: grey, one channel.

    Raises:
        ConfigError: there is no such list, an entry is none, or Pillow is missing.

    Attributes:
        items: (path, labels) of each image.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        imglist: str | os.PathLike[str] | Sequence[Any] | None = None,
        flag: int = 1,
    ) -> None:
        refuse_url("root", root)
        refuse_url("imglist", imglist)
        self._flag = _as_flag(flag)
        folder = Path(root).expanduser()
        entries: Iterator[tuple[str, Any]]
        if isinstance(imglist, (str, os.PathLike)):
            entries = _lines_of(folder / imglist)
        elif isinstance(imglist, (list, tuple)):
            entries = ((f"entry {number} of imglist", each) for number, each in enumerate(imglist))
        else:
            raise ConfigTypeError(
                f"imglist must be the path of a list, or a list of [label, path], got"
                f" {got(imglist)}"
            )
        self.items: list[tuple[str, npt.NDArray[np.float32]]] = []
        for name, entry in entries:
            path, labels = _entry(name, entry)
            self.items.append((str(folder / path), labels))

    def __getitem__(self, index: int, /) -> Any:
        path, labels = self.items[index]
        return _read(path, self._flag), as_nd(labels.copy())

    def __len__(self) -> int:
        return len(self.items)


def _as_flag(flag: object) -> int:
    require_pillow()
    return as_int("flag", flag, low=0, high=1, remedy="1 is in color, 0 is grey.")


def _read(path: str, flag: int) -> Any:
    """Return the image in a file."""
    try:
        return as_nd(decode(Path(path).read_bytes(), flag))
    except (OSError, DatasetError) as error:
        raise DatasetError(f"the image '{path}' cannot be read: {error}") from error


def _lines_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of a list in a file, without their keys, each with its name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the list of images '{path}' cannot be read: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        yield f"line {number} of '{path}'", line.strip().split("\t")[1:]


def _entry(name: str, entry: Any) -> tuple[str, npt.NDArray[np.float32]]:
    """Return the path and the labels of an entry."""
    try:
        *labels, path = entry
        several = labels[0] if len(labels) == 1 and isinstance(labels[0], (list, tuple)) else labels
        if isinstance(path, str) and labels:
            return path, np.array(several, np.float32)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{name} must be one or more labels and a path, got {got(entry)}")
