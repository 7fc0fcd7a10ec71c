"""Lists of transforms, done in as few passes over the pixels as possible.

Imports this package's images and transforms. A Compose never changes once it is made: any thread
may use it, and it can be pickled if its functions can.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.frameworks import pillow
from reader.images.array_image import ArrayImage
from reader.images.crops import CenterCrop
from reader.images.encoded_image import EncodedImage, Source, channels_of
from reader.images.erasing import RandomErasing
from reader.images.function_result import call, check_size, has_size, is_image, own
from reader.images.normalize import Normalize, as_dtype, number_table
from reader.images.resize import Resize
from reader.images.targets import Targets
from reader.images.transform import (
    Pixels,
    PixelTransform,
    Size,
    ViewTransform,
    as_max_pixels,
    as_size,
    check_layout,
    check_rng,
)
from reader.images.view import MAX_PIXELS, Box, Image, View

__all__ = ["Compose"]

_UNUSED = np.random.default_rng(0)  # for lists that draw nothing


class Compose:
    """Transforms that are applied to an image one after the other.

    Cropping, resizing, flipping and normalizing are one pass from the file to the result.
    Transforms that change pixel values have their own passes before. A function of yours is called
    with the current array: uint8, height x width x channels, or after a `Normalize` the result. If
    it returns anything but such an image, that is the result: only functions may follow it, and it
    must have the requested size, layout and dtype.

    Args:
        transforms: objects of this package, and functions that take an array and return one.
        size: (height, width) of the result; None: the size that the transforms make.
        layout: "channels_last": height x width x channels; or "channels_first".
        dtype: of the result: "uint8", "uint16", "float16", "bfloat16", "float32" or "float64";
            None: float32 with a `Normalize` in the list, otherwise uint8. Floats without one are
            from 0 to 1, and uint16 from 0 to 65535: both keep all bits of a grey file that has more
            than 8, unless a transform of the list changes pixels or is a function.
        mode: of decoded files: "RGB", or "L", one channel.
        upright: first turn images of files upright by their Exif orientation.
        exact: decode JPEG files at their full size: see `decode`.
        max_pixels: files with more pixels are refused: see `decode`.

    Raises:
        ConfigError, ConfigTypeError: an argument or the order of transforms is invalid.

    >>> from reader.images import RandomHorizontalFlip
    >>> flip = Compose([RandomHorizontalFlip(p=1)], dtype="float32")
    >>> flip.apply(np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8))[0, :, 0].tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        transforms: Sequence[Any] = (),
        *,
        size: Size | None = None,
        layout: str = "channels_last",
        dtype: Any = None,
        mode: str = "RGB",
        upright: bool = False,
        exact: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        channels_of(mode)
        check_layout(layout)
        self.transforms = _as_list(transforms)
        self.size = None if size is None else as_size(size)
        self._is_typed = dtype is not None
        self.layout, self.mode, self.upright = layout, mode, bool(upright)
        self.exact, self.max_pixels = bool(exact), as_max_pixels(max_pixels)
        drawing, plain = (ViewTransform, PixelTransform, RandomErasing), (Resize, CenterCrop)
        #: whether a transform of this package draws random numbers
        self.is_random = any(
            isinstance(each, drawing) and type(each) not in plain for each in self.transforms
        )
        self._normalize, self._before, self._after = _split(self.transforms)
        is_normalize = [isinstance(each, Normalize) for each in self.transforms]
        self._normalized_from = is_normalize.index(True) if any(is_normalize) else 0
        self.dtype = as_dtype(dtype, self._normalize)
        self._dtype_name = self.dtype.name  # asked for each image, and made anew each time
        if self.dtype == np.uint16:
            for each in (*self._before, *self._after):
                if not isinstance(each, ViewTransform):
                    raise ConfigError(
                        f'{each} works on 8 bits, and dtype="uint16" keeps all: leave one of them'
                        " out"
                    )
        for each in self._after:
            if isinstance(each, RandomErasing):
                each.check_dtype(self.dtype)

    def as_part(self) -> tuple[Any, ...]:
        """Return the transforms for use in another list.

        Raises:
            ConfigError: this list has its own options, which would be lost.
        """
        plain = Compose(self.transforms)
        names = ("size", "layout", "mode", "upright", "exact", "dtype", "max_pixels")
        if any(getattr(self, name) != getattr(plain, name) for name in names):
            raise ConfigError(
                f"{self} is part of another list, and has options of its own: pass size, layout,"
                " dtype, mode, upright, exact and max_pixels to the whole list"
            )
        return self.transforms

    @property
    def is_pure(self) -> bool:
        """Whether the result depends only on the image and the generator."""
        known = (ViewTransform, PixelTransform, Normalize, RandomErasing)
        return all(
            isinstance(each, known)
            and type(each).__module__.startswith("reader.images.")
            and getattr(each, "is_pure", True)
            for each in self.transforms
        )

    def apply(
        self,
        image: Any,
        rng: np.random.Generator | None = None,
        out: npt.NDArray[Any] | None = None,
        *,
        boxes: Any = None,
        masks: Any = None,
        points: Any = None,
    ) -> Any:
        """Return the transformed image with its targets.

        Args:
            image: an array of uint8, height x width x channels, which is not changed; an image of
                Pillow, converted to the list's `mode`; or the path of an image file, or its content
                as bytes.
            rng: source of random numbers; in a dataset `reader.sample_rng(index)`. None: a new one
                in each call.
            out: None, or the array for the result: C-contiguous, of its shape and dtype, such as a
                row of a batch.
            boxes: N x 4 numbers: left, top, right and bottom, in pixels of the image. They are
                clipped at the edges of the result, and may end up empty.
            masks: height x width, or N x height x width, resampled by the nearest pixel.
            points: ... x 2 numbers: x and y, in pixels. Some may lie outside of the result.

        Returns:
            The result; with boxes, masks or points (result, {"boxes": ..., ...}) with those given.

        Raises:
            ImageError: the file cannot be read, or is damaged.
            ConfigError, ConfigTypeError: an argument is invalid, or a transform does not fit the
                image.
        """
        opened = self._opened(image)
        check_rng(rng)
        targets = Targets(boxes, masks, points, opened.height, opened.width)
        if out is not None:
            _check_out(out, image)
        found = self.render(opened, rng, out, targets)
        if out is not None and found is not out:
            if _form(found) != _form(out):
                raise ConfigError(
                    f"out must have the shape and dtype of the result, {_form(found)}, got"
                    f" {_form(out)}"
                )
            out[...] = found  # the result of a function
            found = out
        return (found, targets.result()) if targets else found

    def opened_file(self, source: Source) -> EncodedImage:
        """Return the image of a file, with its header read. See `decode`."""
        return EncodedImage(
            source, self.mode, self.upright, None, self.exact, self.max_pixels, self._dtype_name
        )

    def _opened(self, image: Any) -> Image:
        if isinstance(image, np.ndarray):
            return ArrayImage(image)
        if isinstance(image, (str, os.PathLike, bytes, bytearray, memoryview)):
            return self.opened_file(image)
        is_deep = self.dtype != np.uint8
        pixels = pillow.as_pixels(image, 1 if self.mode == "RGB" else 0, self.upright, is_deep)
        if pixels is not None:
            return ArrayImage(pixels, "an image of Pillow", channels_of(self.mode))
        way = ""
        if hasattr(image, "__array__"):
            is_first = getattr(image, "ndim", 0) == 3 and image.shape[-1] not in (1, 3)
            way = f": of a tensor pass it{'.permute(1, 2, 0)' if is_first else ''}.numpy()"
        raise ConfigTypeError(
            "image must be an array of NumPy, height x width x channels, an image of Pillow, a path"
            f" or the content of a file, got {got(image)}{way}"
        )

    def render(
        self,
        image: Image,
        rng: np.random.Generator | None,
        row: npt.NDArray[Any] | None,
        targets: Targets | None = None,
    ) -> Any:
        """Return the transformed image, in `row` if that has its form. See `apply`."""
        if rng is None:
            rng = np.random.default_rng() if self.is_random else _UNUSED
        step = _Step(image, targets)
        for number, each in enumerate(self._before):
            if isinstance(each, ViewTransform):
                is_normalized = self._normalize is not None and number >= self._normalized_from
                step.change_view(each, rng, self.size, is_normalized)
            elif isinstance(each, PixelTransform):
                step.paint(each, rng)
            else:
                pixels = step.pixels()
                found = each(pixels)
                if not is_image(found):
                    rest = [each, *self._before[number + 1 :], *self._after]
                    found = call(found, rest, pixels.shape[:2], bool(targets))
                    return self._checked(found, each, pixels.shape[:2])
                step.take(found, each)
        view = step.view
        if self.size is not None and (view.height, view.width) != self.size:
            view = step.resized(self.size)
        found, is_own = self._rendered(step.image, view, row), True
        if targets:
            targets.follow(view)
        for each in self._after:
            if isinstance(each, RandomErasing):
                if not is_own:
                    found = own(found, each)
                each.erase(found, rng, self.layout == "channels_first")
                is_own = True
            else:
                found = each(found)
                is_own = False
                if targets:
                    check_size(found, each, (view.height, view.width))
        return found

    def _checked(self, found: Any, function: Any, size: Size) -> Any:
        """Return the functions' result for an image of `size`, checked. ConfigError: wrong form."""
        shape: tuple[int, ...] = tuple(getattr(found, "shape", ()))
        wanted = {
            f"{self._normalize}": self._normalize is None,
            f"size={self.size}": self.size is None or has_size(found, self.size, size),
            f"layout={self.layout!r}": self.layout == "channels_last"
            or (len(shape) == 3 and shape[0] in (1, 3)),
            f"dtype={self.dtype.name!r}": not self._is_typed
            or str(getattr(found, "dtype", "")).rpartition(".")[2] == self.dtype.name,
        }
        lost = [name for name, is_met in wanted.items() if not is_met]
        if lost:
            raise ConfigError(
                f"{', '.join(lost)} cannot be had behind {function}, which made {got(found)}: have"
                " it return an array of uint8, height x width x 1 or 3, or have it do that and"
                " leave the argument out"
            )
        return found

    def _rendered(self, image: Image, view: View, row: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        channels = image.channels
        shape: tuple[int, int, int] = (view.height, view.width, channels)
        if self.layout == "channels_first":
            shape = (channels, view.height, view.width)
        table = number_table(self._normalize, self.dtype, channels)
        if row is None or row.shape != shape or row.dtype != self.dtype:
            row = np.empty(shape, self.dtype)
        image.render(view, row, table, self.layout == "channels_first")
        return row

    def __repr__(self) -> str:
        return f"Compose({self.transforms})"


class _Step:
    """An image on its way through the list: its current pixels, and the view of them.

    Attributes:
        image: the image with the pixels.
        view: the view of it.
    """

    def __init__(self, image: Image, targets: Targets | None) -> None:
        self._targets = targets
        self._is_own = False  # whether the image's array is used only here
        self.image, self.view = image, image.view()

    def begin(self, image: ArrayImage, is_own: bool = True) -> None:
        """Continue with another image."""
        self.image, self.view, self._is_own = image, image.view(), is_own

    def take(self, pixels: Pixels, function: Any) -> None:
        """Continue with the result of the user's function, which may keep it.

        Raises:
            ConfigError: it has another size, and targets must follow it.
        """
        if self._targets:
            check_size(pixels, function, (self.view.height, self.view.width))
        self.begin(ArrayImage(pixels, self.image.name), is_own=False)

    def change_view(
        self,
        transform: ViewTransform,
        rng: np.random.Generator,
        size: Size | None,
        is_normalized: bool,
    ) -> None:
        sides = transform.padding(self.view.height, self.view.width)
        if any(sides):
            if is_normalized:
                raise ConfigError(
                    f"{transform} frames an image whose numbers are normalized: put it before"
                    " Normalize"
                )
            self._frame(sides, transform.fill)
        if self.view.is_resized and transform.resizes:
            self.pixels()  # render first: a mean of means is not the mean
        transform.change_view(self.view, rng, size)

    def paint(self, transform: PixelTransform, rng: np.random.Generator) -> None:
        if self._targets and transform.moves_pixels:
            raise ConfigError(
                f"{transform} moves pixels, and boxes, masks and points cannot follow it: leave it"
                " out"
            )
        self.begin(ArrayImage(transform.paint(self.pixels(), rng), self.image.name))

    def resized(self, size: Size) -> View:
        """Return a view of a size."""
        if self.view.is_resized:
            self.pixels()
        self.view.resize(*size)
        return self.view

    def pixels(self) -> Pixels:
        """Render the view into the step's own array, and continue with that."""
        view, image = self.view, self.image
        if self._is_own and isinstance(image, ArrayImage) and view.is_whole:
            return image.pixels
        out = np.empty((view.height, view.width, image.channels), np.uint8)
        image.render(view, out)
        if self._targets:
            self._targets.follow(view)
        self.begin(ArrayImage(out, image.name))
        return out

    def _frame(self, sides: Box, fill: Any) -> None:
        above, left, below, right = sides
        pixels = self.pixels()
        height, width, channels = pixels.shape
        if len(fill) not in (1, channels):
            raise ConfigError(
                f"fill has {len(fill)} numbers, and {self.image.name} has {channels} channels: pass"
                " one number, or one for each channel"
            )
        whole = above + height + below, left + width + right
        if whole[0] * whole[1] > MAX_PIXELS:
            raise ConfigError(
                f"{self.image.name}, {height} x {width} pixels here, would be framed to {whole[0]}"
                f" x {whole[1]}, and {MAX_PIXELS:,} pixels is the limit: pass a smaller padding"
            )
        framed = np.empty((*whole, channels), np.uint8)
        framed[:] = fill
        framed[above : above + height, left : left + width] = pixels
        if self._targets:
            self._targets.frame(sides)
        self.begin(ArrayImage(framed, self.image.name))


def _as_list(transforms: Any) -> tuple[Any, ...]:
    """Return transforms as a tuple. ConfigTypeError: one is no transform."""
    try:
        given = (transforms,) if isinstance(transforms, Compose) else tuple(transforms)
    except TypeError:
        raise ConfigTypeError(
            f"transforms must be a list of transforms, got {got(transforms)}"
        ) from None
    found: list[Any] = []
    for each in given:
        found += each.as_part() if isinstance(each, Compose) else [each]
    known = (ViewTransform, PixelTransform, Normalize, RandomErasing)
    for each in found:
        is_class = isinstance(each, type) and issubclass(each, known)
        if is_class or not (isinstance(each, known) or callable(each)):
            raise ConfigTypeError(
                "transforms must hold objects such as RandomHorizontalFlip(), or functions of an"
                f" array, got {got(each)}"
            )
    return tuple(found)


def _split(transforms: tuple[Any, ...]) -> tuple[Normalize | None, list[Any], list[Any]]:
    """Return the Normalize, the transforms before the result is written, and those after.

    Raises:
        ConfigError: the order is invalid.
    """
    normalize: Normalize | None = None
    before: list[Any] = []
    after: list[Any] = []
    for each in transforms:
        if isinstance(each, Normalize):
            if normalize is not None or after:
                raise ConfigError(
                    f"{each} follows {normalize or after[0]}: there may be one Normalize, before"
                    " what works on the result"
                )
            normalize = each
        elif isinstance(each, RandomErasing) or (normalize and not isinstance(each, ViewTransform)):
            if isinstance(each, PixelTransform):
                raise ConfigError(
                    f"{each} changes numbers from 0 to 255: put it before {normalize}"
                )
            after.append(each)
        elif after:
            raise ConfigError(
                f"{each} follows {after[0]}, which works on the result: put it before"
            )
        else:
            before.append(each)
    return normalize, before, after


def _check_out(out: Any, image: Any) -> None:
    if not isinstance(out, np.ndarray):
        raise ConfigTypeError(f"out must be an array of NumPy, got {got(out)}")
    if not out.flags.writeable or not out.flags.c_contiguous:
        raise ConfigError("out must be writable and C-contiguous: pass a row of a batch")
    if isinstance(image, np.ndarray) and np.may_share_memory(out, image):
        raise ConfigError("out must not share memory with the image: pass another array")


def _form(array: Any) -> str:
    return f"{getattr(array, 'shape', '?')} of {getattr(array, 'dtype', type(array).__name__)}"
