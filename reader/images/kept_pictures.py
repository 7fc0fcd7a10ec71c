"""Pictures of files, decoded once and kept in a cache before their transforms.

Imports the cache, encoded images and arrays. Workers share the cache; a KeptPictures belongs to a
dataset.

Without a cache a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if a crop needs no more. So that
the cache changes no pixel, it keeps each of these sizes by itself, once a crop has needed it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.shared.entry_table import checksum
from reader.caching.sample_cache import MISSING, Lease, SampleCache
from reader.errors import DatasetError, ImageError
from reader.images.array_image import ArrayImage
from reader.images.encoded_image import EncodedImage, Source, content_of
from reader.images.resize import Resize
from reader.images.stored_pictures import StoredPicture
from reader.images.transform import Pixels
from reader.images.view import MAX_PIXELS, Image, View, render_view

__all__ = ["FORM", "WHAT", "KeptPictures", "entries_of"]

WHAT = ("pixels", "files")
Path = str | StoredPicture
FORM = 2  # of an entry; a cache on disk with entries of another form is not used
_LEVELS = 4  # 1, 1/2, 1/4 and 1/8 of the size


def entries_of(samples: int) -> int:
    """Return how many entries the cache of `samples` samples needs."""
    return samples * _LEVELS


@dataclass(frozen=True)
class DecodeOptions:
    """Options for decoding, see `EncodedImage`, and `shorter_side` of kept pictures."""

    mode: str
    upright: bool
    shorter_side: int | None
    exact: bool = False
    max_pixels: int = MAX_PIXELS
    dtype: str = "uint8"


class KeptPictures:
    """Returns pictures from a cache, or from their files, and then keeps them.

    Args:
        cache: with `entries_of(files)` entries.
        what: "pixels", or "files": their content.
        decoding: how files are decoded.
        check: the share of cached pictures to make again and compare.
    """

    def __init__(
        self, cache: SampleCache, what: str, decoding: DecodeOptions, check: float
    ) -> None:
        self.cache, self.decoding = cache, decoding
        self._what = what
        self._every = round(1 / check) if check else 0

    def image(self, index: int, path: Path) -> Image:
        """Return the image of a file.

        Raises:
            ImageError: the file cannot be read, or is damaged.
        """
        number = index * _LEVELS
        if not 0 <= number < len(self.cache):
            return self.opened(path)
        try:
            tag = _tag_of(path)
        except OSError:  # opening it gives a better message
            return self.opened(path)
        if self._what == "files":
            return self._from_file(number, path, tag)
        if self.decoding.shorter_side is not None:
            return self._smaller(number, path, tag)
        return KeptImage(self, number, path, tag)

    def holds(self, index: int) -> bool:
        """Whether a picture is kept at any size, of any version of its file."""
        numbers = range(index * _LEVELS, (index + 1) * _LEVELS)
        return any(0 <= n < len(self.cache) and self.cache.holds(n) for n in numbers)

    def opened(self, path: Path) -> EncodedImage:
        """Return the image in a file."""
        return self._encoded(path, None)

    def is_due(self) -> bool:
        """Whether to compare this cached picture with its file."""
        return self.cache.is_due(self._every)

    def _from_file(self, number: int, path: Path, tag: int) -> EncodedImage:
        content = self.cache.get(number, tag)
        if content is MISSING:
            content = np.frombuffer(content_of(path)[0], np.uint8)
            self.cache.keep(number, content, tag)
        elif self.is_due():
            _compare(content, np.frombuffer(content_of(path)[0], np.uint8), path)
        return self._encoded(content, f"'{path}'")

    def _encoded(self, source: Source, name: str | None) -> EncodedImage:
        how = self.decoding
        limits = how.exact, how.max_pixels, how.dtype
        return EncodedImage(source, how.mode, how.upright, name, *limits)

    def _smaller(self, number: int, path: Path, tag: int) -> ArrayImage:
        pixels, lease = self.cache.look(number, tag)
        if pixels is MISSING:
            pixels = self.made_smaller(path)
            self.cache.keep(number, pixels, tag)
        elif self.is_due():
            _compare(pixels, self.made_smaller(path), path, lease)
        return KeptSmaller(self, path, pixels, lease)

    def made_smaller(self, path: Path) -> Pixels:
        """Return the picture of a file, resized for the cache."""
        image, side = self.opened(path), self.decoding.shorter_side
        view = image.view()
        if side is not None and min(view.height, view.width) > side:
            Resize(side).change_view(view, _UNUSED, None)
        out = np.empty((view.height, view.width, image.channels), np.uint8)
        image.render(view, out)
        return out


class KeptSmaller(ArrayImage):
    """A picture kept at a smaller size.

    Args:
        kept: the owner of the picture.
        path: of its file.
        pixels: of it.
        lease: of the pixels, if they are the cache's.
    """

    def __init__(self, kept: KeptPictures, path: Path, pixels: Pixels, lease: Lease | None) -> None:
        super().__init__(pixels, f"'{path}'")
        self._kept, self._path, self._lease = kept, path, lease

    def render(
        self,
        view: View,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> None:
        """Render a view."""
        super().render(view, out, table, channels_first)
        if self._lease is not None and not self._lease.is_current:
            again = ArrayImage(self._kept.made_smaller(self._path), self.name)
            _require_size(again, self.height, self.width)
            again.render(view, out, table, channels_first)


class KeptImage(Image):
    """A picture that is in the cache, or will be.

    Args:
        kept: the owner of the picture.
        number: of its entry at full size; those of 1/2, 1/4 and 1/8 follow.
        path: of its file.
        tag: of the file.
    """

    def __init__(self, kept: KeptPictures, number: int, path: Path, tag: int) -> None:
        self._kept, self._number, self._path, self._tag = kept, number, path, tag
        self.name = f"'{path}'"
        self._file: EncodedImage | None = None
        self._pixels: Any = None
        self._lease: Lease | None = None  # of the pixels, where they are the cache's
        self._level = -1  # of the pixels
        held = (level for level in reversed(range(_LEVELS)) if kept.cache.holds(number + level))
        if not any(self._find(level) for level in held):
            file = self._opened()
            self.height, self.width = file.height, file.width
            self._is_scalable, self._orientation = file.is_scalable, file.orientation
        self.channels = 3 if kept.decoding.mode == "RGB" else 1

    def render(
        self,
        view: View,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> None:
        """Render a view."""
        factor = view.factor if self._is_scalable else 1
        level = factor.bit_length() - 1
        is_found = level == self._level or self._find(level)
        self._kept.cache.count(is_found)
        if not is_found:
            try:
                self._make(level)
            except ImageError:  # maybe damaged outside of the view
                self._opened().render(view, out, table, channels_first)
                return
            factor = 1 << self._level
        render_view(self._pixels, view, factor, out, table, channels_first, self._orientation)
        if self._lease is not None and not self._lease.is_current:
            file = self._opened()
            _require_size(file, self.height, self.width)
            file.render(view, out, table, channels_first)

    def _find(self, level: int) -> bool:
        """Take the pixels of a level from the cache. False: they are missing."""
        number = self._number + level
        levels = range(self._number, self._number + _LEVELS)
        sample, lease = self._kept.cache.look(number, self._tag, levels, is_counted=False)
        if sample is MISSING:
            return False
        pixels, height, width, is_scalable, orientation = sample
        if lease is not None and not lease.is_current:
            return False
        self._pixels, self._lease, self._level = pixels, lease, level
        self.height, self.width = height, width
        self._is_scalable, self._orientation = is_scalable, orientation
        if self._kept.is_due():
            _compare(pixels, self._opened().whole(1 << level)[0], self._path, lease)
        return True

    def _make(self, level: int) -> None:
        """Decode the file, and keep the pixels."""
        self._pixels, factor = self._opened().whole(1 << level)
        self._lease = None
        if factor != 1 << level:  # it can only be decoded at full size
            self._is_scalable = False
        self._level = factor.bit_length() - 1
        header = (self.height, self.width, self._is_scalable, self._orientation)
        sample = (self._pixels, *header)
        self._kept.cache.keep(self._number + self._level, sample, self._tag)

    def _opened(self) -> EncodedImage:
        if self._file is None:
            self._file = self._kept.opened(self._path)
        return self._file


_UNUSED: Any = None  # an unused generator


def _tag_of(path: Any) -> int:
    """Return a number of 64 bits that changes with a file's size and time, or an object's version.

    Raises:
        OSError: there is no such file.
    """
    if type(path) is StoredPicture:
        return path.tag()
    found = os.stat(path)  # noqa: PTH116  half the time of pathlib
    return checksum([os.fsencode(path), b"%d %d" % (found.st_size, found.st_mtime_ns)])


def _require_size(image: Image, height: int, width: int) -> None:
    if (image.height, image.width) != (height, width):
        raise ImageError(f"{image.name} was changed while it was read: write files before they are")


def _compare(kept: Any, made: Any, path: Path, lease: Lease | None = None) -> None:
    is_same = np.array_equal(kept, made)
    if not is_same and (lease is None or lease.is_current):
        raise DatasetError(
            f"the picture of '{path}' that a cache kept is another one when it is made again,"
            " though size and time of the file are the same: remove the cache"
        )
