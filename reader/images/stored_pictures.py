"""Files of pictures that lie in a store, by the index of their samples.

Imports files by their paths. Bytes come from the process that fetches; a picture is read when it
is decoded, and those of a batch are fetched together before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from reader._core.shared.entry_table import checksum
from reader.errors import DatasetError, ImageError
from reader.stores.files import Files, StoredFile

__all__ = ["StoredPicture", "StoredPictures"]


_GROUP = 64  # pictures of which any may be read first


class StoredPicture(NamedTuple):
    """A file of a picture in a store.

    Attributes:
        file: it, as it was when it was listed.
        files: how it is read.
        place: the path of the file that keeps the list; "": there is none.
    """

    file: StoredFile
    files: Files
    place: str

    def __str__(self) -> str:
        return self.file.path

    def content(self) -> bytes:
        """Return its bytes. ImageError: they cannot be fetched, or are others than before."""
        try:
            return self.files.stored(self.file).read(0, self.file.nbytes)
        except DatasetError as error:
            hint = f" To have the pictures listed anew, remove '{self.place}'" if self.place else ""
            raise ImageError(f"{error}{hint}") from error

    def tag(self) -> int:
        """Return a number of 64 bits that changes with the object's size and version."""
        path, nbytes, version = self.file
        return checksum([os.fsencode(path), b"%d %d" % (nbytes, version)])


class StoredPictures:
    """The pictures of samples: (picture, number of its class) by index.

    Args:
        files: how they are read.
        samples: (address, number of its class) of each.
        stamps: bytes and version of each, in a row.
        place: as for `StoredPicture`.
    """

    def __init__(
        self, files: Files, samples: Sequence[tuple[str, int]], stamps: Any, place: str
    ) -> None:
        self._files, self._samples, self._stamps, self._place = files, samples, stamps, place

    def __getitem__(self, index: int) -> tuple[StoredPicture, int]:
        path, number = self._samples[index]
        return StoredPicture(self._file(path, index), self._files, self._place), number

    def _file(self, path: str, index: int) -> StoredFile:
        nbytes, version = self._stamps[index].tolist()
        return StoredFile(path, nbytes, version)

    def known(self) -> dict[str, StoredFile]:
        """Return the files by their addresses."""
        return {path: self._file(path, index) for index, (path, _) in enumerate(self._samples)}

    def fetch(self, indices: Sequence[int]) -> None:
        """Have the bytes of some pictures fetched together. DatasetError: one cannot be had."""
        files = [self._file(self._samples[index][0], index) for index in indices]
        self._files.fetch([(file, [(0, file.nbytes)]) for file in files])

    def expect(self, indices: Sequence[int], begins: bool) -> None:
        """Have pictures that come next fetched, as far as there is room. See `Files.expect`."""
        if self._files.are_read_elsewhere:  # else each machine would fetch those of all
            return
        files = [self._file(self._samples[index][0], index) for index in indices]
        groups = [files[place : place + _GROUP] for place in range(0, len(files), _GROUP)]
        self._files.expect(groups, [], begins)
