"""The dataset of a folder with one folder of images per class.

Imports this package's images, the dataset class, and sample_rng. Nothing changes after it is made;
each worker process has a copy, and worker threads share one.
"""

from __future__ import annotations

import copy
import hashlib
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from reader.caching.cache import cache_options
from reader.caching.identity import Identity
from reader.caching.sample_cache import SampleCache
from reader.checks import as_folder, as_int, described
from reader.data.dataset import Dataset
from reader.data.fingerprint import digest_of
from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.compose import Compose
from reader.images.crops import CenterCrop, CropBy, RandomCrop, RandomResizedCrop
from reader.images.encoded_image import require_decoders
from reader.images.image_files import find_classes, find_samples
from reader.images.kept_pictures import FORM, WHAT, DecodeOptions, KeptPictures, entries_of
from reader.images.stored_pictures import StoredPictures
from reader.images.transform import Size
from reader.images.view import MAX_PIXELS, Box
from reader.sharing.share import share
from reader.stores.files import Files
from reader.stores.read_ahead import read_ahead
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url, is_url, split_url
from reader.worker.context import is_refused, loader_task, sample_rng

__all__ = ["ImageFolder"]

Crop = Callable[[int, int, np.random.Generator], Box]


class ImageFolder(Dataset[tuple[Any, Any]]):
    """The image files of root/class/.../file, each with the number of its class.

    A sample is (image, number). The image is an array, height x width x channels unless `layout`
    says otherwise, of uint8 unless `dtype` or a `Normalize` does. Classes,
    files and their order are those of torchvision's ImageFolder: classes are numbered in the order
    of their names, and files come in the order of their names, those of a folder before those of
    the folders in it. Without a `transform`, each image is decoded into its row of the batch.
    Crops, resizing, flips and normalization of `transforms` are done in that one pass.

    Files that are left out are counted and named in a warning: images of other endings, such as
    .gif, without `extensions`; the files and the folder that macOS adds to archives; links that
    lead back to a folder above them.

    Args:
        root: the folder with a folder for each class; folders in those are searched too. It may be
            an address, such as "s3://bucket/train", which is listed when the dataset is made.
        size: (height, width) that each image is resized to; None: the size of the crop, or of
            `transforms`.
        crop: called with height, width and a random generator for each image; returns the (top,
            left, height, width) to take: `CenterCrop()`, `RandomResizedCrop()`, `RandomCrop(size)`
            or your own. None: all of it. In a `DataLoader` the generator is `sample_rng(index)`, so
            that a sample depends only on the seed, the epoch and its index; elsewhere it is a new
            one each time.
        transforms: objects of this package such as `RandomResizedCrop()` and `Normalize(mean,
            std)`, and functions of an array, applied in order; see `Compose`. Their generator is
            that of `crop`.
        layout: "channels_last" or "channels_first".
        dtype: of the image: "uint8", "uint16", "float16", "bfloat16", "float32" or "float64"; None:
            float32 with a `Normalize`, otherwise uint8. See `Compose`.
        upright: turn images upright by their Exif orientation.
        exact: decode JPEG files at their full size: see `decode`.
        transform: called with the array; its result replaces the array.
        target_transform: called with the number of the class; its result replaces the number.
        extensions: endings of the files to take, in either case, such as (".jpg", ".gif"); None:
            .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp, as torchvision.
        is_valid_file: called with the path of each file instead of checking its ending; returns
            whether to take it.
        allow_empty: whether a class may be without files.
        mode: "RGB", or "L": one channel.
        cache: bytes of memory for decoded pictures, such as "4GB"; None: keep none. They are kept
            at the size that the crops need, and equal those without a cache. `reader.cache` has
            more options, such as a disk. Or a `reader.ShardCache`, where the files of a store are
            kept as they are.
        cache_shorter_side: resize larger pictures to this length of the shorter side before keeping
            them: less memory, but other pixels, since crops are resized twice.
        max_pixels: files with more pixels are refused: see `decode`.
        index: a folder of this machine where the list of a store's files is kept, and taken from
            the next time: files that were added since are not seen. None: list them each time.
        store: options of the store's client: see `reader.Shards`.

    Raises:
        ConfigError, ConfigTypeError: there is no such folder, it cannot be read, a class has no
            image, a decoder is missing, or an argument is invalid.

    Attributes:
        classes: the names of the classes, sorted.
        class_to_idx: the number of each class, by name.

    An image that cannot be decoded raises ImageError with the file's name when it is fetched.
    """

    __repr__ = described

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        size: Size | None = None,
        crop: Crop | RandomCrop | None = None,
        transforms: Sequence[Any] | None = None,
        layout: str = "channels_last",
        dtype: Any = None,
        upright: bool = False,
        exact: bool = False,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        extensions: str | Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        mode: str = "RGB",
        cache: int | str | ShardCache | None = None,
        cache_shorter_side: int | None = None,
        max_pixels: int = MAX_PIXELS,
        index: str | os.PathLike[str] | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        for name, function in (
            ("crop", None if type(crop) is RandomCrop else crop),
            ("transform", transform),
            ("target_transform", target_transform),
            ("is_valid_file", is_valid_file),
        ):
            if function is not None and not callable(function):
                remedy = ""
                if type(function).__module__.startswith("reader.images."):
                    remedy = f": pass transforms=[{function}]"
                raise ConfigTypeError(
                    f"{name} must be a function or None, got {got(function)}{remedy}"
                )
        if extensions is not None and is_valid_file is not None:
            raise ConfigError(
                "extensions and is_valid_file exclude each other: look at the ending in"
                " is_valid_file"
            )
        if crop is not None and transforms is not None:
            raise ConfigError(
                "crop and transforms exclude each other: put the crop into the list, such as"
                " transforms=[RandomResizedCrop()]"
            )
        folder = _folder(root)
        self.root: Path | str = folder if is_url(folder) else Path(folder)
        self._files = _files(folder, cache if isinstance(cache, ShardCache) else None, store, index)
        self._use = self._files.use  # see stores.fetch_stats
        self._crop = crop
        if crop is not None:
            is_known = type(crop) in (CenterCrop, RandomResizedCrop, RandomCrop)
            chosen: Any = crop
            transforms = [crop if is_known else CropBy(chosen)]
        self.transforms = Compose(
            () if transforms is None else transforms,
            size=size,
            layout=layout,
            dtype=dtype,
            mode=mode,
            upright=upright,
            exact=exact,
            max_pixels=max_pixels,
        )
        self.transform = transform
        self.target_transform = target_transform
        self.mode = mode
        self._has_pure_samples: bool | None = None  # set by the user
        self._kept_by: tuple[str | None, dict[str, Any]] | None = None  # the cache's options
        self.classes, self.class_to_idx = self.find_classes(folder)
        if not self.class_to_idx:
            raise ConfigError(
                f"{type(self).__name__}.find_classes found no class in '{folder}': return their"
                " names, and a dict with the number of each"
            )
        self.samples = find_samples(
            folder, self.class_to_idx, extensions, is_valid_file, allow_empty, self._files
        )
        self._files.forget()
        self.targets = [number for _, number in self.samples]
        require_decoders()
        if cache_shorter_side is not None:
            remedy = "It is a number of pixels."
            cache_shorter_side = as_int(
                "cache_shorter_side", cache_shorter_side, low=1, remedy=remedy
            )
            if self.transforms.dtype == np.uint16:
                raise ConfigError(
                    'cache_shorter_side keeps 8 bits, and dtype="uint16" keeps all: leave one of'
                    " them out"
                )
        self._shorter_side = cache_shorter_side
        self._pictures: KeptPictures | None = None
        if cache is not None and not isinstance(cache, ShardCache):
            self._keep_pictures(None, **cache_options(cache, None, 1))

    def __with_cache__(self, what: str | None, **options: Any) -> ImageFolder | None:
        """Return this dataset with cached pictures, for `reader.cache`.

        Returns:
            None: nothing would use pictures, so cache samples.

        Raises:
            ConfigError: it keeps its pictures already; or see `reader.cache`.
        """
        if self._pictures is not None:
            raise ConfigError(
                f"this {type(self).__name__} keeps its pictures already: make it without cache=,"
                " and pass memory= and disk= to one reader.cache, which keeps them in both"
            )
        if what is None and not _asks_for_pictures(type(self)):
            return None
        found = copy.copy(self)
        found._keep_pictures(what, **options)
        return found

    def _keep_pictures(
        self,
        what: str | None,
        *,
        memory: int,
        disk: str | None,
        disk_limit: int,
        version: str,
        check: float,
    ) -> None:
        options = {"memory": memory, "disk": disk, "disk_limit": disk_limit}
        self._kept_by = what, {**options, "version": version, "check": check}
        what = WHAT[0] if what is None else what
        if what not in WHAT:
            raise ConfigError(f'what must be "pixels", "files" or "samples", got {got(what)}')
        if not _asks_for_pictures(type(self)):
            warnings.warn(
                f"{type(self).__name__} has a __getitem__ of its own, which does not call"
                f" ImageFolder's: no picture is kept. Pass it without cache= to reader.cache(...,"
                ' what="samples"), which keeps what it returns, or call super().__getitem__(index)',
                stacklevel=4,
            )
        of_pixels = self.mode, self.transforms.upright, self._shorter_side, self.transforms.exact
        dtype = self.transforms.dtype.name
        decoding = DecodeOptions(*of_pixels, self.transforms.max_pixels, dtype)
        depth = "" if dtype == "uint8" else "deep"
        hashed = hashlib.blake2b(repr((FORM, *of_pixels, depth)).encode(), digest_size=16)
        for path, _ in self._samples:
            hashed.update(os.fsencode(path) + b"\0")
        identity = Identity(
            f"{type(self).__name__} of '{self._absolute_root()}'",
            what,
            entries_of(len(self)),
            version,
            hashed.hexdigest(),
        )
        # pictures depend only on paths, sizes and times of files
        kept = SampleCache(identity, memory, disk, disk_limit, identity.key)
        self._pictures = KeptPictures(kept, what, decoding, check)
        self._cache = kept

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes, and the number of each by the name of its folder.

        A subclass may leave classes out, or number them in another way.

        Args:
            directory: the root.

        Raises:
            ConfigError: there is no such folder, or no folder in it.
        """
        return find_classes(directory, self._files)

    @property
    def size(self) -> Size | None:
        """(height, width) that each image is resized to, or None."""
        return self.transforms.size

    @property
    def crop(self) -> Crop | RandomCrop | None:
        """The crop; None: `transforms` choose it."""
        return self._crop

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """(path, number of its class) of each image: a list in shared memory, see `reader.share`.

        Assign another list to change them.
        """
        return self._samples

    @samples.setter
    def samples(self, samples: Sequence[tuple[str, int]]) -> None:
        self._samples: Sequence[tuple[str, int]] = share(samples)
        # of each the path and the class; of those in a store a StoredPicture in place of the path
        self._sources: Any = self._stored() if is_url(self.root) else self._samples
        if self._kept_by is not None:  # entries have the samples' numbers
            what, options = self._kept_by
            self._keep_pictures(what, **options)

    def _stored(self) -> StoredPictures:
        """Return the pictures of samples in a store. ConfigError: one is not there."""
        before = self.__dict__.get("_sources")
        known = before.known() if isinstance(before, StoredPictures) else {}
        paths = [path for path, _ in self._samples]
        try:
            files = self._files.found([path for path in paths if path not in known])
        except OSError as error:
            raise ConfigError(str(error)) from error
        known |= {file.path: file for file in files}
        stamps = np.array([known[path][1:] for path in paths], np.int64).reshape(-1, 2)
        place = self._files.place_of(str(self.root))
        return StoredPictures(self._files, self._samples, share(stamps), place)

    def _absolute_root(self) -> Path | str:
        return self.root if isinstance(self.root, str) else self.root.absolute()

    @property
    def targets(self) -> Sequence[int]:
        """The number of the class of each image: a list in shared memory, as `samples`."""
        return self._targets

    @targets.setter
    def targets(self, targets: Sequence[int]) -> None:
        self._targets: Sequence[int] = share(targets)

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:
        """The same as `samples`."""
        return self.samples

    def __getitem__(self, index: int, out: Any = None) -> tuple[Any, Any]:
        """Return (image, number).

        Args:
            index: of the sample.
            out: None, or (array, ...): if the array has the image's form, the image is written
                there and the sample has that array.
        """
        path, target = self._sources[index]
        rng = None
        if self.transforms.is_random and (loader_task() is not None or is_refused()):
            rng = sample_rng(index)
        # leave a row of another form alone: the loader reports the two sizes
        row = None if out is None or self.transform is not None else out[0]
        if self._pictures is not None:
            opened = self._pictures.image(operator.index(index), path)
        else:
            opened = self.transforms.opened_file(path)
        image = self.transforms.render(opened, rng, row)
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __read_ahead__(self, indices: Sequence[int]) -> None:
        """Ask the system to read the files of a batch, if the first is not in memory.

        A loader calls it before it fetches the samples: the disk reads while files are decoded.
        Those of a store are fetched together.
        """
        if self._pictures is not None:
            indices = [index for index in indices if not self._pictures.holds(index)]
        count = len(self._samples)
        indices = [index for index in indices if -count <= index < count]
        if isinstance(self._sources, StoredPictures):
            self._sources.fetch(indices)
        else:
            read_ahead([(self._samples[index][0], 0, -1) for index in indices])

    @property
    def is_fetched(self) -> bool:
        """Whether the files lie in a store."""
        return isinstance(self._sources, StoredPictures)

    @property
    def __expect__(self) -> Callable[[Sequence[int], bool], None]:
        """Have samples that come next fetched; exists for those in a store."""
        if not isinstance(self._sources, StoredPictures):
            raise AttributeError("__expect__: these files are of this machine")
        return self._expect

    def _expect(self, indices: Sequence[int], begins: bool) -> None:
        if self._pictures is not None:
            indices = [index for index in indices if not self._pictures.holds(index)]
        if isinstance(self._sources, StoredPictures) and indices:
            self._sources.expect(indices, begins)

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return a digest of the files' names and classes; see `fingerprint_of`."""
        count = len(self.samples) if samples is None else samples
        known = self.samples[:count]
        names = [path[len(str(self.root)) :].strip("/") for path, _ in known]
        digest = digest_of(names, [number for _, number in known])
        facts = {"kind": "ImageFolder", "samples": count, "classes": len(self.classes)}
        return {**facts, "files": digest}

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def has_pure_samples(self) -> bool:
        """Whether a sample depends only on its index and on `sample_rng`.

        True if no function of yours makes it. Set it to True if your functions are pure too: then
        several workers may make rows of one batch.
        """
        if self._has_pure_samples is not None:
            return self._has_pure_samples
        is_own = self.transform is None and self.target_transform is None
        return is_own and self.transforms.is_pure

    @has_pure_samples.setter
    def has_pure_samples(self, value: bool) -> None:
        self._has_pure_samples = value


def _folder(root: Any) -> str:
    """Return the path of a folder, or its address in a store."""
    if not isinstance(root, (str, os.PathLike)):
        raise ConfigTypeError(f"root must be the path of a folder, got {got(root)}")
    found = os.fspath(as_path_or_url("root", root))
    if is_url(found):
        return "/".join(split_url(found)).rstrip("/")
    return str(os.path.expanduser(found))  # noqa: PTH111  pathlib drops "./"


def _files(folder: str, cache: ShardCache | None, store: Any, index: Any) -> Files:
    """Return how the files of a folder are found and read."""
    files = files_for([folder], cache, store)
    if index is not None:
        files.keep_listings(as_folder("index", index))
    return files


def _asks_for_pictures(cls: type) -> bool:
    """Whether `__getitem__` is ImageFolder's, or a method of the subclass names it to call it."""
    if getattr(cls, "__getitem__", None) is ImageFolder.__getitem__:
        return True
    own = cls.__mro__[: cls.__mro__.index(ImageFolder)]
    functions = [each for part in own for each in vars(part).values()]
    return any(
        isinstance(each, FunctionType) and _names_getitem(each.__code__) for each in functions
    )


def _names_getitem(code: CodeType) -> bool:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return "__getitem__" in code.co_names or any(map(_names_getitem, inner))
