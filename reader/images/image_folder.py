"""The dataset of a folder that has a folder of images for each class.

Imports this package's images, the dataset class, and sample_rng. Nothing changes after it is made;
each worker process has a copy, and worker threads share one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reader.data.dataset import Dataset
from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.crops import Box, CenterCrop, RandomResizedCrop
from reader.images.encoded_image import EncodedImage, Size, as_size, require_decoders
from reader.images.image_files import find_classes, find_samples
from reader.worker.context import loader_task, sample_rng

__all__ = ["ImageFolder"]

Crop = Callable[[int, int, np.random.Generator], Box]


class ImageFolder(Dataset[tuple[Any, Any]]):
    """The image files of root/class/.../file, each with the number of its class.

    A sample is (image, number). The image is an array of uint8, height x width x channels. Classes,
    files and their order are those of torchvision's ImageFolder: classes are numbered in the order
    of their names, and files come in the order of their names, those of a folder before those of
    the folders in it. In a batch each image is decoded into its row, where there is no `transform`.

    Left out with a warning that counts and names them: images of other endings, such as .gif, where
    `extensions` says nothing; the files and the folder that macOS adds to archives; links that lead
    back to a folder that they lie in.

    Args:
        root: the folder with a folder for each class; folders in those are searched too.
        size: (height, width) that each image is resized to; None: as large as the crop.
        crop: called with height, width and a random generator for each image; returns the (top,
            left, height, width) that is taken of it: `CenterCrop()`, `RandomResizedCrop()` or your
            own. None: all of it. Within a `DataLoader` the generator is `sample_rng(index)`, so
            that a sample depends on the seed, the epoch and its index alone; elsewhere each has
            another one.
        transform: called with the array; what it returns takes its place.
        target_transform: called with the number of the class; what it returns takes its place.
        extensions: endings of the files that are taken, in either case, such as (".jpg", ".gif");
            None: .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp, as torchvision.
        is_valid_file: called with the path of each file in place of looking at its ending; returns
            whether it is taken.
        allow_empty: whether a class may be without files.
        mode: "RGB", or "L": one channel.

    Raises:
        ConfigError: there is no such folder, it cannot be read, a class has no image, or a decoder
            is missing.

    Attributes:
        classes: the names of the classes, sorted.
        class_to_idx: the number of each class, by name.
        samples, imgs: (path, number of its class) of each image.
        targets: the number of the class of each image.

    An image that cannot be decoded raises ImageError, which names the file, when it is asked for.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        size: Size | None = None,
        crop: Crop | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        extensions: str | Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        mode: str = "RGB",
    ) -> None:
        if mode not in ("RGB", "L"):
            raise ConfigError(f'mode must be "RGB" or "L", got {got(mode)}')
        for name, function in (
            ("crop", crop),
            ("transform", transform),
            ("target_transform", target_transform),
            ("is_valid_file", is_valid_file),
        ):
            if function is not None and not callable(function):
                raise ConfigTypeError(f"{name} must be a function or None, got {got(function)}")
        if extensions is not None and is_valid_file is not None:
            raise ConfigError(
                "extensions and is_valid_file exclude each other: look at the ending in"
                " is_valid_file"
            )
        folder = os.path.expanduser(os.fspath(root))  # noqa: PTH111  pathlib drops "./"
        self.root = Path(folder)
        self.size = None if size is None else as_size(size)
        self.crop = crop
        self.transform = transform
        self.target_transform = target_transform
        self.mode = mode
        self._has_pure_samples: bool | None = None  # what the user says
        self.classes, self.class_to_idx = self.find_classes(folder)
        if not self.class_to_idx:
            raise ConfigError(
                f"{type(self).__name__}.find_classes found no class in '{folder}': return their"
                " names, and a dict with the number of each"
            )
        self.samples: list[tuple[str, int]] = find_samples(
            folder, self.class_to_idx, extensions, is_valid_file, allow_empty
        )
        self.targets = [number for _, number in self.samples]
        require_decoders()

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes, and the number of each by the name of its folder.

        A subclass may leave classes out, or number them in another way.

        Args:
            directory: the root.

        Raises:
            ConfigError: there is no such folder, or no folder in it.
        """
        return find_classes(directory)

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """The same as `samples`."""
        return self.samples

    def __getitem__(self, index: int, out: Any = None) -> tuple[Any, Any]:
        """Return (image, number).

        Args:
            index: of the sample.
            out: None, or (array, ...): where the array has the image's form, it is written there
                and the sample has that very array.
        """
        path, target = self.samples[index]
        encoded = EncodedImage(path)
        box = None
        if self.crop is not None:
            is_in_loader = loader_task() is not None
            rng = sample_rng(index) if is_in_loader else np.random.default_rng()
            box = self.crop(encoded.height, encoded.width, rng)
        row = None if out is None or self.transform is not None else out[0]
        if row is not None and row.shape != encoded.shape(self.size, box, self.mode):
            row = None  # images of several sizes: the loader names the two that do not fit
        image: Any = encoded.pixels(size=self.size, crop=box, mode=self.mode, out=row)
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def has_pure_samples(self) -> bool:
        """Whether a sample depends on its index and on `sample_rng` alone.

        It is known where no function of yours makes it. Set it to True where yours are pure, too:
        then several workers may make rows of one batch.
        """
        if self._has_pure_samples is not None:
            return self._has_pure_samples
        is_own = self.crop is None or type(self.crop) in (CenterCrop, RandomResizedCrop)
        return is_own and self.transform is None and self.target_transform is None

    @has_pure_samples.setter
    def has_pure_samples(self, value: bool) -> None:
        self._has_pure_samples = value
